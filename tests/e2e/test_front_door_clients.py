"""Clients of OpenAI's API work unmodified before a token-only engine.

What is asserted holds for any model, but for what `scripted` marks; see `tests.front`.
"""

import asyncio
import itertools
import json
import subprocess
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import openai
import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.front import OUTSIDE, EngineProcess, scripted
from tests.serving import Service

Json = Any
MESSAGES: list[Json] = [{"role": "user", "content": "What is 2+2?"}]
WEATHER: list[Json] = [{"role": "user", "content": "How is the weather in Paris? Look it up."}]
TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
SUM = "2 + 2 = 4"
THOUGHT = "Two and two make four."
STREAMS = 64


@pytest.fixture(scope="module")
def client(front: Service) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


@asynccontextmanager
async def async_client(front: Service) -> AsyncIterator[AsyncOpenAI]:
    base_url = f"{front.url}/v1"
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


def chat(client: OpenAI, **members: Any) -> Json:
    given: Json = {"model": "demo", "messages": MESSAGES, "max_tokens": 512, "temperature": 0}
    return client.chat.completions.create(**(given | members))


def complete(client: OpenAI, **members: Any) -> Json:
    given: Json = {"model": "demo", "prompt": "What is 2+2?", "max_tokens": 8, "temperature": 0}
    return client.completions.create(**(given | members))


class Joined:
    """A streamed chat put together the way applications do it."""

    def __init__(self, chunks: Iterable[ChatCompletionChunk]) -> None:
        self.content: dict[int, str] = {}
        self.reasoning: dict[int, str] = {}
        self.calls: dict[int, Json] = {}
        self.finish: dict[int, str] = {}
        self.usage: Json = None
        self.roles: set[str | None] = set()
        self.ids: set[str] = set()
        for chunk in chunks:
            self.ids.add(chunk.id)
            self.usage = chunk.usage or self.usage
            for choice in chunk.choices:
                self._add(choice)

    def _add(self, choice: Json) -> None:
        delta, index = choice.delta, choice.index
        self.roles.add(delta.role)
        reasoning = (delta.model_extra or {}).get("reasoning") or ""
        self.content[index] = self.content.get(index, "") + (delta.content or "")
        self.reasoning[index] = self.reasoning.get(index, "") + reasoning
        for call in delta.tool_calls or ():
            known = self.calls.setdefault(call.index, {"id": call.id, "name": "", "arguments": ""})
            known["name"] += call.function.name or ""
            known["arguments"] += call.function.arguments or ""
        if choice.finish_reason:
            assert index not in self.finish
            self.finish[index] = choice.finish_reason


def whole(answer: Json) -> tuple[str, str]:
    message = answer.choices[0].message
    return message.content or "", (message.model_extra or {}).get("reasoning") or ""


def test_content_and_reasoning(client: OpenAI) -> None:
    answer = chat(client)
    content, reasoning = whole(answer)
    assert content or reasoning
    assert answer.object == "chat.completion"
    assert (answer.model, answer.choices[0].message.role) == ("demo", "assistant")
    usage = answer.usage
    assert usage.prompt_tokens + usage.completion_tokens == usage.total_tokens
    if OUTSIDE is None:
        assert (content.strip(), reasoning.strip()) == (SUM, THOUGHT)
        assert answer.choices[0].finish_reason == "stop"


def test_a_stream_joins_to_the_whole_answer(client: OpenAI) -> None:
    chunks = list(chat(client, stream=True))
    joined = Joined(chunks)
    assert (joined.content[0], joined.reasoning[0]) == whole(chat(client))
    assert (joined.usage, len(joined.ids)) == (None, 1)
    assert joined.roles == {"assistant", None}
    assert set(joined.finish) == {0}


def test_usage_at_the_end_and_with_every_chunk(client: OpenAI) -> None:
    expected = chat(client).usage
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == expected
    options = {"include_usage": True, "continuous_usage_stats": True}
    counted = [chunk.usage for chunk in chat(client, stream=True, stream_options=options)]
    totals = [usage.completion_tokens for usage in counted]
    assert totals == sorted(totals)
    assert totals[-1] == expected.completion_tokens
    assert {usage.prompt_tokens for usage in counted} == {expected.prompt_tokens}


def test_the_length_is_heeded(client: OpenAI) -> None:
    answer = chat(client, max_tokens=3)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 3)
    assert Joined(chat(client, max_tokens=3, stream=True)).finish == {0: "length"}


