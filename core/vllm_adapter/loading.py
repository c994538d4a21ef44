"""From a model folder to a `Model` in memory: no weights, no GPU, no engine."""

from argparse import Namespace
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import ValidationError
from vllm import AsyncEngineArgs, envs
from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.common.cli_args import (
    BaseFrontendArgs,
    resolve_default_chat_template_kwargs,
)
from vllm.parser import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.renderers.chat_utils import load_chat_template
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.tool_parsers import ToolParserManager

from core.protocol.limits import Limits
from core.protocol.options import ModelOptions
from core.protocol.rules import EndTokens, OutputRules
from core.vllm_adapter import patches
from core.vllm_adapter.parsing import ChatContext, ParserConfig
from core.vllm_adapter.requests import completion_rules, read_completion_request
from core.vllm_adapter.tokens import Tokens

T = TypeVar("T")

_CACHED_REQUESTS = 256
_LARGEST_CACHED_BYTES = 64 * 1024


class StartupError(Exception):
    """The model cannot be served as asked; the message is one line for the operator."""


class Model:
    """One model, ready to post-process: its vocabulary, limits and parsers.

    Attributes:
        names: Served names, the first one reported.
        tokens: The vocabulary.
        limits: Bounds requests must keep.
        ends: Tokens that end a generation.
        vllm_config: What vLLM made of the options.
        parses: A tool-call or reasoning parser is configured.
        counts_reasoning: Usage reports reasoning tokens, as the coupled server does with a
        reasoning parser.
    """

    def __init__(self, options: ModelOptions, vllm_config: VllmConfig, tokenizer: Any) -> None:
        """Make the parsers and read the limits.

        Raises:
            StartupError: A parser or the chat template cannot be had.
        """
        model_config = vllm_config.model_config
        self.names = options.names
        self.vllm_config = vllm_config
        self.tokens = Tokens(tokenizer)
        self.limits = Limits(
            max_model_len=model_config.max_model_len,
            vocab_size=max(model_config.get_vocab_size(), self.tokens.size),
            max_logprobs=model_config.max_logprobs,
            max_sequences=envs.VLLM_MAX_N_SEQUENCES,
        )
        self.ends = _end_tokens(model_config, tokenizer)
        reasoning = options.reasoning_parser or _default_reasoning_parser(vllm_config)
        self._config = _parser_config(options, model_config, tokenizer, reasoning)
        self.parses = self._config.parser_cls is not None
        self.counts_reasoning = bool(reasoning)
        self._cached_context = lru_cache(_CACHED_REQUESTS)(self._chat_context)
        self._cached_rules = lru_cache(_CACHED_REQUESTS)(_completion_rules)

    def chat_context(self, raw: bytes) -> ChatContext:
        """The context of a `chat_request`; small ones, which repeat over a stream, are kept.

        Raises:
            BadRequest: It is not a chat request.
        """
        small = len(raw) <= _LARGEST_CACHED_BYTES
        return self._cached_context(raw) if small else self._chat_context(raw)

    def completion_rules(self, raw: bytes) -> OutputRules:
        """The rules of a `completion_request`.

        Raises:
            BadRequest: It is not a completion request.
        """
        small = len(raw) <= _LARGEST_CACHED_BYTES
        return self._cached_rules(raw) if small else _completion_rules(raw)

    def _chat_context(self, raw: bytes) -> ChatContext:
        return ChatContext(self._config, raw)


def load_model(options: ModelOptions, progress: Callable[[str], None]) -> Model:
    """Load everything a shard needs.

    Args:
        options: What to serve, and how.
        progress: Told what happens next, a few words each time.

    Raises:
        StartupError: The model cannot be served as asked.
        RuntimeError: vLLM was imported before `patches.install`.
    """
    patches.install()
    progress("reading the model config")
    _import_plugins(options)
    _check_parser_names(options)
    vllm_config = one_line(lambda: _vllm_config(options), f"cannot read model {options.model!r}")
    progress("loading the tokenizer")
    tokenizer = one_line(
        lambda: cached_tokenizer_from_config(vllm_config.model_config),
        f"cannot load the tokenizer of {options.model!r}",
    )
    progress("preparing the parsers")
    return Model(options, vllm_config, tokenizer)


