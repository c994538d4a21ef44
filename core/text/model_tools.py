"""What every way of answering needs of a model: its vocabulary, bounds, rules and logprob texts."""

from core.protocol.rules import OutputRules
from core.text.decoding import TextStream, open_stream
from core.text.logprobs import LogprobWriter
from core.vllm_adapter.loading import Model
from core.vllm_adapter.parsing import ChatContext

_DEFAULT_RULES = OutputRules()


class ModelTools:
    """One loaded model with its writers."""

    def __init__(self, model: Model) -> None:
        """Wrap a loaded model."""
        self.model = model
        self.tokens = model.tokens
        self.limits = model.limits
        self.logprobs = LogprobWriter(model.tokens)

    def completion_rules(self, request: bytes) -> OutputRules:
        """The rules of a completion request, the defaults where there is none.

        Raises:
            BadRequest: It is not a completion request.
        """
        return self.model.completion_rules(request) if request else _DEFAULT_RULES

    def chat_rules(self, context: ChatContext | None) -> OutputRules:
        """The rules of a chat request, the defaults where there is none."""
        return _DEFAULT_RULES if context is None else context.rules

    def keeps_spaces(self, rules: OutputRules) -> bool:
        """Whether decoding keeps the spaces between added tokens.

        The engine's fast decoder keeps them whenever special tokens are skipped.
        """
        skipped = rules.skip_special_tokens and self.tokens.fast
        return skipped or rules.spaces_between_special_tokens

    def open_text(self, rules: OutputRules, prompt_ids: list[int] | None) -> TextStream:
        """A decoder for output that follows a prompt; None decodes as the start of a text."""
        return open_stream(
            self.tokens, prompt_ids, rules.skip_special_tokens, self.keeps_spaces(rules)
        )
