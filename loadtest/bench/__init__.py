"""Benchmarks: groups of figures against the reference and against ourselves, and a soak.

Tests may import it; it imports `report`, `servers`, `model` and `core`. Begin with `run`, what a
group works with, then any group that `__main__` lists.
"""
