"""What the client of the engines is told."""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from core.protocol.settings import Group, Setting
from gateway.engines.sse import MAX_EVENT_BYTES


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How engines are reached, and how long they may take.

    Raises:
        ValueError: A URL is none, or a key cannot be sent; the message names the value.
    """

    urls: Annotated[
        tuple[str, ...],
        Setting(
            Group.ENGINES,
            "token-in / token-out engines; with one, /v1/chat/completions and /v1/completions are"
            " served",
            flag="engine-url",
        ),
    ]
    """Where each engine's API begins: `/inference/v1/generate` and `/health` are appended. A name
    and a password in a URL are sent as basic authorization. Kept once each, without `/` at the end.
    """
    model: Annotated[
        str,
        Setting(
            Group.ENGINES,
            "the model's name at the engines",
            flag="engine-model",
            metavar="NAME",
            shown_default="the first served name",
        ),
    ] = ""
    api_key: Annotated[
        str,
        Setting(
            Group.ENGINES,
            "sent to the engines as Authorization: Bearer KEY; better set in the environment",
            flag="engine-api-key",
        ),
    ] = ""
    forward_authorization: Annotated[
        bool, Setting(Group.ENGINES, "send a caller's own Authorization to the engines")
    ] = False
    """In place of `api_key`, where the caller has one."""
    connect_timeout_s: Annotated[
        float,
        Setting(
            Group.ENGINES, "longest time to connect to an engine", flag="engine-connect-timeout"
        ),
    ] = 5.0
    """Looking up, connecting and shaking hands, per attempt."""
    idle_timeout_s: Annotated[
        float,
        Setting(
            Group.ENGINES,
            "longest silence of an engine; one that does not stream is silent until it is done",
            flag="engine-idle-timeout",
        ),
    ] = 600.0
    """From the request to the status, and between bytes."""
    max_connections: Annotated[
        int,
        Setting(
            Group.ENGINES,
            "requests one engine may have in flight, more are refused; 0 for no bound",
            flag="engine-max-requests",
            metavar="COUNT",
            least=0,
        ),
    ] = 0
    """Each on a connection of its own. Where every engine is full, requests are refused at once:
    engines have queues, the client none."""
    keepalive_timeout_s: float = 4.0
    """How long an unused connection is kept. vLLM closes them after 5 s
    (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`); being first saves sending a request into a closed one."""
    max_event_bytes: int = MAX_EVENT_BYTES
    """Longest event of a stream."""
    max_body_bytes: int = 1 << 30
    """Longest answer that is not streamed."""
    probe_interval_s: float = 1.0
    """Time between two health checks of an ejected engine; each may take as long."""

    def __post_init__(self) -> None:
        """Bring the URLs into one form, and check what the types do not say."""
        urls = tuple(dict.fromkeys(url.rstrip("/") for url in self.urls))
        msgspec.structs.force_setattr(self, "urls", urls)
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
