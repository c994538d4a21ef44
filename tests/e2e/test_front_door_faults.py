"""Engines that fail, in every way a scripted one can: what the caller is told, and how soon."""

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.front_calls import (
    DONE,
    TIMEOUT_S,
    Answer,
    Ask,
    await_descriptors,
    await_nothing,
    chat,
    completion,
    counts,
    descriptors,
    send,
)
from tests.front import EngineProcess
from tests.serving import Service

IDLE_TIMEOUT_S = 3.0


def stream(name: str) -> Ask:
    """The caller gets events, and so does the gateway."""
    return chat(f"{name}-stream", stream=True)


def whole(name: str) -> Ask:
    """Neither does."""
    return chat(f"{name}-whole")


def stopped(name: str) -> Ask:
    """The gateway gets events to look for the stop string, the caller one answer."""
    return chat(f"{name}-stopped", stop=["never said"])


def several(name: str) -> Ask:
    """Events of several engine requests."""
    return completion(f"{name}-several", prompt=["Hello", "2+2?"], stream=True)


WAYS = {way.__name__: way for way in (stream, whole, stopped, several)}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def client(front: Service, engine: EngineProcess) -> Iterator[httpx.Client]:
    before = descriptors(front)
    with httpx.Client(base_url=front.url, timeout=TIMEOUT_S) as opened:
        yield opened
    await_descriptors(front, before)


@pytest.fixture(autouse=True)
def everything_returns_to_zero(front: Service, engine: EngineProcess) -> Iterator[None]:
    yield
    await_nothing(front, engine)
    engine.clear()


@every_way
@pytest.mark.parametrize("kind", ["burst", "pieces", "crlf"])
def test_what_is_odd_but_right_is_not_seen(
    client: httpx.Client, engine: EngineProcess, kind: str, way: str
) -> None:
    ask = WAYS[way](kind)
    undisturbed = send(client, ask)
    engine.order(kind, count=2)
    odd = send(client, ask)
    assert (odd.status, odd.by_choice) == (200, undisturbed.by_choice)


@every_way
@pytest.mark.parametrize("status", [400, 409, 422, 429, 503])
def test_refusals_of_the_engine_are_passed_on(
    client: httpx.Client, engine: EngineProcess, status: int, way: str
) -> None:
    engine.order("refuse", status=status)
    answer = send(client, WAYS[way](f"refused-{status}"))
    assert answer.status == status
    assert answer.error["message"] == "The engine refuses on order."
    assert answer.error["code"] == status
    assert answer.error["type"].endswith("Error")
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.headers.get("retry-after") == ("1" if status in (429, 503) else None)


@every_way
@pytest.mark.parametrize("status", [500, 502, 504])
def test_other_statuses_are_failures(
    client: httpx.Client, engine: EngineProcess, status: int, way: str
) -> None:
    engine.order("refuse", status=status)
    answer = send(client, WAYS[way](f"failed-{status}"))
    assert (answer.status, answer.error["code"]) == (502, "engine_failed")
    assert str(status) in answer.error["message"]
    assert "retry-after" not in answer.headers


@every_way
def test_a_page_is_no_answer(client: httpx.Client, engine: EngineProcess, way: str) -> None:
    engine.order("nonsense")
    answer = send(client, WAYS[way]("page"))
    assert (answer.status, answer.error["code"]) == (502, "engine_failed")
    assert "text/html" in answer.error["message"]


def retries(service: Service) -> float:
    return counts(service).total("derender_engine_retries_total")


@every_way
def test_a_reset_before_an_answer_is_not_seen(
    client: httpx.Client, front: Service, engine: EngineProcess, way: str
) -> None:
    # A reset of a kept connection is mended without counting, a second one by the one retry.
    before = retries(front)
    ask = WAYS[way]("reset")
    undisturbed = send(client, ask)
    engine.order("reset", count=2)
    again = send(client, ask)
    assert (again.status, again.by_choice) == (200, undisturbed.by_choice)
    assert retries(front) > before or way == "several"


@every_way
def test_resets_again_and_again_are_a_failure(
    client: httpx.Client, engine: EngineProcess, way: str
) -> None:
    engine.order("reset", count=20)
    answer = send(client, WAYS[way]("resets"))
    assert (answer.status, answer.error["code"]) == (502, "engine_failed")
    # A kept connection, a new one and the retry; nobody knocks for ever.
    assert len(engine.requests()) <= 3 * (2 if way == "several" else 1)


