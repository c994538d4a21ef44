"""Tools around the service, run from the checkout: an engine, a demo, benchmarks, locust users.

`core`, `shards` and `gateway` never import it, and the wheel leaves it out. Every folder says what
lives in it; begin with `engine`.
"""
