"""A gateway process. The supervisor starts it with an order as the first line of standard input.

The rest of standard input carries nothing: its end says that the supervisor is gone.
"""

import asyncio
import contextlib
import gc
import logging
import math
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator

import msgspec
import uvicorn
import uvloop
from setproctitle import setproctitle

from gateway.app import build
from gateway.services.services import Services
from gateway.services.settings import GatewaySettings
from shards.messages.logs import configure
from shards.messages.orders import GatewayOrder
from shards.pool.pool import Pool

_logger = logging.getLogger("gateway.worker")  # `__name__` is `__main__` here.

_STDIN = 0
_READY_POLL_S = 0.05
_GC_THRESHOLD = (10_000, 20, 20)


class _Server(uvicorn.Server):
    """Leaves signals to `serve`, so that a terminal's Ctrl-C reaches the supervisor alone."""

    # Not documented (uvicorn 0.54).
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(order: GatewayOrder, settings: GatewaySettings) -> None:
    """Answer requests until SIGTERM or until the supervisor is gone."""
    render_pool = Pool(order.render_pool) if order.render_pool else None
    services = Services.of(settings, Pool(order.pool), render_pool)
    server = _Server(_config(services, settings))
    _watch_for_the_end(server, services.model.pools, order, settings)
    await services.start()
    _logger.info("listening on %s", settings.url)
    announcing = asyncio.create_task(_announce(services))
    try:
        with socket.socket(fileno=order.listen_fd) as listener:
            await server.serve([listener])
    finally:
        announcing.cancel()
        await services.close()


def _config(services: Services, settings: GatewaySettings) -> uvicorn.Config:
    return uvicorn.Config(
        build(services),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.http.shutdown_timeout_s + 0.1),
    )


def _watch_for_the_end(
    server: uvicorn.Server, pools: list[Pool], order: GatewayOrder, settings: GatewaySettings
) -> None:
    loop = asyncio.get_running_loop()

    def drain() -> None:
        server.should_exit = True
        # What is still open then gets a proper 503 before the server cancels it.
        for pool in pools:
            loop.call_later(settings.http.shutdown_timeout_s, pool.refuse_pending)

    def orphaned() -> None:
        if not os.read(_STDIN, 4096):
            _logger.warning("the supervisor is gone; ending")
            shutil.rmtree(order.directory, ignore_errors=True)
            os._exit(1)

    loop.add_signal_handler(signal.SIGTERM, drain)
    loop.add_reader(_STDIN, orphaned)


async def _announce(services: Services) -> None:
    settings = services.settings
    while services.model.readiness() is not None:
        await asyncio.sleep(_READY_POLL_S)
    names = ", ".join(settings.model.names)
    _logger.info("serving on %s as %s", settings.url, names)


def _read_line() -> bytes:
    """Read the order without taking more from the pipe than its line."""
    with os.fdopen(_STDIN, "rb", buffering=0, closefd=False) as pipe:
        return pipe.readline()


def main() -> int:
    """Run one gateway process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = msgspec.json.decode(_read_line(), type=GatewayOrder)
    settings = msgspec.json.decode(order.settings, type=GatewaySettings)
    setproctitle("derender: gateway 0")
    configure("gateway 0", settings.logs)
    # What is imported stays; requests leave few cycles behind.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)
    uvloop.run(serve(order, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
