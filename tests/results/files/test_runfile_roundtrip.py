"""A record comes back from its file exactly as it was written."""

from dataclasses import fields, is_dataclass, replace

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fsmatrix.results import histogram, iterations
from fsmatrix.results.evidence.evidence import (
    Counters,
    CpuShares,
    EngineOutput,
    Evidence,
    Interception,
    Note,
    Rank,
)
from fsmatrix.results.files.runfile import read_run, read_status, write_run
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import InvalidRecordError
from fsmatrix.results.histogram import COARSE
from fsmatrix.results.record import Finding, Latency, Monitor, Phase, RunRecord
from tests.ranks import rank

# surrogates and NUL too: what a program prints need not be proper text
text = st.text(st.characters(exclude_categories=()), max_size=12) | st.just("json:x")
floats = st.floats(width=64)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
mappings = st.dictionaries(text, json_values, max_size=3)


def float_array(shape):
    return hnp.arrays(np.float64, shape)


def int_array(shape):
    return hnp.arrays(np.int64, shape, elements=st.integers(-(2**63), 2**63 - 1))


@st.composite
def latencies(draw):
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    for index in draw(st.lists(st.integers(0, histogram.BINS - 1), max_size=5)):
        counts[index] = draw(st.integers(0, 2**62))
    return Latency(counts, draw(floats), draw(floats), draw(floats))


@st.composite
def repeated(draw):
    """Iterations: the columns that must be there, and some others with a value at least."""
    size = draw(st.integers(0, 4))
    if not size:
        return {}
    others = [name for name in iterations.COLUMNS if name not in iterations.NEEDED]
    chosen = draw(st.sets(st.sampled_from(others), max_size=3))
    elements = st.floats(0, 1e9)
    return {
        name: draw(
            int_array(size)
            if iterations.COLUMNS[name][0] == "i8"
            else hnp.arrays(np.float64, size, elements=elements)
        )
        for name in iterations.COLUMNS
        if name in (*iterations.NEEDED, *chosen)
    }


summaries = st.dictionaries(
    st.sampled_from(sorted(iterations.SUMMARY)), st.floats(0, 1e12), max_size=3
)


@st.composite
def phases(draw):
    ranks, steps = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    times, counts, series = float_array(ranks), int_array(ranks), int_array(steps)
    return Phase(
        name=draw(text),
        start=draw(times),
        end=draw(times),
        bytes=draw(counts),
        operations=draw(counts),
        errors=draw(counts),
        io_start=draw(st.none() | times),
        io_end=draw(st.none() | times),
        overhead=draw(st.none() | times),
        latency=draw(st.dictionaries(text, latencies(), max_size=2)),
        interval=draw(floats),
        interval_bytes=draw(st.none() | series),
        interval_operations=draw(st.none() | series),
        began=draw(floats),
        clock_uncertainty=draw(floats),
        errors_by_errno=draw(st.dictionaries(text, st.integers(), max_size=2)),
        facts=draw(mappings),
        interval_latency_max=draw(st.none() | float_array(steps)),
        iterations=draw(repeated()),
        summary=draw(summaries),
        timeline=draw(st.dictionaries(text, timelines(steps), max_size=2)),
    )


def timelines(steps):
    counts = st.integers(0, 2**40)
    return hnp.arrays(np.int64, (steps, COARSE), elements=counts, fill=st.just(0))


@st.composite
def monitors(draw):
    hosts = tuple(draw(st.lists(text, max_size=2)))
    samples = draw(st.integers(0, 3))
    series = st.dictionaries(text, float_array((len(hosts), samples)), max_size=2)
    units = draw(st.dictionaries(text, text, max_size=2))
    return Monitor(hosts, draw(float_array(samples)), draw(series), units)


others = st.dictionaries(text.map("other {}".format), json_values, max_size=2)
numbers = st.integers(0, 2**53) | floats
shares = st.builds(CpuShares, busy=floats, idle=numbers, iowait=st.none() | floats,
                   steal=floats, more=others)  # fmt: skip
