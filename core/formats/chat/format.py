"""Chat completions as an API."""

from core.formats.chat.events import ChatEvents
from core.formats.chat.whole import chat_answer
from core.formats.format import Asked, Generation, Writer
from core.formats.sse import to_json
from core.formats.usage import prompt_tokens
from core.protocol.generate import GenerateResponse
from core.text.choice import Choice
from core.text.logprobs import LogprobShape


class ChatFormat:
    """Answers as `vllm serve` answers `/v1/chat/completions`; a `core.formats.format.Format`."""

    def events(self, asked: Asked) -> Writer:
        """The writer of a streamed answer."""
        return ChatEvents(asked)

    def plain_choice(self, asked: Asked, prompt: int) -> Choice:
        """A choice without a parser."""
        tools = asked.tools
        rules = tools.model.chat_context(asked.recipe.request).rules
        text = tools.open_text(rules, asked.prompts[prompt])
        return Choice(tools, rules, text, LogprobShape.CHAT)

    def whole(self, asked: Asked, responses: list[GenerateResponse]) -> bytes:
        """JSON of a `ChatResponse`."""
        recipe, (response,), (prompt,) = asked.recipe, responses, asked.prompts
        context = asked.tools.model.chat_context(recipe.request)
        generation = Generation(response, prompt, prompt_tokens(response.usage, prompt))
        answer = chat_answer(asked.tools, asked.head, context, generation)
        answer.prompt_text = recipe.prompt_text
        if context.rules.return_token_ids:
            answer.prompt_token_ids = prompt
        for choice in answer.choices:
            choice.message.role = recipe.role
            for text in recipe.echo:
                choice.message.content = text + (choice.message.content or "")
        return to_json(answer)
