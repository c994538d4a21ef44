"""The one door to vLLM (0.33), transformers and tokenizers; `tests/contracts/adapter` checks it.

What holds a model may import its modules; light code and the gateway never do.
`patches.install` comes before any other module here. Begin reading at `loading`.
"""