@scripted
def test_tool_calls(client: OpenAI) -> None:
    answer = chat(client, messages=WEATHER, tools=TOOLS)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    joined = Joined(chat(client, messages=WEATHER, tools=TOOLS, stream=True))
    assert joined.finish == {0: "tool_calls"}
    streamed = joined.calls[0]
    assert (streamed["name"], streamed["arguments"]) == ("get_weather", call.function.arguments)
    assert streamed["id"].startswith("chatcmpl-tool-")
    assert streamed["id"] != call.id
    assert (joined.content[0], joined.reasoning[0]) == whole(answer)


@scripted
def test_a_conversation_goes_on_after_a_tool(client: OpenAI) -> None:
    message = chat(client, messages=WEATHER, tools=TOOLS).choices[0].message
    result = {
        "role": "tool",
        "tool_call_id": message.tool_calls[0].id,
        "content": "18 degrees",
    }
    said = message.model_dump(exclude_none=True)
    answer = chat(client, messages=[*WEATHER, said, result], tools=TOOLS)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.tool_calls is None
    assert "the weather in Köln is fine" in answer.choices[0].message.content


def test_several_choices(client: OpenAI) -> None:
    several = {"n": 3, "temperature": 0.5, "seed": 1}
    answer = chat(client, **several)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    joined = Joined(chat(client, stream=True, **several))
    assert set(joined.finish) == {0, 1, 2}
    if OUTSIDE is None:
        contents = [choice.message.content for choice in answer.choices]
        assert [joined.content[index] for index in range(3)] == contents
        reasonings = [choice.message.model_extra["reasoning"] for choice in answer.choices]
        assert len(set(reasonings)) == 3


def test_logprobs(client: OpenAI) -> None:
    members = {"logprobs": True, "top_logprobs": 2, "max_tokens": 5}
    found = chat(client, **members).choices[0].logprobs.content
    assert [len(position.top_logprobs) for position in found] == [2] * 5
    assert all(position.logprob <= 0 for position in found)
    assert all(bytes(position.bytes).decode("utf-8", "replace") for position in found)
    streamed = [
        position
        for chunk in chat(client, stream=True, **members)
        for choice in chunk.choices
        if choice.logprobs
        for position in choice.logprobs.content
    ]
    assert [position.token for position in streamed] == [position.token for position in found]
    if OUTSIDE is None:
        assert streamed == found


def test_a_stop_string_that_the_engine_does_not_know(client: OpenAI) -> None:
    content, reasoning = whole(chat(client))
    text = content or reasoning
    word = text.split()[1]
    stopped = chat(client, stop=[word])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].model_extra["stop_reason"] == word
    joined = Joined(chat(client, stop=[word], stream=True))
    assert joined.finish == {0: "stop"}
    assert (joined.content[0], joined.reasoning[0]) == whole(stopped)
    assert word not in joined.content[0] + joined.reasoning[0]


