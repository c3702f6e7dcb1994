"""Series of nmon, sar and collectl put onto runs of a store: the command, the store, the bundle."""

from __future__ import annotations

import gzip
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.cli import main as cli
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.nodes import WatchedNode
from fsmatrix.results.files import runfile
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Phase, RunRecord
from tests.analysis.campaigns import record
from tests.archives import unpack

DATA = Path(__file__).parents[2] / "data" / "nodes"
NMON, SAR = DATA / "berlin.nmon", DATA / "sar.json"
WORK = datetime.fromisoformat("2026-11-29T14:26:49.5Z").timestamp()


def phase(began: float = WORK, seconds: float = 1.5, size: int = 10**8) -> Phase:
    return Phase(
        name="write",
        start=np.zeros(1),
        end=np.array([seconds]),
        bytes=np.array([size]),
        operations=np.array([100]),
        errors=np.array([0]),
        began=began,
    )


def run_of(block: int, began: float, **more: Any) -> RunRecord:
    return record(phases=(phase(began),), coordinates={"chunk": 4096}, block=block, **more)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two runs of the time of tests/data/nodes, and one of the day after."""
    made = Store.create(tmp_path / "out")
    made.append(run_of(i, WORK + ahead) for i, ahead in enumerate((0, 1, 86400)))
    return made


class Call:
    """The command, called; its output and files before and after."""

    def __init__(self, store: Store, patch: pytest.MonkeyPatch, capture: Any) -> None:
        self.store, self.patch, self.capture = store, patch, capture

    def __call__(self, *words: object) -> tuple[int, str]:
        argv = ["fsmatrix", "import", *map(str, words), "--onto", str(self.store.directory)]
        self.patch.setattr(sys, "argv", argv)
        status = int(cli.command() or 0)
        captured = self.capture.readouterr()
        return status, captured.out + captured.err

    def files(self) -> dict[str, tuple[bytes, int]]:
        root = self.store.directory
        return {
            str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def call(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Call:
    monkeypatch.setenv("TZ", "UTC")
    return Call(store, monkeypatch, capsys)


def test_nmon_onto_the_runs_of_its_time(call: Call, store: Store) -> None:
    before = call.files()
    status, text = call("nmon", NMON, "--zone", "Europe/Berlin")
    assert status == 0, text
    assert "put onto 2 of 3 runs" in text
    assert "Europe/Berlin as --zone says" in text
    assert "nothing bounds its clock" in text
    after = call.files()
    assert before.items() <= after.items()  # the runs' own files are as they were
    first = store.read(store.ids()[0])
    node = first.evidence.nodes["node1"]
    assert (node.source, node.interval, node.offset) == ("nmon", 1, 0)
    assert node.uncertainty == np.inf
    assert node.more["files"] == ["berlin.nmon"]
    assert first.nodes is not None
    # one before and one after: the run lies in 49.5 to 51, samples end at 49, 50, 51, 52
    assert (first.nodes.time - WORK).tolist() == [-1.5, -0.5, 0.5, 1.5, 2.5]
    assert first.nodes.series["cpu_user"][0] == pytest.approx(
        [np.nan, 0.903, 0.95, 0.96, 0.9], nan_ok=True, abs=1e-6
    )
    assert not any("loop" in name for name in first.nodes.series)  # they never moved
    assert first.nodes.units["disk_written:vda"] == "B s-1"
    assert store.read(store.ids()[2]).nodes is None
    again = call("nmon", NMON, "--zone", "Europe/Berlin")
    assert "put onto 0 of 3 runs" in again[1]
    assert "2 have them already" in again[1]
    assert call.files() == after


def test_another_zone_or_day_fits_no_run(call: Call) -> None:
    before = call.files()
    status, text = call("nmon", NMON)
    assert status == 2
    assert "0 of 3 runs lie in 2026-11-29 15:26:48 to 15:26:52 UTC of node1" in text
    assert "the runs lie in 2026-11-29 14:26:49 to 2026-11-30 14:26:51" in text
    assert call.files() == before


def test_another_file_of_the_host_and_time_is_refused(call: Call, store: Store) -> None:
    assert call("sar", SAR)[0] == 0
    before = call.files()
    status, text = call("nmon", NMON, "--zone", "Europe/Berlin")
    assert status == 2
    assert "2 runs with other series of node1 already" in text
    assert "has them by sar: --replace" in text
    assert call.files() == before
    assert call("nmon", NMON, "--zone", "Europe/Berlin", "--replace")[0] == 0
    assert store.read(store.ids()[0]).evidence.nodes["node1"].source == "nmon"
    assert call("nmon", NMON, "--zone", "Europe/Berlin", "--host", "node2")[0] == 0
    both = store.read(store.ids()[0])
    assert both.nodes is not None
    assert both.nodes.hosts == ("node1", "node2")
    assert np.array_equal(*both.nodes.series["cpu_user"], equal_nan=True)


def test_collectl_in_several_files_and_calls(call: Call, store: Store) -> None:
    names = [DATA / f"collectl.{kind}.gz" for kind in ("cpu", "dsk", "net")]
    assert call("collectl", *names, "--shift", "1.5")[0] == 0
    assert call("collectl", DATA / "collectl.tab.gz", "--shift", "node1=1.5")[0] == 0
    run = store.read(store.ids()[1])
    assert run.nodes is not None
    assert {"cpu_core_max", "cpu_user", "disk_written:vda"} <= set(run.nodes.series)
    node = run.evidence.nodes["node1"]
    assert node.offset == 1.5
    assert len(node.more["files"]) == 4  # type: ignore[arg-type]
    assert run.nodes.time[-1] - WORK == pytest.approx(54 - 1.5 - 49.5)
    status, text = call("collectl", DATA / "collectl.tab.gz")
    assert status == 2
    assert "other series" in text


def test_files_of_one_host_may_not_tell_the_same_twice(call: Call, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(SAR.read_bytes())
    status, text = call("sar", SAR, copy)
    assert status == 2
    assert "tells cpu_core_max of node1 at the same time as" in text
    assert call("sar", SAR, SAR)[0] == 0
    assert call("sar", SAR, copy, "--host", f"{copy}=node2")[0] == 0


def test_what_a_run_has_itself_stays_unless_it_is_replaced(call: Call, store: Store) -> None:
    watched = {"node1": WatchedNode(source="ssh", interval=1.0)}
    store.write(run_of(7, WORK, evidence=Evidence(nodes=watched)))
    status, text = call("sar", SAR)
    assert status == 2
    assert "has them by ssh" in text
    assert call("sar", SAR, "--replace")[0] == 0


def test_a_dry_run_writes_nothing_and_json_says_all(call: Call) -> None:
    before = call.files()
    status, text = call("sar", SAR, "--dry-run", "--json")
    told = json.loads(text)
    assert status == 0
    assert not told["written"]
    (node,) = told["nodes"]
    assert (node["host"], node["zone"], len(node["runs"])) == ("node1", "UTC as the file says", 2)
    assert node["clock_bound"] is None
    assert call.files() == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nmon", NMON, "-o", "x.h5"], "one of both is needed"),
        (["nmon"], "names no file"),
        (["iostat", NMON], "unknown tool 'iostat'; known: collectl, nmon, sar"),
        (["nmon", NMON, "--zone", "Mars"], "is no time zone: UTC, +02:00, or a name"),
        (["nmon", NMON, "--shift", "soon"], "is no number of seconds"),
        (["nmon", NMON, "--shift", "other=3"], "no file is of that host: node1"),
        (["nmon", NMON, "--host", "x.nmon=a"], "names no file of this import"),
        (["nmon", NMON, "--set", "target=a"], "has no meaning with --onto"),
        (["nmon", DATA / "none.nmon"], "No such file"),
        (["sar", DATA / "sar-12h.txt"], "sadf -j FILE -- -A"),
        (["collectl", DATA / "collectl-stdout.txt"], "does not say its host: --host"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    call: Call, words: list[object], reason: str
) -> None:
    before = call.files()
    status, text = call(*words)
    assert status == 2
    assert reason in " ".join(text.split())
    assert call.files() == before


def test_damaged_and_cut_gzip(call: Call, tmp_path: Path) -> None:
    packed = gzip.compress(SAR.read_bytes(), mtime=0)
    bad = tmp_path / "bad.gz"
    bad.write_bytes(packed[:200] + b"\xff" * 50 + packed[250:])
    status, text = call("sar", bad)
    assert status == 2
    assert "damaged gzip data" in text
    bad.write_bytes(packed[:-60])
    status, text = call("sar", bad)
    assert status == 0, text
    assert "what comes then is missing" in text


def test_samples_too_coarse_for_the_windows(call: Call, tmp_path: Path) -> None:
    text = SAR.read_text().replace('"interval": 1', '"interval": 10')
    coarse = tmp_path / "coarse.json"
    document = json.loads(text)
    statistics = document["sysstat"]["hosts"][0]["statistics"]
    del statistics[2:]
    statistics[0]["timestamp"]["time"] = "14:26:45"
    statistics[1]["timestamp"]["time"] = "14:26:55"
    coarse.write_text(json.dumps(document))
    status, told = call("sar", coarse)
    assert status == 0
    assert "10 s samples: too coarse for windows of 1.5 s; usable over the block" in told


def test_another_run_of_the_same_name_has_not_its_series(call: Call, store: Store) -> None:
    assert call("sar", SAR)[0] == 0
    name = store.ids()[0]
    old = store.read(name)
    assert old.nodes is not None
    store.path(name).unlink()
    store.write(run_of(0, WORK, started="2026-12-01T00:00:00Z"))
    assert store.read(name).nodes is None
    assert call("sar", SAR)[0] == 0
    assert store.read(name).nodes is not None


def test_damaged_series_are_named(call: Call, store: Store) -> None:
    assert call("sar", SAR)[0] == 0
    path = store.nodes_path(store.ids()[0])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(runfile.ResultError, match="damaged"):
        store.read(store.ids()[0])


@pytest.mark.parametrize("anonymise", [False, True])
def test_a_bundle_has_them(call: Call, store: Store, tmp_path: Path, anonymise: bool) -> None:
    assert call("sar", SAR, "--host", "storage-secret-7")[0] == 0
    words = ["bundle", str(store.directory), "-o", str(tmp_path / "b.tar.gz")]
    call.patch.setattr(sys, "argv", ["fsmatrix", *words, *(["--anonymise"] if anonymise else [])])
    assert not cli.command()
    inside = unpack(tmp_path / "b.tar.gz", tmp_path / "there")
    there = Store.open(inside)
    found = [there.read(name).nodes for name in there.ids()]
    assert sum(nodes is not None for nodes in found) == 2
    data = b"".join(path.read_bytes() for path in inside.rglob("*") if path.is_file())
    assert (b"storage-secret-7" in data) != anonymise
