"""The bound of a call's CPU time, around vLLM's renderer."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from core.protocol.calls import Render, RenderTarget
from core.protocol.errors import RenderRefused
from core.protocol.options import ModelOptions
from core.render import render
from core.vllm_adapter.loading import load_model
from core.vllm_adapter.rendering import Renderer, load_renderer
from shards.shard import cpu_limit
from tests.serving import DEMO_MODEL

# vLLM reads a field of its own that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning")

MESSAGES = [{"role": "user", "content": "Hi"}]
ENDLESS = "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def trusting() -> Iterator[Renderer]:
    """A renderer that takes request templates, bounded as a shard bounds it."""
    options = ModelOptions(model=str(DEMO_MODEL), trust_request_chat_template=True, fastokens=False)
    renderer = load_renderer(options, load_model(options, lambda _: None), lambda *_: False)
    assert renderer.takes_templates
    renderer.start(cpu_limit.take_signal())
    yield renderer
    renderer.close_loop()
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)


def _ask(renderer: Renderer, body: Any) -> Any:
    raw = json.dumps(body).encode()
    call = Render(call_id=1, target=RenderTarget.CHAT, body=raw, caller_id="")
    return json.loads(render(renderer, call))


def test_an_endless_template_is_stopped(
    trusting: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_limit, "CALL_CPU_S", 0.3)
    with pytest.raises(RenderRefused) as refused:
        _ask(trusting, {"messages": MESSAGES, "chat_template": ENDLESS})
    assert refused.value.status == 400
    assert "more than 0.3 s" in refused.value.message
    assert _ask(trusting, {"messages": MESSAGES})["token_ids"]
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