def _vllm_config(options: ModelOptions) -> VllmConfig:
    arguments = AsyncEngineArgs(
        model=options.model,
        tokenizer=options.tokenizer,
        tokenizer_mode=options.tokenizer_mode,
        revision=options.revision,
        tokenizer_revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        hf_config_path=options.hf_config_path,
        max_model_len=options.max_model_len,
        max_logprobs=options.max_logprobs,
        served_model_name=list(options.names),
        reasoning_parser=options.reasoning_parser or "",
        generation_config=options.generation_config,
        override_generation_config=options.override_generation_config or {},
    )
    model_config = arguments.create_model_config()
    # Nothing is computed here, so the checkpoint's quantization must not be asked of this machine.
    model_config.quantization = None
    return VllmConfig(
        model_config=model_config,
        structured_outputs_config=arguments.create_structured_outputs_config(),
    )


def _default_reasoning_parser(vllm_config: VllmConfig) -> str:
    """The parser vLLM sets for some model types by itself (gpt-oss); empty otherwise."""
    return str(vllm_config.structured_outputs_config.reasoning_parser or "")


def _parser_config(
    options: ModelOptions, model_config: ModelConfig, tokenizer: Any, reasoning: str
) -> ParserConfig:
    parser_cls = one_line(
        lambda: ParserManager.get_parser(
            tool_parser_name=options.tool_call_parser,
            reasoning_parser_name=reasoning or None,
            enable_auto_tools=options.enable_auto_tool_choice,
            tool_strict_level=options.tool_strict_level,
            model_name=model_config.model,
            is_harmony=model_config.hf_config.model_type == "gpt_oss",
            tokenizer=tokenizer,
        ),
        "cannot prepare the parsers",
    )
    return ParserConfig(
        parser_cls=parser_cls,
        tokenizer=tokenizer,
        model_config=model_config,
        enable_auto_tools=options.enable_auto_tool_choice,
        chat_template=one_line(
            lambda: load_chat_template(options.chat_template), "cannot read the chat template"
        ),
        content_format=options.chat_template_content_format,
        default_template_kwargs=default_template_kwargs(options),
        effort_map=options.reasoning_effort_map or {},
    )


def default_template_kwargs(options: ModelOptions) -> dict[str, Any]:
    """Template arguments a request need not give, with those vLLM's server adds by itself."""
    arguments = Namespace(
        default_chat_template_kwargs=options.default_chat_template_kwargs,
        cohere_format=BaseFrontendArgs.cohere_format,
    )
    return dict(resolve_default_chat_template_kwargs(arguments))


def _end_tokens(model_config: ModelConfig, tokenizer: Any) -> EndTokens:
    primary = tokenizer.eos_token_id
    configured = model_config.try_get_generation_config().get("eos_token_id")
    every = {configured} if isinstance(configured, int) else set(configured or ())
    return EndTokens(primary, frozenset(every | ({primary} if primary is not None else set())))


def _import_plugins(options: ModelOptions) -> None:
    if options.tool_parser_plugin:
        plugin = options.tool_parser_plugin
        one_line(lambda: ToolParserManager.import_tool_parser(plugin), f"cannot import {plugin!r}")
    if options.reasoning_parser_plugin:
        other = options.reasoning_parser_plugin
        one_line(
            lambda: ReasoningParserManager.import_reasoning_parser(other),
            f"cannot import {other!r}",
        )


def _check_parser_names(options: ModelOptions) -> None:
    _check_name("--tool-call-parser", options.tool_call_parser, ToolParserManager.list_registered())
    _check_name(
        "--reasoning-parser", options.reasoning_parser, ReasoningParserManager.list_registered()
    )


def _check_name(flag: str, name: str | None, known: list[str]) -> None:
    if name and name not in known:
        raise StartupError(f"{flag}: no parser {name!r}; there are {', '.join(sorted(known))}")


def one_line(action: Callable[[], T], failure: str) -> T:
    """Run a step of the start; whatever vLLM raises becomes one line for the operator."""
    try:
        return action()
    except Exception as error:
        raise StartupError(f"{failure}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        messages = [problem["msg"].removeprefix("Value error, ") for problem in error.errors()]
        return " ".join("; ".join(messages).split())[:400]
    return " ".join(str(error).split())[:400] or type(error).__name__


def _completion_rules(raw: bytes) -> OutputRules:
    return completion_rules(read_completion_request(raw))
