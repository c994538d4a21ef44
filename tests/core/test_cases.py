"""Inputs that broke other servers, from public reports: one-shot and in chunks of every size.

`fixtures/CASES.md` says how a case reads. The parsers are vLLM's, so what they make of an output is
ours by design; cases they do not meet are listed with what happens and asserted to still do so.
"""

import copy
import json
from pathlib import Path

import pytest

from tests.core.calling import Json, Setup, answer, chunked, encode, stream
from tests.recordings import stream_outcome

_FILE = Path(__file__).parents[1] / "fixtures" / "cases.jsonl"
AREAS = ("parse", "detok", "logprobs", "stop", "usage", "protocol")
WHOLE = 10_000
SIZES = (1, 2, 3, 5, 8, WHOLE)
MODES = ("one-shot", "given", *SIZES)

# Judged elsewhere: by tables of bodies, not by an output text.
NOT_AN_OUTPUT = {"C030": "test_refusals", "C048": "test_refusals and the HTTP tests"}
# Calls of other model families, whose markers the test vocabularies lack.
OTHER_VOCABULARY = {"C020", "C022", "C023"}
_QUOTED_TAG = "vLLM's hermes parser ends a call at the first closing tag, also one inside a string"
_HELD_BACK = (
    "text is held back for stop strings while the parser sees token IDs at once, so deepseek_r1"
    " ends reasoning before its last text arrived; the coupled server does the same"
)
ONE_SHOT, STREAM = ("one-shot",), MODES[1:]
# Modes in which a case is not met, and why: the coupled server is the measure.
EXPECTED_TO_DIFFER: dict[str, tuple[tuple[Json, ...], str]] = {
    "C002": (MODES, _QUOTED_TAG),
    "C004": (MODES, "a cut call is content one-shot and a partial call in a stream, as coupled"),
    "C039": (("given", 1, 2, 3), _HELD_BACK),
}


def load() -> dict[str, Json]:
    cases = map(json.loads, _FILE.read_text(encoding="utf-8").splitlines())
    left_out = NOT_AN_OUTPUT.keys() | OTHER_VOCABULARY
    return {
        case["id"]: case
        for case in cases
        if case["area"] in AREAS and case["id"] not in left_out and case["output_text"] is not None
    }


CASES = load()


def setup_of(case: Json) -> Setup:
    flags = case["parser_flags"] or {}
    if case["id"] == "C006":
        # `required` needs a parser; the notes say to judge it with those of C001.
        flags = CASES["C001"]["parser_flags"]
    model = "qwen"
    if case["id"] == "C029":
        model = "spm"
    elif flags.get("reasoning-parser") == "deepseek_r1":
        model = "deepseek"
    return Setup(model, flags.get("tool-call-parser"), flags.get("reasoning-parser"))


def outcome(case: Json, mode: Json) -> Json:
    """What a case gives, as its expectation is written."""
    setup, request = setup_of(case), request_of(case)
    chunks = parts_of(case, setup, mode)
    ids = [token_id for chunk in chunks for token_id in chunk]
    shared = {"prompt_token_ids": prompt_of(case, setup), "chat_request": request}
    if "_prompt_tokens" in case["request"]:
        shared["prompt_tokens"] = case["request"]["_prompt_tokens"]
    engine = case["request"].get("_engine") or {}
    ending = {
        "finish_reason": engine.get("finish_reason", "stop"),
        "stop_reason": engine.get("stop_reason"),
    }
    if mode == "one-shot":
        choice = {"index": 0, "token_ids": ids, **ending, **logprobs_of(case, ids)}
        body = {"generate_response": {"request_id": "r", "choices": [choice]}, **shared}
        return one_shot(answer(setup, body))
    request["stream"] = True
    bodies = [
        {
            "stream": True,
            "generate_chunk": {
                "request_id": "r",
                "choices": [
                    {"index": 0, "token_ids": part, **logprobs_of(case, part)}
                    | (ending if i == len(chunks) - 1 else {})
                ],
            },
            **shared,
        }
        for i, part in enumerate(chunks)
    ]
    usage = {"prompt_tokens": 0, "completion_tokens": len(ids), "total_tokens": len(ids)}
    bodies.append(bodies[0] | {"generate_chunk": {"choices": [], "usage": usage}})
    return streamed(stream(setup, bodies))


def request_of(case: Json) -> Json:
    sent = {key: value for key, value in case["request"].items() if not key.startswith("_")}
    sent.pop("stream", None)
    sent.pop("stream_options", None)
    return {"messages": [{"role": "user", "content": "hi"}], **sent, "n": 1}


def parts_of(case: Json, setup: Setup, mode: Json) -> list[list[int]]:
    text = case["output_text"].removeprefix(" ") if setup.model == "spm" else case["output_text"]
    given = case["chunking"]
    if mode in ("given", "one-shot") and isinstance(given, list):
        return [encode(setup.model, part) for part in given]
    ids = encode(setup.model, text)
    if mode == "one-shot":
        return [ids]
    if mode == "given":
        mode = WHOLE if given == "whole" else int(given.split()[0])
    return chunked(ids, mode)


def prompt_of(case: Json, setup: Setup) -> list[int]:
    request = case["request"]
    tail = request.get("_prompt_tail") or request.get("_prompt_text") or "<|im_start|>assistant\n"
    return encode(setup.model, tail)


