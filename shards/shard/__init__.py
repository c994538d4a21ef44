"""A shard process, and the warmed parent it is forked from. Loads vLLM, but for `entry` and `warm`.

Imported by nobody: `shards.service` names `entry` to the forkserver. Begin with `server`;
`scheduler` shares time among calls, `stream_table` holds live streams.
"""
