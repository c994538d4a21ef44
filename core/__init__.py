"""Post-processing of generated token IDs: pure, synchronous, free of surroundings.

No sockets, signals, processes, threads, environment, clock or randomness: the same input gives the
same output. Time is passed in, IDs are derived from the request, and what bounds or forks is lent
by a shard. `tests/test_core_promise.py` holds every module to this.

`vllm`, `transformers` and `tokenizers` are reached through `core.vllm_adapter` alone. It does what
they need: `loading` reads a model's folder, and vLLM its settings, once; `rendering` runs vLLM's
coroutines to their end, on an event loop of its own in the thread that calls.

`core.protocol` is light (data, codecs, checks on plain values) and may be imported by every room.
The others reach vLLM and load in shards only.
"""
