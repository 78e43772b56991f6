"""A sweep on disk: killed, damaged, full, locked, asked for something else."""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray

from pdgd_jax._internal import files as _files
from pdgd_jax.sweeps import StoreError, WriteError, open_results
from pdgd_jax.sweeps._folder import Store

IDENTITY = {
    "configuration": {"settings": {"delta": [0.05]}, "instance": [{"make": "random", "seed": 0}]},
    "versions": {"jax": "0.10"},
    "key": 0,
}


def carry(chunk):
    rng = np.random.default_rng(chunk)
    return {
        "state.q": rng.normal(size=(4, 3, 2)),
        "count": np.int32(chunk),
        "key": rng.integers(0, 2**32, size=(4, 2), dtype=np.uint32),
        "flag": rng.uniform(size=4) < 0.5,
    }


def rows(chunk):
    return {"reward": np.full((2, 4), chunk, np.float32), "covered": np.ones((2, 4), bool)}


def save(store, *chunks, block="b0"):
    for chunk in chunks:
        store.save_chunk(block, chunk, carry(chunk), rows(chunk), {"episodes": 10 * (chunk + 1)})


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Nothing here pulls the plug, and a busy disk takes its time."""
    monkeypatch.setattr(os, "fsync", os.fstat)


@pytest.fixture
def folder(tmp_path):
    """A sweep with chunks 0 to 5 of one block."""
    with Store.create(tmp_path / "sweep", IDENTITY, {"chunks": 6}) as store:
        save(store, *range(6))
    return tmp_path / "sweep"


def assert_at(folder, chunk):
    """The sweep goes on from this chunk, with exactly what was saved then."""
    store = Store.open(folder, IDENTITY)
    good = store.last_good("b0")
    if chunk is None:
        assert good is None
        return store
    assert (good.number, good.facts) == (chunk, {"episodes": 10 * (chunk + 1)})
    assert_same(good.carry, carry(chunk))
    return store


def assert_same(arrays, others):
    assert list(arrays) == list(others)
    for name, array in arrays.items():
        other = np.asarray(others[name])
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert array.tobytes() == other.tobytes(), name


def content(folder):
    """Every file but the lock and the manifest, which is dated."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("lock", "manifest.json")
    }


# Arrays


def test_arrays_come_back_bit_for_bit():
    arrays = {
        "scalar": np.float64(-0.0),
        "nan": np.array([np.nan, np.inf, -np.inf, 5e-324]),
        "empty": np.zeros((0, 3), np.int64),
        "bool": np.array([[True], [False]]),
        "swapped": np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        "big endian": np.arange(3, dtype=">f4"),
        "half": np.arange(3, dtype=np.float16),
        "['x'][0]": np.array([2**63], np.uint64),
    }
    assert_same(_files.unpack(_files.pack(arrays)), arrays)
    assert _files.pack(arrays) == _files.pack(arrays)


@pytest.mark.parametrize("bad", [np.array([{}]), np.array(["x"]), np.zeros(1, [("a", "f4")])])
def test_what_is_not_a_number_is_not_saved(bad):
    with pytest.raises(ValueError, match="'x' is of type .*; only numbers and booleans can be"):
        _files.pack({"x": bad})


@pytest.mark.parametrize("name", ["", "a/b", ".zgroup", "file", "allow_pickle"])
def test_names_that_a_file_would_misread_are_refused(name):
    with pytest.raises(ValueError, match="an array cannot be named"):
        _files.pack({name: np.zeros(1)})


def test_numpy_reads_the_rows_of_a_chunk(folder):
    with np.load(folder / "blocks/b0/rows-00003.npz") as file:
        assert_same({name: file[name] for name in file.files}, rows(3))


def test_bytes_do_not_tell_when_or_how_arrays_were_made(monkeypatch):
    array = np.arange(6.0).reshape(2, 3)
    packed = _files.pack({"x": array})
    monkeypatch.setattr(time, "time", lambda: 2e9)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(2e9))
    assert _files.pack({"x": np.asfortranarray(array)}) == packed


