"""Settings of the tests of what a shard lends to `core`."""

from core.vllm_adapter import patches


def pytest_configure() -> None:
    """Patch vLLM before a test module imports it."""
    patches.install()
