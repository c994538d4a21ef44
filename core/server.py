"""What every kind of call needs: one loaded model and what is kept between calls."""

from core.bounds import check_token_ids, count_decoder, decode, ids_decoder
from core.logprobs import LogprobWriter
from core.rules import OutputRules
from core.vllm_adapter import ChatContext, Model
from core.wire import Call

_DEFAULT_RULES = OutputRules()


class Server:
    """One loaded model with its writers; holds nothing of any caller."""

    def __init__(self, model: Model) -> None:
        """Wrap a loaded model."""
        self.model = model
        self.tokens = model.tokens
        self.limits = model.limits
        self.logprobs = LogprobWriter(model.tokens)

    def chat_context(self, call: Call) -> ChatContext | None:
        """The call's chat request, None where it has none."""
        return self.model.chat_context(call.request) if call.request else None

    def completion_rules(self, call: Call) -> OutputRules:
        """The rules of the call's completion request, the defaults where it has none."""
        return self.model.completion_rules(call.request) if call.request else _DEFAULT_RULES

    def prompt_tokens(self, call: Call) -> int | None:
        """The caller's count of prompt tokens."""
        raw = call.prompt_tokens
        return decode(count_decoder, raw, "prompt_tokens") if raw else None

    def prompt_ids(self, call: Call) -> list[int] | None:
        """The caller's prompt token IDs, checked."""
        if not call.prompt_token_ids:
            return None
        ids = decode(ids_decoder, call.prompt_token_ids, "prompt_token_ids")
        check_token_ids(ids, self.limits, "prompt_token_ids")
        return ids

    def default_rules(self, context: ChatContext | None) -> OutputRules:
        """The rules of a chat context, the defaults without one."""
        return _DEFAULT_RULES if context is None else context.rules

    def keeps_spaces(self, rules: OutputRules) -> bool:
        """Whether decoding keeps the spaces between added tokens.

        The engine's fast decoder keeps them whenever special tokens are skipped.
        """
        skipped = rules.skip_special_tokens and self.tokens.fast
        return skipped or rules.spaces_between_special_tokens
