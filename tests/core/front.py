"""How tests drive the front door in this process: plan, ask an engine, make the answer.

What the gateway does between its caller, render, the engine and a shard, without HTTP.
"""

import json
import warnings
from collections.abc import Iterable, Sequence
from functools import cache

from core.answerer import Answerer
from core.front.journal import Entry, read
from core.protocol.calls import AdvanceStream, AnswerWhole, MakePlan, OpenStream
from core.protocol.plan import (
    Advance,
    ApiName,
    EngineEvent,
    Plan,
    Recipe,
    advance_decoder,
    plan_decoder,
    recipe_decoder,
)
from core.render import render
from core.vllm_adapter.encoding import agrees
from core.vllm_adapter.rendering import Renderer, load_renderer
from tests.core.calling import CREATED, Json, Setup, answerer, model, options

DONE = "[DONE]"
REQUEST_ID = "front"

# What differs each time; an ID of a tool call is compared for being there.
_ALIKE = ("id", "created", "system_fingerprint")
_CALL_ID = "a call"


@cache
def renderer(setup: Setup) -> Renderer:
    """The renderer of a set-up, made once."""
    return load_renderer(options(setup), model(setup), agrees)


def plan_of(setup: Setup, endpoint: str, body: Json) -> Plan:
    """What the front door is to do for a request body, JSON or what it decodes to.

    Raises:
        DerenderError: The request is refused.
    """
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    asking = MakePlan(
        call_id=1, api=ApiName(endpoint), body=raw, caller_id=REQUEST_ID, engine_model="m"
    )
    with warnings.catch_warnings():
        # vLLM reads a field of its own that it calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return plan_decoder.decode(render(renderer(setup), asking))


def recipe_of(plan: Plan) -> Recipe:
    """The recipe in a plan."""
    return recipe_decoder.decode(plan.recipe)


def asked(plan: Plan) -> list[Json]:
    """What the engine is asked, per prompt."""
    return [json.loads(request.body) for request in plan.engine_requests]


def event(payload: Json, prompt: int = 0) -> EngineEvent:
    """One event of an engine: its payload, `[DONE]`, or bytes as they are."""
    if isinstance(payload, bytes):
        return EngineEvent(prompt, payload)
    return EngineEvent(prompt, b"" if payload == DONE else json.dumps(payload).encode())


def events(streams: Iterable[Sequence[Json]]) -> list[EngineEvent]:
    """The events of each prompt's stream, one prompt after the other."""
    return [event(payload, at) for at, stream in enumerate(streams) for payload in stream]


class Door:
    """One request in a shard, as a gateway's session holds it.

    Attributes:
        journal: What to open the stream anew from.
        data: What went to the caller.
        advances: What each call answered.
    """

    def __init__(self, setup: Setup, plan: Plan, shard: Answerer | None = None) -> None:
        self.journal = b""
        self.data = b""
        self.advances: list[Advance] = []
        self._plan = plan
        self._setup = setup
        self._shard = shard or answerer(setup)
        self._open()

    def take(self, frame: Sequence[EngineEvent]) -> Advance:
        """Have the shard take events."""
        sent = AdvanceStream(call_id=1, session="s", events=list(frame))
        advance = advance_decoder.decode(self._shard.answer(sent))
        self.journal += advance.journal
        self.data += advance.data
        self.advances.append(advance)
        return advance

    def take_each(self, given: Iterable[EngineEvent]) -> "Door":
        """Have it take events one by one, as long as the gateway would go on."""
        aborted: set[int] = set()
        for each in given:
            if self.ended:
                break
            if each.prompt not in aborted:
                aborted.update(self.take([each]).aborted)
        return self

    def move(self) -> None:
        """Go on in another shard, from the journal."""
        self._shard = Answerer(model(self._setup))
        self._open()

    @property
    def ended(self) -> bool:
        """Nothing follows."""
        return bool(self.advances) and self.advances[-1].done

    @property
    def journal_entries(self) -> list[Entry]:
        """The journal, read."""
        return list(read(self.journal))

    def _open(self) -> None:
        opening = OpenStream(
            call_id=1,
            session="s",
            recipe=self._plan.recipe,
            created=CREATED,
            journal=self.journal,
        )
        self._shard.answer(opening)


def serve_stream(setup: Setup, plan: Plan, given: Iterable[EngineEvent]) -> list[Json]:
    """The payloads of a streamed answer; what went wrong, if anything, comes last."""
    door = Door(setup, plan).take_each(given)
    assert door.ended, "the events do not end the stream"
    fault = door.advances[-1].fault
    return [*payloads(door.data), *([] if fault is None else [fault])]


def serve_collected(setup: Setup, plan: Plan, given: Iterable[EngineEvent]) -> Json:
    """The answer in one piece to a stream of the engine."""
    assert plan.engine_streams
    assert not plan.stream
    door = Door(setup, plan).take_each(given)
    last = door.advances[-1]
    assert door.ended
    assert last.fault is None, last.fault
    assert last.data == door.data, "nothing is sent before the end"
    return json.loads(door.data)


def serve_whole(setup: Setup, plan: Plan, bodies: Iterable[Json]) -> Json:
    """The answer in one piece to whole bodies of the engine, one per prompt.

    Raises:
        DerenderError: There is none.
    """
    raw = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
    sent = AnswerWhole(call_id=1, recipe=plan.recipe, created=CREATED, bodies=raw)
    return json.loads(answerer(setup).answer(sent))


def payloads(data: bytes) -> list[Json]:
    """The payload of each server-sent event, `[DONE]` as a string."""
    found = []
    for sent in data.decode().split("\n\n")[:-1]:
        payload = sent.removeprefix("data: ")
        assert payload != sent, sent
        found.append(payload if payload == DONE else json.loads(payload))
    return found


def comparable(answer: Json) -> Json:
    """An answer without what differs each time."""
    if isinstance(answer, list):
        return [comparable(part) for part in answer]
    if not isinstance(answer, dict):
        return answer
    kept = {key: comparable(value) for key, value in answer.items() if key not in _ALIKE}
    if isinstance(answer.get("id"), str) and "function" in answer:
        kept["id"] = _CALL_ID
    return kept


def by_choice(answer: list[Json]) -> dict[int, list[Json]]:
    """The events of each choice in order, and under -1 those of none."""
    sorted_out: dict[int, list[Json]] = {}
    for sent in comparable(answer):
        named = sent != DONE and sent["choices"]
        sorted_out.setdefault(sent["choices"][0]["index"] if named else -1, []).append(sent)
    return sorted_out
