"""How one model is served: the flags a shard needs, as data that can cross a process boundary."""

from typing import Annotated, Any, Literal

import msgspec

from core.protocol.settings import Group, Setting


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Names and meanings follow `vllm serve`."""

    model: Annotated[str, Setting(Group.MODEL, "folder")]
    """Folder (or cached hub name) with tokenizer files and `config.json`; no weights are read."""

    served_model_names: Annotated[
        tuple[str, ...],
        Setting(
            Group.SERVER,
            "names accepted in a body's `model`; the first is reported",
            flag="served-model-name",
            shown_default="MODEL",
        ),
    ] = ()
    tokenizer: Annotated[
        str | None,
        Setting(Group.MODEL, "folder of the tokenizer", metavar="PATH", shown_default="MODEL"),
    ] = None
    tokenizer_mode: Annotated[str, Setting(Group.MODEL, "as in vLLM: auto, mistral, ...")] = "auto"
    revision: Annotated[str | None, Setting(Group.MODEL, "revision of a cached hub model")] = None
    trust_remote_code: Annotated[
        bool, Setting(Group.MODEL, "run Python code that comes with the model")
    ] = False
    hf_config_path: Annotated[
        str | None, Setting(Group.MODEL, "folder of config.json, if apart", metavar="PATH")
    ] = None
    max_model_len: Annotated[
        int | None,
        Setting(
            Group.MODEL,
            "tokens of prompt and output together; 8k is 8000, 8K is 8192",
            metavar="TOKENS",
            shown_default="the model's",
            least=1,
        ),
    ] = None
    max_logprobs: Annotated[
        int, Setting(Group.MODEL, "largest top_logprobs accepted; -1 for no bound", least=-1)
    ] = 20
    generation_config: Annotated[
        str,
        Setting(
            Group.MODEL,
            "as in vLLM: where default sampling parameters come from; auto, vllm or a folder",
            metavar="PATH",
        ),
    ] = "auto"
    override_generation_config: Annotated[
        dict[str, Any] | None,
        Setting(Group.MODEL, "default sampling parameters that win over those", metavar="JSON"),
    ] = None

    tool_call_parser: Annotated[
        str | None, Setting(Group.PARSERS, "vLLM's tool parser", metavar="NAME")
    ] = None
    tool_parser_plugin: Annotated[
        str | None, Setting(Group.PARSERS, "Python file that adds one", metavar="FILE")
    ] = None
    reasoning_parser: Annotated[
        str | None, Setting(Group.PARSERS, "vLLM's reasoning parser", metavar="NAME")
    ] = None
    reasoning_parser_plugin: Annotated[
        str | None, Setting(Group.PARSERS, "Python file that adds one", metavar="FILE")
    ] = None
    enable_auto_tool_choice: Annotated[
        bool,
        Setting(Group.PARSERS, "parse tool calls where the request leaves the choice to the model"),
    ] = False
    tool_strict_level: Annotated[
        Literal["auto", "function", "parameter"] | None,
        Setting(Group.PARSERS, "as in vLLM: how strictly tool calls are constrained"),
    ] = None

    chat_template: Annotated[
        str | None,
        Setting(
            Group.TEMPLATE,
            "template file, or the template itself",
            metavar="FILE",
            shown_default="the tokenizer's",
        ),
    ] = None
    chat_template_content_format: Annotated[
        Literal["auto", "string", "openai"],
        Setting(Group.TEMPLATE, "how the template takes message content"),
    ] = "auto"
    trust_request_chat_template: Annotated[
        bool, Setting(Group.TEMPLATE, "accept a chat template in the request")
    ] = False
    default_chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Setting(
            Group.TEMPLATE,
            'arguments for the template, such as {"enable_thinking": false}',
            metavar="JSON",
        ),
    ] = None
    exclude_tools_when_tool_choice_none: Annotated[
        bool, Setting(Group.TEMPLATE, 'leave tools out of the prompt where tool_choice is "none"')
    ] = False
    reasoning_effort_map: Annotated[
        dict[str, str] | None,
        Setting(
            Group.TEMPLATE,
            'reasoning_effort by the name the template knows, such as {"minimal": "low"}',
            metavar="JSON",
        ),
    ] = None
    anthropic_disabled_thinking_effort: Annotated[
        Literal["auto", "none", "low"],
        Setting(
            Group.TEMPLATE, "as in vLLM: reasoning_effort of messages whose thinking is disabled"
        ),
    ] = "auto"
    trust_request_mm_kwargs: Annotated[
        bool,
        Setting(Group.TEMPLATE, "accept mm_processor_kwargs and media_io_kwargs in the request"),
    ] = False

    fastokens: Annotated[
        bool,
        Setting(
            Group.PROCESSES, "encode with fastokens where it agrees with the model's tokenizer"
        ),
    ] = True

    @property
    def names(self) -> tuple[str, ...]:
        """The served names, never empty; the first is the one reported."""
        return self.served_model_names or (self.model,)
