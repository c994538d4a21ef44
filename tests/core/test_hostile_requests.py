"""Requests that vLLM's models take and its parsers stumble over: refused or answered, no fault."""

from typing import Any

import pytest

from core.protocol.errors import BadRequest, UnknownModel
from tests.core.calling import QWEN, QWEN_PLAIN, answer

IDS = [9419, 0, 2500, 628]


def _body(chat_request: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "token_ids": IDS, "finish_reason": "stop"}
    return {
        "generate_response": {"request_id": "r", "choices": [choice]},
        "prompt_token_ids": [1],
        "chat_request": chat_request,
    }


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool", "developer"])
@pytest.mark.parametrize(
    "content",
    [
        [],
        ["plain string"],
        [{"type": "text"}],
        [{"type": "input_text", "text": "x"}],
        [{"type": "tool_result", "content": "x"}],
    ],
    ids=["empty", "string", "no text", "input_text", "tool_result"],
)
def test_any_content_the_model_takes_is_answered(role: str, content: list[Any]) -> None:
    message = {"role": role, "content": content, "tool_call_id": "t"}
    given = answer(QWEN, _body({"messages": [message]}))
    assert given["choices"][0]["message"]["role"] == "assistant"


@pytest.mark.parametrize("value", [[], {}, [1]])
def test_template_arguments_no_parser_can_take_are_refused(value: Any) -> None:
    request = {
        "messages": [{"role": "user", "content": "hi"}],
        "chat_template_kwargs": {"enable_thinking": value},
    }
    with pytest.raises(BadRequest) as refused:
        answer(QWEN, _body(request))
    assert refused.value.param == "chat_request"


@pytest.mark.parametrize("member", ["kv_transfer_params", "ec_transfer_params"])
def test_numbers_beyond_floats_pass_through(member: str) -> None:
    choice = {"index": 0, "token_ids": IDS}
    responses = [{"choices": [choice], member: {"a": 10**400}} for _ in range(2)]
    given = answer(QWEN_PLAIN, {"generate_responses": responses}, "completion")
    assert given[member] == {"a": 10**400}


def test_what_a_caller_names_is_escaped_and_cut() -> None:
    error = UnknownModel("The model `x\n05:00 error FAKE\0` does not exist." + "y" * 5000, "a\nb")
    assert "\n" not in error.message
    assert "\0" not in error.message
    assert len(error.message) < 1100
    assert error.param == "a\\x0ab"