def check_broken(answer: Answer, way: str, status: int, code: object) -> None:
    """An answer that broke off: an error event where events went out, else an HTTP status."""
    if way in ("stream", "several"):
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert len(answer.events) > 3
        assert answer.events.count(DONE) == 1
        assert all("error" not in event for event in answer.events[:-2])
    else:
        assert answer.status == status
    assert answer.error["code"] == code
    assert set(answer.error) == {"message", "type", "param", "code"}


@every_way
@pytest.mark.parametrize("kind", ["die", "half", "short", "garbage"])
def test_an_answer_that_breaks_off(
    client: httpx.Client, engine: EngineProcess, kind: str, way: str
) -> None:
    engine.order(kind, after=5)
    answer = send(client, WAYS[way](kind))
    if kind in ("die", "half") and answer.status == 502:
        way = "whole"  # Events that come in one moment with the break may be lost.
    check_broken(answer, way, 502, "engine_failed")


@pytest.mark.parametrize("kind", ["die", "half", "short", "garbage"])
@pytest.mark.parametrize("way", ["stream", "stopped", "several"])
def test_an_answer_that_breaks_off_before_its_first_event(
    client: httpx.Client, engine: EngineProcess, kind: str, way: str
) -> None:
    engine.order(kind, count=2)
    answer = send(client, WAYS[way](f"first-{kind}"))
    # Nothing went out, so the status can still tell.
    assert (answer.status, answer.error["code"]) == (502, "engine_failed")


@pytest.mark.parametrize("way", ["stream", "stopped", "several"])
def test_an_error_event_first(client: httpx.Client, engine: EngineProcess, way: str) -> None:
    engine.order("error", count=2)
    answer = send(client, WAYS[way]("error-first"))
    assert (answer.status, answer.error["code"]) == (500, 500)
    assert answer.error["message"] == "The engine fails on order."


@pytest.mark.parametrize("way", ["stream", "stopped", "several"])
def test_an_error_event_in_the_middle(
    client: httpx.Client, engine: EngineProcess, way: str
) -> None:
    engine.order("error", after=5)
    answer = send(client, WAYS[way]("error-middle"))
    check_broken(answer, way, 500, 500)
    assert answer.error["message"] == "The engine fails on order."


def test_an_error_instead_of_a_whole_answer(client: httpx.Client, engine: EngineProcess) -> None:
    engine.order("error")
    answer = send(client, whole("error"))
    assert (answer.status, answer.error["code"]) == (502, "engine_failed")
    assert "The engine fails on order." in answer.error["message"]


@every_way
def test_an_engine_that_falls_silent(client: httpx.Client, engine: EngineProcess, way: str) -> None:
    engine.order("stall", after=5)
    begun = time.monotonic()
    ask = WAYS[way]("stalled")
    answer = send(client, ask)
    assert IDLE_TIMEOUT_S <= time.monotonic() - begun < IDLE_TIMEOUT_S + 3
    check_broken(answer, way, 504, "engine_timed_out")
    if way != "several":
        engine.await_outcome(ask.request_id, "aborted")


@every_way
def test_an_engine_that_never_answers(
    client: httpx.Client, engine: EngineProcess, way: str
) -> None:
    engine.order("silent", count=2)
    begun = time.monotonic()
    answer = send(client, WAYS[way]("silent"))
    assert IDLE_TIMEOUT_S <= time.monotonic() - begun < IDLE_TIMEOUT_S + 3
    assert (answer.status, answer.error["code"]) == (504, "engine_timed_out")
    assert "--engine-idle-timeout" in answer.error["message"]


def test_failures_are_counted_and_the_service_goes_on(
    client: httpx.Client, front: Service, engine: EngineProcess
) -> None:
    before = counts(front)
    for _ in range(4):
        engine.order("die", after=2)
        assert send(client, stream("counted")).error["code"] == "engine_failed"
    # The only engine is asked although it is ejected.
    assert send(client, stream("counted")).status == 200
    after = counts(front)
    for name, label, rise in (
        ("derender_engine_requests_total", 'outcome="failed"', 4),
        ("derender_engine_requests_total", 'outcome="finished"', 1),
        ("derender_refusals_total", 'reason="engine_failed"', 4),
    ):
        assert after.total(name, label) - before.total(name, label) == rise, name
