"""What a shard says: that it serves, and its answers."""

import msgspec

from core.protocol.faults import Fault


class Ready(msgspec.Struct, frozen=True, array_like=True):
    """A shard's first message: it serves, or says in one line why it cannot."""

    shard: int
    pid: int
    warm: bool = False
    """Its modules and model came from the warmed parent."""
    error: str | None = None
    max_model_len: int = 0


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The finished answer to a call, or a fault."""

    call_id: int
    body: bytes = b""
    fault: Fault | None = None


ready_decoder = msgspec.msgpack.Decoder(Ready)
reply_decoder = msgspec.msgpack.Decoder(Reply)
reply_encoder = msgspec.msgpack.Encoder()
"""Of both."""
