"""The scripted engine: it takes tokens and gives tokens as a real one does, without a model.

Tests import it and start it as a process, demo and benchmarks only start it. It imports
`loadtest.model`. Begin with `app` for the routes, then `scripted_engine`.
"""