looks = st.builds(
    Counters, host=text, before=st.dictionaries(text, numbers, max_size=2),
    after=st.dictionaries(text, numbers, max_size=2), more=others,
)  # fmt: skip
notes = st.builds(Note, key=text, message=text, line=st.integers(), phase=text, more=others)
engines = st.builds(
    EngineOutput, name=text, version=text, nodes=st.none() | st.integers(),
    processes=st.none() | st.integers(), started=st.none() | text,
    notes=st.lists(notes, max_size=2).map(tuple), facts=mappings, more=others,
)  # fmt: skip
preloaded = st.builds(
    Interception, library=text, summaries=st.integers(0, 2**53),
    calls=st.dictionaries(text, st.integers(0, 2**53), max_size=2), more=others,
)  # fmt: skip
evidence = st.builds(
    Evidence,
    interception=st.dictionaries(text, preloaded, max_size=2),
    cpu=st.dictionaries(text, st.dictionaries(text, shares, max_size=2), max_size=2),
    counters=st.dictionaries(text, st.lists(looks, max_size=2).map(tuple), max_size=2),
    health=st.dictionaries(text, st.lists(text, max_size=2).map(tuple), max_size=2),
    engine=st.none() | engines,
    engine_before=st.none() | text,
    more=others,
)
findings = st.builds(
    Finding,
    audit=text,
    version=st.integers(0, 2**31),
    severity=st.sampled_from(["info", "warning", "invalid"]),
    message=text,
    advice=text,
    phase=text,
    evidence=mappings,
)
ranks = st.builds(
    Rank,
    **dict.fromkeys(("host", "boot_id", "mounts"), text),
    **dict.fromkeys(("rank", "node", "node_rank", "pid"), st.integers(0, 2**63)),
    cpus=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    shared=st.none() | st.integers(0, 9),
    more=mappings,
)
records = st.builds(
    RunRecord,
    **dict.fromkeys(
        (
            "case",
            "case_id",
            "work_id",
            "attachment",
            "session",
            "engine",
            "engine_version",
            "started",
            "job",
            "error",
        ),
        text,
    ),
    **dict.fromkeys(("repetition", "attempt", "block"), st.integers(-(2**63), 2**63 - 1)),
    status=st.sampled_from(["ok", "failed", "timeout"]),
    duration=floats,
    failure=mappings,
    argv=st.lists(st.lists(text, max_size=2).map(tuple), max_size=2).map(tuple),
    coordinates=mappings,
    environment=mappings,
    companions=st.lists(text, max_size=2).map(tuple),
    ranks=st.lists(ranks, max_size=2).map(tuple),
    phases=st.lists(phases(), max_size=3).map(tuple),
    monitor=st.none() | monitors(),
    evidence=evidence,
    findings=st.lists(findings, max_size=2).map(tuple),
    texts=st.dictionaries(text, text, max_size=3),
)


def same(one, other):
    """Equality that looks into arrays and takes NaN for NaN."""
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype == float)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(record=records)
def test_round_trip(tmp_path_factory, record):
    path = tmp_path_factory.mktemp("run") / "run.h5"
    write_run(path, record)
    assert same(read_run(path), record)
    assert read_status(path) == record.status
    xr.open_datatree(path, engine="h5netcdf").close()
    xr.open_dataset(path, engine="h5netcdf").load().close()
    assert [entry.name for entry in path.parent.iterdir()] == ["run.h5"]


def phase(name="write", ranks=16, seed=0, kinds=("write", "close")):
    random = np.random.default_rng(seed)
    counts = {kind: random.lognormal(11, 0.6, 20000).astype(np.int64) for kind in kinds}
    return Phase(
        name=name,
        start=random.random(ranks),
        end=1 + random.random(ranks),
        bytes=random.integers(1, 2**40, ranks),
        operations=random.integers(1, 2**20, ranks),
        errors=np.zeros(ranks, dtype=np.int64),
        io_start=random.random(ranks),
        io_end=1 + random.random(ranks),
        overhead=random.random(ranks),
        latency={
            kind: Latency(
                np.bincount(histogram.bin_of(values), minlength=histogram.BINS),
                float(values.sum()) / 1e9,
                float(values.min()) / 1e9,
                float(values.max()) / 1e9,
            )
            for kind, values in counts.items()
        },
        interval=0.1,
        interval_bytes=random.integers(0, 2**30, 20),
        interval_operations=random.integers(0, 2**20, 20),
        facts={"stonewall": True},
    )


def record(**changes):
    values = {
        "case": '{"target":"xfs","workload":"pattern"}',
        "case_id": "0123456789abcdef",
        "work_id": "fedcba9876543210",
        "repetition": 3,
        "attempt": 1,
        "block": 3,
        "attachment": "xfs-3",
        "session": "s1",
        "status": "ok",
        "engine": "player-c",
        "engine_version": "1.0",
        "started": "2026-01-01T00:00:00Z",
        "ranks": tuple(rank(f"node{i // 4}", rank=i, cpus=(i,)) for i in range(16)),
        "environment": {"kernel": "6.1.0", "mount": "rw,noatime" * 20},
    }
    return RunRecord(**{**values, **changes})


def test_sixteen_ranks_and_three_phases_stay_small(tmp_path):
    path = tmp_path / "run.h5"
    random = np.random.default_rng(0)
    monitor = Monitor(
        ("node1", "node2"),
        np.arange(60.0),
        {f"metric{i}": random.random((2, 60)) for i in range(20)},
        {"metric0": "B s-1"},
    )
    phases = tuple(phase(n, seed=i) for i, n in enumerate(("write", "read", "mixed")))
    write_run(path, record(phases=phases, monitor=monitor, findings=(FINDING,)))
    assert path.stat().st_size < 100_000


