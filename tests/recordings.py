"""Recorded engine traffic, and how a derendered answer is held against the coupled server's.

`fixtures/README.md` describes the recordings; its "Legitimate differences" are what is left out
here.
"""

import copy
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

Json = Any
_FILE = Path(__file__).parent / "fixtures" / "real_engine.jsonl.xz"


@cache
def _entries() -> tuple[Json, ...]:
    with lzma.open(_FILE, "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def all_recordings() -> tuple[Json, ...]:
    """Every recording of a request, without the lists of errors."""
    return tuple(entry for entry in _entries() if "exchanges" not in entry)


def errors() -> list[Json]:
    """Recorded lists of single requests, mostly refused ones, with the server each was sent to."""
    return [entry for entry in _entries() if "exchanges" in entry]


def served() -> list[Json]:
    """Recordings of requests that were answered."""
    return [entry for entry in all_recordings() if entry["coupled"]["status"] == 200]


def model_name(recording: Json) -> str:
    """The tokenizer a recording was made with: `qwen`, `deepseek` or `spm`."""
    if recording["kind"] == "spm":
        return "spm"
    return "deepseek" if recording["kind"] == "deepseek" else "qwen"


def prompts(recording: Json) -> list[list[int]]:
    """Prompt token IDs, one list per prompt, from the recorded render."""
    rendered = recording["render"]["response"]
    parts = rendered if isinstance(rendered, list) else [rendered]
    return [part["token_ids"] for part in parts]


def as_list(part: Json) -> list[Json]:
    """Completions are recorded per prompt, chats once."""
    return part if isinstance(part, list) else [part]


def one_shot_body(recording: Json) -> Json:
    """The derender body of the recorded one-shot generation."""
    ids = prompts(recording)
    generated = [part["response"] for part in as_list(recording["generate"])]
    if recording["endpoint"] == "chat":
        return {
            "model": "m",
            "generate_response": generated[0],
            "prompt_tokens": len(ids[0]),
            "prompt_token_ids": ids[0],
            "chat_request": recording["request"],
        }
    return {
        "model": "m",
        "generate_responses": generated,
        "prompt_tokens": [len(part) for part in ids],
        "prompt_token_ids": ids,
        "completion_request": recording["request"],
    }


def stream_bodies(recording: Json) -> list[list[Json]]:
    """The derender bodies of the recorded streams, one list per prompt, without `stream_state`."""
    kind = "chat_request" if recording["endpoint"] == "chat" else "completion_request"
    request = recording["request"] | recording["coupled_stream"]["request"]
    return [
        [
            {
                "stream": True,
                "model": "m",
                "generate_chunk": chunk,
                "prompt_tokens": len(ids),
                "prompt_token_ids": ids,
                kind: request,
            }
            for chunk in stream["chunks"]
            if chunk != "[DONE]"
        ]
        for ids, stream in zip(
            prompts(recording), as_list(recording["generate_stream"]), strict=True
        )
    ]


def outcome(response: Json) -> Json:
    """What must be equal in one-shot responses."""
    choices = []
    for choice in response["choices"]:
        kept = {
            key: choice.get(key)
            for key in ("index", "text", "finish_reason", "stop_reason", "token_ids", "logprobs")
        }
        kept["prompt_token_ids"] = choice.get("prompt_token_ids")
        kept["message"] = _message(choice.get("message"))
        choices.append(kept)
    return {
        "choices": choices,
        "usage": response["usage"],
        "prompt_token_ids": response.get("prompt_token_ids"),
        "prompt_logprobs": response.get("prompt_logprobs"),
    }


def stream_outcome(chunks: list[Json]) -> Json:
    """What must be equal in streams: the deltas put together per choice, and the last usage."""
    choices: dict[int, Json] = {}
    usage = prompt_ids = None
    for chunk in chunks:
        if chunk == "[DONE]":
            continue
        usage = chunk.get("usage") or usage
        prompt_ids = chunk.get("prompt_token_ids") or prompt_ids
        for choice in chunk["choices"]:
            _add(choices.setdefault(choice["index"], _EMPTY | {}), choice)
    return {
        "choices": [choices[index] for index in sorted(choices)],
        "usage": usage,
        "prompt_token_ids": prompt_ids,
    }


_EMPTY = {
    "role": None,
    "content": "",
    "reasoning": "",
    "calls": None,
    "finish_reason": None,
    "stop_reason": None,
    "token_ids": None,
    "logprobs": None,
    "prompt_token_ids": None,
}


def _add(whole: Json, choice: Json) -> None:
    delta = choice.get("delta") or {"content": choice.get("text")}
    whole["role"] = whole["role"] or delta.get("role")
    for key in ("content", "reasoning"):
        whole[key] += delta.get(key) or ""
    for key in ("finish_reason", "stop_reason", "prompt_token_ids"):
        whole[key] = choice.get(key) if choice.get(key) is not None else whole[key]
    if choice.get("token_ids"):
        whole["token_ids"] = (whole["token_ids"] or []) + choice["token_ids"]
    for call in delta.get("tool_calls") or ():
        _add_call(whole, call)
    _add_logprobs(whole, choice.get("logprobs"))


def _add_call(whole: Json, call: Json) -> None:
    calls = whole["calls"] = dict(whole["calls"] or {})
    known = calls.get(call["index"], {"name": "", "arguments": ""})
    function = call.get("function") or {}
    calls[call["index"]] = {
        key: known[key] + (function.get(key) or "") for key in ("name", "arguments")
    }


def _add_logprobs(whole: Json, logprobs: Json) -> None:
    if logprobs is None:
        return
    if whole["logprobs"] is None:
        whole["logprobs"] = copy.deepcopy(logprobs)
        return
    for key, values in logprobs.items():
        whole["logprobs"][key] += values


def _message(message: Json) -> Json:
    if message is None:
        return None
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return {
        "role": message["role"],
        "content": message["content"],
        "reasoning": message.get("reasoning"),
        "calls": calls,
    }


def differences(ours: Json, theirs: Json, path: str = "") -> list[str]:
    """Paths at which two outcomes differ; floats within 1e-3 are equal."""
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return [] if abs(ours - theirs) < 1e-3 else [f"{path}: {ours!r} != {theirs!r}"]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [*ours, *(key for key in theirs if key not in ours)]
        return [
            line
            for key in keys
            for line in differences(ours.get(key), theirs.get(key), f"{path}.{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{path}[{i}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} != {theirs!r}"]
