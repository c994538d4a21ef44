"""A scripted shard: the other end of a link, with behaviour written in the call itself.

`generate` says what happens: `echo:X` answers X, `refuse:X` refuses with X, `hold` is never
answered, `die` closes the shard at once. A new one may listen at the same address afterwards.
"""

import os
import threading
from multiprocessing import AuthenticationError

from core.protocol.calls import DerenderChat, call_decoder
from core.protocol.errors import FaultCode
from core.protocol.faults import Fault
from shards.messages.channel import accept, listen
from shards.messages.replies import Ready, Reply, reply_encoder


def call(number: int, script: str) -> DerenderChat:
    """A call that carries a script line."""
    return DerenderChat(
        call_id=number,
        model="demo",
        created=0,
        fallback_id="id",
        generate=script.encode(),
        prompt_tokens=b"",
        prompt_token_ids=b"",
        request=b"",
    )


class ScriptedShard:
    """Serves one peer in a thread until told to die."""

    def __init__(self, address: str, pid: int, key: bytes = b"key") -> None:
        self._listener = listen(address)
        self._ready = Ready(shard=0, pid=pid, warm=True, max_model_len=64)
        self._key = key
        self.seen: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(5)
        assert not self._thread.is_alive()

    def close(self) -> None:
        os.close(self._listener.detach())

    def _run(self) -> None:
        try:
            peer = accept(self._listener, self._key)
        except (OSError, EOFError, AuthenticationError):
            return
        with self._listener, peer:
            peer.send_bytes(reply_encoder.encode(self._ready))
            while True:
                try:
                    message = call_decoder.decode(peer.recv_bytes())
                except (EOFError, OSError):
                    return
                assert isinstance(message, DerenderChat)
                script = message.generate.decode()
                self.seen.append(script)
                if script == "die":
                    return
                if script != "hold":
                    peer.send_bytes(reply_encoder.encode(_reply(message.call_id, script)))


def _reply(call_id: int, script: str) -> Reply:
    word, _, text = script.partition(":")
    if word == "refuse":
        return Reply(call_id, fault=Fault(FaultCode.INVALID_REQUEST, text, "field"))
    return Reply(call_id, body=text.encode())
