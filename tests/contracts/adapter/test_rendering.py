"""vLLM's renderer calls what is overridden in it, and starts no thread."""

import asyncio
import threading
from typing import Any

import pytest
from vllm.entrypoints.scale_out.render import serving
from vllm.entrypoints.scale_out.render.serving import ServingRender
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.utils.async_utils import make_async

from core.protocol.calls import RenderTarget
from core.vllm_adapter import rendering
from tests.contracts.adapter.model import BODIES, answer, renderer
from tests.contracts.adapter.reached import holds

pytestmark = pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What vLLM's own methods give, by name, while they are called through ours."""
    renderer()
    found: list[tuple[str, Any]] = []
    for name in ("render_chat", "render_completion"):
        monkeypatch.setattr(OnlineRenderer, name, _noting(name, found))
    return found


def _noting(name: str, found: list[tuple[str, Any]]) -> Any:
    own = getattr(OnlineRenderer, name)

    async def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append((name, await own(self, *args, **kwargs)))
        return found[-1][1]

    return noted


@holds("vllm.renderers.online_renderer.OnlineRenderer.render_chat")
def test_a_chat_is_rendered_by_one_call(results: list[tuple[str, Any]]) -> None:
    rendered = answer(RenderTarget.CHAT)
    ((name, (conversation, inputs)),) = results
    assert name == "render_chat"
    assert [message["role"] for message in conversation] == ["user"]
    assert [part["prompt_token_ids"] for part in inputs] == [rendered["token_ids"]]


@holds("vllm.renderers.online_renderer.OnlineRenderer.render_completion")
def test_a_completion_is_rendered_by_one_call(results: list[tuple[str, Any]]) -> None:
    (rendered,) = answer(RenderTarget.COMPLETION)
    ((name, inputs),) = results
    assert name == "render_completion"
    assert [part["prompt_token_ids"] for part in inputs] == [rendered["token_ids"]]


@holds("vllm.utils.async_utils.make_async")
def test_what_may_block_is_given_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    own = rendering._Loop.run_in_executor

    def noted(self: Any, executor: Any, func: Any, *args: Any) -> Any:
        given.append(func)
        return own(self, executor, func, *args)

    monkeypatch.setattr(rendering._Loop, "run_in_executor", noted)
    loop = rendering._Loop()
    try:
        thread = loop.run_until_complete(_in_a_coroutine(make_async(threading.get_ident)))
    finally:
        loop.close()
    assert thread == threading.get_ident()
    given.clear()
    answer(RenderTarget.CHAT)
    assert given, "the renderer blocks elsewhere than in an executor of its loop"


async def _in_a_coroutine(function: Any) -> Any:
    return await function()


@pytest.mark.parametrize("target", BODIES)
def test_no_call_starts_a_thread(target: RenderTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer()

    def start(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread.name} is started")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert answer(target)


@holds("vllm.entrypoints.serve.engine.serving.BaseServing._base_request_id")
def test_the_request_id_is_read_from_the_headers_alone() -> None:
    assert answer(RenderTarget.CHAT, "mine")["request_id"] == "chatcmpl-mine"
    assert answer(RenderTarget.COMPLETION, "mine")[0]["request_id"] == "cmpl-mine"
    assert answer(RenderTarget.CHAT)["request_id"] != answer(RenderTarget.CHAT)["request_id"]


@holds("vllm.entrypoints.scale_out.render.serving.logger")
def test_the_log_of_render_has_the_name_of_its_module() -> None:
    assert serving.logger.name == ServingRender.__module__


def test_the_loop_is_still_asyncios() -> None:
    # An override with other names would be passed over by those who call with keywords.
    own = asyncio.SelectorEventLoop.run_in_executor
    ours = rendering._Loop.run_in_executor
    names = [code.co_varnames[: code.co_argcount] for code in (own.__code__, ours.__code__)]
    assert names[0] == names[1]
