"""What the client of the engines is told."""

from urllib.parse import urlsplit

import msgspec

from gateway.engines.sse import MAX_EVENT_BYTES


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How engines are reached, and how long they may take.

    Raises:
        ValueError: A URL is none, or a key cannot be sent; the message names the value.
    """

    urls: tuple[str, ...]
    """Where each engine's API begins: `/inference/v1/generate` and `/health` are appended. A name
    and a password in a URL are sent as basic authorization."""
    api_key: str = ""
    """Sent as `Authorization: Bearer`; empty sends none."""
    forward_authorization: bool = False
    """Send the caller's own `Authorization` in place of `api_key`, where the caller has one."""
    connect_timeout_s: float = 5.0
    """How long looking up, connecting to and shaking hands with an engine may take, per attempt."""
    idle_timeout_s: float = 600.0
    """Longest silence of an engine: from the request to the status, and between bytes. An answer
    that is not streamed is silent until the generation ends."""
    keepalive_timeout_s: float = 4.0
    """How long an unused connection is kept. vLLM closes them after 5 s
    (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`); being first saves sending a request into a closed one."""
    max_connections: int = 0
    """Requests one engine may have in flight, each on a connection of its own; 0 means no bound.
    Where every engine is full, requests are refused at once: engines have queues, the client none.
    """
    max_event_bytes: int = MAX_EVENT_BYTES
    """Longest event of a stream."""
    max_body_bytes: int = 1 << 30
    """Longest answer that is not streamed."""
    probe_interval_s: float = 1.0
    """Time between two health checks of an ejected engine; each may take as long."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if not self.urls:
            raise ValueError("no engine URL is given")
        for url in self.urls:
            _check_url(url)
        if not self.api_key.isprintable() or not self.api_key.isascii():
            raise ValueError("the engine API key must consist of printable ASCII characters")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    # The whole is not shown: it may hold a password.
    if not usable:
        raise ValueError("an engine URL must look like http://host:port or https://host/prefix")
    if parts.query or parts.fragment:
        raise ValueError(f"the URL of engine {parts.hostname!r} may have no query and no fragment")
