"""What the routes work with."""

import time

import msgspec

from gateway.metrics.metrics import Metrics
from gateway.services.served_model import ServedModel
from gateway.services.settings import GatewaySettings
from shards.pool.pool import Pool


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The long-lived objects of a gateway process."""

    settings: GatewaySettings
    model: ServedModel
    metrics: Metrics
    started_at: int
    """Unix time, reported as `created` of the models."""

    @classmethod
    def of(
        cls, settings: GatewaySettings, pool: Pool, render_pool: Pool | None = None
    ) -> "Services":
        """Build what hangs on settings and pools."""
        model = ServedModel.of(settings, pool, render_pool)
        metrics = Metrics(pool, render_pool)
        if model.engine_side is not None:
            metrics.watch_engines(model.engine_side.engines, model.engine_side.sessions)
        return cls(settings=settings, model=model, metrics=metrics, started_at=int(time.time()))

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        for pool in self.model.pools:
            await pool.start()
        if self.model.engine_side is not None:
            await self.model.engine_side.engines.start()

    async def close(self) -> None:
        """Drop every connection."""
        if self.model.engine_side is not None:
            await self.model.engine_side.engines.close()
        for pool in self.model.pools:
            await pool.close()
