"""Bad inputs and what each is answered with: data for tests of `core` and of the HTTP layer.

Every body is refused with status 400 before any tokenizer or parser runs. A body is what a client
posts to `/v1/chat/completions/derender` or `/v1/completions/derender`. The bounds below are those
of the server the table is written for.
"""

import copy
from typing import Any, NamedTuple

Json = Any
MAX_MODEL_LEN = 32
MAX_LOGPROBS = 3
MAX_SEQUENCES = 4
VOCABULARY = 100

PLAIN = "plain"
PARSERS = "parsers"

UNSTREAMED = " is required when `stream` is false."
STREAMED = " is required when `stream` is true."


class Refusal(NamedTuple):
    """One bad input."""

    name: str
    endpoint: str
    """`chat` or `completion`."""
    server: str
    """`plain` or `parsers`: with a tool-call and a reasoning parser."""
    body: Json
    param: str
    message: str
    """What follows the quoted `param`, which starts every message; its start where it ends in …"""


MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = {
    "generate_response": {"choices": [{"index": 0, "token_ids": [1, 2]}]},
    "chat_request": {"messages": MESSAGES},
}
CHUNK = {
    "stream": True,
    "generate_chunk": {"choices": [{"index": 0, "token_ids": [1, 2]}]},
    "prompt_token_ids": [1],
    "chat_request": {"messages": MESSAGES},
}
COMPLETION = {
    "generate_responses": [{"choices": [{"index": 0, "token_ids": [1, 2]}]}],
    "completion_request": {"prompt": "hi"},
}
COMPLETION_CHUNK = {
    "stream": True,
    "generate_chunk": {"choices": [{"index": 0, "token_ids": [1, 2]}]},
    "completion_request": {"prompt": "hi"},
}
ABSENT = object()


def changed(body: Json, path: str, value: Json) -> Json:
    """A copy of a body with another value at a path such as `a.0.b`; `ABSENT` takes it out."""
    made = copy.deepcopy(body)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    holder = made
    for step in parents:
        holder = holder[step]
    if value is ABSENT:
        del holder[last]
    else:
        holder[last] = value
    return made


def chat(name: str, path: str, value: Json, param: str, message: str) -> Refusal:
    return Refusal(f"chat: {name}", "chat", PLAIN, changed(CHAT, path, value), param, message)


def chunk(name: str, path: str, value: Json, param: str, message: str) -> Refusal:
    return Refusal(f"chunk: {name}", "chat", PLAIN, changed(CHUNK, path, value), param, message)


def parsed(name: str, path: str, value: Json, param: str, message: str) -> Refusal:
    return Refusal(f"parsed: {name}", "chat", PARSERS, changed(CHUNK, path, value), param, message)


def completion(name: str, path: str, value: Json, param: str, message: str) -> Refusal:
    body = changed(COMPLETION, path, value)
    return Refusal(f"completion: {name}", "completion", PLAIN, body, param, message)


def completion_chunk(name: str, path: str, value: Json, param: str, message: str) -> Refusal:
    body = changed(COMPLETION_CHUNK, path, value)
    return Refusal(f"completion chunk: {name}", "completion", PLAIN, body, param, message)


IDS = "generate_response.choices.0.token_ids"
IDS_PARAM = "generate_response.choices[0].token_ids"
CHOICE = "generate_response.choices.0"
CHOICE_PARAM = "generate_response.choices[0]"
CHUNK_IDS = "generate_chunk.choices.0.token_ids"
CHUNK_IDS_PARAM = "generate_chunk.choices[0].token_ids"
LOGPROBS_PARAM = f"{CHOICE_PARAM}.logprobs.content"
ONE = {"index": 0, "token_ids": [1]}
POSITION = {"token_id": 1, "logprob": -1.0, "top_logprobs": []}


def logprobs(name: str, content: Json, param: str, message: str) -> Refusal:
    path = f"{CHOICE}.logprobs"
    return chat(f"logprobs {name}", path, {"content": content}, param, message)


