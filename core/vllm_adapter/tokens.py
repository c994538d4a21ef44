"""A vocabulary: what each token ID stands for, and how runs of them decode."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import decoders
from transformers import TokenizersBackend
from vllm.entrypoints.generate.base.serving import decode_token_ids
from vllm.tokenizers.detokenizer_utils import detokenize_incrementally

_REPLACEMENT = "\ufffd"
_INVALID_PREFIX = "Invalid prefix encountered"
_METASPACE_DECODERS = (
    ["Replace", "ByteFallback", "Fuse", "Strip"],
    ["Replace", "ByteFallback", "Fuse"],
)


class Tokens:
    """One model's vocabulary.

    Attributes:
        fast: Decoded by the `tokenizers` library, as the engine does for such tokenizers.
        size: One more than the largest token ID.
        special_ids: IDs left out of text when special tokens are skipped.
        added: Text of every added token, by ID.
        byte_level: Every token stands for bytes, independent of its neighbours.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a vLLM tokenizer.

        Args:
            tokenizer: What `vllm.tokenizers` loads for a model.
        """
        self.tokenizer = tokenizer
        self.fast = isinstance(tokenizer, TokenizersBackend)
        self._backend = tokenizer.backend_tokenizer if self.fast else None
        self.size = len(tokenizer)
        self.added, self.special_ids = self._added_tokens()
        kind = self._decoder_kind()
        self._pieces: dict[int, str] = {}
        self._bytes = {
            False: _BytesById(self, frozenset()),
            True: _BytesById(self, self.special_ids),
        }
        self.byte_level = kind == ["ByteLevel"] and self._bytes_are_exact()
        self._breaking_ids = self._byte_fallback_ids() if kind in _METASPACE_DECODERS else None

    def piece(self, token_id: int) -> str:
        """The vocabulary's string for an ID; empty where there is none."""
        piece = self._pieces.get(token_id)
        if piece is None:
            known = token_id < self.size
            piece = (self.tokenizer.convert_ids_to_tokens([token_id])[0] if known else None) or ""
            self._pieces[token_id] = piece
        return piece

    def text_of(self, pieces: Sequence[str]) -> str:
        """Text of a run of vocabulary strings."""
        if self._backend is not None and self._backend.decoder is not None:
            return str(self._decoder.decode(pieces))
        return str(self.tokenizer.convert_tokens_to_string(list(pieces)))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Text of a run of IDs, as the engine decodes it."""
        decoder = self.tokenizer if self._backend is None else self._backend
        return str(decoder.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def display(self, ids: Sequence[int]) -> str:
        """Text of a run of IDs as logprobs show it: with the tokenizer's own clean-up."""
        return str(self.tokenizer.decode(list(ids)))

    def describe(self, token_id: int) -> tuple[str, list[int] | None]:
        """Text and UTF-8 bytes of one token as logprobs show it; ("", None) for an unknown ID."""
        if token_id >= self.size:
            return "", None
        text, octets = decode_token_ids([token_id], self.tokenizer)[0]
        return text, octets

    def bytes_of(self, skip_special_tokens: bool) -> "_BytesById":
        """Bytes by token ID, for byte-level vocabularies; empty for what is skipped or unknown."""
        return self._bytes[skip_special_tokens]

    def batchable(self, ids: Sequence[int]) -> bool:
        """Whether decoding these at once equals decoding them one by one."""
        return self._breaking_ids is not None and self._breaking_ids.isdisjoint(ids)

    def decode_stream(self, seed: Sequence[int], skip: bool) -> Callable[[int], str]:
        """A step function over the `tokenizers` library's `DecodeStream`.

        Args:
            seed: The last prompt token IDs.
            skip: Leave special tokens out.
        """
        backend: Any = self._backend
        stream = decoders.DecodeStream(ids=list(seed), skip_special_tokens=skip)

        def step(token_id: int) -> str:
            nonlocal stream
            try:
                return stream.step(backend, token_id) or ""
            except Exception as error:
                if not str(error).startswith(_INVALID_PREFIX):
                    raise
            # Bytes that take back text already emitted break the stream; the engine starts a new
            # one (vLLM issue 17448).
            stream = decoders.DecodeStream(skip_special_tokens=skip)
            return stream.step(backend, token_id) or ""

        return step

    def window_step(
        self,
        token_id: int,
        pieces: list[str],
        prefix_offset: int,
        read_offset: int,
        skip: bool,
        keep_spaces: bool,
    ) -> tuple[list[str], str, int, int]:
        """One step of vLLM's window decoder, for tokenizers that are not `fast`.

        Returns:
            New window entries, the text settled, and both offsets.
        """
        added, text, prefix_offset, read_offset = detokenize_incrementally(
            tokenizer=self.tokenizer,
            all_input_ids=[token_id],
            prev_tokens=pieces,
            prefix_offset=prefix_offset,
            read_offset=read_offset,
            skip_special_tokens=skip,
            spaces_between_special_tokens=keep_spaces,
        )
        return added, text, prefix_offset, read_offset

    def _added_tokens(self) -> tuple[dict[int, str], frozenset[int]]:
        if self._backend is None:
            added = {number: text for text, number in self.tokenizer.get_added_vocab().items()}
            return added, frozenset(self.tokenizer.all_special_ids)
        entries = self._backend.get_added_tokens_decoder()
        return (
            {number: token.content for number, token in entries.items()},
            frozenset(number for number, token in entries.items() if token.special),
        )

    def _decoder_kind(self) -> list[str]:
        """Type names of the decoder's parts; empty where it cannot be told."""
        if self._backend is None or self._backend.decoder is None:
            return []
        self._decoder = self._backend.decoder
        state = json.loads(self._decoder.__getstate__())
        return [part["type"] for part in state.get("decoders", [state])]

    def _bytes_are_exact(self) -> bool:
        """Compare the table with the tokenizer's own decoding, on added tokens and a sample."""
        sample = [*self.added, *range(0, self.size, max(1, self.size // 2000))]
        table = self._bytes[False]
        return all(
            table[number].decode("utf-8", "replace") == self.decode([number], False)
            for number in sample
        )

    def _byte_fallback_ids(self) -> frozenset[int]:
        """IDs that decode differently with their neighbours: single bytes, and U+FFFD itself."""
        vocabulary = self.tokenizer.get_vocab()
        return frozenset(
            number
            for piece, number in vocabulary.items()
            if _REPLACEMENT in piece or (len(piece) == 6 and piece.startswith("<0x"))
        )


class _BytesById(dict[int, bytes]):
    """Bytes by token ID, filled as tokens are met."""

    def __init__(self, tokens: Tokens, skipped: frozenset[int]) -> None:
        super().__init__()
        self._tokens = tokens
        self._skipped = skipped

    def __missing__(self, token_id: int) -> bytes:
        octets = b"" if token_id in self._skipped else _octets(self._tokens.piece(token_id))
        self[token_id] = octets
        return octets


def _byte_alphabet() -> dict[str, int]:
    """Byte by printable character, in the byte-level alphabet of GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [octet for octet in range(256) if octet not in printable]
    shown = {chr(octet): octet for octet in printable}
    return shown | {chr(0x100 + i): octet for i, octet in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _octets(piece: str) -> bytes:
    try:
        return bytes([_ALPHABET[character] for character in piece])
    except KeyError:
        return piece.encode()