def test_completions_of_several_prompts(client: OpenAI) -> None:
    prompts = ["Hello", "What is 2+2?", "Once upon a time"]
    answer = complete(client, prompt=prompts, n=2, temperature=0.5, seed=1)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert answer.usage.completion_tokens <= 6 * 8
    texts = dict.fromkeys(range(6), "")
    for chunk in complete(client, prompt=prompts, n=2, temperature=0.5, seed=1, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert all(texts.values())
    if OUTSIDE is None:
        assert list(texts.values()) == [choice.text for choice in answer.choices]
        assert len(set(texts.values())) == 3  # What begins alike in the first tokens is alike.


def test_echo(client: OpenAI) -> None:
    plain = complete(client).choices[0].text
    assert complete(client, echo=True).choices[0].text == f"What is 2+2?{plain}"
    parts = [
        choice.text
        for chunk in complete(client, echo=True, stream=True)
        for choice in chunk.choices
    ]
    assert "".join(parts) == f"What is 2+2?{plain}"
    assert parts[0].startswith("What is 2+2?")


def test_completion_logprobs(client: OpenAI) -> None:
    found = complete(client, logprobs=2).choices[0]
    assert "".join(found.logprobs.tokens) == found.text
    assert found.logprobs.text_offset[0] == 0
    assert len(found.logprobs.token_logprobs) == len(found.logprobs.tokens) == 8
    streamed = [
        choice.logprobs
        for chunk in complete(client, logprobs=2, stream=True)
        for choice in chunk.choices
        if choice.logprobs
    ]
    for name in ("tokens", "text_offset"):
        joined = itertools.chain.from_iterable(getattr(part, name) for part in streamed)
        assert list(joined) == getattr(found.logprobs, name)


def test_echo_with_the_logprobs_of_the_prompt(client: OpenAI) -> None:
    found = complete(client, echo=True, logprobs=1).choices[0]
    assert "".join(found.logprobs.tokens) == found.text
    assert found.logprobs.token_logprobs[0] is None
    assert all(value is not None for value in found.logprobs.token_logprobs[1:])
    with pytest.raises(openai.BadRequestError, match="echo"):
        complete(client, echo=True, logprobs=1, stream=True)


def test_token_ids_as_a_prompt(client: OpenAI) -> None:
    asked = complete(client, extra_body={"return_token_ids": True}).choices[0].model_extra
    again = complete(client, prompt=asked["prompt_token_ids"])
    assert again.choices[0].text == complete(client).choices[0].text


@scripted
def test_the_stream_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(model="demo", messages=WEATHER, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final: Json = stream.get_final_completion()
    assert kinds.count("content.done") == 1
    assert kinds.count("tool_calls.function.arguments.done") == 1
    assert final.choices[0].finish_reason == "tool_calls"
    (call,) = final.choices[0].message.tool_calls
    assert call.function.arguments == '{"city": "Paris"}'


class Weather(pydantic.BaseModel):
    """A tool, and an answer in JSON."""

    city: str
    unit: Literal["celsius", "kelvin"]


@scripted
def test_parsed_tools(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather)]
    parsed: Json = client.chat.completions.parse(model="demo", messages=WEATHER, tools=tools)
    (call,) = parsed.choices[0].message.tool_calls
    assert call.function.parsed_arguments == Weather(city="Paris", unit="celsius")


@scripted
def test_a_response_format_reaches_the_engine(client: OpenAI, engine: EngineProcess) -> None:
    # The script knows no JSON, so the client cannot parse what comes; but it gets there.
    with pytest.raises(pydantic.ValidationError):
        client.chat.completions.parse(
            model="demo",
            messages=MESSAGES,
            response_format=Weather,
            extra_headers={"x-request-id": "format-1"},
        )
    asked = engine.request("format-1")["body"]["sampling_params"]["structured_outputs"]
    assert asked["json"]["properties"]["city"] == {"title": "City", "type": "string"}


def test_raw_responses(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="demo", messages=MESSAGES, max_tokens=4, extra_headers={"x-request-id": "raw-1"}
    )
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert raw.request_id == "raw-1"
    assert raw.parse().id == "chatcmpl-raw-1"


def test_streaming_responses(client: OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="demo", messages=MESSAGES, max_tokens=4, stream=True
    ) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("members", "error", "param"),
    [
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"messages": "hello"}, openai.BadRequestError, "messages"),
        ({"model": "nobody"}, openai.NotFoundError, "model"),
    ],
)
def test_refusals(
    client: OpenAI, members: Json, error: type[openai.APIStatusError], param: str, stream: bool
) -> None:
    with pytest.raises(error) as caught:
        chat(client, stream=stream, **members)
    body = caught.value.body
    assert isinstance(body, dict)
    assert (body["param"], body["code"]) == (param, caught.value.status_code)
    assert caught.value.request_id


@scripted
def test_errors_of_the_engine(client: OpenAI, engine: EngineProcess) -> None:
    engine.order("refuse", status=429)
    with pytest.raises(openai.RateLimitError, match="refuses on order"):
        chat(client)
    engine.order("error")
    with pytest.raises(openai.InternalServerError, match="fails on order"):
        chat(client)
    engine.order("error", after=5)
    said = []
    with pytest.raises(openai.APIError, match="fails on order") as caught:
        for chunk in chat(client, stream=True):
            said.append(chunk)
    assert type(caught.value) is openai.APIError
    assert len(said) == 5  # The role, and all tokens but the one that opens the reasoning.


@scripted
def test_retries_of_the_client_succeed(front: Service, engine: EngineProcess) -> None:
    with OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=1) as patient:
        engine.order("refuse", status=503)
        begun = time.monotonic()
        assert whole(chat(patient))[0].strip() == SUM
        # The engine's Retry-After reached the client.
        assert time.monotonic() - begun > 0.9


def test_the_asynchronous_client(front: Service, client: OpenAI) -> None:
    async def both() -> tuple[Json, Json, Json]:
        given: Json = {"model": "demo", "messages": MESSAGES, "max_tokens": 512, "temperature": 0}
        async with async_client(front) as asynchronous:
            create = asynchronous.chat.completions.create
            answer = await create(**given)
            stream = [chunk async for chunk in await create(**given, stream=True)]
            text = await asynchronous.completions.create(model="demo", prompt="Hi", max_tokens=3)
            return answer, stream, text

    answer, stream, text = asyncio.run(both())
    assert whole(answer) == whole(chat(client))
    joined = Joined(stream)
    assert (joined.content[0], joined.reasoning[0]) == whole(answer)
    assert text.usage.completion_tokens == 3


