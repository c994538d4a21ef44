"""Recorded engine traffic as answers, one recording to a line of JSON.

A recording has a `name`, the `render` whose prompts it was made with, and what the engine said:
`generate` and `generate_stream`. Each is one object, or a list with one object for each prompt.
"""

import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from loadtest.engine.events import DONE, Event, frame
from loadtest.engine.protocol import GenerateRequest, RequestError

Part = TypeVar("Part", bound=Struct)

_ID = re.compile(r"(?:chatcmpl-|cmpl-)?rec-(.+)", re.DOTALL)
_NUMBERED = re.compile(r"(.+)-(\d+)", re.DOTALL)


class _Prompt(Struct):
    token_ids: list[int]


class _Tokens(Struct):
    index: int = 0
    token_ids: list[int] | None = None


class _Chunk(Struct):
    choices: list[_Tokens] | UnsetType = UNSET


class _Whole(Struct):
    status: int
    response: Raw


class _Stream(Struct):
    chunks: list[Raw]


class _Render(Struct):
    response: Raw


class _Line(Struct):
    name: str
    render: _Render | UnsetType = UNSET
    generate: Raw | UnsetType = UNSET
    generate_stream: Raw | UnsetType = UNSET


_prompts = msgspec.json.Decoder(list[_Prompt] | _Prompt)
_wholes = msgspec.json.Decoder(list[_Whole] | _Whole)
_streams = msgspec.json.Decoder(list[_Stream] | _Stream)
_lines = msgspec.json.Decoder(_Line)
_chunks = msgspec.json.Decoder(_Chunk | str)
_responses = msgspec.json.Decoder(_Chunk)


@dataclass(frozen=True)
class _Recording:
    """The parts of a recording that answers need, as JSON."""

    prompts: bytes
    generate: bytes
    generate_stream: bytes


@dataclass(frozen=True)
class Replay:
    """What was recorded for one prompt, as the answer to a request."""

    _whole: _Whole
    _stream: _Stream
    _include_usage: bool

    @property
    def steps(self) -> int:
        """The tokens of the longest choice."""
        choices = _responses.decode(self._whole.response).choices or []
        return max((len(choice.token_ids or ()) for choice in choices), default=0)

    def whole(self) -> tuple[int, bytes]:
        """Return the recorded status and body."""
        return self._whole.status, bytes(self._whole.response)

    def events(self) -> Iterator[Event]:
        """Yield the recorded events, without the usage that the request does not ask for."""
        for raw in self._stream.chunks:
            chunk = _chunks.decode(raw)
            if isinstance(chunk, str):
                yield DONE
            elif chunk.choices or chunk.choices is UNSET or self._include_usage:
                yield Event(frame(bytes(raw)), _tokens_due(chunk))


class Recordings:
    """The recordings of one file; it is read when the first one is asked for."""

    def __init__(self, path: Path) -> None:
        """Check that the file is there.

        Raises:
            OSError: The file cannot be opened.
        """
        with path.open("rb"):
            self._path = path
        self._found: dict[str, _Recording] | None = None

    def answer(self, name: str, request: GenerateRequest) -> Replay:
        """Return what was recorded under `name`, or `name-<i>` for prompt i of several.

        Raises:
            RequestError: Nothing is recorded under that name, or the prompt is another one.
        """
        recording, index = self._find(name)
        prompt = _part(_prompts, recording.prompts, index)
        whole = _part(_wholes, recording.generate, index)
        stream = _part(_streams, recording.generate_stream, index)
        if prompt is None or whole is None or stream is None:
            raise _unknown(name)
        _check_prompt(name, prompt.token_ids, request.token_ids)
        options = request.stream_options
        return Replay(whole, stream, options is not None and options.include_usage)

    def _find(self, name: str) -> tuple[_Recording, int]:
        if self._found is None:
            self._found = dict(_read(self._path))
        if name in self._found:
            return self._found[name], 0
        numbered = _NUMBERED.fullmatch(name)
        if numbered is None or numbered[1] not in self._found:
            raise _unknown(name)
        return self._found[numbered[1]], int(numbered[2])


def recorded_name(request_id: str | None) -> str | None:
    """Return the name of the recording that a request ID stands for, if it does."""
    match = _ID.fullmatch(request_id or "")
    return match[1] if match else None


def _read(path: Path) -> Iterator[tuple[str, _Recording]]:
    """Yield the recordings that hold an engine's answer, by name."""
    with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as lines:
        for text in lines:
            line = _lines.decode(text)
            if line.render and line.generate and line.generate_stream:
                # A copy, because a raw part keeps the whole line in memory.
                parts = (line.render.response, line.generate, line.generate_stream)
                yield line.name, _Recording(*(bytes(part) for part in parts))


def _part(decoder: msgspec.json.Decoder[list[Part] | Part], raw: bytes, index: int) -> Part | None:
    """Decode the part of one prompt; a recording of a single prompt may have no list."""
    decoded = decoder.decode(raw)
    parts = decoded if isinstance(decoded, list) else [decoded]
    return parts[index] if index < len(parts) else None


def _tokens_due(chunk: _Chunk) -> int:
    """Return the tokens to wait for; the choices advance together, so one of them counts."""
    choices = chunk.choices or []
    return sum(len(choice.token_ids or ()) for choice in choices if choice.index == 0)


def _unknown(name: str) -> RequestError:
    message = f"No generation is recorded under the name `{name}`"
    return RequestError(HTTPStatus.NOT_FOUND, message, "request_id", "NotFoundError")


def _check_prompt(name: str, recorded: list[int], asked: list[int]) -> None:
    """Refuse a prompt that is not the recorded one, and say where they part."""
    if asked == recorded:
        return
    pairs = zip(asked, recorded, strict=False)
    same = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    position = min(len(asked), len(recorded)) if same is None else same
    message = (
        f"The prompt ({len(asked)} tokens) is not the one recorded as `{name}` "
        f"({len(recorded)} tokens): they differ from position {position} on"
    )
    raise RequestError(HTTPStatus.BAD_REQUEST, message, "token_ids")
