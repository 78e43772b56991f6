"""What may go wrong with a sweep, done to real processes of `pdgd`."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import OF_TERMINALS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONFIGURATION = """seeds = 4
checkpoints = 12

[[instance]]
make = "random"
sizes = [1, 2, 1]
num_actions = 2

[settings]
horizon = [480, 960]

[learners]
names = ["pdgd-ops", "uniform"]
solver = "quick"
"""
CHUNKS = 2 * 4 * 12  # groups, blocks of each, chunks of each
# A background job is born with SIGINT ignored, and the tests may run in one.
IN_FRONT = """if True:
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from pdgd_jax.__main__ import main
    main()
"""
PATIENCE = 600  # seconds, for one process on a machine that has other things to do


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the configuration, and programs that are compiled once for all processes."""
    place = tmp_path_factory.mktemp("faults")
    (place / "faults.toml").write_text(CONFIGURATION)
    return place


@pytest.fixture(scope="module")
def start(place):
    """Start `pdgd sweep` as a process of its own; all are gone when the tests are over."""
    started = []

    def start(out, *more, command="sweep", kill=None):
        words = ["--import", "tests.quick_solver", "--import", "tests.killing", command]
        if command == "sweep":
            words += [place / "faults.toml", "--out", out, "--width", 2, "--save-every", 100]
        else:
            words += [out]
        environment = {k: v for k, v in os.environ.items() if k not in OF_TERMINALS} | {
            "JAX_COMPILATION_CACHE_DIR": str(place / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "NO_COLOR": "1",
        }
        if kill:
            environment["KILL"] = json.dumps(kill)
        process = subprocess.Popen(
            [sys.executable, "-c", IN_FRONT, *map(str, [*words, *more])],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def finish(process, code=0):
    """Wait for the end of a process, which must be this one; what it wrote."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, (process.returncode, out, err)
    return out, err


def saved(folder):
    return len(list(folder.glob("blocks/*/chunk-*.json")))


def wait_until(process, condition):
    """Wait for something that a process does; False if it ended instead."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < end, "the process does nothing"
        time.sleep(0.002)
    return True


def files(folder):
    """Every byte that a sweep leaves, but for its date and its locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json" and not path.name.startswith("lock")
    }


def assert_same_files(one, other):
    ours, theirs = files(one), files(other)
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.fixture(scope="module")
def whole(place, start):
    """A sweep that nothing happened to."""
    folder = place / "whole"
    out, err = finish(start(folder))
    assert saved(folder) == CHUNKS
    assert "compiling" in err
    assert "medians over seeds" in out
    return folder


def twenty_moments():
    """When to kill: for `tests.killing`, chosen at random, but so that no phase is left out."""
    choose = random.Random(0)
    opening = [
        {"event": "open", "part": "/lock"},
        {"event": "open", "part": "manifest.json."},
        {"event": "os.rename", "part": "manifest.json"},
    ]
    # At most five chunks further each: there are enough for all.
    playing = [
        *[{"event": "open", "part": "jit__play"}] * 2,  # a program that was compiled before
        *[{"event": "open", "part": f"{name}-000"} for name in ("carry", "rows", "chunk")],
        *[{"event": "os.rename", "part": f"{name}-000"} for name in ("carry", "rows", "chunk")],
        {"event": "os.remove", "part": "carry-000"},
        *[{"event": "os.rename", "part": "chunk-000", "delay": 0.03 * choose.random()}] * 3,
    ]
    for moment in playing:
        if "000" in moment["part"]:
            moment["count"] = choose.randint(1, 2)
    choose.shuffle(playing)
    finishing = [
        *[{"event": "import", "part": name} for name in ("xarray", "zarr")],
        {"event": "open", "part": "results.zarr.aside", "count": choose.randint(1, 40)},
        {"event": "open", "part": "results.zarr.aside/.checksums.json"},
        {"event": "os.rename", "part": "results.zarr.aside"},
    ]
    return [*opening, *playing, *finishing]


def test_killed_at_twenty_moments_and_resumed(place, start, whole):
    folder = place / "killed"
    moments = twenty_moments()
    assert len(moments) == 20
    for moment in moments:
        process = start(folder, kill=moment)
        finish(process, code=-signal.SIGKILL)
        assert not (folder / "results.zarr").exists(), moment
    finish(start(folder))
    assert_same_files(folder, whole)


def test_interrupted_after_the_chunk_and_resumed(place, start, whole):
    folder = place / "interrupted"
    process = start(folder)
    assert wait_until(process, lambda: saved(folder) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = finish(process, code=130)
    assert f"stopped; everything is saved in {folder}: run the same command again" in err
    assert "Traceback" not in err
    assert 3 <= saved(folder) < CHUNKS
    assert not list(folder.rglob("*.aside"))
    facts = json.loads(finish(start(folder, "--json", command="status"))[0])
    assert facts["state"] == "stopped"
    assert 0 < facts["episodes_done"] < facts["episodes"]
    finish(start(folder))
    assert_same_files(folder, whole)


def test_damaged_files_are_named_and_played_again(place, start, whole):
    folder = place / "damaged"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "results.zarr")
    blocks = folder / "blocks"
    truncated = blocks / "g0-b0000" / "carry-00011.npz"
    truncated.write_bytes(truncated.read_bytes()[:-100])
    flipped = blocks / "g0-b0001" / "rows-00010.npz"
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 4
    flipped.write_bytes(content)
    (blocks / "g1-b0000" / "chunk-00011.json").write_text("{}")
    _, err = finish(start(folder))
    said = " ".join(err.split())
    for path in (truncated, flipped, blocks / "g1-b0000" / "chunk-00011.json"):
        assert path.name in said
    assert_same_files(folder, whole)


def test_a_second_process_is_refused_as_long_as_the_first_lives(place, start, whole):
    folder = place / "twice"
    first = start(folder)
    assert wait_until(first, lambda: saved(folder) >= 2)
    first.send_signal(signal.SIGSTOP)  # so that it cannot finish meanwhile
    try:
        facts = json.loads(finish(start(folder, "--json", command="status"))[0])
        assert facts["state"] == "running"
        assert 0 < facts["episodes_done"] < facts["episodes"]
        _, err = finish(start(folder), code=2)
        assert f"{folder} is in use by process {first.pid}" in " ".join(err.split())
    finally:
        first.kill()
        first.communicate()
    finish(start(folder))  # the kernel has freed the lock
    assert_same_files(folder, whole)


def pair(start, folder, kills=(None, None)):
    """A sweep of two processes, and how each of them ended."""
    for _ in range(3):  # another process may take the port before ours does
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        cluster = ("--coordinator", f"localhost:{port}", "--num-processes", 2, "--devices", 1)
        processes = [
            start(folder, *cluster, "--process-id", index, kill=kill)
            for index, kill in enumerate(kills)
        ]
        said = [processes[0].communicate(timeout=PATIENCE)[1]]
        taken = "cannot listen on port" in said[0]
        if taken:
            processes[1].kill()  # it would wait for five minutes
        said.append(processes[1].communicate(timeout=PATIENCE)[1])
        if not taken:
            break
    return [process.returncode for process in processes], said


def test_two_processes_make_what_one_makes(place, start, whole):
    folder = place / "two"
    codes, said = pair(start, folder)
    assert codes == [0, 0], said
    assert (folder / "lock-1").exists()  # both have worked
    assert_same_files(folder, whole)


PLAYING = {"event": "os.rename", "part": "chunk-", "count": 7}
EVALUATING = {"event": "open", "part": "results.zarr.aside"}


@pytest.mark.parametrize(
    ("victim", "moment", "resumed_by"), [(1, PLAYING, 2), (0, PLAYING, 1), (0, EVALUATING, 2)]
)
def test_a_process_that_is_left_alone_says_so_and_ends(
    place, start, whole, victim, moment, resumed_by
):
    folder = place / f"alone-{victim}-{resumed_by}"
    survivor = 1 - victim
    codes, said = pair(start, folder, [moment if i == victim else None for i in (0, 1)])
    assert codes[victim] == -signal.SIGKILL, said
    assert codes[survivor] == 1, said
    sentence = f"process {victim} ended before its work was done; what was played is saved in"
    assert sentence in " ".join(said[survivor].split())
    assert "Traceback" not in said[survivor]
    assert not (folder / "results.zarr").exists()
    # What was its own to play, the survivor has played.
    theirs = saved(folder) - (6 if moment is PLAYING else CHUNKS // 2)
    assert theirs == CHUNKS // 2
    if resumed_by == 1:
        finish(start(folder))
    else:
        codes, said = pair(start, folder)
        assert codes == [0, 0], said
    assert_same_files(folder, whole)


def test_a_full_disk_is_one_sentence_and_the_sweep_goes_on_later(start, whole, disk_of):
    small_disk = disk_of(75 * os.sysconf("SC_PAGE_SIZE"))
    folder = small_disk / "full"
    _, err = finish(start(folder), code=1)
    assert f"no room is left on the disk of {folder}" in " ".join(err.split())
    assert "Traceback" not in err
    assert 0 < saved(folder) < CHUNKS
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    finish(start(folder))
    assert_same_files(folder, whole)
