"""The campaign file: what was measured, in long form, with nothing lost and nothing held."""

import errno
import json
import subprocess
import sys
import weakref
from dataclasses import replace

import h5py
import numpy as np
import pytest
import xarray as xr

from fsmatrix.results import histogram
from fsmatrix.results.evidence.workloads import OpenLoop
from fsmatrix.results.files import runfile
from fsmatrix.results.files.campaignfile import merge_files
from fsmatrix.results.files.run_rows import latency_kinds, rows_of
from fsmatrix.results.files.runfile import read_run
from fsmatrix.results.files.schema import DamagedFileError, ForeignFileError, NewerSchemaError
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Case, Finding, Geometry, Latency, Phase, RunRecord
from tests.ranks import rank

WARNING = Finding("too-short", 1, "warning", "window of 0.1 s", "more work", "read")
INVALID = Finding("cached", 3, "invalid", "read from cache", phase="read")
INFO = Finding("carry-over", 1, "info", "not quiet")


def latency(*nanoseconds):
    values = np.array(nanoseconds)
    return Latency(
        np.bincount(histogram.bin_of(values), minlength=histogram.BINS),
        float(values.sum()) / 1e9,
        float(values.min()) / 1e9,
        float(values.max()) / 1e9,
    )


def phase(name, end, volume, **changes):
    ranks = len(end)
    values = {
        "name": name,
        "start": np.zeros(ranks),
        "end": np.array(end, dtype=float),
        "bytes": np.array(volume, dtype=np.int64),
        "operations": np.array(volume, dtype=np.int64) // 4,
        "errors": np.zeros(ranks, dtype=np.int64),
        "began": 1000.0,
    }
    return Phase(**{**values, **changes})


def record(target="xfs", repetition=0, phases=(), **changes):
    case = Case(target, "pattern", {"chunk_size": 4096}, Geometry(1, 2))
    values = {
        "case": case.canonical,
        "case_id": case.case_id,
        "work_id": case.work_id,
        "repetition": repetition,
        "attempt": 1,
        "block": repetition,
        "attachment": f"{target}-{repetition}",
        "session": "s",
        "status": "ok",
        "engine": "player-c",
        "engine_version": "1",
        "started": "2026-01-01T00:00:00Z",
        "duration": 2.5,
        "coordinates": {"target": target, "chunk_size": 4096},
        "environment": {"kernel": "6.1", "target": target},
        "ranks": (rank("node1"), rank("node2"), rank("node1")),
        "phases": tuple(phases),
    }
    return RunRecord(**{**values, **changes})


WRITE = phase("write", [1.0, 2.0], [100, 300], latency={"write": latency(1000, 3000)})
READ = phase(
    "read",
    [0.5, 1.0],
    [100, 300],
    latency={"read": latency(*[5000] * 100), "open": latency(9_000_000)},
    interval=0.25,
    interval_bytes=np.array([100, 100, 120, 80]),
    interval_operations=np.array([1, 2, 3, 4]),
    io_start=np.array([0.1, 0.2]),
    io_end=np.array([0.5, 0.6]),
    clock_uncertainty=1e-6,
)


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "out")


def merged(store, *records):
    store.append(records)
    with xr.open_dataset(store.merge(), engine="h5netcdf") as dataset:
        return dataset.load()


def row(dataset, **wanted):
    """The one row in which these variables have these values."""
    mask = np.ones(dataset.sizes["run"], dtype=bool)
    for name, value in wanted.items():
        mask &= dataset[name].values == value
    (index,) = np.flatnonzero(mask)
    return dataset.isel(run=index)


def ragged(dataset, one, dim):
    """The slice of a ragged dimension that belongs to one row."""
    first = one[f"{dim}_first"].item()
    return dataset.isel({dim: slice(first, first + one[f"{dim}_size"].item())})


