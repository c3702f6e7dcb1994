"""Run files that others made: what harms or does not fit is named and left out, nothing else."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.files import hdf_check, runfile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.sharing.bundle import Options, bundle
from tests.ranks import rank
from tests.results import hostile
from tests.results.hostile import SECRET, record

MEMORY = 1536 << 20  # bytes of address space: imports take half a GiB of it
SECONDS = 60


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "out")
    store.write(record())
    return store


def left_out(store: Store) -> dict[str, str]:
    """File name -> reason, of a merge that must keep the one good run."""
    with h5py.File(store.merge()) as campaign:
        assert campaign["target"].asstr()[:].tolist() == ["xfs"]
        told = json.loads(campaign.attrs["left_out"])
    assert SECRET.encode() not in (store.directory / "campaign.h5").read_bytes()
    return {Path(one["file"]).name: one["reason"] for one in told}


@pytest.mark.parametrize("name", hostile.HDF5)
def test_what_hdf5_could_be_led_to_is_refused(store: Store, name: str) -> None:
    how, reason = hostile.HDF5[name]
    path = store.write(record("bad"))
    hostile.craft(path, how)
    found = left_out(store)
    assert found.keys() == {path.name}
    assert re.search(reason, found[path.name]), found


def test_an_attribute_that_is_too_large(store: Store) -> None:
    path = store.write(record("bad"))
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs.update({"format": "fsmatrix run", "schema_version": 1})
        file.attrs.create("case", np.zeros(300_000))
    assert "too large" in left_out(store)[path.name]


def test_neither_much_memory_nor_much_time(tmp_path: Path) -> None:
    """All of them in one process that may have little."""
    runfile.write_run(tmp_path / "whole.h5", record("bad"))
    said = hostile.read_with_little(
        tmp_path, "fsmatrix.results.files.runfile:read_run", MEMORY, SECONDS
    )
    assert "emory" not in said.replace("bytes of memory", "")


def test_plugins_are_not_looked_for() -> None:
    program = (
        "import fsmatrix.results.files.hdf\nfrom h5py import h5pl\nraise SystemExit(h5pl.size())"
    )
    environment = {**os.environ, "HDF5_PLUGIN_PATH": "/tmp/plugins"}
    assert subprocess.run([sys.executable, "-P", "-c", program], env=environment).returncode == 0
    assert hdf_check.h5pl.size() == 0


# -- what is no regular file ----------------------------------------------------------------
def special(store: Store, tmp_path: Path) -> dict[str, str]:
    """One of each kind in runs/: name -> reason."""
    folder = store.runs / "zz"
    folder.mkdir()
    os.mkfifo(folder / "fifo.h5")
    (folder / "null.h5").symlink_to("/dev/null")
    (folder / "loop.h5").symlink_to(folder / "loop.h5")
    (folder / "nowhere.h5").symlink_to(tmp_path / "nowhere")
    (folder / "run.h5").symlink_to(next(iter(store.files())))
    (folder / "up").symlink_to(store.directory)
    (folder / "folder.h5").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(folder)
        try:
            one.bind("socket.h5")
        finally:
            os.chdir(here)
    found = dict.fromkeys(("null.h5", "loop.h5", "nowhere.h5", "run.h5", "up"), "symbolic link")
    return found | {"fifo.h5": "is a FIFO", "socket.h5": "is a socket"}


def test_special_files_and_links_are_named(store: Store, tmp_path: Path) -> None:
    expected = special(store, tmp_path)
    found = left_out(store)
    assert found.keys() == expected.keys()
    for name, reason in expected.items():
        assert reason in found[name], name
    assert [path.name for path, _ in store.damaged()] == sorted(expected)


@pytest.mark.parametrize("anonymise", [False, True])
def test_special_files_do_not_reach_a_bundle(store: Store, tmp_path: Path, anonymise: bool) -> None:
    expected = special(store, tmp_path)
    made = bundle(store.directory, tmp_path / "b.tar.gz", Options(anonymise))
    assert made.runs["total"] == 1
    assert {Path(name).name for name, _ in made.left_out} == expected.keys()


@pytest.mark.root
def test_devices_are_named(store: Store) -> None:
    (store.runs / "zz").mkdir()
    os.mknod(store.runs / "zz/zero.h5", 0o20666, os.makedev(1, 5))
    assert left_out(store) == {"zero.h5": "is a device, no regular file"}


def test_a_file_that_is_too_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.write(record("bad"))
    with path.open("r+b") as file:
        file.truncate(hdf_check.RUN_FILE + 1)  # a hole
    assert "is longer than" in left_out(store)[path.name]


def test_folders_in_each_other(store: Store) -> None:
    folder = store.runs
    for _ in range(200):
        folder = folder / "d"
    folder.mkdir(parents=True)
    assert left_out(store) == {"d": "cannot be read: Is a directory"}


@pytest.mark.parametrize("kind", ["link", "fifo", "binary"])
def test_a_campaign_json_that_is_none(store: Store, tmp_path: Path, kind: str) -> None:
    path = store.directory / "campaign.json"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xff")
    assert left_out(store).keys() == {"campaign.json"}


def test_a_marker_that_is_a_fifo_or_nested(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "store.json")
    with pytest.raises(ResultError, match="is a FIFO"):
        Store.open(tmp_path)
    (tmp_path / "store.json").unlink()
    (tmp_path / "store.json").write_text("[" * 100_000)
    with pytest.raises(ResultError, match="nested too deeply"):
        Store.open(tmp_path)


# -- contents that do not fit -----------------------------------------------------------------
def changed(**changes: object):
    one = record("bad")
    return replace(one, **changes)


def phase(**changes: object):
    return changed(phases=(replace(record().phases[0], **changes),))


TWO = np.ones(2, dtype=np.int64)
MISFITS = {
    "status": (changed(status="good"), "its status is 'good'"),
    "case id": (changed(case_id="0" * 16), "its case has the id"),
    "work id": (changed(work_id="0" * 16), "its work has the id"),
    "no case": (changed(case="[]"), "not the canonical JSON"),
    "no JSON": (changed(case="{"), "cannot be merged"),
    "duration": (changed(duration=float("nan")), "duration is nan"),
    "block": (changed(block=-1), "block is -1"),
    "repetition": (changed(repetition=1 << 40), "repetition is"),
    "environment": (changed(environment=[1]), "environment is no mapping"),
    "evidence": (
        changed(evidence=Evidence(more={"counters": 7})),
        "cannot be used: evidence.counters is 7, not a mapping",
    ),
    "counters": (
        changed(evidence=Evidence(more={"counters": {"read": [{"before": {}}]}})),
        "cannot be used: evidence.counters.read[0].after is missing",
    ),
    "ranks": (changed(ranks=("a",)), "cannot be used: ranks[0] is 'a', not a mapping"),
    "rank": (
        changed(ranks=(rank(), rank(more={"node": "a"}))),
        "cannot be used: ranks[1].node is 'a', not of type int",
    ),
    "factors": (changed(coordinates={f"f{i}": 1 for i in range(9999)}), "has 9999 factors"),
    "level": (changed(coordinates={"target": "x" * 10**6}), "too long"),
    "host": (changed(ranks=(rank("x" * 10**6),)), "host names that are too long"),
    "negative": (phase(bytes=-TWO), "bytes holds what is no count"),
    "infinite": (phase(end=TWO * np.inf), "end holds what is no time"),
    "began": (phase(began=float("nan")), "began is nan"),
    "latency": (
        phase(latency={"read": replace(record().phases[0].latency["read"], total=-1.0)}),
        "negative or infinite",
    ),
    "name": (phase(name="x" * 1000), "name that is too long"),
    "iteration": (
        phase(iterations={**hostile.ITERATIONS, "open": -0.5 * TWO}),
        "open of an iteration is negative or infinite",
    ),
    "iterations": (
        phase(iterations={**hostile.ITERATIONS, "bandwidth": np.inf * TWO}),
        "bandwidth of an iteration is negative or infinite",
    ),
    "count": (
        phase(iterations={**hostile.ITERATIONS, "bytes": -TWO}),
        "bytes of an iteration is negative or infinite",
    ),
    "interval": (
        phase(interval_latency_max=-0.5 * TWO),
        "interval_latency_max holds what is no time",
    ),
    "summary": (
        phase(summary={"bandwidth_max": -1.0}),
        "a summary of iterations is negative or infinite",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_named(store: Store, name: str) -> None:
    one, reason = MISFITS[name]
    path = store.write(one)
    found = left_out(store)
    assert found.keys() == {path.name}
    assert reason in found[path.name], found
    made = bundle(store.directory, store.directory.parent / "b.tar.gz", Options(anonymise=True))
    assert made.runs["total"] == 1


def test_sizes_that_do_not_fit(store: Store) -> None:
    path = store.write(record("bad"))
    with h5py.File(path, "r+") as file:
        del file["bytes"]
        file["bytes"] = np.ones((1, 1), dtype=np.int64)
    assert "bytes has shape" in left_out(store)[path.name]


def instead(name: str, new: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        if new is not None:
            file[name] = new

    return change


ITERATIONS = {
    "more than there are": (instead("iterations", [1 << 40]), "more or fewer than their phases"),
    "fewer than there are": (instead("iterations", [1]), "more or fewer than their phases"),
    "negative": (instead("iterations", [-2]), "more or fewer than their phases"),
    "of two phases": (instead("iterations", [1, 1]), "longer|shorter|damaged"),
    "short": (instead("iteration_open", [0.5]), "more or fewer than their phases"),
    "square": (instead("iteration_open", np.ones((2, 2))), "more or fewer than their phases"),
    "words": (instead("iteration_open", [b"a", b"b"]), "damaged|another type"),
    "halves": (instead("iteration_bytes", [0.5, 0.5]), "another type"),
    "without bytes": (instead("iteration_bytes", None), "iterations without bytes"),
    "a short summary": (instead("own_iterations", np.ones(0)), "damaged"),
}


@pytest.mark.parametrize("name", ITERATIONS)
def test_iterations_that_do_not_fit(store: Store, name: str) -> None:
    how, reason = ITERATIONS[name]
    path = store.write(record("bad"))
    with h5py.File(path, "r+") as file:
        how(file)
    found = left_out(store)
    assert found.keys() == {path.name}
    assert re.search(reason, found[path.name]), found


def test_texts_longer_than_their_bytes(store: Store) -> None:
    path = store.write(record("bad"))
    with h5py.File(path, "r+") as file:
        file["texts/text_size"][0] = 1 << 40
    assert "longer than their bytes" in left_out(store)[path.name]
