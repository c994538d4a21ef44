"""The demo model: where it lies, how it is made, and how prompts are encoded with its like.

Engine, demo, benchmarks and tests may import it; it imports nothing of the project. Begin with
`folder`. The model itself is `loadtest/demo_model`.
"""
