"""Python clients that drive whole streams through a derender server.

For users of the project and its tests. `client` does the I/O, `conversation` knows what to send and
what to keep; begin with `DerenderClient`.
"""

from gateway.client.client import (
    AsyncDerenderClient,
    DerenderClient,
    DerenderRefused,
    DerenderUnavailable,
)

__all__ = ["AsyncDerenderClient", "DerenderClient", "DerenderRefused", "DerenderUnavailable"]
