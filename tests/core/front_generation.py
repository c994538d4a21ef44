"""Strategies for the front door: requests of callers, and what an engine says to them."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from core.protocol.plan import EngineEvent, Plan
from tests.core.calling import Json, Setup, encode, tokens
from tests.core.coupled import Chunk, coupled
from tests.core.front import DONE, asked, event
from tests.core.generation import END, HERMES_CALL, MARKUP, SPECIAL, TOOLS, Draw, named_choice

MAX_TOKENS = 90
STOPS = ("</", "city", "é", " t", "\n", "{", "Oslo", "ab", "hé", "🔥")
PIECES = (
    "Hello, two three.",
    " It is é, 🔥 and 日本語.",
    "ab ab city",
    "\n\n",
    "<think>\nWell…\n</think>\n\n",
    "Hm </think>",
    HERMES_CALL,
    HERMES_CALL.replace("Zürich", "Oslo"),
    *MARKUP,
)
DEEPSEEK_CALL = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    '```json\n{"city": "Zürich", "days": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
CALLS = {
    "qwen": (HERMES_CALL, f"{HERMES_CALL}\n{HERMES_CALL}", '[{"name": "f", "parameters": {}}]'),
    "deepseek": (DEEPSEEK_CALL, HERMES_CALL),
    "spm": (HERMES_CALL,),
}


class Case(NamedTuple):
    """A request and what is generated for it."""

    endpoint: str
    body: Json
    chunks: list[Chunk]
    """As an engine with a tokenizer says it: no stop token where the end token ended a choice."""

    @property
    def samples(self) -> int:
        return int(self.body.get("n", 1))


@st.composite
def cases(draw: Draw, setup: Setup, *, stream: bool, calls: bool = False) -> Case:
    """A request to either endpoint with a fitting generation; a chat whose tools are called."""
    endpoint = "chat" if calls else draw(st.sampled_from(("chat", "chat", "completion")))
    if endpoint == "chat":
        body = draw(chat_bodies(setup, stream=stream, tools=calls))
        prompts = 1
    else:
        body = draw(completion_bodies(setup, stream=stream))
        prompts = prompt_count(body["prompt"])
    if stream:
        body["stream"] = True
        if draw(st.booleans()):
            body["stream_options"] = {
                "include_usage": draw(st.booleans()),
                "continuous_usage_stats": draw(st.booleans()),
            }
    samples = body.get("n", 1)
    keys = [(prompt, choice) for prompt in range(prompts) for choice in range(samples)]
    scripts = [draw(script(setup, body, *key, calls=calls)) for key in keys]
    return Case(endpoint, body, draw(interleaved(scripts)))


def prompt_count(prompt: Json) -> int:
    """Prompts of a completions request."""
    return 1 if isinstance(prompt, str) or isinstance(prompt[0], int) else len(prompt)


def _shared(setup: Setup) -> dict[str, Any]:
    """Members of both endpoints; each is there or not."""
    any_id = st.integers(0, tokens(setup.model).size - 1)
    return {
        "n": st.integers(1, 3),
        "return_token_ids": st.booleans(),
        "return_tokens_as_token_ids": st.booleans(),
        "include_stop_str_in_output": st.booleans(),
        "min_tokens": st.integers(0, 4),
        "stop_token_ids": st.lists(any_id, min_size=1, max_size=2),
        "ignore_eos": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "return_weight_versions": st.booleans(),
    }


stops = st.one_of(
    st.none(), st.sampled_from(STOPS), st.lists(st.sampled_from(STOPS), max_size=4, unique=True)
)


@st.composite
def chat_bodies(draw: Draw, setup: Setup, *, stream: bool, tools: bool) -> Json:
    """A chat request, with tools for certain or by chance."""
    own = {
        "max_tokens": st.integers(1, MAX_TOKENS + 1),
        "return_prompt_text": st.booleans(),
        "include_reasoning": st.booleans(),
        "parallel_tool_calls": st.booleans(),
        "chat_template_kwargs": st.fixed_dictionaries({"enable_thinking": st.booleans()}),
        "reasoning_effort": st.sampled_from(("low", "high", "none")),
    }
    body: Json = {"model": "m", "messages": draw(messages(setup))}
    body |= draw(st.fixed_dictionaries({}, optional=_shared(setup) | own))
    if not stream and draw(st.integers(0, 3)) == 0:
        body["prompt_logprobs"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        body["stop"] = draw(stops)
    if draw(st.booleans()):
        body |= {"logprobs": True, "top_logprobs": draw(st.integers(0, 5))}
    if tools or draw(st.booleans()):
        body["tools"] = TOOLS
        choices: list[Json] = [None, "none"]
        if setup.tool_parser:
            choices += ["auto", "required", named_choice]
        choice = draw(st.sampled_from(choices))
        body |= {} if choice is None else {"tool_choice": choice}
    if body["messages"][-1]["role"] == "assistant":
        body["add_generation_prompt"] = False
        body["echo"] = draw(st.booleans())
        if draw(st.booleans()):
            body["continue_final_message"] = True
    return body


@st.composite
def messages(draw: Draw, setup: Setup) -> Json:
    """A conversation, which may end with a message of the assistant."""
    found: Json = [{"role": "user", "content": draw(st.sampled_from(("Hi", "é🔥", "Two?")))}]
    if draw(st.booleans()):
        found.insert(0, {"role": "system", "content": "Be brief."})
    if draw(st.integers(0, 2)) == 0:
        content: Json = draw(st.sampled_from(("One, two", "é", "<think>\nHm")))
        if setup.model == "qwen" and draw(st.booleans()):
            content = [{"type": "text", "text": content}, {"type": "text", "text": "three"}]
        found.append({"role": "assistant", "content": content})
    return found


@st.composite
def completion_bodies(draw: Draw, setup: Setup, *, stream: bool) -> Json:
    """A completions request."""
    text = st.sampled_from(("a b", "é🔥 ", "Once upon"))
    ids = text.map(lambda prompt: encode(setup.model, prompt))
    prompt = draw(
        st.one_of(
            text,
            ids,
            st.lists(text, min_size=1, max_size=3),
            st.lists(ids, min_size=1, max_size=3),
        )
    )
    own = {"max_tokens": st.integers(1, MAX_TOKENS + 1), "echo": st.booleans()}
    body: Json = {"model": "m", "prompt": prompt}
    body |= draw(st.fixed_dictionaries({}, optional=_shared(setup) | own))
    if draw(st.booleans()):
        body["stop"] = draw(stops)
    if draw(st.booleans()) and not (stream and body.get("echo")):
        body["logprobs"] = draw(st.integers(0, 5))
    if not stream and draw(st.integers(0, 3)) == 0:
        body["prompt_logprobs"] = draw(st.integers(0, 3))
    if body.get("echo") and draw(st.integers(0, 2)) == 0:
        body |= {"max_tokens": 0, "min_tokens": 0}
    return body


@st.composite
def script(
    draw: Draw, setup: Setup, body: Json, prompt: int, choice: int, *, calls: bool
) -> list[Chunk]:
    """The chunks of one choice. They go on past stop strings, which the server finds."""
    ids = draw(output_ids(setup.model, calls=calls))
    (end,) = encode(setup.model, END[setup.model])
    ways = ["length", "abort"]
    if not body.get("ignore_eos"):
        ways += ["end", "end", "end"]
    if body.get("stop_token_ids"):
        ways += ["token", "token"]
    way = draw(st.sampled_from(ways))
    stop = None
    if body.get("max_tokens") == 0:
        ids, way = ids[:1], "length"
    if way == "end":
        ids.append(end)
    elif way == "token":
        stop = draw(st.sampled_from(body["stop_token_ids"]))
        ids.append(stop)
        if stop == end and not body.get("ignore_eos"):
            stop = None
    parts, left = [], ids
    while left:
        size = draw(st.integers(1, 5))
        parts.append(left[:size])
        left = left[size:]
    if way == "abort" and draw(st.booleans()):
        parts.append([])
    chunks = [Chunk(prompt, choice, tuple(part)) for part in parts]
    finish = way if way in ("length", "abort") else "stop"
    chunks[-1] = chunks[-1]._replace(finish=finish, stop=stop)
    return chunks


@st.composite
def output_ids(draw: Draw, model: str, *, calls: bool) -> list[int]:
    """Tokens that make parsers work, whole or cut anywhere."""
    pieces = st.one_of(
        st.sampled_from(PIECES), st.sampled_from(PIECES), st.sampled_from(SPECIAL[model])
    )
    ids: list[int] = []
    if calls:
        before = draw(
            st.sampled_from(("Well.</think>\n\n", "</think>", "<think>a</think>So: ", ""))
        )
        ids += encode(model, before + draw(st.sampled_from(CALLS[model])))
    for _ in range(draw(st.integers(0 if ids else 1, 3))):
        part = encode(model, draw(pieces))
        if draw(st.integers(0, 3)) == 0:
            start = draw(st.integers(0, len(part) - 1))
            part = part[start : draw(st.integers(start + 1, len(part)))]
        ids += part
    return ids[:MAX_TOKENS]


@st.composite
def interleaved(draw: Draw, scripts: list[list[Chunk]]) -> list[Chunk]:
    """Chunks of several choices, each one's in order."""
    mixed: list[Chunk] = []
    waiting = [list(script) for script in scripts]
    while any(waiting):
        at = draw(st.sampled_from([i for i, left in enumerate(waiting) if left]))
        mixed.append(waiting[at].pop(0))
    return mixed


