"""Streams with a parser that live between calls: found, caught up or rebuilt, never told apart.

Imported by `core.answerer`; `shards.shard.stream_table` keeps the streams. Begin with `answer`;
`lookup` finds a stream, `stream` is one, `rebuilding` replays what it lacks.
"""
