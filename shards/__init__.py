"""Processes: one warmed parent, shards forked from it, and those who start and call them.

`messages` is what crosses between processes; `pool` calls shards, `shard` is one, `service` starts
and replaces all. The gateway imports `messages` and `pool`; none of them but `shard` loads vLLM.
"""
