"""vLLM's parsers and what stands around them are used in ways that nothing documents."""

from argparse import Namespace

import msgspec
from vllm.entrypoints.common.cli_args import BaseFrontendArgs, resolve_default_chat_template_kwargs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.stream_processor import ChatStreamProcessor
from vllm.parser.abstract_parser import DelegatingParser

from tests.contracts.adapter.model import CHAT, model
from tests.contracts.adapter.reached import holds

OUTPUTS = ("<think>\na b c\n</think>\n\nd", "<think>\ne\n</think>\n\nf", "g")


def _parser() -> DelegatingParser:
    config = model()._config
    assert config.parser_cls is not None
    parser = config.parser_cls(config.tokenizer, None, model_config=config.model_config)
    assert isinstance(parser, DelegatingParser)
    return parser


@holds("vllm.parser.abstract_parser.DelegatingParser.count_reasoning_tokens")
def test_one_parser_counts_output_after_output() -> None:
    tokenizer = model().tokens.tokenizer
    outputs = [tokenizer.encode(text, add_special_tokens=False) for text in OUTPUTS]
    counter = _parser()
    counts = []
    for ids in outputs:
        counter.set_prompt_token_ids([])
        counts.append(counter.count_reasoning_tokens(ids))
    fresh = [_parser().count_reasoning_tokens(ids) for ids in outputs]
    assert counts == fresh
    assert len(set(counts)) == 3


@holds("vllm.entrypoints.openai.chat_completion.stream_processor.ChatStreamProcessor")
def test_a_step_heeds_that_a_tool_call_was_streamed_before() -> None:
    request = ChatCompletionRequest.model_validate(CHAT)
    parser = _parser()
    processor = ChatStreamProcessor(
        request, parser, enable_auto_tools=True, parser_cls=type(parser)
    )
    assert processor.parser is parser
    assert processor.tools_streamed is False
    ids = model().tokens.tokenizer.encode("a", add_special_tokens=False)
    processor.step("a", ids, None, [])
    processor.tools_streamed = True
    _, reason = processor.step("", [], "stop", [])
    assert reason == "tool_calls"


@holds("vllm.entrypoints.common.cli_args.resolve_default_chat_template_kwargs")
def test_two_members_tell_the_defaults_of_a_template() -> None:
    given = {"enable_thinking": False}
    arguments = Namespace(default_chat_template_kwargs=given, cohere_format="x")
    resolved = resolve_default_chat_template_kwargs(arguments)
    assert resolved == {"enable_thinking": False, "cohere_format": "x"}
    plain = Namespace(
        default_chat_template_kwargs=None, cohere_format=BaseFrontendArgs.cohere_format
    )
    assert msgspec.json.encode(resolve_default_chat_template_kwargs(plain))