# Going on


def test_a_sweep_goes_on_from_its_last_chunk(folder):
    store = assert_at(folder, 5)
    expected = {name: np.concatenate([rows(chunk)[name] for chunk in range(6)]) for name in rows(0)}
    assert_same(store.rows("b0"), expected)
    assert store.plan == {"chunks": 6}
    assert store.damage == []
    assert store.last_good("b1") is None
    assert store.rows("b1") == {}


def test_old_carries_are_given_up_but_not_all(folder):
    left = sorted(path.name for path in folder.glob("blocks/b0/carry-*"))
    assert left == [f"carry-0000{chunk}.npz" for chunk in (0, 1, 3, 4, 5)]


def test_everything_is_on_the_disk_before_it_counts(folder, monkeypatch):
    events = []

    def note(name, function, inode):
        def noted(path, *args):
            events.append((name, inode(path)))
            function(path, *args)

        monkeypatch.setattr(os, name, noted)

    note("fsync", os.fsync, lambda handle: os.fstat(handle).st_ino)
    note("replace", os.replace, lambda path: os.stat(path).st_ino)
    note("unlink", os.unlink, lambda path: os.path.basename(path))
    with Store.open(folder, write=True) as store:
        save(store, 6)
    block = folder / "blocks/b0"
    names = ("carry-00006.npz", "rows-00006.npz", "chunk-00006.json")
    files = [(block / name).stat().st_ino for name in names]
    done = [event for event in events if not str(event[1]).endswith(".aside")]
    assert done == [
        *(("fsync", file) for file in files),
        *(("replace", file) for file in files),
        ("fsync", block.stat().st_ino),
        ("unlink", "carry-00004.npz"),
    ]


class Killed(BaseException):
    """The process ends here, whatever it would like to clean up."""


def killing(monkeypatch, step):
    """From the given step on, every call that changes the disk fails; a write is left half done."""
    count = 0

    def alive():
        nonlocal count
        count += 1
        return count < step

    def guard(function):
        def guarded(*args, **kwargs):
            if not alive():
                raise Killed
            return function(*args, **kwargs)

        return guarded

    class Half:
        def __init__(self, *args):
            self.file = open(*args)  # noqa: SIM115, closed by __exit__

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, data):
            if alive():
                return self.file.write(data)
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            raise Killed

    monkeypatch.setattr(_files, "open", guard(Half), raising=False)
    for module, name in [(os, "fsync"), (os, "replace"), (os, "unlink"), (os, "rename")]:
        monkeypatch.setattr(module, name, guard(getattr(module, name)))
    monkeypatch.setattr(shutil, "rmtree", guard(shutil.rmtree))


def kill_at_every_step(monkeypatch, prepare, act, check):
    """Do `act` once for each of its steps, killed there; `check` what is left. Count the steps."""
    step = 0
    while True:
        step += 1
        store = prepare(step)
        with monkeypatch.context() as patch:
            killing(patch, step)
            try:
                act(store)
                killed = False
            except Killed:
                killed = True
        if hasattr(store, "close"):
            os.close(store._lock)  # as the kernel does
        check(step, killed)
        if not killed:
            return step - 1


def test_a_save_that_is_killed_at_any_step_leaves_the_old_or_the_new_chunk(
    folder, tmp_path, monkeypatch
):
    with Store.open(folder, write=True) as store:
        save(store, 6)
    complete, seen = content(folder), []

    def prepare(step):
        store = Store.create(tmp_path / str(step), IDENTITY)
        save(store, *range(6))
        return store

    def check(step, killed):
        number = Store.open(tmp_path / str(step)).last_good("b0").number
        seen.append(number)
        store = assert_at(tmp_path / str(step), number)
        assert store.damage == []
        assert len(store.rows("b0")["reward"]) == 2 * (number + 1)
        with Store.open(tmp_path / str(step), IDENTITY, write=True) as store:
            assert not [name for name in content(store.path) if name.endswith(".aside")]
            save(store, *range(number + 1, 7))
        assert content(tmp_path / str(step)) == complete

    steps = kill_at_every_step(monkeypatch, prepare, lambda store: save(store, 6), check)
    assert steps >= 3 * 3 + 3 + 1  # open, write and flush of each file; its rename; the folder
    assert seen == sorted(seen)
    assert set(seen) == {5, 6}


