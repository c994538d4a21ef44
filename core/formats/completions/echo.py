"""Logprobs of a prompt that is echoed, before those of the answer to it."""

import msgspec

from core.protocol.errors import EngineFailed
from core.protocol.generate import (
    GenerateChoice,
    GenerateLogprobs,
    GenerateResponse,
    LogprobCandidate,
    LogprobPosition,
    PromptLogprob,
)
from core.protocol.rules import OutputRules
from core.text.model_tools import ModelTools

_text = msgspec.json.Encoder().encode


def echoed_logprobs(
    tools: ModelTools,
    rules: OutputRules,
    response: GenerateResponse,
    prompt: list[int],
    output: GenerateChoice,
) -> bytes:
    """JSON of `CompletionLogprobs` over a prompt and an answer.

    The engine has no logprobs for the first token of a prompt; all of that one is null.

    Args:
        tools: The model.
        rules: What the request says of its answer.
        response: Holds the prompt's logprobs.
        prompt: The prompt's token IDs.
        output: The answer; without logprobs, the prompt is all.

    Raises:
        EngineFailed: The engine sent no logprobs of the prompt.
    """
    given = response.prompt_logprobs or []
    if len(given) != len(prompt):
        raise EngineFailed(
            f"the engine sent logprobs of {len(given)} prompt tokens, not of {len(prompt)}"
        )
    positions = [
        _position(token_id, candidates)
        for token_id, candidates in zip(prompt[1:], given[1:], strict=True)
    ]
    generated = output.logprobs.content if output.logprobs else None
    # Its text is decoded apart, without the space a word begins with in some vocabularies.
    first = (
        tools.logprobs.shown(prompt[0], rules, ())
        if rules.tokens_as_ids
        else tools.tokens.display(prompt[:1])
    )
    rest, _ = tools.logprobs.completion(
        GenerateLogprobs(content=[*positions, *(generated or ())]),
        rules,
        prompt[:1],
        len(first),
    )
    return _prepend(first, rest)


def _position(token_id: int, candidates: dict[str, PromptLogprob] | None) -> LogprobPosition:
    known = candidates or {}
    own = known.get(str(token_id))
    return LogprobPosition(
        token_id=token_id,
        logprob=own.logprob if own else -9999.0,
        top_logprobs=[
            LogprobCandidate(token_id=int(key), logprob=candidate.logprob)
            for key, candidate in known.items()
        ],
    )


def _prepend(first: str, written: bytes) -> bytes:
    """Put a token without logprobs before the written ones."""
    lists: dict[str, msgspec.Raw] = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    heads = {
        "text_offset": b"0",
        "token_logprobs": b"null",
        "tokens": _text(first),
        "top_logprobs": b"null",
    }
    members = []
    for name, head in heads.items():
        rest = bytes(lists[name])[1:]
        members.append(b'"%b":[%b%b%b' % (name.encode(), head, b"" if rest == b"]" else b",", rest))
    return b"{%b}" % b",".join(members)
