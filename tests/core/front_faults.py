"""What an engine should not say: data for tests of the front door."""

from typing import Any

from core.protocol.errors import DerenderError, EngineFailed, InternalFault
from tests.core.calling import MAX_MODEL_LEN, Json, encode

HELLO = {"index": 0, "token_ids": encode("qwen", "Hello")}
END = HELLO | {"finish_reason": "length"}
USAGE = {"choices": [], "usage": {"prompt_tokens": 3}}
LOGPROB = {"token_id": 9419, "logprob": -1.0, "top_logprobs": []}


def one(**members: Any) -> Json:
    """An event whose one choice has these members over a usual one's."""
    return {"choices": [HELLO | members]}


NO_CHUNK: list[Json] = [
    b"{",
    b"nonsense",
    b"[" * 100_000,
    b'{"choices":[],"metrics":{"a":"\xff"}}',
    b'{"choices":[{"index":0,"token_ids":[1e999]}]}',
    [],
    "text",
    7,
    {"choices": 7},
    {"choices": [7]},
    {"choices": [{"token_ids": [1]}]},
    {"choices": [HELLO, HELLO]},
    {"choices": [], "usage": 7},
    {"choices": [], "usage": {"prompt_tokens": -1}},
    {"choices": [], "usage": {"prompt_tokens": 1, "prompt_tokens_details": 7}},
    {"choices": [], "kv_transfer_params": []},
    {"choices": [], "metrics": "fast"},
    {"choices": [], "output_mode": "text"},
    {"choices": [], "prompt_token_ids": [-1]},
    one(index=-1),
    one(index=1),
    one(index=10**30),
    one(index="a"),
    one(token_ids=[-1]),
    one(token_ids=[10**9]),
    one(token_ids=[10**30]),
    one(token_ids=[1.5]),
    one(token_ids="Hello"),
    one(token_ids=[9419] * (MAX_MODEL_LEN + 1)),
    one(finish_reason=7),
    one(stop_reason=[]),
    one(logprobs=7),
    one(logprobs={"content": []}),
    one(logprobs={"content": [LOGPROB, LOGPROB]}),
    one(logprobs={"content": [{"logprob": -1.0}]}),
    one(logprobs={"content": [LOGPROB | {"token_id": 10**9}]}),
    one(logprobs={"content": [LOGPROB | {"logprob": "a"}]}),
    one(logprobs={"content": [LOGPROB | {"top_logprobs": [LOGPROB] * 21}]}),
    one(weight_versions={}),
]
HARMLESS: list[Json] = [
    {},
    {"choices": []},
    {"choices": [], "usage": None},
    {"choices": [], "error": None},
    {"unknown": [1]},
    one(token_ids=None),
    one(token_ids=[]),
    one(token_ids=["9419"]),
    one(logprobs=None),
    one(logprobs={"content": None}),
    one(logprobs={"content": [LOGPROB]}),
    one(stop_reason="x"),
    one(text="x"),
]
ERRORS: list[tuple[Json, tuple[str, str, int]]] = [
    ({}, ("the engine failed", "InternalServerError", 500)),
    ("boom", ("the engine failed", "InternalServerError", 500)),
    ({"message": 7}, ("the engine failed", "InternalServerError", 500)),
    ({"message": "no", "type": "T", "code": 422}, ("no", "T", 422)),
    ({"message": "no", "type": "T", "code": "invalid"}, ("no", "T", 500)),
    ({"message": "no", "type": "T", "code": None}, ("no", "T", 500)),
    ({"message": "no", "type": "T", "code": 200}, ("no", "T", 500)),
    ({"message": "no", "type": "T", "code": 10**30}, ("no", "T", 500)),
]

WHOLE = {"choices": [END]}
NO_ANSWER: list[tuple[Json, type[DerenderError]]] = [
    (b"{", EngineFailed),
    (b"", EngineFailed),
    (b'{"choices":[{"index":0,"token_ids":[1]}],"metrics":{"a":"\xff"}}', EngineFailed),
    ([], EngineFailed),
    ({}, EngineFailed),
    ({"error": {"message": "no"}}, EngineFailed),
    ({"choices": []}, EngineFailed),
    ({"choices": [END, END]}, EngineFailed),
    ({"choices": [END | {"index": 1}]}, EngineFailed),
    ({"choices": [END | {"finish_reason": "error"}]}, InternalFault),
    ({"choices": [END | {"token_ids": [-1]}]}, EngineFailed),
    ({"choices": [END | {"token_ids": [10**9]}]}, EngineFailed),
    ({"choices": [END | {"token_ids": [9419] * 8193}]}, EngineFailed),
    ({"choices": [END | {"logprobs": {"content": []}}]}, EngineFailed),
    (WHOLE | {"prompt_logprobs": [{"a": {"logprob": -1}}]}, EngineFailed),
    (WHOLE | {"prompt_logprobs": [{"9" * 5000: {"logprob": -1}}]}, EngineFailed),
    (WHOLE | {"usage": {"prompt_tokens": "a"}}, EngineFailed),
    (WHOLE | {"output_mode": "text"}, EngineFailed),
]