def logprobs_of(case: Json, ids: list[int]) -> Json:
    """Placeholders for every position and two alternatives, the second with no probability."""
    if not case["request"].get("logprobs"):
        return {}
    names = [f"token_id:{token_id}" for token_id in ids]
    others = [{"token": "token_id:5", "logprob": -9999.0}, {"token": "token_id:240", "logprob": -3}]
    content = [
        {"token": name, "logprob": -0.5}
        | {"top_logprobs": [{"token": name, "logprob": -0.5}, *others]}
        for name in names
    ]
    return {"logprobs": {"content": content}}


def one_shot(response: Json) -> Json:
    (choice,) = response["choices"]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return judged(message, calls, choice, response["usage"])


def streamed(chunks: list[Json]) -> Json:
    whole = stream_outcome(chunks)
    (choice,) = whole["choices"]
    calls = list((choice["calls"] or {}).values())
    return judged(choice, calls, choice, whole["usage"])


def judged(message: Json, calls: list[Json], choice: Json, usage: Json) -> Json:
    return {
        "content": (message["content"] or "").strip(),
        "reasoning": (message["reasoning"] or "").strip(),
        "tool_calls": [
            {"name": call["name"], "arguments": parsed(call["arguments"])} for call in calls
        ],
        "finish_reason": choice["finish_reason"],
        "completion_tokens": usage["completion_tokens"],
        "logprobs": choice["logprobs"],
    }


def parsed(arguments: str) -> Json:
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return f"not JSON: {arguments}"


def faults(case: Json, mode: Json) -> list[str]:
    """What of the expectation an outcome does not meet."""
    expect, found = case["expect"], outcome(case, mode)
    wanted = {
        "content": (expect["content"] or "").strip(),
        "reasoning": (expect["reasoning"] or "").strip(),
        "tool_calls": [
            {"name": call["name"], "arguments": call["arguments"]} for call in expect["tool_calls"]
        ],
        "finish_reason": expect["finish_reason"],
    }
    return [f"{key}: {found[key]!r}" for key in wanted if found[key] != wanted[key]]


def variants() -> dict[str, Json]:
    """The variants that the notes of cases ask for."""
    made = {}
    for value in ("true", "null", "[1, 2]", '{"a": {"b": 1}}'):
        text = CASES["C001"]["output_text"].replace("4207", value)
        calls = [{"name": "close_ticket", "arguments": {"ticket_id": json.loads(value)}}]
        made[f"C001 {value}"] = varied("C001", text, {"tool_calls": calls})
    text = CASES["C044"]["output_text"].replace("Bergen", "北京 🔥")
    calls = [{"name": "get_weather", "arguments": {"city": "北京 🔥"}}]
    made["C023 hermes"] = varied("C044", text, {"tool_calls": calls})
    kept = varied("C037", CASES["C037"]["output_text"], {"content": "The answer is 7.END"})
    kept["request"]["include_stop_str_in_output"] = True
    made["C037 included"] = kept
    closed = varied("C015", CASES["C015"]["output_text"], {})
    del closed["request"]["chat_template_kwargs"]
    made["C015 closed prompt"] = closed
    return made


def varied(name: str, text: str, expect: Json) -> Json:
    case = copy.deepcopy(CASES[name])
    return case | {"output_text": text, "chunking": "whole", "expect": case["expect"] | expect}


ALL = CASES | variants()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ALL)
def test_case(name: str, mode: Json) -> None:
    modes, _reason = EXPECTED_TO_DIFFER.get(name, ((), ""))
    assert bool(faults(ALL[name], mode)) == (mode in modes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["C031", "C033", "C035"])
def test_logprobs_of_cases(name: str, mode: Json) -> None:
    case = CASES[name]
    content = outcome(case, mode)["logprobs"]["content"]
    assert len(content) == len(encode("qwen", case["output_text"]))
    assert bytes(octet for entry in content for octet in entry["bytes"]) == (
        case["output_text"].encode()
    )
    assert not any("\ufffd" in entry["token"] or "token_id" in entry["token"] for entry in content)


@pytest.mark.parametrize("size", SIZES)
def test_no_delta_has_a_broken_character(size: int) -> None:
    setup, case = setup_of(CASES["C026"]), CASES["C026"]
    ids = encode("qwen", case["output_text"])
    bodies = [
        {"stream": True, "generate_chunk": {"choices": [{"index": 0, "token_ids": part}]}}
        for part in chunked(ids, size)
    ]
    deltas = [chunk["choices"][0]["delta"]["content"] or "" for chunk in stream(setup, bodies)]
    assert "".join(deltas) == case["output_text"]
    assert not any("\ufffd" in delta for delta in deltas)


def test_a_finish_without_tokens_flushes() -> None:
    """C045, variant b: the reason comes apart from the last tokens."""
    case = CASES["C045"]
    setup, request = setup_of(case), request_of(case)
    parts = [*chunked(encode("qwen", case["output_text"]), 3), []]
    bodies = [
        {
            "stream": True,
            "generate_chunk": {"request_id": "r", "choices": [{"index": 0, "token_ids": part}]},
            "prompt_token_ids": prompt_of(case, setup),
            "chat_request": request | {"stream": True},
        }
        for part in parts
    ]
    bodies[-1]["generate_chunk"]["choices"][0]["finish_reason"] = "stop"
    chunks = stream(setup, bodies)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["tool_calls"]
    (choice,) = stream_outcome(chunks)["choices"]
    assert json.loads(choice["calls"][0]["arguments"]) == {"city": "Tromso"}
