"""The front door in a shard: an engine's events into the answer to a whole request.

Imported by `core.answerer` alone. Begin with `door`; `stream` is one request, `journal` what it is
opened anew from in another shard.
"""
