"""Tools around the service: a scripted engine, the reference server, a demo and load generators.

Nothing here is imported by `core`, `shards` or `gateway`.
"""