def test_one_row_per_run_and_phase(store):
    dataset = merged(
        store,
        record(phases=[WRITE, READ]),
        record("ext4", phases=[READ]),
        record("ext4", repetition=1, status="failed", error="rank 1: ENOSPC"),
    )
    assert dataset.sizes["run"] == 4
    assert sorted(dataset["target"].values.tolist()) == ["ext4", "ext4", "xfs", "xfs"]
    assert set(dataset["workload"].values.tolist()) == {"pattern"}
    assert dataset["chunk_size"].values.tolist() == [4096] * 4
    assert dataset["chunk_size"].dtype == np.int64
    assert {"target", "chunk_size", "phase", "workload"} <= set(dataset.coords)
    failed = row(dataset, status="failed")
    assert failed["phase"].item() == ""
    assert failed["error"].item() == "rank 1: ENOSPC"
    assert np.isnan(failed["bandwidth"].item())
    assert np.isnan(failed["bytes"].item())
    assert failed["workers"].item() == 0
    assert failed["repetition"].item() == 1
    assert dataset.attrs["runs"] == 3


def test_metrics(store):
    dataset = merged(store, record(phases=[WRITE, READ]))
    write, read = row(dataset, phase="write"), row(dataset, phase="read")
    assert write["bandwidth"].item() == 200
    assert write["iops"].item() == 50
    assert write["window"].item() == 2
    assert np.isnan(write["first_finisher_rate"].item())
    assert np.isnan(write["io_bandwidth"].item())
    assert read["bandwidth"].item() == 400
    assert read["first_finisher_rate"].item() == 400  # 200 bytes in the first 0.5 s
    assert read["io_window"].item() == pytest.approx(0.5)
    assert read["io_bandwidth"].item() == pytest.approx(800)
    assert (read["bytes"].item(), read["operations"].item()) == (400, 100)
    assert read["latency_of"].item() == "read"
    assert read["latency_mean"].item() == pytest.approx(5e-6)
    assert read["latency_p50"].item() == pytest.approx(5e-6, rel=0.008)
    assert np.isnan(read["latency_p95"].item())  # 100 operations are too few
    assert read["latency_max"].item() == 5e-6
    assert write["latency_mean"].item() == pytest.approx(2e-6)
    assert read["hosts"].item() == "node1 node2"
    assert read["clock_uncertainty"].item() == 1e-6
    assert dataset["bandwidth"].attrs["units"] == "B s-1"


def test_a_series_that_ends_before_the_first_finisher_tells_no_rate(store):
    """dbench prints nothing of its last second: its series would count that as idle."""
    short = replace(READ, interval_bytes=np.array([100]), interval_operations=None)
    dataset = merged(store, record(phases=[short]))
    assert np.isnan(row(dataset, phase="read")["first_finisher_rate"].item())


def test_ragged_arrays_hold_the_raw_data(store):
    dataset = merged(store, record(phases=[WRITE, READ]), record("ext4", phases=[READ]))
    one = row(dataset, target="xfs", phase="read")
    workers = ragged(dataset, one, "worker")
    assert workers["worker_end"].values.tolist() == [0.5, 1.0]
    assert workers["worker_bytes"].values.tolist() == [100, 300]
    series = ragged(dataset, one, "interval")
    assert series["interval_bytes"].values.tolist() == [100, 100, 120, 80]
    assert one["interval_width"].item() == 0.25
    bins = ragged(dataset, one, "latency")
    kinds = dataset["kind_name"].values[bins["latency_kind"].values]
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    counts[bins["latency_bin"].values[kinds == "read"]] = bins["latency_count"][kinds == "read"]
    assert counts.tolist() == READ.latency["read"].counts.tolist()
    assert dataset["bin_lower"].values[np.flatnonzero(counts)[0]] <= 5e-6
    for dim in ("worker", "latency", "interval", "finding"):
        index = dataset[f"{dim}_run"].values
        expected = np.repeat(np.arange(dataset.sizes["run"]), dataset[f"{dim}_size"].values)
        assert index.tolist() == expected.tolist()


