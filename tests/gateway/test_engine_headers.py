"""Headers, settings and metrics of the engines' client."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.engines.headers import engine_headers
from gateway.engines.pool import Engines
from gateway.engines.settings import EngineSettings
from gateway.metrics.engines import EngineCollector
from tests.gateway.engine_calls import read, with_engine
from tests.gateway.scripted_engine import (
    Client,
    ScriptedEngine,
    well,
)


def headers_of(request: dict[bytes, bytes], **options: Any) -> dict[str, str]:
    settings = EngineSettings(urls=("http://e",), **options)
    pairs = engine_headers(request, "cmpl-1", settings)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_headers_are_chosen_from_the_callers() -> None:
    passed_on = {
        "traceparent": "00-1",
        "tracestate": "a=1",
        "baggage": "b=2",
        "x-data-parallel-rank": "3",
        "x-session-id": "s\u00e9ssion",
        "x-vllm-priority": "-1",
    }
    request = {name.encode(): value.encode() for name, value in passed_on.items()}
    unsent = {b"cookie": b"c", b"host": b"h", b"authorization": b"Bearer caller", b"x-other": b"o"}
    assert headers_of(request | unsent) == {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "derender-gateway",
        "x-request-id": "cmpl-1",
        **passed_on,
    }


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\0", b"\x7f", b"\xff", b"a\nb"])
def test_headers_that_cannot_be_sent_are_left_out(value: bytes) -> None:
    assert "traceparent" not in headers_of({b"traceparent": value})
    assert "authorization" not in headers_of({b"authorization": value}, forward_authorization=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"api_key": "k"}, "Bearer k"),
        ({"forward_authorization": True}, "Bearer caller"),
        ({"forward_authorization": True, "api_key": "k"}, "Bearer caller"),
    ],
)
def test_authorization_is_as_configured(options: dict[str, Any], expected: str | None) -> None:
    headers = headers_of({b"authorization": b"Bearer caller"}, **options)
    assert headers.get("authorization") == expected


def test_the_key_stands_in_for_callers_without_one() -> None:
    assert headers_of({}, forward_authorization=True, api_key="k")["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "options",
    [
        {"urls": ()},
        {"urls": ("engine:8000",)},
        {"urls": ("ftp://engine",)},
        {"urls": ("http://",)},
        {"urls": ("http://engine:99999",)},
        {"urls": ("http://u:secret@engine:8000?x=1",)},
        {"urls": ("http://engine#x",)},
        {"urls": ("http://engine",), "api_key": "a\nb"},
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="engine") as caught:
        EngineSettings(**options)
    assert "secret" not in str(caught.value)


def test_metrics_show_each_engine_without_its_password() -> None:
    async def test(engine: ScriptedEngine, engines: Engines) -> None:
        url = engine.url.replace("http://", "http://user:secret@") + "/"
        async with Client(urls=(url,)) as engines:
            await read(engines)
            registry = CollectorRegistry()
            registry.register(EngineCollector(engines))
            lines = generate_latest(registry).decode().splitlines()
            for line in (
                f'derender_engine_up{{engine="{engine.url}"}} 1.0',
                f'derender_engine_requests_in_flight{{engine="{engine.url}"}} 0.0',
                f'derender_engine_requests_total{{engine="{engine.url}",outcome="finished"}} 1.0',
                f'derender_engine_requests_total{{engine="{engine.url}",outcome="failed"}} 0.0',
                f'derender_engine_ejections_total{{engine="{engine.url}"}} 0.0',
                "derender_engine_retries_total 0.0",
            ):
                assert line in lines

    with_engine(well, test)
