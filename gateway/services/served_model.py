"""What depends on the model: its names, its shards, and the engines that generate for it."""

import msgspec

from core.protocol.errors import UnknownModel
from gateway.engines.pool import Engines
from gateway.engines.settings import EngineSettings
from gateway.services.settings import GatewaySettings
from shards.pool.pool import Pool
from shards.pool.sessions import Sessions


class EngineSide(msgspec.Struct, frozen=True, kw_only=True):
    """What serving whole requests needs beside derendering."""

    engines: Engines
    settings: EngineSettings
    model: str
    """Name the engines are asked for."""
    sessions: Sessions
    render_pool: Pool


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model as the gateway serves it."""

    names: tuple[str, ...]
    """Accepted in a body's `model`; the first is reported."""
    root: str
    """Folder or hub name."""
    pool: Pool
    render_pool: Pool | None
    """The bulk shards; None where none are run."""
    engine_side: EngineSide | None
    """None where no engine is named."""

    @classmethod
    def of(cls, settings: GatewaySettings, pool: Pool, render_pool: Pool | None) -> "ServedModel":
        """Build what hangs on settings and pools."""
        names, engines, side = settings.model.names, settings.engines, None
        if engines is not None and render_pool is not None:
            side = EngineSide(
                engines=Engines(engines),
                settings=engines,
                model=engines.model or names[0],
                sessions=Sessions(pool, settings.streams_per_shard),
                render_pool=render_pool,
            )
        return cls(
            names=names,
            root=settings.model.model,
            pool=pool,
            render_pool=render_pool,
            engine_side=side,
        )

    @property
    def pools(self) -> list[Pool]:
        """The shards, by role."""
        return [self.pool] if self.render_pool is None else [self.pool, self.render_pool]

    @property
    def max_model_len(self) -> int | None:
        """Tokens of prompt and output together; None until a shard has read the model's config."""
        ready = self.pool.ready
        return ready.max_model_len if ready else None

    def readiness(self) -> str | None:
        """Why the model is not served fully; None when every shard serves."""
        reasons = (pool.readiness() for pool in self.pools)
        return next((reason for reason in reasons if reason), None)

    def name_of(self, named: str | None) -> str:
        """The name to report: the caller's own, or the first one.

        Raises:
            UnknownModel: It is none of this model's.
        """
        if not named:
            return self.names[0]
        if named not in self.names:
            aliases = ", ".join(self.names)
            message = f"The model `{named}` does not exist. Valid aliases: {aliases}."
            raise UnknownModel(message, "model")
        return named