def test_findings_follow_the_phase(store):
    dataset = merged(store, record(phases=[WRITE, READ], findings=(WARNING, INVALID, INFO)))
    write, read = row(dataset, phase="write"), row(dataset, phase="read")
    assert write["worst_finding"].item() == "info"
    assert read["worst_finding"].item() == "invalid"
    found = ragged(dataset, read, "finding")
    assert found["finding_audit"].values.tolist() == ["too-short", "cached", "carry-over"]
    assert found["finding_version"].values.tolist() == [1, 3, 1]
    assert found["finding_message"].values.tolist()[0] == "window of 0.1 s"
    assert ragged(dataset, write, "finding")["finding_audit"].values.tolist() == ["carry-over"]
    nothing = merged(Store.create(store.directory.parent / "b"), record(phases=[WRITE]))
    assert nothing["worst_finding"].values.tolist() == [""]
    assert nothing.sizes["finding"] == 0


def test_a_finding_of_a_phase_that_is_not_there_concerns_the_run(store):
    dataset = merged(store, record(status="failed", findings=(INVALID,)))
    assert dataset["worst_finding"].values.tolist() == ["invalid"]


def test_environments_and_cases_are_stored_once(store):
    runs = [record(t, repetition=r, phases=[WRITE]) for t in ("xfs", "ext4") for r in range(5)]
    dataset = merged(store, *runs)
    assert dataset.sizes["environment"] == dataset.sizes["case"] == 2
    for index in range(dataset.sizes["run"]):
        one = dataset.isel(run=index)
        text = dataset["environment_json"].values[one["environment_index"].item()]
        assert json.loads(text)["target"] == one["target"].item()
        case = Case.from_canonical(dataset["case_json"].values[one["case_index"].item()])
        assert case.case_id == one["case_id"].item()


def test_factors_of_every_type(store):
    levels = [
        {"n": 1, "share": 0.5, "mode": "a b/é", "direct": True, "mixed": 1, "gap": 3, "l": [1, 2]},
        {"n": 2, "share": 1, "mode": "", "direct": False, "mixed": "auto", "phase": "x"},
    ]
    records = [
        record(repetition=i, phases=[WRITE], coordinates={"processes per/node": 4, **level})
        for i, level in enumerate(levels)
    ]
    dataset = merged(store, *records).sortby("repetition")
    assert dataset["n"].values.tolist() == [1, 2]
    assert dataset["n"].dtype == np.int64
    assert dataset["share"].values.tolist() == [0.5, 1.0]
    assert dataset["mode"].values.tolist() == ["a b/é", ""]
    assert dataset["direct"].values.tolist() == ["true", "false"]
    assert dataset["mixed"].values.tolist() == ["1", "auto"]
    assert dataset["l"].values.tolist() == ["[1,2]", ""]
    assert dataset["gap"].values[0] == 3
    assert np.isnan(dataset["gap"].values[1])
    names = json.loads(dataset.attrs["factors"])
    assert names["processes per/node"] == "processes_per_node"
    assert names["phase"] == "factor_phase"
    assert dataset["factor_phase"].values.tolist() == ["", "x"]
    assert dataset["phase"].values.tolist() == ["write", "write"]
    assert set(names.values()) <= set(dataset.coords)


def test_attempts(store):
    failed = record(status="failed")
    dataset = merged(
        store,
        *[replace(failed, attempt=attempt) for attempt in (1, 2)],
        replace(failed, attempt=10, status="ok", phases=(WRITE, READ)),
        record(repetition=1, phases=[WRITE]),
    )
    assert dataset["attempt"].values.tolist() == [1, 2, 10, 10, 1]
    assert dataset["last_attempt"].values.tolist() == [0, 0, 1, 1, 1]


def test_many_rows_keep_their_order(store):
    """More rows than a block: buffers are flushed in between."""
    names = [f"p{index}" for index in range(700)]
    phases = [phase(name, [1.0], [index]) for index, name in enumerate(names)]
    dataset = merged(store, record(phases=phases), record(repetition=1, phases=phases))
    assert dataset["phase"].values.tolist() == names * 2
    assert dataset["bytes"].values.tolist() == [*range(700)] * 2
    assert dataset["worker_bytes"].values.tolist() == [*range(700)] * 2
    assert dataset["worker_first"].values.tolist() == list(range(1400))


