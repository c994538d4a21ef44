"""A failure as data, to cross a process boundary."""

import msgspec

from core.protocol.errors import (
    BadRequest,
    DerenderError,
    EngineRefused,
    FaultCode,
    InternalFault,
    RenderRefused,
)


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """A failure as data."""

    code: FaultCode
    message: str
    param: str | None = None
    status: int = 0
    """HTTP status of a renderer's or an engine's own refusal."""
    type: str = ""
    """Its OpenAI error type."""

    @classmethod
    def of(cls, error: DerenderError) -> "Fault":
        """Describe an error for the other side of a pipe."""
        if isinstance(error, RenderRefused | EngineRefused):
            return cls(error.code, error.message, error.param, error.status, error.type)
        return cls(error.code, error.message, error.param)

    def error(self) -> DerenderError:
        """Rebuild the error."""
        if self.code is FaultCode.RENDER_REFUSED:
            return RenderRefused(self.message, self.param, self.status, self.type)
        if self.code is FaultCode.ENGINE_REFUSED:
            return EngineRefused(self.message, self.param, status=self.status, type=self.type)
        kind = _ERRORS.get(self.code, InternalFault)
        error = kind.__new__(kind)
        # Subclasses may take other arguments than what crossed the pipe.
        DerenderError.__init__(error, self.message, self.param)
        return error


def _kinds(root: type[DerenderError]) -> list[type[DerenderError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _kinds(child))]


_ERRORS = {kind.code: kind for kind in _kinds(InternalFault) + _kinds(BadRequest)}
