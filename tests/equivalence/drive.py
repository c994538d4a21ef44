"""Drives random streams through replicas, and holds every answer against the replayed one."""

import json
import random
from collections import Counter

import msgspec

from core.protocol.calls import DerenderChatChunk
from core.protocol.errors import FaultCode
from gateway.client.conversation import Conversation
from shards.messages.orders import TableLimits
from tests.core.calling import Json, Setup
from tests.core.oracle import Refused, comparable_chunk, oracle
from tests.core.test_differential import with_caller_prompt
from tests.equivalence.generations import Stream, draw
from tests.equivalence.replica import Answer, Refusal, Replica, call_for, finish, replayed

_encode = msgspec.json.Encoder().encode


class _Parts(msgspec.Struct):
    chunk: msgspec.Raw
    stream_state: msgspec.Raw


def _parts(answer: bytes) -> _Parts:
    return msgspec.json.decode(answer, type=_Parts)


class Walk:
    """One stream: every call of it with the replayed answer, and how far its client is.

    Attributes:
        bodies: The calls that were made so far, each with the state the one before issued.
        expected: The replayed answer to each.
        at: Position of the next call.
    """

    def __init__(self, setup: Setup, stream: Stream, rng: random.Random) -> None:
        self.setup = setup
        self.stream = stream
        self.at = 0
        self.bodies: list[Json] = []
        self.expected: list[Answer] = []
        self.conversation: Conversation | None = None
        if rng.random() < 0.4:
            self.conversation = Conversation(
                stream.request, stream.prompt, None, checkpoints=rng.random() < 0.8
            )
        self.turned = 0
        self.extend(None)

    def extend(self, state: Json) -> None:
        """Replay what follows, from a state on."""
        for chunk in self.stream.chunks[len(self.bodies) :]:
            body = {
                "stream": True,
                "generate_chunk": chunk,
                "stream_state": state,
                "prompt_tokens": len(self.stream.prompt),
                "prompt_token_ids": self.stream.prompt,
                "chat_request": self.stream.request,
            }
            self.bodies.append(body)
            self.expected.append(replayed(self.setup, call_for(_encode(body))))
            if isinstance(answer := self.expected[-1], Refusal):
                return
            state = msgspec.json.decode(_parts(answer).stream_state)

    @property
    def ended(self) -> bool:
        return self.at >= len(self.bodies)

    def call(self, at: int) -> DerenderChatChunk:
        return call_for(_encode(self.bodies[at]))


