"""Data that every room may import: calls, bodies, plans, errors, bounds, settings. Never vLLM.

Imports nothing but itself, msgspec and xxhash. Begin with `calls`, what a shard can be asked for,
and `plan`, what travels for the front door.
"""
