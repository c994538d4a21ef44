"""Processes: titles, replacement of what dies, and the end."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.bodies import CHAT, chunk, one_shot
from tests.serving import PARSERS, Service, until

LONG = "<think>" + "A greeting. " * 800 + "</think>" + "Hello there. " * 400


def _heavy(pid: int) -> bool:
    """Whether a process has torch's libraries mapped."""
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def _serves(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_titles_and_weight(service: Service) -> None:
    titles = [title for title in service.processes().values() if title.startswith("derender: ")]
    assert sorted(titles) == [
        "derender: gateway 0",
        "derender: render shard 0",
        "derender: shard 0",
        "derender: shard 1",
        "derender: supervisor",
        "derender: warm parent",
    ]
    assert _heavy(service.pid_of("derender: shard 0"))
    assert not _heavy(service.pid_of("derender: gateway 0"))
    assert not _heavy(service.pid_of("derender: supervisor"))


def test_one_more_shard_is_cheap(service: Service) -> None:
    rollup = Path(f"/proc/{service.pid_of('derender: shard 1')}/smaps_rollup").read_text()
    private = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_")]
    assert sum(private) < 40 * 1024
    assert "was not forked warm" not in service.log


def test_callers_get_answers_while_shards_are_killed(service: Service) -> None:
    url, body = service.url, one_shot(LONG)
    expected = httpx.post(url + CHAT, json=body, timeout=30).json()["choices"]
    stop = threading.Event()

    def call(_: int) -> list[int]:
        statuses = []
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                answer = client.post(url + CHAT, json=body)
                statuses.append(answer.status_code)
                if answer.status_code == 200:
                    assert answer.json()["choices"] == expected
        return statuses

    with ThreadPoolExecutor(4) as callers:
        results = [callers.submit(call, number) for number in range(4)]
        for title in ("derender: shard 0", "derender: shard 1"):
            service.kill(title)
            until(lambda: _serves(service), 20, "the successor")
        stop.set()
        statuses = [status for result in results for status in result.result(60)]
    assert set(statuses) == {200}


def test_a_stream_survives_its_shard(service: Service) -> None:
    ids = one_shot("Hello there, and good day.")["generate_response"]["choices"][0]["token_ids"]

    def stream(before_last: Callable[[], object]) -> list[object]:
        state, deltas = None, []
        for number, token in enumerate(ids):
            if number == len(ids) - 1:
                before_last()
            answer = httpx.post(service.url + CHAT, json=chunk([token], state), timeout=30).json()
            state = answer["stream_state"]
            deltas.append(answer["chunk"]["choices"])
        return deltas

    undisturbed = stream(lambda: None)
    killed = stream(lambda: [service.kill(f"derender: shard {number}") for number in (0, 1)])
    assert killed == undisturbed
    until(lambda: _serves(service), 20, "both successors")


def test_a_killed_gateway_comes_back(service: Service) -> None:
    url = service.url
    service.kill("derender: gateway 0")
    # The supervisor holds the listening socket, so nobody is refused meanwhile.
    assert httpx.get(f"{url}/ping", timeout=30).status_code == 200
    until(lambda: _serves(service), 20, "the gateway's return")
    assert httpx.post(url + CHAT, json=one_shot("Hi."), timeout=30).status_code == 200


def test_from_warming_to_the_end(tmp_path: Path) -> None:
    with Service(tmp_path / "log", "--shards", "1", *PARSERS) as service:
        health = httpx.get(f"{service.url}/health", timeout=10)
        assert health.status_code == 503
        assert "warming up" in health.json()["reason"]
        refused = httpx.post(service.url + CHAT, json=one_shot("Hi.", model=None), timeout=10)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        url = service.wait_until_serving()
        with ThreadPoolExecutor(1) as caller:
            body = one_shot(LONG, model=None)
            answer = caller.submit(httpx.post, url + CHAT, json=body, timeout=30)
            assert service.end(signal.SIGTERM) == 0
            # Answered, or not accepted any more; never cut off.
            error = answer.exception()
            assert isinstance(error, httpx.ConnectError | httpx.ReadError) or (
                error is None and answer.result().status_code in (200, 503)
            )


def test_ctrl_c_while_warming_ends_everything(tmp_path: Path) -> None:
    with Service(tmp_path / "log", "--shards", "1", *PARSERS) as service:
        until(lambda: "importing vLLM" in service.log and service.url, 30, "warming")
        os.killpg(service.process.pid, signal.SIGINT)
        assert service.process.wait(5) == 0
        until(lambda: not service.processes(), 5, "end of every process")
        assert "Traceback" not in service.log


def test_nothing_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with Service(tmp_path / "log", "--shards", "2", *PARSERS) as service:
        service.wait_until_serving()
        assert service.end(signal.SIGKILL) == -signal.SIGKILL


def test_nothing_outlives_a_supervisor_killed_while_warming(tmp_path: Path) -> None:
    with Service(tmp_path / "log", "--shards", "2", *PARSERS) as service:
        until(lambda: "importing vLLM" in service.log and service.url, 30, "warming")
        assert service.end(signal.SIGKILL) == -signal.SIGKILL


def _failure(service: Service) -> str:
    assert service.process.wait(100) == 2
    until(lambda: not service.processes(), 5, "end of every process")
    lines = [line for line in service.log.splitlines() if line.startswith("derender: error: ")]
    assert len(lines) == 1, service.log
    assert "Traceback" not in service.log
    return lines[0]


def test_an_unknown_parser_ends_with_one_line(tmp_path: Path) -> None:
    with Service(tmp_path / "log", "--shards", "1", "--reasoning-parser", "nope") as service:
        assert "nope" in _failure(service)


@pytest.mark.parametrize(
    ("flags", "word"),
    [(["--port", "99999"], "--port"), (["--bogus"], "--bogus"), (["--shards", "0"], "--shards")],
)
def test_bad_flags_end_with_one_line(tmp_path: Path, flags: list[str], word: str) -> None:
    with Service(tmp_path / "log", *flags) as service:
        assert word in _failure(service)
        assert len(service.log.splitlines()) == 1


def test_a_bad_model_path_ends_with_one_line(tmp_path: Path) -> None:
    with Service(tmp_path / "log", model=str(tmp_path / "nowhere")) as service:
        assert "nowhere" in _failure(service)


def test_a_port_in_use_ends_with_one_line(service: Service, tmp_path: Path) -> None:
    port = service.url.rsplit(":", 1)[1]
    with Service(tmp_path / "log", "--port", port) as second:
        assert "Address already in use" in _failure(second)


def test_a_dead_warm_parent_is_replaced(tmp_path: Path) -> None:
    flags = ("--served-model-name", "demo", "--shards", "1", "--render-shards", "0", *PARSERS)
    with Service(tmp_path / "log", *flags) as own:
        own.wait_until_serving()
        dead = own.kill("derender: warm parent")
        until(lambda: "warmed parent ended" in own.log, 10, "the log tells")
        assert httpx.post(own.url + CHAT, json=one_shot("Hello."), timeout=30).status_code == 200
        own.kill("derender: shard 0")
        answer = httpx.post(own.url + CHAT, json=one_shot("Hello."), timeout=90)
        assert answer.status_code == 200, answer.text
        assert own.pid_of("derender: warm parent") != dead
