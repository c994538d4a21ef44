"""Settings of the tests of `core`, and recordings by name."""

import pytest
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

import tests.profiles  # noqa: F401 - loads the profile
from core.vllm_adapter import platform as cpu  # noqa: F401 - before anything else of vLLM
from tests.core.recorded import RECORDINGS
from tests.recordings import Json


@pytest.fixture
def recording(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Json:
    """A recording by name, with the parsers as its server had them.

    The `json_tools` recordings were made with `VLLM_ENFORCE_STRICT_TOOL_CALLING=0`, which vLLM
    reads when the parser class is made.
    """
    found = RECORDINGS[request.param]
    plain = found["kind"] == "json_tools"
    monkeypatch.setattr(Hermes2ProToolParser, "supports_required_and_named", plain)
    return found
