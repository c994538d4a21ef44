"""What the routes work with."""

import time

import msgspec

from gateway.engines.pool import Engines
from gateway.engines.settings import EngineSettings
from gateway.metrics.metrics import Metrics
from gateway.services.settings import GatewaySettings
from shards.pool.pool import Pool
from shards.pool.sessions import Sessions


class FrontDoor(msgspec.Struct, frozen=True, kw_only=True):
    """What serving whole requests needs beside derendering."""

    engines: Engines
    engine_settings: EngineSettings
    engine_model: str
    """Name the engines are asked for."""
    sessions: Sessions
    render_pool: Pool

    @classmethod
    def of(
        cls, settings: GatewaySettings, pool: Pool, render_pool: Pool | None
    ) -> "FrontDoor | None":
        """Build it where engines are named."""
        if settings.engines is None or render_pool is None:
            return None
        return cls(
            engines=Engines(settings.engines),
            engine_settings=settings.engines,
            engine_model=settings.engines.model or settings.model.names[0],
            sessions=Sessions(pool, settings.streams_per_shard),
            render_pool=render_pool,
        )


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The long-lived objects of a gateway process."""

    settings: GatewaySettings
    pool: Pool
    render_pool: Pool | None
    """The bulk shards; None where none are run."""
    front_door: FrontDoor | None
    """None where no engine is named."""
    metrics: Metrics
    started_at: int
    """Unix time, reported as `created` of the models."""

    @classmethod
    def of(
        cls, settings: GatewaySettings, pool: Pool, render_pool: Pool | None = None
    ) -> "Services":
        """Build what hangs on settings and pools."""
        front_door = FrontDoor.of(settings, pool, render_pool)
        metrics = Metrics(pool, render_pool)
        if front_door is not None:
            metrics.watch_engines(front_door.engines, front_door.sessions)
        return cls(
            settings=settings,
            pool=pool,
            render_pool=render_pool,
            front_door=front_door,
            metrics=metrics,
            started_at=int(time.time()),
        )

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        for pool in self.pools:
            await pool.start()
        if self.front_door is not None:
            await self.front_door.engines.start()

    async def close(self) -> None:
        """Drop every connection."""
        if self.front_door is not None:
            await self.front_door.engines.close()
        for pool in self.pools:
            await pool.close()

    @property
    def pools(self) -> list[Pool]:
        """The shards, by role."""
        return [self.pool] if self.render_pool is None else [self.pool, self.render_pool]

    def readiness(self) -> str | None:
        """Why the service does not serve fully; None when every shard serves."""
        reasons = (pool.readiness() for pool in self.pools)
        return next((reason for reason in reasons if reason), None)
