"""The flags of `derender serve`: one row each, read from the command line and the environment."""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.cli.flag_values import (
    read_length,
    read_level,
    read_names,
    read_object,
    read_switch,
    seconds,
    whole_number,
)

ENVIRONMENT_PREFIX = "DERENDER_"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: `--name` on the command line, `DERENDER_NAME` in the environment."""

    name: str
    """Without dashes in front."""
    group: str
    help: str
    default: Any = None
    read: Callable[[str], Any] = str
    """Turns the text into a value; raises ValueError with the reason."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    """Takes several values; in the environment they are separated by commas or blanks."""
    shown_default: str | None = None

    @property
    def key(self) -> str:
        """Name as a Python identifier."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return self.read is read_switch


def default_shards() -> int:
    """One core for the gateway, the rest for shards."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


_SERVER, _ENGINE, _MODEL, _PARSING, _TEMPLATE, _PROCESS = (
    "server",
    "engines behind the front door",
    "model",
    "parsers",
    "chat template",
    "processes and limits",
)

MODEL = Flag(name="model", group=_MODEL, help="folder or hub name of the model")

FLAGS = (
    Flag(name="host", group=_SERVER, default="127.0.0.1", help="address to listen on"),
    Flag(
        name="port",
        group=_SERVER,
        default=8100,
        read=whole_number(0, 65535),
        help="port to listen on; 0 takes a free one",
    ),
    Flag(
        name="served-model-name",
        group=_SERVER,
        many=True,
        metavar="NAME",
        shown_default="MODEL",
        help="names accepted in a body's `model`; the first is reported",
    ),
    Flag(
        name="api-key",
        group=_SERVER,
        many=True,
        metavar="KEY",
        help="keys callers must send one of as Authorization: Bearer KEY; better set in the"
        " environment; /health, /metrics and the like stay open",
    ),
    Flag(
        name="max-body-bytes",
        group=_SERVER,
        default=128 * 2**20,
        read=whole_number(1),
        metavar="BYTES",
        shown_default="128M",
        help="longest request body read; longer ones get 413",
    ),
    Flag(
        name="tokenizer",
        group=_MODEL,
        metavar="PATH",
        shown_default="MODEL",
        help="folder of the tokenizer",
    ),
    Flag(
        name="tokenizer-mode", group=_MODEL, default="auto", help="as in vLLM: auto, mistral, ..."
    ),
    Flag(name="revision", group=_MODEL, help="revision of a cached hub model"),
    Flag(
        name="trust-remote-code",
        group=_MODEL,
        default=False,
        read=read_switch,
        help="run Python code that comes with the model",
    ),
    Flag(
        name="hf-config-path", group=_MODEL, metavar="PATH", help="folder of config.json, if apart"
    ),
    Flag(
        name="max-model-len",
        group=_MODEL,
        read=read_length,
        metavar="TOKENS",
        shown_default="the model's",
        help="tokens of prompt and output together; 8k is 8000, 8K is 8192",
    ),
    Flag(
        name="max-logprobs",
        group=_MODEL,
        default=20,
        read=whole_number(-1),
        help="largest top_logprobs accepted; -1 for no bound",
    ),
    Flag(name="tool-call-parser", group=_PARSING, metavar="NAME", help="vLLM's tool parser"),
    Flag(
        name="tool-parser-plugin", group=_PARSING, metavar="FILE", help="Python file that adds one"
    ),
    Flag(name="reasoning-parser", group=_PARSING, metavar="NAME", help="vLLM's reasoning parser"),
    Flag(
        name="reasoning-parser-plugin",
        group=_PARSING,
        metavar="FILE",
        help="Python file that adds one",
    ),
    Flag(
        name="enable-auto-tool-choice",
        group=_PARSING,
        default=False,
        read=read_switch,
        help="parse tool calls where the request leaves the choice to the model",
    ),
    Flag(
        name="tool-strict-level",
        group=_PARSING,
        choices=("auto", "function", "parameter"),
        help="as in vLLM: how strictly tool calls are constrained",
    ),
    Flag(
        name="chat-template",
        group=_TEMPLATE,
        metavar="FILE",
        shown_default="the tokenizer's",
        help="template file, or the template itself",
    ),
    Flag(
        name="chat-template-content-format",
        group=_TEMPLATE,
        default="auto",
        choices=("auto", "string", "openai"),
        help="how the template takes message content",
    ),
    Flag(
        name="trust-request-chat-template",
        group=_TEMPLATE,
        default=False,
        read=read_switch,
        help="accept a chat template in the request",
    ),
    Flag(
        name="default-chat-template-kwargs",
        group=_TEMPLATE,
        read=read_object,
        metavar="JSON",
        help='arguments for the template, such as {"enable_thinking": false}',
    ),
    Flag(
        name="exclude-tools-when-tool-choice-none",
        group=_TEMPLATE,
        default=False,
        read=read_switch,
        help='leave tools out of the prompt where tool_choice is "none"',
    ),
    Flag(
        name="reasoning-effort-map",
        group=_TEMPLATE,
        read=read_names,
        metavar="JSON",
        help='reasoning_effort by the name the template knows, such as {"minimal": "low"}',
    ),
    Flag(
        name="anthropic-disabled-thinking-effort",
        group=_TEMPLATE,
        default="auto",
        choices=("auto", "none", "low"),
        help="as in vLLM: reasoning_effort of messages whose thinking is disabled",
    ),
    Flag(
        name="trust-request-mm-kwargs",
        group=_TEMPLATE,
        default=False,
        read=read_switch,
        help="accept mm_processor_kwargs and media_io_kwargs in the request",
    ),
    Flag(
        name="generation-config",
        group=_MODEL,
        default="auto",
        metavar="PATH",
        help="as in vLLM: where default sampling parameters come from; auto, vllm or a folder",
    ),
    Flag(
        name="override-generation-config",
        group=_MODEL,
        read=read_object,
        metavar="JSON",
        help="default sampling parameters that win over those",
    ),
    Flag(
        name="shards",
        group=_PROCESS,
        default=default_shards(),
        read=whole_number(1, 512),
        shown_default="cores - 1",
        help="processes that derender",
    ),
    Flag(
        name="render-shards",
        group=_PROCESS,
        default=1,
        read=whole_number(0, 512),
        help="processes that render and tokenize; 0 serves neither",
    ),
    Flag(
        name="fastokens",
        group=_PROCESS,
        default=True,
        read=read_switch,
        help="encode with fastokens where it agrees with the model's tokenizer",
    ),
    Flag(
        name="live-streams",
        group=_PROCESS,
        default=4096,
        read=whole_number(0),
        help="live streams a shard keeps between calls; 0 replays on every call",
    ),
    Flag(
        name="live-tokens",
        group=_PROCESS,
        default=8_000_000,
        read=whole_number(1),
        shown_default="8m",
        help="prompt and output tokens of a shard's live streams",
    ),
    Flag(
        name="live-ttl",
        group=_PROCESS,
        default=300.0,
        read=seconds,
        metavar="SECONDS",
        help="how long a live stream is kept without a call",
    ),
    Flag(
        name="request-timeout",
        group=_SERVER,
        default=120.0,
        read=seconds,
        metavar="SECONDS",
        help="longest time for one request, its body's arrival included; then 504",
    ),
    Flag(
        name="shutdown-timeout",
        group=_SERVER,
        default=2.7,
        read=seconds,
        metavar="SECONDS",
        help="how long open requests may go on once the service is told to end",
    ),
    Flag(
        name="write-timeout",
        group=_SERVER,
        default=120.0,
        read=seconds,
        metavar="SECONDS",
        help="longest time a caller may leave events of a stream unread",
    ),
    Flag(
        name="engine-url",
        group=_ENGINE,
        many=True,
        metavar="URL",
        help="token-in / token-out engines; with one, /v1/chat/completions and /v1/completions are"
        " served",
    ),
    Flag(
        name="engine-model",
        group=_ENGINE,
        metavar="NAME",
        shown_default="the first served name",
        help="the model's name at the engines",
    ),
    Flag(
        name="engine-api-key",
        group=_ENGINE,
        metavar="KEY",
        help="sent to the engines as Authorization: Bearer KEY; better set in the environment",
    ),
    Flag(
        name="forward-authorization",
        group=_ENGINE,
        default=False,
        read=read_switch,
        help="send a caller's own Authorization to the engines",
    ),
    Flag(
        name="engine-connect-timeout",
        group=_ENGINE,
        default=5.0,
        read=seconds,
        metavar="SECONDS",
        help="longest time to connect to an engine",
    ),
    Flag(
        name="engine-idle-timeout",
        group=_ENGINE,
        default=600.0,
        read=seconds,
        metavar="SECONDS",
        help="longest silence of an engine; one that does not stream is silent until it is done",
    ),
    Flag(
        name="engine-max-requests",
        group=_ENGINE,
        default=0,
        read=whole_number(0),
        metavar="COUNT",
        help="requests one engine may have in flight, more are refused; 0 for no bound",
    ),
    Flag(
        name="allow-untested-vllm",
        group=_PROCESS,
        default=False,
        read=read_switch,
        help="start with a vLLM version this release was not tested with",
    ),
    Flag(
        name="log-level",
        group=_PROCESS,
        default="INFO",
        read=read_level,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="least severe line logged",
    ),
    Flag(
        name="log-format",
        group=_PROCESS,
        default="text",
        choices=("text", "json"),
        help="one readable line, or one JSON object, per event",
    ),
)
