"""The group that looks at processes: memory, time to respawn a shard, time to the first answer."""

import os
import re
import signal
import time

from loadtest.bench.keepalive import KeepAlive
from loadtest.bench.run import PROMPT_TOKENS, BenchRun
from loadtest.bench.stream import Stream
from loadtest.bench.workload import CHAT_PATH, Context, Workload, sampled_body
from loadtest.report.row import FigureRow
from loadtest.report.samples import median
from loadtest.report.table import Table
from loadtest.servers.fleet import Server
from loadtest.servers.launching import is_healthy
from loadtest.servers.procfs import private_bytes, resident_bytes, titled

_MB = 1e6
_SHARDS = 3
_AFTER_FORK = re.compile(r"(\d+) ms after fork")
_RESPAWN_TIMEOUT_S = 30.0
_POLL_S = 0.002
_SHARD, _GATEWAY = "derender: shard", "derender: gateway"


def process(run: BenchRun) -> list[FigureRow]:
    """Memory and start of processes."""
    table = run.table("process")
    with run.fleet.reference() as theirs:
        reference_s = theirs.start_s + _first_answer_s(run.workload, theirs.url)
        reference_mb = resident_bytes(theirs.process.pid) / _MB
    with run.fleet.ours(shards=_SHARDS) as server:
        ours_s = server.start_s + _first_answer_s(run.workload, server.url)
        table.faster("start to first answer", ([reference_s], [ours_s]))
        _memory(run, table, server, reference_mb)
        _respawn(table, server, run.fleet.log())
    return table.rows


def _first_answer_s(workload: Workload, url: str) -> float:
    context = Context(workload.prompt(PROMPT_TOKENS))
    body = sampled_body(context, workload.output(8), 8)
    with KeepAlive(url) as connection:
        return connection.post(CHAT_PATH, body).seconds


def _memory(run: BenchRun, table: Table, server: Server, reference_mb: float) -> None:
    session = server.process.pid
    shards = [entry.pid for entry in titled(session, _SHARD)]
    fresh = min(private_bytes(pid) for pid in shards) / _MB
    table.figure("private memory of one more shard, fresh", "MB", fresh, at_most=40.0)
    tokens = run.length(1024)
    context = Context(run.workload.prompt(PROMPT_TOKENS))
    with KeepAlive(server.url) as connection:
        for _ in range(8):
            Stream(context, run.workload.output(tokens)).drive(connection, tokens)
    used = max(private_bytes(pid) for pid in shards) / _MB
    table.figure(f"the same after streams of {tokens:,} tokens", "MB", used, at_most=40.0)
    gateways = [entry.pid for entry in titled(session, _GATEWAY)]
    gateway_mb = sum(resident_bytes(pid) for pid in gateways) / _MB
    table.compared("gateway, resident", "MB", reference_mb, gateway_mb, "reference's server")


def _respawn(table: Table, server: Server, log: str) -> None:
    """Kill each shard once; one that dies again and again is replaced with growing delay."""
    after_fork = [float(ms) for ms in _AFTER_FORK.findall(log)]
    table.figure("fork of a shard to serving, as it logs", "ms", median(after_fork), at_most=200.0)
    victims = [entry.pid for entry in titled(server.process.pid, _SHARD)]
    times = [_respawn_once(server, victim) for victim in victims]
    table.figure("kill of a shard to serving again", "ms", median(times) * 1000, at_most=200.0)


def _respawn_once(server: Server, victim: int) -> float:
    """Kill a shard and wait until the service is healthy with another one in its place."""
    session = server.process.pid
    before = {entry.pid for entry in titled(session, _SHARD)}
    begun = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + _RESPAWN_TIMEOUT_S
    while time.monotonic() < deadline:
        now = {entry.pid for entry in titled(session, _SHARD)}
        if now - before and len(now - {victim}) == len(before) and is_healthy(server.url):
            return time.perf_counter() - begun
        time.sleep(_POLL_S)
    raise TimeoutError(f"no shard replaced the killed one within {_RESPAWN_TIMEOUT_S:.0f} s")
