"""Fixtures shared by all rooms."""

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.front import IMPATIENT, OUTSIDE, EngineProcess
from tests.serving import DEMO_MODEL, PARSERS, Service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One real service for the whole run: demo model, hermes and qwen3, two shards."""
    log = tmp_path_factory.mktemp("service") / "log"
    flags = ("--served-model-name", "demo", "other", "--shards", "2", *PARSERS)
    with Service(log, *flags, "--max-body-bytes", "4M") as running:
        running.wait_until_serving()
        yield running
        # Ctrl-C ends a serving service in time, in order and without orphans.
        assert running.end(signal.SIGINT) == 0


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[httpx.Client]:
    """An HTTP client of the shared service."""
    with httpx.Client(base_url=service.url, timeout=30) as opened:
        yield opened


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineProcess]:
    """The scripted engine behind `front`: no tokenizer of its own, as fast as it can."""
    if OUTSIDE is not None:
        pytest.skip(f"the engine at {OUTSIDE.url} follows no script and no orders")
    with EngineProcess("--tokens-only") as running:
        yield running


@pytest.fixture(scope="session")
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service with the front door: demo model, hermes and qwen3, two shards.

    `tests.front` tells how to put a real engine behind it.
    """
    log = tmp_path_factory.mktemp("front") / "log"
    flags = ["--served-model-name", "demo", "other", "--shards", "2", *PARSERS, *IMPATIENT]
    if OUTSIDE is None:
        engine: EngineProcess = request.getfixturevalue("engine")
        flags += ["--engine-url", engine.url]
    else:
        flags += OUTSIDE.flags
    model = str(DEMO_MODEL) if OUTSIDE is None else OUTSIDE.model
    with Service(log, *flags, model=model) as running:
        running.wait_until_serving()
        yield running
