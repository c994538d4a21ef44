"""The text of a choice: decoding, stop strings, logprobs, and the one step that joins them.

Imported by `core.formats`, `core.derender` and `core.front`; imports `core.protocol` and the
adapter. Begin with `choice`.
"""
