"""Complete generations into whole answers: the calls that `stream` is false for."""

from core.derender.contexts import ContextStore, check_chat_request
from core.formats.chat.whole import chat_answer
from core.formats.completions.whole import completion_answer
from core.formats.format import Generation, Head
from core.formats.sse import to_json
from core.protocol.bounds import (
    check_response,
    check_responses,
    check_same_length,
    check_token_ids,
    counts_decoder,
    id_lists_decoder,
    read_prompt_tokens,
    response_decoder,
    responses_decoder,
)
from core.protocol.calls import DerenderChat, DerenderCompletion
from core.protocol.members import decode
from core.text.model_tools import ModelTools


def derender_chat(tools: ModelTools, contexts: ContextStore, call: DerenderChat) -> bytes:
    """The JSON of a `ChatResponse`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    response = decode(response_decoder, call.generate, "generate_response")
    check_response(response, tools.limits, "generate_response")
    prompt_tokens = read_prompt_tokens(call.prompt_tokens) or 0
    prompt_ids = contexts.prompt(call.prompt_token_ids)
    if tools.model.parses:
        check_chat_request(call.request)
    head = Head(response.request_id or call.fallback_id, call.created, call.model)
    context = contexts.chat(call.request)
    generation = Generation(response, prompt_ids, prompt_tokens)
    return to_json(chat_answer(tools, head, context, generation))


def derender_completion(tools: ModelTools, call: DerenderCompletion) -> bytes:
    """The JSON of a `CompletionResponse`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    responses = decode(responses_decoder, call.generate, "generate_responses")
    check_responses(responses, tools.limits)
    counts = _prompt_tokens(call.prompt_tokens, len(responses))
    prompts = _prompt_ids(tools, call.prompt_token_ids, len(responses))
    head = Head(responses[0].request_id or call.fallback_id, call.created, call.model)
    generations = map(Generation, responses, prompts, counts)
    rules = tools.completion_rules(call.request)
    return to_json(completion_answer(tools, head, rules, list(generations)))


def _prompt_tokens(raw: bytes, responses: int) -> list[int]:
    if not raw:
        return [0] * responses
    counts = decode(counts_decoder, raw, "prompt_tokens")
    check_same_length(counts, responses, "prompt_tokens")
    return counts


def _prompt_ids(tools: ModelTools, raw: bytes, responses: int) -> list[list[int] | None]:
    if not raw:
        return [None] * responses
    lists = decode(id_lists_decoder, raw, "prompt_token_ids")
    check_same_length(lists, responses, "prompt_token_ids")
    for i, ids in enumerate(lists):
        check_token_ids(ids, tools.limits, f"prompt_token_ids[{i}]")
    return lists
