"""Fixtures shared by all rooms."""

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.serving import PARSERS, Service


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
