"""Logprobs with token texts, written as JSON.

The engine names tokens by ID only. The text and bytes of an ID never change, so their JSON is kept
per ID; only tokens that are part of a character (their text ends in U+FFFD) depend on the tokens
before them.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from core.protocol.generate import GenerateLogprobs, LogprobCandidate, LogprobPosition
from core.protocol.rules import OutputRules
from core.vllm_adapter.tokens import Tokens

CONTEXT_TOKENS = 4
"""Sampled tokens before a position that its repair may need: the longest UTF-8 character."""
FLOOR = -9999.0
"""Least logprob reported; JSON has no minus infinity."""
_REPLACEMENT = "\ufffd"


class TokenText(NamedTuple):
    """One token as a logprob entry shows it."""

    text: str
    head: str
    """`{"token":"…","logprob":`"""
    tail: str
    """`,"bytes":[…]`"""
    key: str
    """The text as a JSON string."""


class LogprobShape(Enum):
    """How logprobs are written."""

    CHAT = "chat"
    """`ChatLogprobs`: an entry per token."""
    COMPLETION = "completion"
    """`CompletionLogprobs`: parallel lists, with the offset of each token in the text."""


class LogprobWriter:
    """Writes logprobs of one vocabulary; keeps the JSON of every token it has met."""

    def __init__(self, tokens: Tokens) -> None:
        """Start with nothing kept."""
        self._tokens = tokens
        self._texts: dict[int, TokenText] = {}
        self._repair = lru_cache(maxsize=4096)(self._repair_uncached)

    def write(
        self,
        shape: LogprobShape,
        logprobs: GenerateLogprobs,
        rules: OutputRules,
        context: Sequence[int] = (),
        text_offset: int = 0,
    ) -> tuple[bytes, int]:
        """JSON of a choice's logprobs, and the text offset after them.

        Args:
            shape: How to write them.
            logprobs: The engine's; every candidate's `token_id` is set.
            rules: Says how many candidates to list, and whether as IDs.
            context: Tokens sampled before the first position.
            text_offset: Characters of all logprob tokens so far.
        """
        if shape is LogprobShape.CHAT:
            return self.chat(logprobs, rules, context), text_offset
        return self.completion(logprobs, rules, context, text_offset)

    def chat(
        self, logprobs: GenerateLogprobs, rules: OutputRules, context: Sequence[int] = ()
    ) -> bytes:
        """JSON of `ChatLogprobs`.

        Args:
            logprobs: The engine's logprobs; every candidate's `token_id` is set.
            rules: Says how many candidates to list, and whether as IDs.
            context: Tokens sampled before the first position.
        """
        if logprobs.content is None:
            return b'{"content":null}'
        window = list(context)
        parts = [self._chat_position(position, rules, window) for position in logprobs.content]
        return f'{{"content":[{",".join(parts)}]}}'.encode()

    def completion(
        self,
        logprobs: GenerateLogprobs,
        rules: OutputRules,
        context: Sequence[int] = (),
        text_offset: int = 0,
    ) -> tuple[bytes, int]:
        """JSON of `CompletionLogprobs` and the offset after it; arguments as of `write`."""
        window, offset = list(context), text_offset
        offsets, values, keys, tops = [], [], [], []
        for position in logprobs.content or ():
            token = self._shown(position, rules, window)
            offsets.append(str(offset))
            values.append(_number(position.logprob))
            keys.append(token.key)
            tops.append(self._candidates(position, rules, window))
            offset += len(token.text)
            _advance(window, position)
        body = (
            f'{{"text_offset":[{",".join(offsets)}],"token_logprobs":[{",".join(values)}],'
            f'"tokens":[{",".join(keys)}],"top_logprobs":[{",".join(tops)}]}}'
        )
        return body.encode(), offset

    def text(self, token_id: int, context: Sequence[int]) -> str:
        """Text of one token after others, its U+FFFD repaired."""
        return self._token(token_id, context).text

    def shown(self, token_id: int, rules: OutputRules, context: Sequence[int]) -> str:
        """A token as a position names it: its text after others, or its ID."""
        return f"token_id:{token_id}" if rules.tokens_as_ids else self.text(token_id, context)

    def _chat_position(
        self, position: LogprobPosition, rules: OutputRules, window: list[int]
    ) -> str:
        token = self._shown(position, rules, window)
        own = self._token(_id(position), window) if rules.tokens_as_ids else token
        tops = ",".join(
            [
                f"{shown.head}{_number(candidate.logprob)}{shown.tail}}}"
                for candidate in position.top_logprobs[: rules.top_logprobs]
                for shown in (self._shown(candidate, rules, window),)
            ]
        )
        _advance(window, position)
        return f'{token.head}{_number(position.logprob)}{own.tail},"top_logprobs":[{tops}]}}'

    def _candidates(self, position: LogprobPosition, rules: OutputRules, window: list[int]) -> str:
        if not position.top_logprobs:
            return "null"
        entries = {
            self._shown(candidate, rules, window).key: _number(candidate.logprob)
            for candidate in position.top_logprobs[: rules.top_logprobs]
        }
        return "{" + ",".join(f"{key}:{value}" for key, value in entries.items()) + "}"

    def _shown(
        self, candidate: LogprobCandidate, rules: OutputRules, window: list[int]
    ) -> TokenText:
        token_id = _id(candidate)
        if rules.tokens_as_ids:
            return _plain_entry(f"token_id:{token_id}")
        return self._token(token_id, window)

    def _token(self, token_id: int, window: Sequence[int]) -> TokenText:
        token = self._texts.get(token_id)
        if token is None:
            token = self._texts[token_id] = _entry(*self._tokens.describe(token_id))
        if token.text.endswith(_REPLACEMENT):
            return self._repair(token_id, tuple(window))
        return token

    def _repair_uncached(self, token_id: int, context: tuple[int, ...]) -> TokenText:
        """The text a token adds once the tokens before it are known; empty inside a character."""
        for size in range(1, len(context) + 1):
            before = context[-size:]
            text = self._tokens.display([*before, token_id])
            if not text.endswith(_REPLACEMENT):
                return _plain_entry(_after(text, self._tokens.display(self._whole(before))))
        return _plain_entry("")

    def _whole(self, context: tuple[int, ...]) -> tuple[int, ...]:
        """The context without the tokens at its end that are parts of a character."""
        end = len(context)
        while end and self._tokens.display([context[end - 1]]).endswith(_REPLACEMENT):
            end -= 1
        return context[:end]


def context_tail(context: Iterable[int], delta: Iterable[int]) -> list[int]:
    """The sampled tokens to carry into the next chunk."""
    return [*context, *delta][-CONTEXT_TOKENS:]


def _entry(text: str, octets: list[int] | None) -> TokenText:
    key = msgspec.json.encode(text).decode()
    shown = msgspec.json.encode(octets).decode()
    return TokenText(text, f'{{"token":{key},"logprob":', f',"bytes":{shown}', key)


def _plain_entry(text: str) -> TokenText:
    return _entry(text, list(text.encode("utf-8", "replace")))


def _after(text: str, prefix: str) -> str:
    """What follows the longest common start of the two."""
    common = 0
    for ours, theirs in zip(text, prefix, strict=False):
        if ours != theirs:
            break
        common += 1
    return text[common:]


def _advance(window: list[int], position: LogprobPosition) -> None:
    window.append(_id(position))
    del window[:-CONTEXT_TOKENS]


def _id(candidate: LogprobCandidate) -> int:
    # `core.protocol.bounds` settles the ID of every candidate before any text is decoded.
    return candidate.token_id or 0


def _number(logprob: float) -> str:
    return repr(max(logprob, FLOOR))
