"""The scripted engine that most of its tests ask."""

from collections.abc import Iterator

import httpx
import pytest

from loadtest.engine.settings import ScriptedSettings
from tests.loadtest.engine.engine_client import run_engine


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with run_engine(ScriptedSettings()) as client:
        yield client
