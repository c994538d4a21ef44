"""Every name the adapter takes from vLLM and the libraries below exists, and takes its arguments.

The names and the calls are read from the adapter's own source; calls on objects that vLLM makes,
which the source does not name, are listed here.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import core.vllm_adapter
from core.vllm_adapter.reaches import REACHES
from tests.contracts.adapter.reached import held, resolve

ROOTS = {"fastokens", "tokenizers", "transformers", "vllm"}
FOLDER = Path(core.vllm_adapter.__file__).parent

_CHAT = "vllm.entrypoints.openai.chat_completion"
_RENDER = "vllm.entrypoints.scale_out.render.serving.ServingRender"
_TOKENIZE = "vllm.entrypoints.serve.tokenize.serving.ServingTokenization"

CALLED: list[tuple[str, int, tuple[str, ...]]] = [
    ("vllm.AsyncEngineArgs.create_model_config", 1, ()),
    ("vllm.AsyncEngineArgs.create_structured_outputs_config", 1, ()),
    ("vllm.config.ModelConfig.get_vocab_size", 1, ()),
    ("vllm.config.ModelConfig.try_get_generation_config", 1, ()),
    (f"{_CHAT}.protocol.ChatCompletionRequest.build_chat_params", 4, ()),
    ("vllm.renderers.params.ChatParams.with_defaults", 2, ()),
    (f"{_CHAT}.stream_processor.ChatStreamProcessor.step", 5, ()),
    ("vllm.parser.Parser", 2, ("chat_template_kwargs", "model_config")),
    ("vllm.parser.Parser.parse", 3, ("enable_auto_tools", "model_output_token_ids")),
    ("vllm.parser.Parser.adjust_request", 2, ()),
    ("vllm.parser.Parser.count_reasoning_tokens", 2, ()),
    ("vllm.parser.Parser.set_prompt_token_ids", 2, ()),
    ("vllm.renderers.online_renderer.OnlineRenderer.warmup", 1, ()),
    (f"{_RENDER}.render_chat_request", 3, ()),
    (f"{_RENDER}.render_completion_request", 3, ()),
    (f"{_RENDER}.render_messages_request", 3, ()),
    (f"{_RENDER}.render_responses_request", 2, ()),
    (f"{_TOKENIZE}.create_tokenize", 3, ()),
    (f"{_TOKENIZE}.create_detokenize", 3, ()),
]
"""Name, positional arguments with the object itself, keywords."""

READ = {
    "vllm.entrypoints.common.cli_args.BaseFrontendArgs": ("cohere_format",),
    "vllm.envs": ("VLLM_MAX_N_SEQUENCES",),
    "vllm.parser.Parser": ("always_adjust_request", "reasoning_parser_cls"),
    "vllm.config.ModelConfig": (
        *("hf_config", "max_logprobs", "max_model_len", "model", "quantization"),
    ),
    "vllm.config.VllmConfig": ("model_config", "structured_outputs_config"),
    "vllm.config.StructuredOutputsConfig": ("reasoning_parser",),
    "vllm.entrypoints.generate.base.protocol.DeltaMessage": (
        *("content", "reasoning", "role", "tool_calls"),
    ),
    "vllm.entrypoints.serve.engine.protocol.ErrorInfo": ("code", "message", "param", "type"),
    "vllm.entrypoints.openai.chat_completion.protocol.ChatCompletionRequest": (
        *("add_generation_prompt", "bad_words", "echo", "ignore_eos", "include_reasoning"),
        *("include_stop_str_in_output", "logprob_token_ids", "logprobs", "messages"),
        *("min_tokens", "n", "return_prompt_text", "return_token_ids"),
        *("return_tokens_as_token_ids", "return_weight_versions", "skip_special_tokens"),
        *("spaces_between_special_tokens", "stop", "stop_token_ids", "stream", "stream_options"),
        *("tool_choice", "tools", "top_logprobs", "use_beam_search"),
    ),
    "vllm.entrypoints.openai.completion.protocol.CompletionRequest": (
        *("bad_words", "echo", "ignore_eos", "include_stop_str_in_output", "logprob_token_ids"),
        *("logprobs", "max_tokens", "min_tokens", "n", "prompt", "prompt_embeds"),
        *("return_token_ids", "return_tokens_as_token_ids", "return_weight_versions"),
        *("skip_special_tokens", "spaces_between_special_tokens", "stop", "stop_token_ids"),
        *("stream", "stream_options", "use_beam_search"),
    ),
    "vllm.entrypoints.scale_out.token_in_token_out.protocol.GenerateRequest": (
        *("model", "parse_context", "request_id", "return_token_ids", "sampling_params"),
        *("stream", "stream_options", "token_ids", "token_offsets"),
    ),
    "vllm.SamplingParams": (
        *("ignore_eos", "include_stop_str_in_output", "max_tokens", "output_kind"),
        *("output_text_buffer_length", "prompt_logprobs", "skip_clone", "stop"),
        "stop_token_ids",
    ),
}
"""Members that the adapter reads or writes, by class or module."""


class Import(NamedTuple):
    """A name the adapter takes."""

    by: str
    """Our module."""
    module: str
    name: str


class Call(NamedTuple):
    """A call of such a name, or of a member of it."""

    by: str
    line: int
    target: str
    positional: int
    keywords: tuple[str, ...]
    open_ended: bool
    """Some arguments are unpacked, so that their number is not known."""


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(FOLDER.glob("*.py")):
        yield f"core.vllm_adapter.{path.stem}", ast.parse(path.read_text(encoding="utf-8"))


def _imports(tree: ast.Module, by: str) -> Iterator[tuple[str, Import]]:
    """Imports by the name they have in our module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ROOTS:
            for alias in node.names:
                yield alias.asname or alias.name, Import(by, node.module or "", alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in ROOTS:
                    yield alias.name.split(".")[0], Import(by, alias.name, "")


def _calls(tree: ast.Module, by: str) -> Iterator[Call]:
    known = {local: taken for local, taken in _imports(tree, by) if taken.name}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for made in classes:  # A class of ours is made as the one it extends.
        for base in made.bases:
            if isinstance(base, ast.Name) and base.id in known:
                known[made.name] = known[base.id]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        root, _, rest = ast.unparse(node.func).partition(".")
        if root in known and all(map(str.isidentifier, filter(None, rest.split(".")))):
            taken = known[root]
            target = ".".join(filter(None, (taken.module, taken.name, rest)))
            keywords = tuple(key.arg for key in node.keywords if key.arg)
            starred = [part for part in node.args if isinstance(part, ast.Starred)]
            unpacked = bool(starred) or len(keywords) < len(node.keywords)
            positional = len(node.args) - len(starred)
            yield Call(by, node.lineno, target, positional, keywords, unpacked)


IMPORTS = [taken for by, tree in _trees() for _, taken in _imports(tree, by)]
CALLS = [call for by, tree in _trees() for call in _calls(tree, by)]


def _signature(name: str) -> inspect.Signature:
    """How a name is called; a class written in Rust may show the object, which is not given."""
    target = resolve(name)
    signature = inspect.signature(target)
    first, *others = signature.parameters.values() or [None]
    if isinstance(target, type) and first is not None and first.name == "self":
        return signature.replace(parameters=[other for other in others if other is not None])
    return signature


@pytest.mark.parametrize("taken", IMPORTS, ids=lambda taken: f"{taken.module}:{taken.name}")
def test_what_is_imported_exists(taken: Import) -> None:
    try:
        module = importlib.import_module(taken.module)
    except ModuleNotFoundError as error:
        pytest.fail(f"{taken.by} imports {taken.module}: {error}")
    if taken.name and not hasattr(module, taken.name):
        try:
            importlib.import_module(f"{taken.module}.{taken.name}")
        except ModuleNotFoundError:
            pytest.fail(f"{taken.by} imports {taken.name} of {taken.module}, which has none")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.target}:{call.line}")
