"""Streamed chat without a parser: an engine chunk and a carried state into a chunk and a state."""

from core.derender.carried_window import PlainStream, resume, returned_prompt_ids
from core.derender.chat_answers import chat_chunk, chat_logprobs, send_role, weight_versions
from core.formats.usage import chunk_usage
from core.protocol import openai
from core.protocol.calls import DerenderChatChunk
from core.protocol.generate import StreamChoice
from core.protocol.rules import OutputRules
from core.text.model_tools import Server


def derender_chat_stream(server: Server, call: DerenderChatChunk) -> bytes:
    """Answer a streamed chat call with the JSON of a `ChatStreamAnswer`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    prompt_tokens = server.prompt_tokens(call.prompt_tokens)
    prompt_ids = server.contexts.prompt(call.prompt_token_ids, call.prompt_digest)
    stream, chunk = resume(server, call, prompt_ids, lambda: _rules(server, call))
    choices = [_choice(stream, choice) for choice in chunk.choices]
    returned = returned_prompt_ids(chunk, prompt_ids, prompt_tokens, stream.first)
    shown = returned if stream.rules.return_token_ids else None
    usage = chunk_usage(chunk.usage, prompt_tokens, None)
    answer = openai.ChatStreamAnswer(
        chunk=chat_chunk(call, chunk, choices, usage, shown, stream.created),
        stream_state=stream.state,
    )
    return openai.encoder.encode(answer)


def _rules(server: Server, call: DerenderChatChunk) -> OutputRules:
    return server.default_rules(server.contexts.chat(call.request, call.request_digest))


def _choice(stream: PlainStream, choice: StreamChoice) -> openai.ChatStreamChoice:
    rules, state = stream.rules, stream.state
    logprobs = chat_logprobs(stream.server, rules, choice, state.logprob_context_token_ids)
    step = stream.advance(choice)
    delta = openai.Delta(content=step.text or None)
    state.role_sent = send_role(delta, state.role_sent)
    return openai.ChatStreamChoice(
        index=choice.index,
        delta=delta,
        logprobs=logprobs,
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        token_ids=choice.token_ids if rules.return_token_ids else None,
        weight_versions=weight_versions(rules, choice),
    )
