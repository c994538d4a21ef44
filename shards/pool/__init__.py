"""The calling side of the shards: which one is asked, and what happens where it is lost.

Imported by the gateway. Begin with `pool`; `shard_connection` is the wire to one shard, `sessions`
the streams of the front door.
"""
