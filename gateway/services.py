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
    metrics: Metrics
    started_at: int
    """Unix time, reported as `created` of the models."""

    @classmethod
    def of(cls, settings: GatewaySettings, pool: Pool) -> "Services":
        """Build what hangs on settings and pool."""
        return cls(settings=settings, pool=pool, metrics=Metrics(pool), started_at=int(time.time()))
