"""What is patched in vLLM is what vLLM uses, and the patches are seen in what it does."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import vllm.platforms
from vllm.entrypoints.scale_out.render import serving
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
from vllm.parser.engine import streaming_parser_engine
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import UnspecifiedPlatform

import core.vllm_adapter
from core.protocol.calls import RenderTarget
from core.vllm_adapter import patches
from tests.contracts.adapter.model import CHAT, answer, model, renderer
from tests.contracts.adapter.reached import holds

pytestmark = pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning")

HOLDERS = """
import importlib, sys
from core.vllm_adapter import patches
patches.install()
for name in sys.argv[1:]:
    importlib.import_module("core.vllm_adapter." + name)
held = [vars(module)["current_platform"] for module in list(sys.modules.values())
        if "current_platform" in getattr(module, "__dict__", {})]
print(len(held), sorted({type(platform).__name__ for platform in held}))
"""


@holds("vllm.platforms._current_platform")
def test_every_module_of_vllm_takes_the_cpu_platform() -> None:
    # In a fresh interpreter: a module keeps the platform it finds while it is imported.
    names = [path.stem for path in Path(core.vllm_adapter.__file__).parent.glob("[!_]*.py")]
    command = [sys.executable, "-c", HOLDERS, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    count, _, kinds = done.stdout.splitlines()[-1].partition(" ")
    assert kinds == "['CpuPlatform']"
    assert int(count) > 10


def test_a_platform_that_was_read_before_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm.platforms, "_current_platform", UnspecifiedPlatform())
    with pytest.raises(RuntimeError, match="comes before anything that imports vLLM"):
        patches.install_cpu_platform()


def test_patching_again_changes_nothing() -> None:
    def patched() -> tuple[Any, ...]:
        return (
            vllm.platforms._current_platform,
            streaming_parser_engine._build_drop_info,
            serving.GenerateRequest,
        )

    before = patched()
    patches.install()
    assert all(one is other for one, other in zip(before, patched(), strict=True))
    assert isinstance(vllm.platforms.current_platform, CpuPlatform)


@holds("vllm.parser.engine.streaming_parser_engine._build_drop_info")
def test_parser_engines_of_one_model_share_their_lexers(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, given = streaming_parser_engine._build_drop_info, []

    def noted(*args: Any, **kwargs: Any) -> Any:
        given.append(kept(*args, **kwargs))
        return given[-1]

    monkeypatch.setattr(streaming_parser_engine, "_build_drop_info", noted)
    context = model().chat_context(msgspec.json.encode(CHAT))
    context.open_stream([0])
    first = set(map(id, given))
    assert first, "no parser engine asks for its lexer by this name any more"
    asked = len(given)
    context.open_stream([0])
    assert len(given) > asked
    assert set(map(id, given)) == first


def test_a_lexer_is_kept_by_config_and_tokenizer() -> None:
    built: list[tuple[Any, Any]] = []

    def build(config: Any, tokenizer: Any) -> object:
        built.append((config, tokenizer))
        return object()

    kept = patches._kept(build)
    configs, tokenizer = [object() for _ in range(40)], object()
    assert kept(configs[0], tokenizer) is kept(configs[0], tokenizer)
    assert kept(configs[0], tokenizer) is not kept(configs[0], object())
    for config in configs:
        kept(config, tokenizer)
    assert len(built) == 1 + 1 + 39
    kept(configs[0], tokenizer)  # The oldest was let go.
    assert len(built) == 42


@holds("vllm.entrypoints.scale_out.render.serving.GenerateRequest")
def test_render_answers_with_the_request_that_is_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer()
    patched, made = serving.GenerateRequest, []
    assert issubclass(patched, GenerateRequest)
    assert patched is not GenerateRequest

    def noted(**members: Any) -> Any:
        made.append(patched(**members))
        return made[-1]

    monkeypatch.setattr(serving, "GenerateRequest", noted)
    for target in (RenderTarget.CHAT, RenderTarget.COMPLETION, RenderTarget.RESPONSES):
        answer(target)
    assert [type(request) for request in made] == [patched] * 3


def test_the_check_of_rendered_ids_stands_in_the_place_of_vllms() -> None:
    validators = {
        kind: kind.__pydantic_decorators__.field_validators["validate_token_ids"]
        for kind in (GenerateRequest, serving.GenerateRequest)
    }
    assert {validator.info.fields for validator in validators.values()} == {("token_ids",)}
    assert validators[GenerateRequest].func != validators[serving.GenerateRequest].func