def test_a_day_in_seconds_stays_small(tmp_path):
    path = tmp_path / "run.h5"
    random = np.random.default_rng(0)
    seconds, bins = 86_400, np.arange(COARSE)
    drift = 2 * np.sin(np.arange(seconds) / 9_000)[:, np.newaxis]
    expected = sum(  # operations a second in two modes that drift, and stalls
        rate * np.exp(-(((bins - middle - drift) / width) ** 2))
        for rate, middle, width in ((400, 44, 3), (40, 60, 6), (0.2, 95, 5))
    )
    counts = random.poisson(expected)
    assert np.count_nonzero(counts) > 20 * seconds
    long = replace(phase(), interval=1.0, interval_bytes=counts.sum(axis=1) << 12)
    long = replace(long, interval_operations=counts.sum(axis=1), timeline={"write": counts})
    write_run(path, record(phases=(long,)))
    assert path.stat().st_size < 10_000_000
    assert (read_run(path).phases[0].timeline["write"] == counts).all()


def test_a_file_of_before_has_no_latencies_over_time(tmp_path):
    path = tmp_path / "run.h5"
    table = np.ones((20, COARSE), dtype=np.int64)
    write_run(path, record(phases=(replace(phase(), timeline={"read": table}), phase("read"))))
    with h5py.File(path, "a") as file:
        for name in [name for name in file if name.startswith("timeline")]:
            del file[name]
    old = read_run(path)
    assert [one.timeline for one in old.phases] == [{}, {}]
    assert old.phases[0].interval_bytes is not None


FINDING = Finding("too-short", 2, "warning", "window of 0.1 s", "more work", "write", {"s": 0.1})


def test_what_xarray_sees(tmp_path):
    path = tmp_path / "run.h5"
    short = replace(phase("read", ranks=2), io_start=None, interval_bytes=None)
    stored = record(phases=(phase(ranks=3), short), evidence=Evidence(engine_before="1"))
    write_run(path, stored)
    with xr.open_dataset(path, engine="h5netcdf") as run:
        assert run["phase"].values.tolist() == ["write", "read"]
        assert run["workers"].values.tolist() == [3, 2]
        assert np.isnan(run["bytes"].sel(phase="read")).values.tolist() == [False, False, True]
        assert run["bytes"].sum("rank").sel(phase="read").item() == short.bytes.sum()
        assert np.isnan(run["io_start"].sel(phase="read")).all()
        assert run["start"].attrs["units"] == "s"
        assert run["bytes"].attrs["units"] == "B"
        counts = run["latency_count"].sel(phase="write", kind="close")
        assert counts.sum().item() == 20000
        assert (run["bin_lower"] < run["bin_upper"]).all()
        assert run.attrs["case_id"] == stored.case_id
        assert run.attrs["schema_version"] == 1


def test_numeric_variables_have_units(tmp_path):
    path = tmp_path / "run.h5"
    write_run(path, record(phases=(phase(),)))
    with xr.open_dataset(path, engine="h5netcdf") as run:
        numbers = [v for v in run.data_vars.values() if v.dtype.kind in "if"]
        assert len(numbers) > 15
        assert {v.name for v in numbers if not v.attrs.get("units")} == {"latency_given"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bytes": np.zeros(3, dtype=np.int64)}, r"phase 'write': bytes has shape \(3,\)"),
        ({"io_end": np.zeros((16, 1))}, "io_end has shape"),
        ({"interval_bytes": np.zeros(3, dtype=np.int64)}, "interval series"),
        ({"latency": {"read": Latency(np.zeros(7, np.int64), 0.0, 0.0, 0.0)}}, "counts of 'read'"),
        ({"facts": {"x": object()}}, "object is not JSON-able"),
        ({"timeline": {"read": np.zeros((19, COARSE), np.int64)}}, "latencies of 'read' over time"),
        ({"timeline": {"read": np.zeros((20, 7), np.int64)}}, "latencies of 'read' over time"),
        ({"timeline": {"read": -np.ones((20, COARSE), np.int64)}}, "time are no counts"),
    ],
)
def test_contradicting_records_are_refused(tmp_path, change, words):
    path = tmp_path / "run.h5"
    with pytest.raises(InvalidRecordError, match=words):
        write_run(path, record(phases=(replace(phase(), **change),)))
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    write_run(path, record())

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_run(path, record(status="failed"))
    assert read_status(path) == "ok"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


def test_numpy_values_in_json_fields(tmp_path):
    path = tmp_path / "run.h5"
    write_run(
        path, record(evidence=Evidence(more={"a": np.int64(3), "b": np.arange(2), "c": tmp_path}))
    )
    assert read_run(path).evidence.document() == {"a": 3, "b": [0, 1], "c": str(tmp_path)}


def test_a_missing_file_is_a_result_error(tmp_path):
    with pytest.raises(ResultError, match="cannot be read: No such file"):
        read_run(tmp_path / "none.h5")


def test_the_file_is_plain_netcdf4(tmp_path):
    """Every axis of every variable has its dimension scale."""
    path = tmp_path / "run.h5"
    write_run(path, record(phases=(phase(),), findings=(FINDING,)))
    checked = []

    def visit(name, thing):
        if isinstance(thing, h5py.Dataset) and not thing.is_scale:
            assert all(len(dim) == 1 for dim in thing.dims), name
            checked.append(name)

    with h5py.File(path) as file:
        file.visititems(visit)
    assert len(checked) > 20