def state(name: str, value: Json, param: str, message: str) -> Refusal:
    return chunk(f"state {name}", "stream_state", value, f"stream_state{param}", message)


TABLE = (
    # Token IDs.
    chat("negative", IDS, [1, -2], f"{IDS_PARAM}[1]", ": expected an integer >= 0."),
    chat("fraction", IDS, [1.5], f"{IDS_PARAM}[0]", ": expected an integer, got a number."),
    chat("boolean", IDS, [True], f"{IDS_PARAM}[0]", ": expected an integer, got a boolean."),
    chat("word", IDS, ["x"], f"{IDS_PARAM}[0]", ": expected an integer, got a string."),
    chat("null among the IDs", IDS, [None], f"{IDS_PARAM}[0]", ": expected an integer, got null."),
    chat("nested list", IDS, [[1]], f"{IDS_PARAM}[0]", ": expected an integer, got a list."),
    chat("string for a list", IDS, "12", IDS_PARAM, ": expected a list or null, got a string."),
    chat("object for a list", IDS, {}, IDS_PARAM, ": expected a list or null, got an object."),
    chat(
        "out of vocabulary",
        IDS,
        [5, 100],
        f"{IDS_PARAM}[1]",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    chat(
        "four bytes",
        IDS,
        [2**32 - 1],
        f"{IDS_PARAM}[0]",
        " is 4294967295, outside the vocabulary of 100 tokens.",
    ),
    chat(
        "eight bytes",
        IDS,
        [2**63],
        f"{IDS_PARAM}[0]",
        ": expected an integer <= 9223372036854775807.",
    ),
    chat(
        "more than eight bytes",
        IDS,
        [10**40],
        f"{IDS_PARAM}[0]",
        ": expected an integer <= 9223372036854775807.",
    ),
    chat("no token", IDS, [], IDS_PARAM, " must have at least one token."),
    chat("null tokens", IDS, None, IDS_PARAM, " must have at least one token."),
    chat("missing tokens", IDS, ABSENT, IDS_PARAM, " must have at least one token."),
    chat(
        "too many tokens", IDS, [1] * 33, IDS_PARAM, " has 33 tokens, more than max_model_len (32)."
    ),
    # Choices.
    chat(
        "no choices member",
        "generate_response.choices",
        ABSENT,
        "generate_response.choices",
        " is required.",
    ),
    chat(
        "null choices",
        "generate_response.choices",
        None,
        "generate_response.choices",
        ": expected a list, got null.",
    ),
    chat(
        "choices object",
        "generate_response.choices",
        {},
        "generate_response.choices",
        ": expected a list, got an object.",
    ),
    chat(
        "choice string",
        "generate_response.choices",
        ["x"],
        CHOICE_PARAM,
        ": expected an object, got a string.",
    ),
    chat(
        "too many choices",
        "generate_response.choices",
        [ONE] * 5,
        "generate_response.choices",
        " has 5 entries, more than the maximum of 4.",
    ),
    chat("no index", f"{CHOICE}.index", ABSENT, f"{CHOICE_PARAM}.index", " is required."),
    chat(
        "negative index",
        f"{CHOICE}.index",
        -1,
        f"{CHOICE_PARAM}.index",
        " must be at least 0, got -1.",
    ),
    chat(
        "index word",
        f"{CHOICE}.index",
        "one",
        f"{CHOICE_PARAM}.index",
        ": expected an integer, got a string.",
    ),
    chat(
        "finish reason number",
        f"{CHOICE}.finish_reason",
        1,
        f"{CHOICE_PARAM}.finish_reason",
        ": expected a string or null, got an integer.",
    ),
    chat(
        "stop reason list",
        f"{CHOICE}.stop_reason",
        [1],
        f"{CHOICE_PARAM}.stop_reason",
        ": expected an integer or a string or null, got a list.",
    ),
    chat(
        "weight versions",
        f"{CHOICE}.weight_versions",
        {},
        f"{CHOICE_PARAM}.weight_versions",
        " must be a list or null.",
    ),
    # The response.
    chat("missing response", "generate_response", ABSENT, "generate_response", UNSTREAMED),
    chat("null response", "generate_response", None, "generate_response", UNSTREAMED),
    chat(
        "response list",
        "generate_response",
        [],
        "generate_response",
        ": expected an object, got a list.",
    ),
    chat(
        "output mode text",
        "generate_response.output_mode",
        "text",
        "generate_response.output_mode",
        " must be 'tokens', got 'text': other modes are already detokenized.",
    ),
    chat(
        "output mode null",
        "generate_response.output_mode",
        None,
        "generate_response.output_mode",
        ": expected a string, got null.",
    ),
    chat(
        "request ID number",
        "generate_response.request_id",
        5,
        "generate_response.request_id",
        ": expected a string or null, got an integer.",
    ),
    chat(
        "metrics",
        "generate_response.metrics",
        [],
        "generate_response.metrics",
        " must be an object or null.",
    ),
    chat(
        "kv parameters",
        "generate_response.kv_transfer_params",
        "x",
        "generate_response.kv_transfer_params",
        " must be an object or null.",
    ),
    chat(
        "ec parameters",
        "generate_response.ec_transfer_params",
        1,
        "generate_response.ec_transfer_params",
        " must be an object or null.",
    ),
    chat(
        "usage details",
        "generate_response.usage",
        {"prompt_tokens_details": 1},
        "generate_response.usage.prompt_tokens_details",
        " must be an object or null.",
    ),
    chat(
        "engine prompt too long",
        "generate_response.prompt_token_ids",
        [1] * 33,
        "generate_response.prompt_token_ids",
        " has 33 tokens, more than max_model_len (32).",
    ),
    chat(
        "prompt logprobs too long",
        "generate_response.prompt_logprobs",
        [None] * 33,
        "generate_response.prompt_logprobs",
        " has 33 positions, more than max_model_len (32).",
    ),
    chat(
        "prompt logprobs key",
        "generate_response.prompt_logprobs",
        [{"x": {"logprob": -1}}],
        "generate_response.prompt_logprobs[0]",
        " has the key 'x'; keys are token IDs below 100.",
    ),
    chat(
        "prompt logprobs vocabulary",
        "generate_response.prompt_logprobs",
        [None, {"100": {"logprob": -1}}],
        "generate_response.prompt_logprobs[1]",
        " has the key '100'; keys are token IDs below 100.",
    ),
    # Logprobs.
    logprobs(
        "too long",
        [POSITION] * 33,
        LOGPROBS_PARAM,
        " has 33 positions, more than max_model_len (32).",
    ),
    logprobs(
        "too many candidates",
        [POSITION | {"top_logprobs": [POSITION] * 4}],
        f"{LOGPROBS_PARAM}[0].top_logprobs",
        " has 4 entries, more than max_logprobs (3).",
    ),
    logprobs(
        "without ID",
        [{"logprob": -1.0}],
        f"{LOGPROBS_PARAM}[0]",
        " must have an integer token_id or a token of the form 'token_id:N'.",
    ),
    logprobs(
        "decoded token",
        [{"token": "Paris", "logprob": -1.0}],
        f"{LOGPROBS_PARAM}[0]",
        " must have an integer token_id or a token of the form 'token_id:N'.",
    ),
    logprobs(
        "placeholder sign",
        [{"token": "token_id:-1", "logprob": -1.0}],
        f"{LOGPROBS_PARAM}[0]",
        " must have an integer token_id or a token of the form 'token_id:N'.",
    ),
    logprobs(
        "placeholder word",
        [{"token": "token_id:x", "logprob": -1.0}],
        f"{LOGPROBS_PARAM}[0]",
        " must have an integer token_id or a token of the form 'token_id:N'.",
    ),
    logprobs(
        "placeholder digits",
        [{"token": "token_id:١", "logprob": -1.0}],
        f"{LOGPROBS_PARAM}[0]",
        " must have an integer token_id or a token of the form 'token_id:N'.",
    ),
    logprobs(
        "placeholder vocabulary",
        [{"token": "token_id:100", "logprob": -1.0}],
        f"{LOGPROBS_PARAM}[0].token_id",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    logprobs(
        "vocabulary",
        [POSITION | {"token_id": 100}],
        f"{LOGPROBS_PARAM}[0].token_id",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    logprobs(
        "candidate vocabulary",
        [POSITION | {"top_logprobs": [POSITION, {"token_id": 100, "logprob": -1.0}]}],
        f"{LOGPROBS_PARAM}[0].top_logprobs[1].token_id",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    logprobs(
        "negative ID",
        [POSITION | {"token_id": -1}],
        f"{LOGPROBS_PARAM}[0].token_id",
        ": expected an integer >= 0.",
    ),
    logprobs(
        "value word",
        [POSITION | {"logprob": "low"}],
        f"{LOGPROBS_PARAM}[0].logprob",
        ": expected a number, got a string.",
    ),
    logprobs("not a list", {}, LOGPROBS_PARAM, ": expected a list or null, got an object."),
    # What the caller adds.
    chat(
        "prompt count negative", "prompt_tokens", -1, "prompt_tokens", ": expected an integer >= 0."
    ),
    chat(
        "prompt count fraction",
        "prompt_tokens",
        1.5,
        "prompt_tokens",
        ": expected an integer, got a number.",
    ),
    chat(
        "prompt count list",
        "prompt_tokens",
        [1],
        "prompt_tokens",
        ": expected an integer, got a list.",
    ),
    chat(
        "prompt negative",
        "prompt_token_ids",
        [-1],
        "prompt_token_ids[0]",
        ": expected an integer >= 0.",
    ),
    chat(
        "prompt vocabulary",
        "prompt_token_ids",
        [1, 100],
        "prompt_token_ids[1]",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    chat(
        "prompt too long",
        "prompt_token_ids",
        [1] * 33,
        "prompt_token_ids",
        " has 33 tokens, more than max_model_len (32).",
    ),
    chat(
        "prompt string",
        "prompt_token_ids",
        "x",
        "prompt_token_ids",
        ": expected a list, got a string.",
    ),
    chat("no messages", "chat_request", {}, "chat_request.messages", ": field required."),
    chat(
        "request string",
        "chat_request",
        "x",
        "chat_request",
        ": input should be a valid dictionary or instance of ChatCompletionRequest.",
    ),
    chat(
        "request list",
        "chat_request",
        [],
        "chat_request",
        ": input should be a valid dictionary or instance of ChatCompletionRequest.",
    ),
    chat(
        "top_logprobs alone",
        "chat_request.top_logprobs",
        2,
        "chat_request.top_logprobs",
        ": when using `top_logprobs`, `logprobs` must be set to true.",
    ),
    chat(
        "tool choice without tools",
        "chat_request.tool_choice",
        "required",
        "chat_request.tool_choice",
        ": When using `tool_choice`, `tools` must be set.",
    ),
    chat(
        "stop type",
        "chat_request.stop",
        5,
        "chat_request.stop",
        ": input should be a valid string.",
    ),
    chat(
        "min_tokens type",
        "chat_request.min_tokens",
        "few",
        "chat_request.min_tokens",
        ": input should be a valid integer, unable to parse string as an integer.",
    ),
    # Parsers.
    Refusal(
        "parsed: one-shot without chat_request",
        "chat",
        PARSERS,
        changed(CHAT, "chat_request", ABSENT),
        "chat_request",
        " is required where a tool-call or reasoning parser is configured.",
    ),
    parsed(
        "without chat_request",
        "chat_request",
        ABSENT,
        "chat_request",
        " is required where a tool-call or reasoning parser is configured.",
    ),
    parsed(
        "without prompt",
        "prompt_token_ids",
        ABSENT,
        "prompt_token_ids",
        " is required where a tool-call or reasoning parser is configured: the prompt tel…",
    ),
    parsed(
        "null prompt",
        "prompt_token_ids",
        None,
        "prompt_token_ids",
        " is required where a tool-call or reasoning parser is configured: the prompt tel…",
    ),
    parsed(
        "context",
        "stream_state",
        {"output_token_ids": [1] * 30, "output_chunk_lens": [30]},
        "prompt_token_ids",
        " (1 tokens) plus output_token_ids (30) plus the chunk's token_ids (2) exceed max…",
    ),
    # Streams.
    chunk("missing", "generate_chunk", ABSENT, "generate_chunk", STREAMED),
    chunk(
        "two choices",
        "generate_chunk.choices",
        [ONE, ONE],
        "generate_chunk.choices",
        " has 2 entries; a streamed chunk carries at most one choice.",
    ),
    chunk("negative", CHUNK_IDS, [-1], f"{CHUNK_IDS_PARAM}[0]", ": expected an integer >= 0."),
    chunk(
        "vocabulary",
        CHUNK_IDS,
        [100],
        f"{CHUNK_IDS_PARAM}[0]",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    chunk(
        "output mode",
        "generate_chunk.output_mode",
        "text",
        "generate_chunk.output_mode",
        " must be 'tokens', got 'text': other modes are already detokenized.",
    ),
    chunk(
        "metrics",
        "generate_chunk.metrics",
        "x",
        "generate_chunk.metrics",
        " must be an object or null.",
    ),
    chunk(
        "context",
        CHUNK_IDS,
        [1] * 32,
        "prompt_token_ids",
        " (1 tokens) plus output_token_ids (0) plus the chunk's token_ids (32) exceed max…",
    ),
    chunk(
        "prompt logprobs",
        "chat_request",
        {"messages": MESSAGES, "stream": True, "prompt_logprobs": 1},
        "chat_request.prompt_logprobs",
        ": `prompt_logprobs` are not available when `stream=True`.",
    ),
    state(
        "sum",
        {"output_token_ids": [1, 2], "output_chunk_lens": [1]},
        ".output_chunk_lens",
        " must sum to the length of output_token_ids: the sum is 1, the length 2.",
    ),
    state(
        "no lens",
        {"output_token_ids": [1]},
        ".output_chunk_lens",
        " must sum to the length of output_token_ids: the sum is 0, the length 1.",
    ),
    state(
        "no IDs",
        {"output_chunk_lens": [1]},
        ".output_chunk_lens",
        " must sum to the length of output_token_ids: the sum is 1, the length 0.",
    ),
    state(
        "zero len",
        {"output_token_ids": [1], "output_chunk_lens": [1, 0]},
        ".output_chunk_lens[1]",
        ": expected an integer >= 1.",
    ),
    state(
        "negative len",
        {"output_token_ids": [1], "output_chunk_lens": [2, -1]},
        ".output_chunk_lens[1]",
        ": expected an integer >= 1.",
    ),
    state(
        "vocabulary",
        {"output_token_ids": [100], "output_chunk_lens": [1]},
        ".output_token_ids[0]",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    state(
        "negative ID",
        {"output_token_ids": [-1], "output_chunk_lens": [1]},
        ".output_token_ids[0]",
        ": expected an integer >= 0.",
    ),
    state(
        "window too long",
        {"prev_tokens": ["a"] * 1025},
        ".prev_tokens",
        " has 1025 entries, more than the maximum of 1024.",
    ),
    state(
        "window type",
        {"prev_tokens": [1]},
        ".prev_tokens[0]",
        ": expected a string, got an integer.",
    ),
    state(
        "read past the window",
        {"prev_tokens": ["a"], "read_offset": 2},
        ".read_offset",
        " must lie between prefix_offset and the length of prev_tokens: got prefix_offset…",
    ),
    state(
        "prefix past read",
        {"prev_tokens": ["a"], "prefix_offset": 1, "read_offset": 0},
        ".read_offset",
        " must lie between prefix_offset and the length of prev_tokens: got prefix_offset…",
    ),
    state(
        "negative offset", {"prefix_offset": -1}, ".prefix_offset", ": expected an integer >= 0."
    ),
    state(
        "five context tokens",
        {"logprob_context_token_ids": [1] * 5},
        ".logprob_context_token_ids",
        ": expected a list of length <= 4.",
    ),
    state(
        "context vocabulary",
        {"logprob_context_token_ids": [100]},
        ".logprob_context_token_ids[0]",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    state(
        "negative text offset",
        {"logprob_text_offset": -1},
        ".logprob_text_offset",
        ": expected an integer >= 0.",
    ),
    state("role type", {"role_sent": "maybe"}, ".role_sent", ": expected a boolean, got a string."),
    state(
        "call IDs type",
        {"last_tool_call_ids": [1]},
        ".last_tool_call_ids[0]",
        ": expected a string, got an integer.",
    ),
    state(
        "checkpoint too long",
        {"checkpoint": "x" * 129},
        ".checkpoint",
        ": expected a string of length <= 128.",
    ),
    state("string", "x", "", ": expected an object, got a string."),
    # Completions.
    completion(
        "no responses", "generate_responses", [], "generate_responses", " must not be empty."
    ),
    completion("missing responses", "generate_responses", ABSENT, "generate_responses", UNSTREAMED),
    completion(
        "responses object",
        "generate_responses",
        {},
        "generate_responses",
        ": expected a list, got an object.",
    ),
    completion(
        "too many responses",
        "generate_responses",
        [{"choices": []}] * 5,
        "generate_responses",
        " has 5 entries, more than the maximum of 4.",
    ),
    completion(
        "counts of another length",
        "prompt_tokens",
        [1, 2],
        "prompt_tokens",
        " has 2 entries, but generate_responses has 1; they must match.",
    ),
    completion(
        "counts not a list",
        "prompt_tokens",
        3,
        "prompt_tokens",
        ": expected a list, got an integer.",
    ),
    completion(
        "prompts of another length",
        "prompt_token_ids",
        [],
        "prompt_token_ids",
        " has 0 entries, but generate_responses has 1; they must match.",
    ),
    completion(
        "prompt not a list",
        "prompt_token_ids",
        [1],
        "prompt_token_ids[0]",
        ": expected a list or null, got an integer.",
    ),
    completion(
        "prompt vocabulary",
        "prompt_token_ids",
        [[1, 100]],
        "prompt_token_ids[0][1]",
        " is 100, outside the vocabulary of 100 tokens.",
    ),
    completion(
        "no token",
        "generate_responses.0.choices.0.token_ids",
        [],
        "generate_responses[0].choices[0].token_ids",
        " must have at least one token.",
    ),
    completion(
        "stop type",
        "completion_request.stop",
        5,
        "completion_request.stop",
        ": input should be a valid string.",
    ),
    completion(
        "logprobs type",
        "completion_request.logprobs",
        "x",
        "completion_request.logprobs",
        ": `logprobs` must be an integer.",
    ),
    completion_chunk(
        "two choices",
        "generate_chunk.choices",
        [ONE, ONE],
        "generate_chunk.choices",
        " has 2 entries; a streamed chunk carries at most one choice.",
    ),
    completion_chunk(
        "request type",
        "completion_request",
        [],
        "completion_request",
        ": input should be a valid dictionary or instance of CompletionRequest.",
    ),
    completion_chunk(
        "prompt too long",
        "prompt_token_ids",
        [1] * 33,
        "prompt_token_ids",
        " has 33 tokens, more than max_model_len (32).",
    ),
    completion_chunk(
        "context",
        "prompt_token_ids",
        [1] * 31,
        "prompt_token_ids",
        " (31 tokens) plus output_token_ids (0) plus the chunk's token_ids (2) exceed max…",
    ),
)
