"""What this package relies on beside documented names, and for what; nothing else may be.

`tests/contracts/adapter` holds each line to a test of the same name, and checks every name that is
imported here and every call with its arguments. A line without a test fails, and so does a test
without a line.
"""

REACHES = {
    # Replaced by `patches`.
    "vllm.platforms._current_platform": "modules of vLLM take their platform from it",
    "vllm.parser.engine.streaming_parser_engine._build_drop_info": (
        "each parser engine calls it, and only reads what it gives"
    ),
    "vllm.entrypoints.scale_out.render.serving.GenerateRequest": (
        "render makes its answers with it, and it checks `token_ids` by one validator"
    ),
    # Overridden by `rendering`.
    "vllm.renderers.online_renderer.OnlineRenderer.render_chat": (
        "render calls it once a chat; it gives the conversation and the engine inputs"
    ),
    "vllm.renderers.online_renderer.OnlineRenderer.render_completion": (
        "render calls it once a completion; it gives the engine inputs"
    ),
    "vllm.utils.async_utils.make_async": (
        "what may block goes through `run_in_executor` of the loop it runs on, and no thread of"
        " another kind is started"
    ),
    # Called, or read, in a way of our own.
    "vllm.entrypoints.serve.engine.serving.BaseServing._base_request_id": (
        "all that render reads of an HTTP request is its header of the request ID"
    ),
    "vllm.entrypoints.scale_out.render.serving.logger": (
        "it is named as its module, and silenced by that name"
    ),
    "vllm.entrypoints.common.cli_args.resolve_default_chat_template_kwargs": (
        "it reads two members of the command line"
    ),
    "vllm.parser.abstract_parser.DelegatingParser.count_reasoning_tokens": (
        "one parser counts one output after another"
    ),
    "vllm.entrypoints.openai.chat_completion.stream_processor.ChatStreamProcessor": (
        "`tools_streamed` may be set between steps, and `parser` is the one it was given"
    ),
    "vllm.tokenizers.hf.ThreadSafeHFTokenizerMixin": (
        "a tokenizer of this kind gets no pool of copies"
    ),
    # In the libraries below.
    "transformers.TokenizersBackend._tokenizer": "it encodes, and nothing else does",
    "fastokens._compat._TokenizerShim": "it stands in for a `tokenizers.Tokenizer`",
    "tokenizers.decoders.Decoder.__getstate__": "JSON that names the decoder's parts",
    "tokenizers.decoders.DecodeStream.step": (
        "text that is taken back fails with `Invalid prefix encountered`"
    ),
}
"""Reason by dotted name."""
