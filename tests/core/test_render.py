"""Render in one process: what a running server is not asked for."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from vllm.entrypoints.scale_out.render import serving
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest

from core.protocol.calls import Render, RenderTarget
from core.protocol.errors import BadRequest, RenderRefused
from core.protocol.faults import Fault
from core.protocol.options import ModelOptions
from core.render import render, warm_up
from core.vllm_adapter.encoding import agrees
from core.vllm_adapter.loading import load_model
from core.vllm_adapter.rendering import Renderer, load_renderer
from tests.serving import DEMO_MODEL

# vLLM reads a field of its own that it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning")

MESSAGES = [{"role": "user", "content": "Hi"}]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def trusting() -> Iterator[Renderer]:
    """A renderer that takes request templates, with settings of its own."""
    options = ModelOptions(
        model=str(DEMO_MODEL),
        trust_request_chat_template=True,
        reasoning_effort_map={"high": "max"},
        override_generation_config={"temperature": 0.25, "max_new_tokens": 100},
        anthropic_disabled_thinking_effort="low",
    )
    renderer = load_renderer(options, load_model(options, lambda step: None), agrees)
    warm_up(renderer)
    renderer.start()
    yield renderer
    renderer.close_loop()


def _ask(renderer: Renderer, target: RenderTarget, body: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    call = Render(call_id=1, target=target, body=raw, caller_id="")
    return json.loads(render(renderer, call))


def test_a_trusted_request_template_is_used(trusting: Renderer) -> None:
    body = {"messages": MESSAGES, "chat_template": TEMPLATE}
    rendered = _ask(trusting, RenderTarget.CHAT, body)["token_ids"]
    assert rendered == _ask(trusting, RenderTarget.TOKENIZE, {"prompt": "user: Hi"})["tokens"]
    assert rendered == _ask(trusting, RenderTarget.TOKENIZE, body)["tokens"]


def test_defaults_of_the_server_reach_the_engine(trusting: Renderer) -> None:
    answer = _ask(trusting, RenderTarget.CHAT, {"messages": MESSAGES, "reasoning_effort": "high"})
    assert answer["sampling_params"]["temperature"] == 0.25
    assert answer["sampling_params"]["max_tokens"] == 100
    assert answer["parse_context"]["chat_template_kwargs"]["reasoning_effort"] == "max"


@pytest.mark.parametrize("body", [b"", b"{", b'{"prompt": "\xff"}', b"[" * 100_000])
def test_what_is_no_json_is_refused(trusting: Renderer, body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^the body (is|must)"):
        _ask(trusting, RenderTarget.TOKENIZE, body)


def test_a_refusal_crosses_a_pipe_whole() -> None:
    refusal = RenderRefused("No such model.", "model", 404, "NotFoundError")
    raw = msgspec.msgpack.encode(Fault.of(refusal))
    error = msgspec.msgpack.decode(raw, type=Fault).error()
    assert isinstance(error, RenderRefused)
    assert vars(error) == vars(refusal)


def test_rendered_ids_are_checked_as_vllm_checks_them(trusting: Renderer) -> None:
    sampling = {"max_tokens": 1}
    for ids in ([0], [5, 0, 7], [-1], [3, -2, 4], []):
        answers = []
        for model in (GenerateRequest, serving.GenerateRequest):
            try:
                answers.append(model(token_ids=ids, sampling_params=sampling).token_ids)
            except ValidationError as error:
                answers.append([problem["loc"] for problem in error.errors()])
        assert answers[0] == answers[1]
