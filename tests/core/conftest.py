"""Settings of the tests of `core`, and recordings by name."""

import pytest

import tests.profiles  # noqa: F401 - loads the profile
from core.vllm_adapter import patches
from tests.recordings import Json


def pytest_configure() -> None:
    """Patch vLLM before a test module imports it."""
    patches.install()


@pytest.fixture
def recording(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Json:
    """A recording by name, with the parsers as its server had them.

    The `json_tools` recordings were made with `VLLM_ENFORCE_STRICT_TOOL_CALLING=0`, which vLLM
    reads when the parser class is made.
    """
    # Both import vLLM, which this file must not do before it is patched.
    from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

    from tests.core.recorded import RECORDINGS

    found = RECORDINGS[request.param]
    plain = found["kind"] == "json_tools"
    monkeypatch.setattr(Hermes2ProToolParser, "supports_required_and_named", plain)
    return found
