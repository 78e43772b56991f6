"""Several processes as one sweep: what `join` refuses, and when they part."""

import re

import pytest

from pdgd_jax.sweeps import Cluster, join, sweep

TINY = {
    "instance": [{"make": "two-phase"}],
    "seeds": 2,
    "checkpoints": 2,
    "settings": {"horizon": 10},
    "learners": {"names": "uniform"},
}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            ("host:1",),
            "num_processes and process_id must be given too: coordinator,",
        ),
        (("host:1", 2, 2), "process_id is from 0 to 1 if there are 2 processes; got 2."),
        (("host", 2, 1), "coordinator looks like host:1234; got 'host'."),
    ],
)
def test_errors_speak_of_parameters(given, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        join(*given)
    assert "--" not in str(error.value)


def test_the_cluster_is_left_once_the_folder_is_open_and_before_anything_is_played(tmp_path):
    events = []

    class Watched(Cluster):
        def leave(self):
            events.append(("left", (tmp_path / "out" / "manifest.json").exists()))

    def on_progress(progress):
        events.append(str(progress.state))

    sweep(TINY, out=tmp_path / "out", cluster=Watched(1, 0), on_progress=on_progress)
    assert events[:3] == ["planned", ("left", True), "compiling"]
    assert sum(isinstance(event, tuple) for event in events) == 1
