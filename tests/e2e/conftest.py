"""Servers that more than one module of end-to-end tests needs beside the shared service."""

from collections.abc import Iterator

import pytest

from loadtest.servers import reference
from loadtest.servers.fleet import SERVED_NAME
from tests.front import OUTSIDE, EngineProcess
from tests.serving import DEMO_MODEL, PARSERS, Service


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Another replica: one shard, and a table of 64 live streams."""
    log = tmp_path_factory.mktemp("second") / "log"
    names = ("--served-model-name", "demo", SERVED_NAME)
    flags = (*names, "--shards", "1", "--live-streams", "64", *PARSERS)
    with Service(log, *flags) as running:
        running.wait_until_serving()
        yield running


@pytest.fixture(scope="session")
def reference_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's own render server on the same model with the same parsers."""
    log = tmp_path_factory.mktemp("reference") / "log"
    flags = ("--served-model-name", "demo", *PARSERS)
    with reference.start(DEMO_MODEL, flags, log_path=log) as (_, url):
        yield url


@pytest.fixture(scope="session")
def paced_engines() -> Iterator[tuple[EngineProcess, EngineProcess]]:
    """The scripted engines behind `pair`: a long text at fifty tokens a second."""
    if OUTSIDE is not None:
        pytest.skip(f"the engine at {OUTSIDE.url} follows no script and no orders")
    flags = ("--tokens-only", "--tokens-per-second", "50")
    with EngineProcess(*flags) as first, EngineProcess(*flags) as second:
        yield first, second


@pytest.fixture(scope="session")
def pair(
    paced_engines: tuple[EngineProcess, EngineProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service before two engines, which may be silent for long; otherwise as `front`."""
    log = tmp_path_factory.mktemp("pair") / "log"
    flags = ("--served-model-name", "demo", "--shards", "2", *PARSERS, "--write-timeout", "3")
    urls = [engine.url for engine in paced_engines]
    with Service(log, *flags, "--engine-url", *urls) as running:
        running.wait_until_serving()
        yield running