def test_a_first_save_that_is_killed_at_any_step_leaves_nothing_or_the_chunk(tmp_path, monkeypatch):
    def check(step, killed):
        store = Store.open(tmp_path / str(step), IDENTITY, write=True)
        good = store.last_good("b0")
        assert store.damage == []
        assert killed or good is not None
        save(store, 0)
        store.close()
        assert_at(tmp_path / str(step), 0)

    steps = kill_at_every_step(
        monkeypatch,
        lambda step: Store.create(tmp_path / str(step), IDENTITY),
        lambda store: save(store, 0),
        check,
    )
    assert steps > 12


def test_a_beginning_that_is_killed_at_any_step_can_begin_again(tmp_path, monkeypatch):
    def check(step, killed):
        folder = tmp_path / str(step)
        if (folder / "manifest.json").exists():
            store = Store.open(folder, IDENTITY, write=True)
        else:
            assert killed
            with pytest.raises(StoreError, match="there is no sweep in .*: it has no manifest"):
                Store.open(folder, IDENTITY, write=True)
            store = Store.create(folder, IDENTITY)
        save(store, 0)
        store.close()
        assert_at(folder, 0)

    steps = kill_at_every_step(
        monkeypatch,
        lambda step: tmp_path / str(step),
        lambda folder: Store.create(folder, IDENTITY).close(),
        check,
    )
    assert steps >= 5


# Damage


def flip(position):
    def damage(path):
        data = bytearray(path.read_bytes())
        data[int(position * (len(data) - 1))] ^= 1
        path.write_bytes(data)

    return damage


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


DAMAGES = {
    "first bit": (flip(0), "is damaged: its checksum does not match."),
    "a bit": (flip(0.6), "is damaged: its checksum does not match."),
    "last bit": (flip(1), "is damaged: its checksum does not match."),
    "truncated": (truncate, "is damaged: it has "),
    "empty": (lambda path: os.truncate(path, 0), "is damaged: it has 0 bytes instead of "),
    "missing": (os.unlink, "is missing."),
}


def damage_to(path, damage):
    """Do it, and say how the sentence about it begins."""
    harm, sentence = DAMAGES[damage]
    harm(path)
    if path.suffix == ".json" and path.exists():  # knows its checksum, but not its length
        sentence = "is damaged: its checksum does not match."
    return f"{path} {sentence}"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("file", "last"),
    [
        ("carry-00005.npz", 4),
        ("rows-00005.npz", 4),
        ("rows-00004.npz", 3),
        ("rows-00003.npz", 1),
        ("chunk-00003.json", 1),
        ("rows-00000.npz", None),
    ],
)
def test_damage_is_named_and_the_last_good_chunk_is_used(folder, damage, file, last):
    complete = content(folder)
    path = folder / "blocks/b0" / file
    sentence = damage_to(path, damage)
    store = assert_at(folder, last)
    assert len(store.damage) == 1
    assert store.damage[0].startswith(sentence)
    with Store.open(folder, write=True) as store:
        save(store, *range(0 if last is None else last + 1, 6))
    assert assert_at(folder, 5).damage == []
    assert content(folder) == complete


def test_without_its_newest_record_a_chunk_does_not_exist(folder):
    (folder / "blocks/b0/chunk-00005.json").unlink()
    assert assert_at(folder, 4).damage == []


def test_with_both_last_carries_damaged_an_older_one_is_used(folder):
    for chunk in (4, 5):
        truncate(folder / f"blocks/b0/carry-0000{chunk}.npz")
    assert len(assert_at(folder, 3).damage) == 2


