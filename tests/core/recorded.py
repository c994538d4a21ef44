"""Recordings as `tests/core` goes through them: each by name, with the set-up it was made with."""

import pytest

from tests import recordings
from tests.core.calling import Setup
from tests.recordings import Json

RECORDINGS = {recording["name"]: recording for recording in recordings.served()}

# The coupled server lists k + 1 candidates where the sampled token is not among the top k, but
# generate of 0.32 k: the last one is unknowable.
UNKNOWN_CANDIDATE = "completion_two__n2_logprobs2"
CANDIDATE = "logprobs.top_logprobs[0]. tails: None != -1.0940876007080078"
# vLLM 0.33 refuses them in a streamed request.
PROMPT_LOGPROBS = "plain_hello__prompt_logprobs"

every_recording = pytest.mark.parametrize("recording", RECORDINGS, indirect=True)


def setup_of(recording: Json) -> Setup:
    """The set-up of the server a recording was made with."""
    server = recording["server"]
    parsers = server.get("tool_call_parser"), server.get("reasoning_parser")
    return Setup(recordings.model_name(recording), *parsers)