class Run:
    """Some streams and two replicas."""

    def __init__(self, setup: Setup, rng: random.Random) -> None:
        self._setup = setup
        self._rng = rng
        self._names = 0
        self._counts: Counter[str] = Counter()
        limits = TableLimits(
            streams=rng.choice((1, 2, 3, 50)), tokens=rng.choice((40, 300, 10**6)), ttl_s=10.0
        )
        self._replicas = [Replica(setup, limits, digests=rng.random() < 0.6) for _ in range(2)]
        self._walks: list[Walk] = []
        for _ in range(3):
            self._draw()

    def drive(self, rounds: int) -> Counter[str]:
        """Take random actions.

        Returns:
            Answers compared, by action, and what the replicas counted.
        """
        actions = {
            self._step: 55,
            self._turn: 25,
            self._repeat: 10,
            self._go_back: 7,
            self._leap: 3,
            self._abandon: 8,
            self._cross: 6,
            self._change_context: 4,
            self._break_state: 5,
            self._pass_to_vllm: 3,
            self._restart: 3,
            self._wait: 3,
        }
        chosen = self._rng.choices(list(actions), list(actions.values()), k=rounds)
        for action in chosen:
            walk = self._rng.choice(self._walks)
            action(walk)
            if walk.ended:
                self._walks.remove(walk)
                self._draw()
        for replica in self._replicas:
            self._take_counters(replica)
        return self._counts

    def _draw(self) -> None:
        self._names += 1
        for stream in draw(self._setup, self._rng, f"request-{self._names}"):
            self._walks.append(Walk(self._setup, stream, self._rng))

    def _take_counters(self, replica: Replica) -> None:
        for counted in (*replica.counted, replica.table.counters()):
            for counts in (counted.outcomes, counted.replays, counted.evictions):
                self._counts.update(counts)

    def _replica(self) -> Replica:
        return self._replicas[self._rng.random() < 0.15]

    def _compare(self, action: str, answer: Answer, expected: Answer) -> None:
        self._counts["compared"] += 1
        self._counts[f"action {action}"] += 1
        assert answer == expected, action

    def _step(self, walk: Walk) -> None:
        """The next call, its state spelled in some way."""
        call = walk.call(walk.at)
        if self._rng.random() < 0.25:
            call = msgspec.structs.replace(call, stream_state=self._respelled(call.stream_state))
        self._compare("step", self._replica().answer(call), walk.expected[walk.at])
        walk.at += 1

    def _respelled(self, state: bytes) -> bytes:
        """The same state with other blanks, another order and other numbers."""
        if not state:
            return state
        members = list(json.loads(state).items())
        self._rng.shuffle(members)
        if self._rng.random() < 0.5:
            members = [(key, _as_floats(value)) for key, value in members]
        return json.dumps(dict(members), indent=self._rng.choice((None, 1))).encode()

    def _turn(self, walk: Walk) -> None:
        """The next call of the project's own client, which may use checkpoints."""
        if walk.conversation is None or walk.turned >= len(walk.bodies):
            return self._step(walk)
        at = walk.turned
        turn = walk.conversation.turn(walk.bodies[at]["generate_chunk"])
        replica = self._replica()
        answer = replica.answer(call_for(turn.request()))
        if self._rng.random() < 0.2:
            # The first answer is lost.
            answer = replica.answer(call_for(turn.request()))
        if isinstance(answer, Refusal) and answer.code is FaultCode.UNKNOWN_CHECKPOINT:
            self._counts["fell back"] += 1
            assert turn.fall_back()
            answer = replica.answer(call_for(turn.request()))
        expected = walk.expected[at]
        if isinstance(answer, Refusal) or isinstance(expected, Refusal):
            walk.conversation = None
            return self._compare("turn", answer, expected)
        walk.turned += 1
        self._compare("turn", bytes(_parts(answer).chunk), bytes(_parts(expected).chunk))
        turn.finish(answer)
        return None

    def _repeat(self, walk: Walk) -> None:
        """The call before, once or twice: its answer was lost."""
        at = max(walk.at - 1, 0)
        replica = self._replica()
        for _ in range(self._rng.choice((1, 1, 2))):
            self._compare("repeat", replica.answer(walk.call(at)), walk.expected[at])

    def _go_back(self, walk: Walk) -> None:
        at = self._rng.randint(0, min(walk.at, len(walk.bodies) - 1))
        self._compare("go back", self._replica().answer(walk.call(at)), walk.expected[at])

    def _leap(self, walk: Walk) -> None:
        """Another replica served the calls between."""
        walk.at = self._rng.randint(walk.at, len(walk.bodies) - 1)
        self._compare("leap", self._replica().answer(walk.call(walk.at)), walk.expected[walk.at])

    def _abandon(self, walk: Walk) -> None:
        """Nobody waits for a call any more, in the middle of a replay or before."""
        at = self._rng.randint(walk.at, len(walk.bodies) - 1)
        self._replica().abandon(walk.call(at), self._rng.randint(0, 12))
        self._counts["action abandon"] += 1

    def _cross(self, walk: Walk) -> None:
        """Another call, of the same stream or not, comes in the middle of a replay."""
        replica = self._replica()
        at = self._rng.randint(walk.at, len(walk.bodies) - 1)
        begun = replica.begin(walk.call(at))
        early: Answer | None = None
        for _ in range(self._rng.randint(1, 8)):
            try:
                next(begun)
            except StopIteration as done:
                early = done.value
                break
            except Exception:  # noqa: BLE001 - asked again below
                early = replica.answer(walk.call(at))
                break
        other = self._rng.choice([one for one in self._walks if one is not walk] or [walk])
        if other is not walk:
            self._step_of(other, replica)
        waiting = replica.begin(walk.call(walk.at))
        if early is None:
            self._compare("cross", finish(begun), walk.expected[at])
        else:
            self._compare("cross", early, walk.expected[at])
        self._compare("cross", finish(waiting), walk.expected[walk.at])

    def _step_of(self, walk: Walk, replica: Replica) -> None:
        at = min(walk.at, len(walk.bodies) - 1)
        self._compare("cross", replica.answer(walk.call(at)), walk.expected[at])

    def _change_context(self, walk: Walk) -> None:
        """The same call with another prompt or another request."""
        body = dict(walk.bodies[walk.at])
        if self._rng.random() < 0.5:
            body["prompt_token_ids"] = [*self._rng.choices(range(300), k=5)]
        else:
            body["chat_request"] = body["chat_request"] | {"include_reasoning": True, "seed": 1}
        call = call_for(_encode(body))
        self._compare("context", self._replica().answer(call), replayed(self._setup, call))

    def _break_state(self, walk: Walk) -> None:
        """A state that does not add up, or adds up to something else."""
        body = dict(walk.bodies[walk.at])
        state = dict(body["stream_state"] or {"output_token_ids": [1], "output_chunk_lens": [1]})
        more_ids, more_lens, members = self._rng.choice(_DAMAGES)
        ids = [*state["output_token_ids"], *more_ids]
        lens = [*state["output_chunk_lens"], *more_lens]
        if self._rng.random() < 0.1:
            ids[:1], lens = [3], [len(ids) or 1]
        body["stream_state"] = (
            state | {"output_token_ids": ids, "output_chunk_lens": lens} | members
        )
        call = call_for(_encode(body))
        self._compare("broken", self._replica().answer(call), replayed(self._setup, call))

    def _pass_to_vllm(self, walk: Walk) -> None:
        """VLLM's own server takes the next call, and its state is carried from there on."""
        if not walk.stream.served_by_vllm or walk.conversation is not None:
            return
        body, expected = walk.bodies[walk.at], walk.expected[walk.at]
        try:
            theirs = oracle(self._setup).answer(body, "chat")
        except Refused:
            assert isinstance(expected, Refusal)
            return
        assert isinstance(expected, bytes)
        ours = json.loads(expected)
        self._counts["answers of vLLM"] += 1
        assert comparable_chunk(ours) == comparable_chunk(with_caller_prompt(theirs, ours))
        walk.at += 1
        del walk.bodies[walk.at :], walk.expected[walk.at :]
        walk.extend(theirs["stream_state"])

    def _restart(self, walk: Walk) -> None:
        self._replica().restart(noticed=self._rng.random() < 0.5)

    def _wait(self, walk: Walk) -> None:
        self._replica().wait(self._rng.choice((1.0, 11.0)))


_DAMAGES: tuple[tuple[Json, Json, Json], ...] = (
    ([7], [], {}),
    ([], [2], {}),
    ([], [0], {}),
    ([-1], [], {}),
    ([10**7], [1], {}),
    (["x"], [1], {}),
    ([5], [1], {}),
    ([9] * 9000, [9000], {}),
    ([], [], {"tools_streamed": True}),
    ([], [], {"role_sent": False}),
    ([], [], {"last_tool_call_ids": ["mine"]}),
    ([], [], {"logprob_context_token_ids": [1, 2]}),
    ([], [], {"prev_tokens": ["a"], "read_offset": 5}),
)


def _as_floats(value: Json) -> Json:
    if isinstance(value, list):
        return [_as_floats(entry) for entry in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
