"""What tests of the engines' client do again and again."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from core.protocol.errors import (
    DerenderError,
)
from gateway.engines.engine import Ending, EngineStats
from gateway.engines.generation import Generation
from gateway.engines.pool import Engines
from tests.gateway.scripted_engine import (
    Client,
    Script,
    ScriptedEngine,
    run,
)

STREAM = b'{"stream":true}'
HEADERS = [("content-type", "application/json")]


async def stream(engines: Engines, body: bytes = STREAM) -> Generation:
    return await engines.generate(body, HEADERS, stream=True)


async def one_shot(engines: Engines, body: bytes = b"{}") -> Generation:
    return await engines.generate(body, HEADERS, stream=False)


async def read(engines: Engines) -> list[bytes]:
    """All events of one generation."""
    found = []
    with await stream(engines) as generation:
        while (events := await generation.events()) is not None:
            found += events
        assert generation.done
    return found


def only(engines: Engines) -> EngineStats:
    (stats,) = engines.stats().engines
    return stats


def outcomes(stats: EngineStats) -> dict[Ending, int]:
    return {outcome: count for outcome, count in stats.outcomes.items() if count}


async def failure(engines: Engines, kind: type[DerenderError], *, streamed: bool = True) -> str:
    """The message `generate` fails with."""
    with pytest.raises(kind) as caught:
        await engines.generate(STREAM, HEADERS, stream=streamed)
    return caught.value.message


def with_engine(
    script: Script, test: Callable[[ScriptedEngine, Engines], Any], **options: Any
) -> None:
    """Run a test with one engine."""

    async def main() -> None:
        async with ScriptedEngine(script) as engine, Client(engine, **options) as engines:
            await test(engine, engines)

    run(main())


def with_engines(
    scripts: list[Script], test: Callable[[list[ScriptedEngine], Engines], Any], **options: Any
) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            peers = [ScriptedEngine(script) for script in scripts]
            for peer in peers:
                await stack.enter_async_context(peer)
            engines = await stack.enter_async_context(Client(*peers, **options))
            await test(peers, engines)

    run(main())


def calls(peers: list[ScriptedEngine]) -> list[int]:
    return [len(peer.calls) for peer in peers]


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