def test_no_bit_of_a_record_can_change(folder):
    path = folder / "blocks/b0/chunk-00005.json"
    original = path.read_bytes()
    for position in range(0, len(original), 3):
        data = bytearray(original)
        data[position] ^= 1 << position % 8
        path.write_bytes(data)
        with pytest.raises(_files.DamagedError):
            _files.read_sealed(path)


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage != "missing"])
def test_a_damaged_manifest_is_a_clear_error(folder, damage):
    DAMAGES[damage][0](folder / "manifest.json")
    with pytest.raises(StoreError) as caught:
        Store.open(folder)
    assert str(caught.value) == (
        f"{folder}/manifest.json is damaged: its checksum does not match, and without it the "
        "chunks cannot be identified; restore a copy, or begin again in a new folder."
    )


@pytest.mark.parametrize("number", [1, 4])
def test_another_format_is_refused(folder, number):
    manifest = _files.read_sealed(folder / "manifest.json")
    (folder / "manifest.json").write_bytes(_files.seal({**manifest, "format": number}))
    refusal = f"is in format {number} of a store; this version reads 3: use"
    with pytest.raises(StoreError, match=refusal):
        Store.open(folder)


def test_chunks_of_fewer_sums_are_refused_but_their_results_are_read(folder):
    manifest = _files.read_sealed(folder / "manifest.json")
    (folder / "manifest.json").write_bytes(_files.seal({**manifest, "format": 2}))
    with pytest.raises(StoreError, match="is in format 2 of a store; this version reads 3: use"):
        Store.open(folder, manifest["identity"], write=True)
    assert Store.open(folder).plan == manifest["plan"]


# Identity


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda d: d.update(key=1), "key: 0 there, 1 here"),
        (lambda d: d["versions"].update(jax="0.11"), 'versions.jax: "0.10" there, "0.11" here'),
        (lambda d: d["versions"].pop("jax"), 'versions.jax: "0.10" there, absent here'),
        (lambda d: d.update(new=[1]), "new: absent there, [1] here"),
        (
            lambda d: d["configuration"]["settings"].update(delta=(0.05, 0.1)),
            "configuration.settings.delta: [0.05] there, [0.05, 0.1] here",
        ),
        (
            lambda d: d["configuration"]["instance"][0].update(seed=3),
            "configuration.instance[0].seed: 0 there, 3 here",
        ),
        (
            lambda d: (d["configuration"].update(instance=[]), d.update(key=2)),
            (
                'configuration.instance: [{"make": "random", "seed": 0}] there, [] here; '
                "key: 0 there, 2 here"
            ),
        ),
    ],
)
@pytest.mark.parametrize("write", [False, True])
def test_another_sweep_is_refused_with_the_difference(folder, change, difference, write):
    other = json.loads(json.dumps(IDENTITY))
    change(other)
    with pytest.raises(StoreError) as caught:
        Store.open(folder, other, write=write)
    assert str(caught.value) == f"{folder} was made by another sweep: {difference}."
    assert_at(folder, 5)


def test_tuples_and_the_order_of_keys_make_no_difference(folder):
    same = {name: IDENTITY[name] for name in reversed(IDENTITY)}
    same["configuration"] = {**IDENTITY["configuration"], "settings": {"delta": (0.05,)}}
    Store.open(folder, same)