def engine_chunks(setup: Setup, case: Case, prompt: int, *, tokenizer: bool) -> list[Chunk]:
    """What the engine of one prompt says.

    Without a tokenizer it takes the end token for a stop token like any other, and names it.
    """
    (end,) = encode(setup.model, END[setup.model])
    chunks = [chunk._replace(prompt=0) for chunk in case.chunks if chunk.prompt == prompt]
    if tokenizer:
        return chunks
    return [
        chunk._replace(stop=end) if chunk.finish == "stop" and chunk.stop is None else chunk
        for chunk in chunks
    ]


def engine_events(setup: Setup, case: Case, plan: Plan, *, tokenizer: bool) -> list[EngineEvent]:
    """What vLLM's generate streams, in the order of the chunks."""
    streams = []
    for prompt, request in enumerate(asked(plan)):
        assert request["stream"]
        chunks = engine_chunks(setup, case, prompt, tokenizer=tokenizer)
        answer = coupled(setup).generate(request, chunks)
        assert answer.status == 200, answer
        assert len(chunks) <= len(answer.payload)
        assert answer.payload[-1] == DONE
        streams.append(answer.payload)
    given = []
    for chunk in case.chunks:
        given.append(event(streams[chunk.prompt].pop(0), chunk.prompt))
    for prompt, left in enumerate(streams):
        given += [event(payload, prompt) for payload in left]
    return given


def engine_bodies(setup: Setup, case: Case, plan: Plan, *, tokenizer: bool) -> list[Json]:
    """What vLLM's generate answers in one piece, per prompt."""
    bodies = []
    for prompt, request in enumerate(asked(plan)):
        assert not request["stream"]
        chunks = engine_chunks(setup, case, prompt, tokenizer=tokenizer)
        answer = coupled(setup).generate(request, chunks)
        assert answer.status == 200, answer
        bodies.append(answer.payload)
    return bodies
