"""What crosses between processes, and how: frames, orders at the start, replies, counters, logs.

Imported by all of `shards` and the gateway; the calls themselves are `core.protocol.calls`. Begin
with `orders` and `channel`.
"""
