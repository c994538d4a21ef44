"""What every kind of call needs: one loaded model and what is kept between calls."""

from core.derender.contexts import ContextStore
from core.protocol.bounds import count_decoder, decode
from core.protocol.rules import OutputRules
from core.protocol.wire import Call
from core.text.logprobs import LogprobWriter
from core.vllm_adapter.loading import Model
from core.vllm_adapter.parsing import ChatContext

DEFAULT_CONTEXT_BYTES = 64 * 1024 * 1024
_DEFAULT_RULES = OutputRules()


class Server:
    """One loaded model with its writers."""

    def __init__(self, model: Model, max_context_bytes: int = DEFAULT_CONTEXT_BYTES) -> None:
        """Wrap a loaded model.

        Args:
            model: The model.
            max_context_bytes: Bound on prompts and requests held by digest.
        """
        self.model = model
        self.tokens = model.tokens
        self.limits = model.limits
        self.logprobs = LogprobWriter(model.tokens)
        self.contexts = ContextStore(model, max_context_bytes)

    def completion_rules(self, call: Call) -> OutputRules:
        """The rules of the call's completion request, the defaults where it has none."""
        return self.model.completion_rules(call.request) if call.request else _DEFAULT_RULES

    def prompt_tokens(self, call: Call) -> int | None:
        """The caller's count of prompt tokens."""
        raw = call.prompt_tokens
        return decode(count_decoder, raw, "prompt_tokens") if raw else None

    def default_rules(self, context: ChatContext | None) -> OutputRules:
        """The rules of a chat context, the defaults without one."""
        return _DEFAULT_RULES if context is None else context.rules

    def keeps_spaces(self, rules: OutputRules) -> bool:
        """Whether decoding keeps the spaces between added tokens.

        The engine's fast decoder keeps them whenever special tokens are skipped.
        """
        skipped = rules.skip_special_tokens and self.tokens.fast
        return skipped or rules.spaces_between_special_tokens