def test_what_is_called_takes_these_arguments(call: Call) -> None:
    signature = _signature(call.target)
    bind = signature.bind_partial if call.open_ended else signature.bind
    try:
        bind(*[None] * call.positional, **dict.fromkeys(call.keywords))
    except TypeError as error:
        pytest.fail(f"{call.by}, line {call.line}: {call.target}{signature}: {error}")


def test_the_calls_are_found() -> None:
    found = {call.target for call in CALLS}
    assert "vllm.AsyncEngineArgs" in found
    assert "vllm.parser.ParserManager.get_parser" in found
    assert "vllm.renderers.online_renderer.OnlineRenderer" in found


@pytest.mark.parametrize(("name", "positional", "keywords"), CALLED)
def test_what_vllm_makes_takes_these_arguments(
    name: str, positional: int, keywords: tuple[str, ...]
) -> None:
    _signature(name).bind(*[None] * positional, **dict.fromkeys(keywords))


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_a_member(name: str) -> None:
    owner = resolve(name)
    fields = {
        *getattr(owner, "model_fields", {}),
        *getattr(owner, "__dataclass_fields__", {}),
        *getattr(owner, "__struct_fields__", ()),
    }
    missing = [
        member for member in READ[name] if member not in fields and not hasattr(owner, member)
    ]
    assert not missing, f"{name} has no {missing}"


@pytest.mark.parametrize("name", REACHES)
def test_what_is_reached_exists(name: str) -> None:
    resolve(name)


def test_each_reach_has_its_contract() -> None:
    assert sorted(held()) == sorted(REACHES)
