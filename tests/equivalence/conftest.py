"""Settings of the tests of live streams against replay."""

import tests.profiles  # noqa: F401 - loads the profile
from core.vllm_adapter import patches


def pytest_configure() -> None:
    """Patch vLLM before a test module imports it."""
    patches.install()
