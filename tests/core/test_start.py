"""What comes before the first call: a start that cannot be, and calls that nobody waits for."""

import msgspec
import pytest

from core.answerer import Answerer
from core.vllm_adapter.loading import StartupError, load_model
from tests.core.calling import DEEPSEEK_PLAIN, QWEN, QWEN_PLAIN, SPM_TOOLS, Setup, model, options


@pytest.mark.parametrize("setup", [QWEN, QWEN_PLAIN, DEEPSEEK_PLAIN, SPM_TOOLS], ids=str)
def test_every_call_of_the_warm_up_is_answered(setup: Setup) -> None:
    Answerer(model(setup)).warm_up()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tool_call_parser": "none-such"}, "--tool-call-parser: no parser 'none-such'; there are"),
        ({"reasoning_parser": "none-such"}, "--reasoning-parser: no parser 'none-such'; there are"),
        ({"model": "/none/such"}, "cannot read model '/none/such': "),
        ({"max_model_len": -7}, "cannot read model "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_start_that_cannot_be_is_one_line(changes: dict[str, object], said: str) -> None:
    asked = msgspec.structs.replace(options(QWEN_PLAIN), **changes)
    with pytest.raises(StartupError) as refused:
        load_model(asked, lambda _: None)
    line = str(refused.value)
    assert line.startswith(said)
    assert "\n" not in line and len(line) > len(said)