def test_many_streams_at_once_do_not_mix(front: Service) -> None:
    """Each caller knows its own answer by its name in an echo."""

    async def one(client: AsyncOpenAI, number: int) -> None:
        name = f"caller number {number} of many"
        chunks = await client.completions.create(
            model="demo",
            prompt=name,
            echo=True,
            max_tokens=60,
            temperature=0,
            stream=True,
            extra_headers={"x-request-id": f"many-{number}"},
            stream_options={"include_usage": True},
        )
        text, ids, usage = "", set(), None
        async for chunk in chunks:
            ids.add(chunk.id)
            usage = chunk.usage or usage
            text += "".join(choice.text for choice in chunk.choices)
        assert text.startswith(name)
        assert len(text) > len(name)
        assert ids == {f"cmpl-many-{number}"}
        assert usage is not None
        if OUTSIDE is None:
            assert text == f"{name}{texts.setdefault('said', text.removeprefix(name))}"

    texts: dict[str, str] = {}

    async def all_of_them() -> None:
        async with async_client(front) as client:
            await asyncio.gather(*(one(client, number) for number in range(STREAMS)))

    asyncio.run(all_of_them())


@scripted
def test_many_chats_at_once_do_not_mix(front: Service) -> None:
    """Callers want different things, and each gets its own."""

    async def one(client: AsyncOpenAI, number: int) -> None:
        kind, n = number % 3, 1 + number % 2
        given: Json = [{"messages": MESSAGES}, {"messages": WEATHER, "tools": TOOLS}, {}][kind]
        if kind == 2:
            given = {"messages": [{"role": "user", "content": "Hello"}], "logprobs": True}
        stream: Json = await client.chat.completions.create(
            model="demo", stream=True, n=n, max_tokens=200, **given
        )
        joined = Joined([chunk async for chunk in stream])
        assert len(joined.finish) == n
        if kind == 1:
            assert set(joined.finish.values()) == {"tool_calls"}
            assert joined.calls[0]["name"] == "get_weather" * n
        else:
            expected = SUM if kind == 0 else "Hello! The answer is"
            assert joined.content[0].strip().startswith(expected)
            assert joined.calls == {}

    async def all_of_them() -> None:
        async with async_client(front) as client:
            await asyncio.gather(*(one(client, number) for number in range(STREAMS)))

    asyncio.run(all_of_them())


@scripted
def test_curl_gets_event_by_event(pair: Service) -> None:
    body = {"model": "demo", "messages": MESSAGES, "stream": True, "max_tokens": 64}
    command = ["curl", "-sN", f"{pair.url}/v1/chat/completions", "-d", json.dumps(body)]
    command += ["-H", "content-type: application/json"]
    arrivals = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        for line in curl.stdout:
            if line.strip():
                arrivals.append((time.monotonic(), line.strip()))
    assert curl.returncode == 0
    assert arrivals[-1][1] == "data: [DONE]"
    # Twenty-one tokens at fifty a second: in between lie about 0.4 s, and no two are held back.
    times = [at for at, _ in arrivals]
    assert times[-1] - times[0] > 0.3
    later = sum(times[-1] - at > 0.1 for at in times)
    assert later > len(times) // 2


@scripted
def test_an_agent_calls_a_tool_and_answers(front: Service) -> None:
    asked = []

    def get_weather(city: str) -> str:
        """Tell the weather."""
        asked.append(city)
        return "18 degrees"

    events = []

    async def note(_: object, stream: AsyncIterable[object]) -> None:
        events.extend([event async for event in stream])

    async def run(**members: Json) -> str:
        async with async_client(front) as client:
            provider = OpenAIProvider(openai_client=client)
            agent = Agent(OpenAIChatModel("demo", provider=provider), tools=[get_weather])
            settings = ModelSettings(max_tokens=400)
            question = "How is the weather in Paris?"
            result = await agent.run(question, model_settings=settings, **members)
            return str(result.output)

    output = asyncio.run(run())
    assert "the weather in Köln is fine" in output
    assert asyncio.run(run(event_stream_handler=note)) == output
    assert asked == ["Paris", "Paris"]
    kinds = {type(event).__name__ for event in events}
    assert {"PartDeltaEvent", "FunctionToolCallEvent", "FunctionToolResultEvent"} <= kinds


def test_an_agent_that_is_given_an_address(front: Service) -> None:
    async def run() -> str:
        provider = OpenAIProvider(base_url=f"{front.url}/v1", api_key="none")
        agent = Agent(OpenAIChatModel("demo", provider=provider))
        async with agent:
            result = await agent.run("What is 2+2?", model_settings=ModelSettings(max_tokens=600))
        return str(result.output)

    assert asyncio.run(run())


def test_clients_in_threads(client: OpenAI) -> None:
    expected = whole(chat(client))
    answers: list[Json] = []

    def call() -> None:
        answers.append(whole(chat(client)))

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [expected] * 16
