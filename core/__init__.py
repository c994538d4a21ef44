"""Post-processing of generated token IDs: pure, synchronous, free of surroundings.

No I/O, no clock, no environment, no threads, no processes: the same input gives the same output.
Time is passed in; IDs are derived from the request. `vllm`, `transformers` and `tokenizers` are
reached through `core.vllm_adapter` alone.

Light modules (data, codecs, checks on plain values) may be imported by every room: `wire`,
`generate`, `openai`, `errors`, `limits`, `ids`, `bounds`, `options`. The others reach vLLM and
load in shards only.
"""
