"""Names derived from a request, so that every replica and every retry derives the same ones."""

import re

import xxhash

_RANDOM_CALL_ID = re.compile(r"chatcmpl-tool-[0-9a-f]+")
_SHORT_CALL_ID = re.compile(r"[A-Za-z0-9]{9}")
_ALPHANUMERIC = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def stream_id(request_id: str, choice_index: int) -> str:
    """Identity of one choice of one generation: 16 hex digits of xxh3.

    It picks the shard and travels in `stream_state.checkpoint`, because usage chunks name no
    choice.
    """
    return xxhash.xxh3_64_hexdigest(f"{request_id}\x1f{choice_index}".encode())


def tool_call_id(drawn: str | None, stream: str, call_index: int) -> str:
    """ID of a tool call, equal wherever and however often the call is parsed.

    Parsers draw IDs at random (`chatcmpl-tool-<hex>`, or nine alphanumeric characters for Mistral);
    those are replaced by digits of the same shape derived from the arguments. IDs that a parser
    builds by a scheme of its own (`functions.name:0`) are kept.

    Args:
        drawn: The parser's ID, None where it leaves the choice to the server.
        stream: The `stream_id` of the choice.
        call_index: Index of the call in the choice.
    """
    seed = f"{stream}\x1f{call_index}".encode()
    if drawn is None or _RANDOM_CALL_ID.fullmatch(drawn):
        return f"chatcmpl-tool-{xxhash.xxh3_64_hexdigest(seed)}"
    if _SHORT_CALL_ID.fullmatch(drawn):
        return _alphanumeric(xxhash.xxh3_64_intdigest(seed), length=9)
    return drawn


def rendezvous(key: str, shard_count: int) -> int:
    """Shard of a key: the one with the highest xxh3 weight, so a change of count moves few keys."""
    encoded = key.encode()
    return max(range(shard_count), key=lambda shard: xxhash.xxh3_64_intdigest(encoded, seed=shard))


def _alphanumeric(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, rest = divmod(number, len(_ALPHANUMERIC))
        digits.append(_ALPHANUMERIC[rest])
    return "".join(digits)
