"""How one model is served: the flags a shard needs, as data that can cross a process boundary."""

from typing import Any

import msgspec


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Names and meanings follow `vllm serve`."""

    model: str
    """Folder (or cached hub name) with tokenizer files and `config.json`; no weights are read."""

    served_model_names: tuple[str, ...] = ()
    """Names accepted in `model`; the first is reported. Empty means the model's own name."""

    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    hf_config_path: str | None = None
    max_model_len: int | None = None
    """None takes the model config's own length."""
    max_logprobs: int = 20
    tool_call_parser: str | None = None
    tool_parser_plugin: str | None = None
    reasoning_parser: str | None = None
    reasoning_parser_plugin: str | None = None
    enable_auto_tool_choice: bool = False
    chat_template: str | None = None
    chat_template_content_format: str = "auto"
    trust_request_chat_template: bool = False
    default_chat_template_kwargs: dict[str, Any] | None = None
    tool_strict_level: str | None = None
    exclude_tools_when_tool_choice_none: bool = False
    reasoning_effort_map: dict[str, str] | None = None
    generation_config: str = "auto"
    override_generation_config: dict[str, Any] | None = None
    trust_request_mm_kwargs: bool = False
    anthropic_disabled_thinking_effort: str = "auto"
    fastokens: bool = True
    """Encode with `fastokens` where it agrees with the model's own tokenizer."""

    @property
    def names(self) -> tuple[str, ...]:
        """The served names, never empty; the first is the one reported."""
        return self.served_model_names or (self.model,)
