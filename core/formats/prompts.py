"""What answers say of their prompts: token IDs and logprobs."""

from core.protocol.generate import GenerateResponse, PromptLogprob
from core.protocol.openai import PromptLogprobs
from core.text.logprobs import CONTEXT_TOKENS, FLOOR
from core.text.model_tools import ModelTools


def complete_prompt_ids(
    response: GenerateResponse, prompt_ids: list[int] | None, prompt_tokens: int | None
) -> list[int] | None:
    """The prompt IDs to return: the engine's, else the caller's if its count shows them whole."""
    if response.prompt_token_ids is not None or prompt_ids is None:
        return response.prompt_token_ids
    return prompt_ids if len(prompt_ids) == prompt_tokens else None


def named_prompt_logprobs(
    tools: ModelTools, prompt_logprobs: PromptLogprobs | None
) -> PromptLogprobs | None:
    """Prompt logprobs with the texts an engine without a tokenizer leaves out, and a floor.

    The first candidate of each position is the prompt's own token, the context of the next ones.
    """
    context: list[int] = []
    for candidates in prompt_logprobs or ():
        for key, candidate in (candidates or {}).items():
            _name(tools, int(key), candidate, context)
        if candidates:
            context = [*context, int(next(iter(candidates)))][-CONTEXT_TOKENS:]
    return prompt_logprobs


def _name(tools: ModelTools, token_id: int, candidate: PromptLogprob, context: list[int]) -> None:
    candidate.logprob = max(candidate.logprob, FLOOR)
    if candidate.decoded_token is None:
        candidate.decoded_token = tools.logprobs.text(token_id, context)
