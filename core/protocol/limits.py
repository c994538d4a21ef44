"""The bounds a request must keep."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one served model, checked before any tokenizer or parser runs."""

    max_model_len: int
    """Tokens a prompt and its output may have together."""

    vocab_size: int
    """Token IDs run from 0 to `vocab_size - 1`: the larger of model config and tokenizer."""

    max_logprobs: int = 20
    """Candidates a position's `top_logprobs` may list; -1 means no bound."""

    max_sequences: int = 16384
    """Responses in one call, and choices in one response (vLLM's `VLLM_MAX_N_SEQUENCES`)."""

    max_window_tokens: int = 1024
    """Entries the carried `prev_tokens` may have, as in vLLM's stream state."""
