"""What the routes work with."""

import time

import msgspec

from gateway.metrics import Metrics
from gateway.settings import GatewaySettings
from shards.pool import Pool


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The long-lived objects of a gateway process."""

    settings: GatewaySettings
    pool: Pool
    render_pool: Pool | None
    """The bulk shards; None where none are run."""
    metrics: Metrics
    started_at: int
    """Unix time, reported as `created` of the models."""

    @classmethod
    def of(
        cls, settings: GatewaySettings, pool: Pool, render_pool: Pool | None = None
    ) -> "Services":
        """Build what hangs on settings and pools."""
        return cls(
            settings=settings,
            pool=pool,
            render_pool=render_pool,
            metrics=Metrics(pool, render_pool),
            started_at=int(time.time()),
        )

    def readiness(self) -> str | None:
        """Why the service does not serve fully; None when every shard serves."""
        reason = self.pool.readiness()
        if reason is None and self.render_pool is not None:
            reason = self.render_pool.readiness()
        return reason
