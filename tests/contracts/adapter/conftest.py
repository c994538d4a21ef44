"""Settings of the contract tests that need vLLM."""

from collections.abc import Iterator

import pytest

from core.vllm_adapter import patches


def pytest_configure() -> None:
    """Patch vLLM before a test module imports it."""
    patches.install()


@pytest.fixture(scope="session", autouse=True)
def _renderer_closed() -> Iterator[None]:
    # Imports vLLM, which this file must not do before it is patched.
    from tests.contracts.adapter.model import renderer

    yield
    if renderer.cache_info().currsize:
        renderer().close_loop()