def test_what_cannot_be_read_is_left_out_by_name(store):
    good = [record(t, phases=[WRITE]) for t in ("a", "b", "c", "d")]
    paths = [store.write(one) for one in good]
    paths[0].write_bytes(paths[0].read_bytes()[:2000])
    paths[1].write_bytes(b"not HDF5 at all")
    with h5py.File(paths[2], "r+") as file:
        file.attrs["schema_version"] = 7
    copy = paths[3].with_name("copy-of-" + paths[3].name)
    copy.write_bytes(paths[3].read_bytes())
    no_case = store.write(record("e", case="{}", case_id="f" * 16, coordinates={}))
    errors = merge_files(store.files(), store.directory / "x.h5", root=store.directory)
    kinds = {error.path: type(error) for error in errors}
    assert kinds[paths[0]] is DamagedFileError
    assert kinds[paths[1]] is ForeignFileError
    assert kinds[paths[2]] is NewerSchemaError
    assert set(kinds) == {*paths[:3], copy, no_case}
    dataset = merged(store)
    assert dataset["target"].values.tolist() == ["d"]
    left_out = {item["file"]: item["reason"] for item in json.loads(dataset.attrs["left_out"])}
    assert "schema 7" in left_out[str(paths[2].relative_to(store.directory))]
    assert f"holds run {good[3].run_id}" in left_out[str(copy.relative_to(store.directory))]
    assert "cannot be merged" in left_out[str(no_case.relative_to(store.directory))]


def test_an_empty_store(store):
    dataset = merged(store)
    assert dataset.sizes["run"] == 0
    assert "bandwidth" in dataset
    assert dataset.attrs["runs"] == 0


def test_the_campaign_goes_along_and_a_second_merge_replaces(store):
    (store.directory / "campaign.json").write_text('{"name": "é"}')
    store.write(record(phases=[WRITE]))
    store.merge()
    dataset = merged(store, record(repetition=1, phases=[WRITE]))
    assert json.loads(dataset.attrs["campaign"]) == {"name": "é"}
    assert dataset.sizes["run"] == 2
    names = sorted(entry.name for entry in store.directory.iterdir())
    assert names == ["campaign.h5", "campaign.json", "runs", "store.json"]


def test_a_failing_merge_leaves_the_old_file(store):
    store.write(record(phases=[WRITE]))
    path = store.merge()
    before = path.read_bytes()

    def stop(_seen):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.merge(progress=stop)
    assert path.read_bytes() == before
    assert not [entry for entry in store.directory.iterdir() if entry.name.endswith(".tmp")]


def test_one_run_in_memory_at_a_time(store, monkeypatch):
    store.append(record(repetition=index, phases=[WRITE, READ]) for index in range(20))
    alive, most = weakref.WeakSet(), []

    def read(path):
        one = read_run(path)
        alive.add(_Key(one))
        most.append(len(alive))
        return one

    class _Key:
        """Lives as long as the record that it hangs on (records have no hash)."""

        def __init__(self, one):
            object.__setattr__(one, "_key", self)

    monkeypatch.setattr(runfile, "read_run", read)
    store.merge()
    assert len(most) == 20
    assert max(most) <= 2


@pytest.mark.parametrize("room", [0, 1000, 30_000, 60_000, 100_000])
def test_a_device_that_fills_up_gives_its_error(store, room):
    """HDF5 itself would crash the process (its own process here, to be sure)."""
    store.append(record(repetition=index, phases=[WRITE, READ]) for index in range(30))
    program = (
        "import errno, os, sys; from fsmatrix.results.files.store import Store\n"
        "real, room = os.pwrite, int(sys.argv[2])\n"
        "def pwrite(handle, data, offset):\n"
        "    if offset + len(data) > room: raise OSError(errno.ENOSPC, 'No space left')\n"
        "    return real(handle, data, offset)\n"
        "os.pwrite = pwrite\n"
        "try: Store.open(sys.argv[1]).merge()\n"
        "except OSError as error: print('errno', error.errno)\n"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program, str(store.directory), str(room)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, f"errno {errno.ENOSPC}\n"), result.stderr
    assert sorted(entry.name for entry in store.directory.iterdir()) == ["runs", "store.json"]


def test_progress_is_told(store):
    store.append(record(repetition=index) for index in range(3))
    seen = []
    store.merge(progress=seen.append)
    assert seen == [1, 2, 3]