def test_a_folder_of_something_else_is_left_alone(tmp_path, folder):
    with pytest.raises(StoreError, match="sweep holds a sweep already."):
        Store.create(folder, IDENTITY)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(
        StoreError, match="thesis holds chapter.tex, which is not part of a sweep; "
    ):
        Store.create(tmp_path / "thesis", IDENTITY)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file is not a folder; a sweep needs a folder."):
        Store.create(tmp_path / "file", IDENTITY)
    with pytest.raises(WriteError, match="cannot be written: Not a directory."):
        Store.create(tmp_path / "file" / "inside", IDENTITY)
    with pytest.raises(StoreError, match="there is no sweep in .*: it has no manifest.json."):
        Store.open(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../b0", "/b0", "", "b0\0", "a b", ".", "b0\n"])
def test_a_block_cannot_leave_its_folder(folder, name):
    with Store.open(folder, write=True) as store:
        with pytest.raises(ValueError, match="blocks are named with letters, digits, - and _"):
            save(store, 0, block=name)
        with pytest.raises(ValueError, match="blocks are named with letters, digits, - and _"):
            store.last_good(name)


# The lock


def test_a_second_writer_is_refused_and_told_who_is_first(folder):
    with Store.open(folder, write=True) as first:
        with pytest.raises(StoreError) as caught:
            Store.open(folder, write=True)
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        assert str(caught.value) == (
            f"{folder} is in use by {holder}; wait for it, or stop it first."
        )
        assert_at(folder, 5)  # reading is free
        save(first, 6)
    with Store.open(folder, write=True) as second:
        assert second.last_good("b0").number == 6


def test_a_reader_that_looks_whether_it_is_locked_keeps_no_writer_out(folder, monkeypatch):
    looking = os.open(folder / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    # The reader is done after the writer's first attempt.
    monkeypatch.setattr("pdgd_jax.sweeps._lock.time.sleep", lambda _: os.close(looking))
    with Store.open(folder, write=True) as store:
        assert store.progress().running


def test_the_processes_of_one_run_save_blocks_beside_each_other(folder):
    with Store.open(folder, IDENTITY, write=True) as first:
        second = Store.open(folder, IDENTITY, write=True, member=1)
        save(second, 0, 1, block="b1")
        save(first, 6)
        with pytest.raises(StoreError, match="is in use by process "):
            Store.open(folder, write=True)
        assert [first.is_writing(member) for member in (0, 1, 2)] == [True, True, False]
        second.close()
        assert [first.is_writing(member) for member in (0, 1)] == [True, False]
        with pytest.raises(StoreError, match="was opened to read"):
            save(second, 2, block="b1")
        assert first.progress().running
        assert first.last_good("b1").number == 1
    with pytest.raises(StoreError, match="was made by another sweep: key: 0 there, 1 here."):
        Store.open(folder, {**IDENTITY, "key": 1}, write=True, member=1)


def test_a_sweep_runs_as_long_as_one_of_its_processes_does(folder):
    with Store.open(folder, write=True), Store.open(folder, write=True, member=1) as second:
        pass
    assert not second.progress().running
    first = Store.open(folder, write=True)
    with Store.open(folder, write=True, member=1) as second:
        first.close()
        assert second.progress().running


def test_a_failed_opening_keeps_no_lock(folder):
    with pytest.raises(StoreError, match="holds a sweep already"):
        Store.create(folder, IDENTITY)
    Store.open(folder, write=True).close()


def test_what_was_opened_to_read_saves_nothing(folder):
    before = content(folder)
    for store in (Store.open(folder), Store.open(folder, write=True)):
        store.close()
        with pytest.raises(StoreError, match="was opened to read; open it with write=True to save"):
            save(store, 6)
        with pytest.raises(StoreError, match="was opened to read"):
            store.save_results(dataset())
    assert content(folder) == before


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(folder):
    code = (
        "import sys\n"
        "from pdgd_jax.sweeps._folder import Store\n"
        "store = Store.open(sys.argv[1], write=True)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, folder], **pipes) as process:
        try:
            assert process.stdout.readline() == b"locked\n"
            with pytest.raises(StoreError, match=f"is in use by process {process.pid} on "):
                Store.open(folder, write=True)
            assert Store.open(folder).progress().running
        finally:
            process.send_signal(signal.SIGKILL)
    assert not Store.open(folder).progress().running
    with Store.open(folder, write=True) as store:
        save(store, 6)


# Progress


def test_progress_is_read_from_the_files_while_another_writes(folder):
    reader = Store.open(folder)
    assert not reader.progress().running
    with Store.open(folder, write=True) as writer:
        save(writer, 0, block="b1")
        for chunk in range(6):
            os.utime(folder / f"blocks/b0/chunk-0000{chunk}.json", (chunk, 100 + chunk))
        os.utime(folder / "lock", (0, 99))
        progress = reader.progress()
    assert progress.running
    assert progress.opened == 99
    assert not progress.has_results
    assert list(progress.blocks) == ["b0", "b1"]
    assert progress.blocks["b0"].facts == tuple({"episodes": 10 * n} for n in range(1, 7))
    assert progress.blocks["b0"].times == tuple(range(100, 106))
    assert progress.blocks["b1"].facts == ({"episodes": 10},)
    flip(0.5)(folder / "blocks/b0/chunk-00002.json")
    assert len(reader.progress().blocks["b0"].facts) == 2


def test_progress_of_a_sweep_that_has_just_begun(tmp_path):
    with Store.create(tmp_path / "new", IDENTITY) as store:
        assert store.progress().blocks == {}
        assert store.progress().running


def test_processes_say_what_they_do_as_long_as_they_run(folder):
    with Store.open(folder, write=True) as first:
        with Store.open(folder, write=True, member=1) as second:
            first.say({"state": "compiling"})
            second.say({"state": "playing"})
            first.say({"state": "playing"})
            doing = Store.open(folder).progress().doing
            assert [said.facts for said in doing] == [{"state": "playing"}] * 2
            assert all(abs(said.time - time.time()) < 600 for said in doing)
            left = (folder / "now.json").read_bytes()
        assert len(first.progress().doing) == 1
        flip(0.5)(folder / "now.json")
        assert first.progress().doing == ()
    assert list(folder.rglob("now*")) == []
    (folder / "now.json").write_bytes(left)  # as one does that was killed
    assert Store.open(folder).progress().doing == ()
    with Store.open(folder, write=True) as store:
        assert store.progress().doing == ()


# A full disk


FULL = (
    "no room is left on the disk of {}; nothing that was saved is lost: make room and run the same "
    "command again to continue."
)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_full_disk_is_one_sentence_and_loses_nothing(folder, monkeypatch, code, call):
    before = content(folder)

    def full(*_):
        raise OSError(code, os.strerror(code))

    with Store.open(folder, IDENTITY, write=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(_files if call == "open" else os, call, full, raising=False)
            with pytest.raises(WriteError) as caught:
                save(store, 6)
        assert str(caught.value) == FULL.format(folder)
        assert content(folder) == before
        save(store, 6)
    assert_at(folder, 6)


def test_a_broken_disk_is_one_sentence(folder, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Store.open(folder, write=True) as store:
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(WriteError, match="sweep cannot be written: Input/output error."):
            save(store, 6)


def test_a_disk_that_is_really_full(disk_of):
    small_disk = disk_of(4 * 2**20)
    folder = small_disk / "sweep"
    big = {"x": np.random.default_rng(0).normal(size=10_000)}
    with Store.create(folder, IDENTITY) as store:
        saved = []

        def save_many():
            for chunk in range(200):
                store.save_chunk("b0", chunk, big, big)
                saved.append(chunk)

        with pytest.raises(WriteError) as caught:
            save_many()
        assert str(caught.value) == FULL.format(folder)
        assert len(saved) > 3
        with (
            contextlib.suppress(OSError),
            open(small_disk / "ballast", "wb", buffering=0) as file,
        ):
            while True:  # what was too little for a chunk might be enough for results
                file.write(bytes(4096))
        with pytest.raises(WriteError) as caught:
            store.save_results(dataset())
        assert str(caught.value) == FULL.format(folder)
    assert not list(folder.rglob("*.aside"))
    with pytest.raises(StoreError, match="has no results yet"):
        open_results(folder)
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    with Store.open(folder, IDENTITY, write=True) as store:
        assert store.last_good("b0").number == saved[-1]
        assert store.damage == []
        store.save_chunk("b0", len(saved), big, big)
        assert len(store.rows("b0")["x"]) == 10_000 * (len(saved) + 1)
        store.save_results(dataset())
    xarray.testing.assert_equal(open_results(folder).load(), dataset())


# Results


def dataset(seeds=3, value=0.0):
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(2, seeds, 4)) + value
    reward[0, 0, 0] = np.nan
    status = np.array([["holds", "does not apply"], ["fails", "holds"]])
    return xarray.Dataset(
        {
            "reward": (
                ("instance", "seed", "checkpoint"),
                reward,
                {"units": "seconds since 2000-01-01"},
            ),
            "certificate_status": (("instance", "certificate"), status),
            "certificate_reason": (("instance", "certificate"), status.astype(object)),
            "covered": ("seed", np.arange(seeds) % 2 == 0),
            "rho": ((), 0.5, {"long_name": "margin"}),
        },
        {"instance": ["../x", "größer"], "seed": np.arange(seeds)},
        {"configuration": "{}", "key": 0, "created": "long ago"},
    )


@pytest.fixture
def finished(folder):
    with Store.open(folder, write=True) as store:
        store.save_results(dataset())
        assert store.progress().has_results
    return folder


def test_results_come_back_as_they_were(finished):
    created = Store.open(finished).created
    expected = dataset().assign_attrs(created=created)
    xarray.testing.assert_identical(open_results(finished).load(), expected)
    # and without this package, in its own way of dealing with units of time
    plain = xarray.open_zarr(finished / "results.zarr", decode_times=False)
    xarray.testing.assert_equal(plain.load(), dataset())
    assert "created" not in plain.attrs


def test_equal_results_are_equal_bytes_and_can_be_replaced(finished):
    before = content(finished)
    with Store.open(finished, write=True) as store:
        store.save_results(dataset(value=1.0))
        assert content(finished) != before
        store.save_results(dataset())
    assert content(finished) == before


def test_every_damaged_file_of_the_results_is_named(finished):
    files = [path for path in (finished / "results.zarr").rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        original = path.read_bytes()
        for damage in DAMAGES:
            sentence = damage_to(path, damage)
            with pytest.raises(StoreError) as caught:
                open_results(finished)
            assert str(caught.value).startswith(sentence.removesuffix("."))
            assert str(caught.value).endswith(
                "; run the sweep again to rebuild the results from its chunks."
            )
            path.write_bytes(original)
    open_results(finished)


def test_what_was_checked_is_what_is_read(finished):
    results = open_results(finished)
    shutil.rmtree(finished / "results.zarr")
    xarray.testing.assert_equal(results.load(), dataset())


def test_results_that_are_killed_at_any_step_are_the_old_the_new_or_none(tmp_path, monkeypatch):
    old, new = (xarray.Dataset({"x": ("seed", np.full(2, value))}) for value in (0.0, 1.0))
    with Store.create(tmp_path / "old", IDENTITY) as store:
        store.save_results(old)
    with Store.create(tmp_path / "new", IDENTITY) as store:
        store.save_results(new)
    seen = []

    def prepare(step):
        shutil.copytree(tmp_path / "old", tmp_path / str(step))
        return Store.open(tmp_path / str(step), write=True)

    def check(step, killed):
        folder = tmp_path / str(step)
        if (folder / "results.zarr").exists():
            seen.append(float(open_results(folder).x[0]))
        else:
            with pytest.raises(StoreError, match="has no results yet; run the sweep again to fini"):
                open_results(folder)
            seen.append(None)
            with Store.open(folder, write=True) as store:
                store.save_results(new)
            assert content(folder) == content(tmp_path / "new")

    kill_at_every_step(monkeypatch, prepare, lambda store: store.save_results(new), check)
    assert [value for value, _ in itertools.groupby(seen)] == [0.0, None, 1.0]


def test_a_system_without_locks_reads_folders_and_refuses_to_write_in_a_sentence(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    assert not assert_at(folder, 5).progress().running
    for attempt in (
        lambda: Store.create(tmp_path / "new", IDENTITY),
        lambda: Store.open(folder, write=True),
    ):
        with pytest.raises(StoreError, match="locks its folder as only Linux and macOS can"):
            attempt()
