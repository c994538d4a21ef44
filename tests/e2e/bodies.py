"""Derender bodies for the demo model, with IDs made by its own tokenizer."""

from typing import Any

from loadtest.model.prompt import PromptEncoder
from tests.serving import DEMO_MODEL

CHAT = "/v1/chat/completions/derender"
COMPLETION = "/v1/completions/derender"

ENCODER = PromptEncoder(DEMO_MODEL)
CHAT_REQUEST = {"model": "demo", "messages": [{"role": "user", "content": "Say hello."}]}
PROMPT_IDS = ENCODER.encode(CHAT_REQUEST)

Body = dict[str, Any]


def one_shot(text: str, request_id: str = "r1", **members: Any) -> Body:
    """A chat body with one complete choice."""
    ids = ENCODER.token_ids(text)
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
    return {
        "generate_response": {"request_id": request_id, "choices": [choice]},
        "prompt_tokens": len(PROMPT_IDS),
        "prompt_token_ids": PROMPT_IDS,
        "chat_request": CHAT_REQUEST,
        **members,
    }


def chunk(ids: list[int], state: Any, finish: str | None = None, request_id: str = "r1") -> Body:
    """A streamed chat body with one chunk."""
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
    return {
        "stream": True,
        "generate_chunk": {"request_id": request_id, "choices": [choice]},
        "stream_state": state,
        "prompt_token_ids": PROMPT_IDS,
        "chat_request": CHAT_REQUEST,
    }


def completion(text: str) -> Body:
    """A completion body with one response."""
    ids = ENCODER.token_ids(text)
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
    return {"generate_responses": [{"request_id": "r1", "choices": [choice]}]}