def test_strings_that_hdf5_cannot_hold(store):
    dataset = merged(store, record(error="a\0b\udcff", status="failed", coordinates={"x": "\0"}))
    assert dataset["error"].values[0] == 'json:"a\\u0000b\\udcff"'


@pytest.mark.parametrize(
    ("engine", "fsync", "name", "expected"),
    [
        ("player-c", "per-write", "write", ["write", "write-fsync"]),
        ("player-c", "end", "write", ["write"]),
        ("player-c", "per-write", "create", ["create"]),
        ("player-python", "end", "replay", ["replay", "replay-fsync"]),
        ("fio", "end", "mixed", ["mixed", "mixed-fsync"]),
    ],
)
def test_fsyncs_that_are_part_of_the_work_have_a_row(engine, fsync, name, expected):
    one = phase(name, [1.0, 2.0], [8, 8], latency={"write": latency(4), "fsync": latency(5, 6, 7)})
    made = record(phases=(one,), engine=engine)
    case = {**json.loads(made.case), "options": {"fsync": fsync}}
    rows = rows_of(replace(made, case=json.dumps(case)))
    assert [row.texts["phase"] for row in rows] == expected
    assert sum(row.numbers["bytes"] for row in rows) == 16
    for row in rows[1:]:
        assert (row.numbers["operations"], row.numbers["window"]) == (3, 2.0)
        assert row.texts["latency_of"] == "fsync"
        assert row.numbers["workers"] == 1


def paced(backlog=0, unplayed=0):
    """Creates of an open loop, with the closes that follow them."""
    loop = OpenLoop(
        rate=1000, arrivals="constant", seconds=2.0, due=2000, backlog=backlog, unplayed=unplayed
    )
    kinds = {"create": latency(*[7000] * 2000), "close": latency(*[100] * 2000)}
    kinds["create/service"] = latency(*[4000] * 2000)
    return phase("create", [2.0], [8000], latency=kinds, facts={"open_loop": loop.document()})


def test_latencies_of_an_open_loop_are_of_what_was_due():
    (row,) = rows_of(record(phases=(paced(backlog=20),)))
    assert row.texts["latency_of"] == "create"
    assert row.numbers["latency_mean"] == pytest.approx(7e-6)
    assert row.numbers["service_mean"] == pytest.approx(4e-6)
    assert row.numbers["service_p99"] == pytest.approx(4e-6, rel=0.01)
    assert row.numbers["offered_rate"] == 1000
    assert row.numbers["achieved_rate"] == 990
    assert (row.numbers["backlog"], row.numbers["unplayed"]) == (20, 0)


@pytest.mark.parametrize("waiting", [{"backlog": 21}, {"unplayed": 1}])
def test_a_saturated_phase_has_its_rate_and_no_latencies(waiting):
    (row,) = rows_of(record(phases=(paced(**waiting),)))
    assert row.texts["latency_of"] == ""
    assert not [name for name in row.numbers if name.startswith("latency_")]
    assert row.numbers["iops"] == 1000
    assert row.numbers["service_p50"] > 0
    assert row.phase.latency["create"].counts.sum() == 2000  # the histogram stays in the file


@pytest.mark.parametrize(
    ("name", "kinds", "expected"),
    [
        ("read", ("read/total",), ("read/total",)),
        ("mixed", ("fsync", "read/total", "write/total"), ("read/total", "write/total")),
        ("read", ("read", "read/total"), ("read",)),
        ("write", ("fsync",), ()),
        ("mixed", ("fsync", "mixed"), ("mixed",)),
        ("write-fsync", ("fsync",), ("fsync",)),
        ("read", ("open", "read", "write"), ("read",)),
        ("mixed", ("open", "read", "write"), ("read", "write")),
        ("random", ("close", "read", "read/service"), ("read",)),
        ("create", ("close", "create", "write"), ("close", "create", "write")),
        ("stat-shared", ("stat", "read"), ("read", "stat")),
        ("fsync", ("fsync",), ("fsync",)),
        ("read", (), ()),
    ],
)
def test_which_latencies_are_pooled(name, kinds, expected):
    one = phase(name, [1.0], [1], latency={kind: latency(1) for kind in kinds})
    assert latency_kinds(one) == expected
