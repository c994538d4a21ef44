"""Strategies for generations: what a model may write, how an engine cuts it, what callers ask."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.core.calling import Json, Setup, encode, tokens

Draw = st.DrawFn
MAX_TOKENS = 60

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
    for name in ("get_weather", "find_station")
]
HERMES_CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}\n</tool_call>'
)
CODER_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
MARKUP = (
    HERMES_CALL,
    CODER_CALL,
    '<tool_call>\n{"arguments": {}, "name": "find_station"}\n</tool_call>\n',
    '[{"name": "get_weather", "parameters": {"city": "Oslo"}}]',
    '{"city": "Oslo", "days": -1.5e3}',
    "<think>\nWell, 2+2…\n</think>\n\n",
    "</think>",
    "<think>",
    "<tool_response>",
)
SPECIAL = {
    "qwen": ("<|im_end|>", "<|endoftext|>", "<|box_start|>", "<|im_start|>"),
    "deepseek": (
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜tool▁calls▁begin｜>",
    ),
    "spm": ("</s>", "<s>", "<unk>"),
    "demo": ("<|im_end|>", "<|endoftext|>", "<|im_start|>"),
}
END = {
    "demo": "<|im_end|>",
    "qwen": "<|im_end|>",
    "deepseek": "<｜end▁of▁sentence｜>",
    "spm": "</s>",
}
PROMPTS = (
    "hello",
    "<|im_start|>assistant\n<think>\n",
    "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<think>a</think> ok <think>",
    "é🔥",
)

# Mostly printable, with characters of one to four UTF-8 bytes, combining marks and U+FFFD itself.
texts = st.text(
    st.one_of(
        st.sampled_from('ab {}<>"\n\t\\,:é€🔥\u200d\u0301\ufffd日本語नम'),
        st.characters(codec="utf-8"),
    ),
    max_size=12,
)


@st.composite
def markup(draw: Draw) -> str:
    """Markup, whole or cut anywhere."""
    whole = draw(st.sampled_from(MARKUP))
    if draw(st.booleans()):
        return whole
    start = draw(st.integers(0, len(whole)))
    return whole[start : draw(st.integers(start, len(whole)))]


@st.composite
def output_ids(draw: Draw, model: str) -> list[int]:
    """Tokens a model may generate: text, markup, special tokens, anything in the vocabulary."""
    ids: list[int] = []
    any_id = st.integers(0, tokens(model).size - 1)
    for _ in range(draw(st.integers(1, 4))):
        ids += draw(
            st.one_of(
                st.one_of(texts, markup(), markup(), st.sampled_from(SPECIAL[model])).map(
                    lambda text: encode(model, text)
                ),
                st.lists(any_id, max_size=4),
            )
        )
    return ids[:MAX_TOKENS] or [draw(any_id)]


class Ending(NamedTuple):
    """How the engine ended a choice."""

    finish_reason: str
    stop_reason: int | str | None
    ids: list[int]
    """All tokens, the one that stopped it included."""


@st.composite
def endings(draw: Draw, model: str, ids: list[int], stop_strings: bool) -> Ending:
    """An end that is consistent with the tokens, and some that are not quite."""
    (end,) = encode(model, END[model])
    kinds = ["end token", "bare stop", "length", "abort", "stop token"]
    kind = draw(st.sampled_from([*kinds, "stop string"] if stop_strings else kinds))
    if kind == "end token":
        return Ending("stop", None, [*ids, end])
    if kind == "bare stop":
        return Ending("stop", None, ids)
    if kind == "stop token":
        return Ending("stop", ids[-1], ids)
    if kind == "stop string":
        text = tokens(model).decode(ids, False)
        stop = text[draw(st.integers(0, len(text))) :][:3]
        return Ending("stop", stop or None, ids)
    return Ending(kind, None, ids)


@st.composite
def logprobs(draw: Draw, model: str, ids: list[int]) -> Json:
    """Logprobs with integer token IDs: the sampled token first among the candidates."""
    any_id = st.integers(0, tokens(model).size - 1)
    width = draw(st.integers(0, 3))
    value = st.floats(-20, 0, allow_nan=False)

    def position(token_id: int) -> Json:
        others = draw(st.lists(any_id, min_size=width, max_size=width)) if width else []
        candidates = [token_id, *others] if width else []
        own = draw(value)
        listed = [
            {"token_id": number, "logprob": own if i == 0 else draw(value), "rank": i}
            for i, number in enumerate(candidates)
        ]
        return {"token_id": token_id, "logprob": own, "top_logprobs": listed}

    return {"content": [position(token_id) for token_id in ids]}


def with_placeholders(part: Any) -> Any:
    """The same body in the earlier wire shape: `token_id:N` strings for integer IDs."""
    if isinstance(part, list):
        return [with_placeholders(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    kept = {key: with_placeholders(value) for key, value in part.items()}
    if "logprob" in kept and "token_id" in kept:
        kept["token"] = f"token_id:{kept.pop('token_id')}"
    return kept


flags = st.fixed_dictionaries(
    {},
    optional={
        "skip_special_tokens": st.booleans(),
        "spaces_between_special_tokens": st.booleans(),
        "include_stop_str_in_output": st.booleans(),
        "ignore_eos": st.booleans(),
        "min_tokens": st.integers(0, 8),
        "return_token_ids": st.booleans(),
    },
)
named_choice = {"type": "function", "function": {"name": "get_weather"}}


@st.composite
def chat_requests(draw: Draw, stop_token_ids: list[int], stream: bool) -> Json:
    """What a chat caller may have asked."""
    request = {"messages": [{"role": "user", "content": "hi"}], **draw(flags)}
    request |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "include_reasoning": st.booleans(),
                "parallel_tool_calls": st.booleans(),
                "chat_template_kwargs": st.fixed_dictionaries({"enable_thinking": st.booleans()}),
                "reasoning_effort": st.sampled_from(("low", "high", "none")),
                "logprob_token_ids": st.just([1, 2]),
            },
        )
    )
    if draw(st.booleans()):
        request["tools"] = TOOLS
        choice = draw(st.sampled_from((None, "none", "auto", "required", named_choice)))
        request |= {} if choice is None else {"tool_choice": choice}
    if draw(st.booleans()):
        request |= {"logprobs": True, "top_logprobs": draw(st.integers(0, 4))}
    if "logprob_token_ids" in request and not request.get("logprobs"):
        del request["logprob_token_ids"]
    return request | draw(_stops(stop_token_ids, stream))


@st.composite
def completion_requests(draw: Draw, stop_token_ids: list[int], stream: bool) -> Json:
    """What a completions caller may have asked."""
    request = {"prompt": "hi", **draw(flags)}
    if draw(st.booleans()):
        request["logprobs"] = draw(st.integers(0, 4))
    return request | draw(_stops(stop_token_ids, stream))


@st.composite
def _stops(draw: Draw, stop_token_ids: list[int], stream: bool) -> Json:
    stops: Json = {}
    if draw(st.booleans()):
        stops["stop_token_ids"] = stop_token_ids
    if not stream and draw(st.booleans()):
        stops["stop"] = draw(
            st.lists(
                st.one_of(
                    st.text("ab <}\n", min_size=1, max_size=3), st.sampled_from(["</", "city", "é"])
                ),
                min_size=1,
                max_size=3,
            )
        )
    return stops


class Prompt(NamedTuple):
    """Where the prompt's IDs travel."""

    caller: list[int] | None
    engine: list[int] | None
    length: int


@st.composite
def prompts(draw: Draw, setup: Setup, required: bool) -> Prompt:
    """A prompt sent by the caller, the engine, both (a suffix and the whole) or nobody."""
    ids = encode(setup.model, draw(st.sampled_from(PROMPTS)))
    if draw(st.integers(0, 5)) == 0:
        # Ends inside a character where a token is part of one.
        ids = ids[:-1] or ids
    ways = ("caller", "both") if required else ("caller", "engine", "both", "none")
    way = draw(st.sampled_from(ways))
    if way == "both" and not required:
        return Prompt(ids[-7:], ids, len(ids))
    return Prompt(
        ids if way in ("caller", "both") else None,
        ids if way in ("engine", "both") else None,
        len(ids),
    )
