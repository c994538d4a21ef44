"""The front door answers every recorded generation as the recorded coupled server did.

Streams are held against it event by event. The recordings are of vLLM 0.32; what cannot be equal is
listed by name with its reason and asserted to be exactly that difference.
"""

import pytest

from core.protocol.errors import BadRequest
from tests.core.calling import Json
from tests.core.front import (
    by_choice,
    comparable,
    events,
    plan_of,
    serve_collected,
    serve_stream,
    serve_whole,
)
from tests.core.recorded import (
    CANDIDATE,
    PROMPT_LOGPROBS,
    RECORDINGS,
    UNKNOWN_CANDIDATE,
    every_recording,
    setup_of,
)
from tests.recordings import as_list, differences

STOPPED = {name for name, entry in RECORDINGS.items() if entry["request"].get("stop")}


def test_every_recording_is_there() -> None:
    assert len(RECORDINGS) == 209
    assert len(STOPPED) >= 10


@every_recording
def test_streams_are_the_recorded_ones_event_by_event(recording: Json) -> None:
    setup, endpoint = setup_of(recording), recording["endpoint"]
    recorded = recording["coupled_stream"]
    body = recording["request"] | recorded["request"]
    if recording["name"] == PROMPT_LOGPROBS:
        with pytest.raises(BadRequest, match="prompt_logprobs"):
            plan_of(setup, endpoint, body)
        return
    plan = plan_of(setup, endpoint, body)
    assert plan.stream
    streams = [stream["chunks"] for stream in as_list(recording["generate_stream"])]
    ours = serve_stream(setup, plan, events(streams))
    # How choices mix is chance, and the two servers were recorded in two runs.
    found = differences(by_choice(ours), by_choice(recorded["chunks"]))
    expected = {UNKNOWN_CANDIDATE: [f".1[0].choices[0].{CANDIDATE}"]}
    assert found == expected.get(recording["name"], [])
    if not several(recording):
        assert differences(comparable(ours), comparable(recorded["chunks"])) == []


def several(recording: Json) -> bool:
    """Whether the answer has several choices."""
    return len(recording["coupled"]["response"]["choices"]) > 1


@every_recording
def test_one_shot_answers_are_the_recorded_ones(recording: Json) -> None:
    setup = setup_of(recording)
    plan = plan_of(setup, recording["endpoint"], recording["request"])
    assert plan.engine_streams == (recording["name"] in STOPPED)
    bodies = [part["response"] for part in as_list(recording["generate"])]
    check_whole(recording, serve_whole(setup, plan, bodies))


@pytest.mark.parametrize("recording", STOPPED, indirect=True)
def test_answers_put_together_from_streams_are_the_recorded_ones(recording: Json) -> None:
    setup = setup_of(recording)
    plan = plan_of(setup, recording["endpoint"], recording["request"])
    streams = [stream["chunks"] for stream in as_list(recording["generate_stream"])]
    check_whole(recording, serve_collected(setup, plan, events(streams)))


def check_whole(recording: Json, ours: Json) -> None:
    found = differences(comparable(ours), comparable(recording["coupled"]["response"]))
    expected = {UNKNOWN_CANDIDATE: [f".choices[1].{CANDIDATE}"]}
    assert found == expected.get(recording["name"], [])
