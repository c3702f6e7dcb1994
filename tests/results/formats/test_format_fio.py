"""fio's JSON and logs: real outputs, damaged ones, histograms, windows, merging."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results import histogram
from fsmatrix.results.formats.fio import FORMATS, parse
from fsmatrix.results.formats.fio.job import seconds_of, size_of
from fsmatrix.results.formats.parsed import ParseError
from tests.results.fio_outputs import OUTPUTS, keys, run_of, text_of


def raw(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text_of(name))
    return data


# -- whole outputs ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_recording_is_recognised_and_read(name: str) -> None:
    text = text_of(name)
    assert FORMATS[0].recognises(text)
    runs = parse(text, name)
    assert all(run.engine == "fio" and run.version == name[:4] + run.version[4:] for run in runs)
    assert all("contradiction" not in keys(run) for run in runs)
    assert parse(text.replace("\n", "\r\n"), name)[0].version == runs[0].version


def test_other_texts_are_not_recognised() -> None:
    assert not FORMATS[0].recognises('{"version": "4.1", "tests": []}')
    with pytest.raises(ParseError, match=r"somewhere.*no JSON of fio"):
        parse("IOR-4.1.0: MPI Coordinated Test of Parallel I/O", "somewhere")


def test_numbers_are_those_of_the_output() -> None:
    data, run = raw("3.33-job-file.json"), run_of("3.33-job-file.json")
    read, write = run.phases
    assert (read.name, write.name, run.processes) == ("read", "write", 3)
    jobs = data["jobs"]
    assert read.bytes.tolist() == [jobs[0]["read"]["io_bytes"]]
    assert write.operations.tolist() == [job["write"]["total_ios"] for job in jobs[1:]]
    assert (write.end - write.start).tolist() == [
        job["write"]["runtime"] / 1000 for job in jobs[1:]
    ]
    assert int(write.latency["write"].counts.sum()) == int(write.operations.sum())
    assert write.facts["window_source"] == "runtime"


def test_a_mixture_has_both_directions_and_their_latencies() -> None:
    data, run = raw("3.42-dfs-randrw.json")["jobs"][0], run_of("3.42-dfs-randrw.json")
    (mixed,) = run.phases
    assert mixed.name == "mixed"
    assert int(mixed.bytes[0]) == data["read"]["io_bytes"] + data["write"]["io_bytes"]
    for kind in ("read", "write"):
        latency = mixed.latency[kind]
        assert int(latency.counts.sum()) == data[kind]["total_ios"]
        assert latency.minimum == pytest.approx(data[kind]["clat_ns"]["min"] / 1e9)
        assert latency.total / data[kind]["total_ios"] == pytest.approx(
            data[kind]["clat_ns"]["mean"] / 1e9
        )
        assert mixed.facts["latency"][kind]["slat"]["N"] == data[kind]["total_ios"]
    assert mixed.began == data["job_start"] / 1000
    assert (mixed.clock_uncertainty, mixed.facts["window_source"]) == (0.002, "job_start")
    assert run.started == "2026-11-20T12:38:29.398+00:00"
    assert run.options == {
        "rw": "randrw",
        "bs": 65536,
        "size": 64 << 20,
        "iodepth": 4,
        "thread": True,
        "ioengine": "dfs",
        "pool": "bench",
        "cont": "posix1",
    }


def test_percentiles_agree_with_fio() -> None:
    """Our histogram gives fio's own percentiles, to half a bin."""
    data = raw("3.33-job-file.json")["jobs"][0]["read"]
    counts = run_of("3.33-job-file.json").phases[0].latency["read"].counts
    for q in (0.5, 0.9, 0.99):
        told = data["clat_ns"]["percentile"][f"{100 * q:f}"]
        assert histogram.percentile(counts, q) * 1e9 == pytest.approx(told, rel=0.008)


def test_every_bin_of_fio_comes_back_to_its_index() -> None:
    """plat_idx_to_val of fio's stat.c, written down again: exact below 128, then bucket middles."""
    bins, expected = {}, np.zeros(histogram.BINS, dtype=np.int64)
    for index in range(histogram.BINS):
        shift = max((index >> 6) - 1, 0)
        value = (
            index if index < 128 else (1 << (shift + 6)) + int((index % 64 + 0.5) * (1 << shift))
        )
        bins[str(value)], expected[index] = index + 1, index + 1
    data = raw("3.42-dfs-randrw.json")
    section = data["jobs"][0]["read"]
    section["clat_ns"] |= {"bins": bins, "N": int(expected.sum())}
    (run,) = parse(json.dumps(data), "made")
    np.testing.assert_array_equal(run.phases[0].latency["read"].counts, expected)
    assert len(bins) == histogram.BINS


def test_bins_that_are_not_fios_give_no_histogram() -> None:
    for key, value in (("130", 496), ("x", 496), ("59648", 1), ("59648", -1)):
        data = raw("3.42-dfs-randrw.json")
        data["jobs"][0]["read"]["clat_ns"]["bins"] = {key: value}
        (run,) = parse(json.dumps(data), "made")
        assert "read" not in run.phases[0].latency
        assert "contradiction" in keys(run)


def test_plain_json_has_means_only_and_its_warning_is_kept() -> None:
    run = run_of("3.33-plain-warning.txt")
    (phase,) = run.phases
    assert not phase.latency
    assert phase.facts["latency"]["read"]["clat"]["N"] == 64
    (warning,) = [note for note in run.notes if note.key == "warning"]
    assert "queue depth will be capped at 1" in warning.message
    assert warning.line == 1


def test_groups_are_runs_of_their_own() -> None:
    first, second = parse(text_of("3.33-stonewall.json"), "two groups")
    assert [p.name for p in (*first.phases, *second.phases)] == ["write", "read"]
    assert (first.options["bs"], second.options["bs"]) == (16384, 65536)


def test_group_reporting_is_marked() -> None:
    run = run_of("3.33-group-reporting.json")
    assert "group-reporting" in keys(run)
    assert run.processes is None
    assert run.phases[0].bytes.tolist() == [3 << 20]


def test_only_the_last_state_of_status_interval_counts() -> None:
    text = text_of("3.33-status-interval.json")
    assert text.count('"fio version"') > 2
    (run,) = parse(text, "states")
    assert int(run.phases[0].operations[0]) == 192


def test_errors_are_failures_even_with_exit_status_0() -> None:
    run = run_of("3.33-enospc.json")
    assert "error 28 (ENOSPC: No space left on device)" in run.failure
    (phase,) = run.phases
    assert phase.errors.tolist() == [0, 1]
    assert phase.errors_by_errno == {"ENOSPC": 1}
    assert phase.bytes.tolist() == [2 << 20, 1 << 20]  # the other job is kept
    data = raw("3.33-unified.json")
    data["jobs"][0] |= {"total_err": 7, "first_error": 5}
    (ignored,) = parse(json.dumps(data), "made")
    assert "went on after 7 errors, the first: 5 (EIO" in ignored.failure
    assert ignored.phases[0].errors.tolist() == [7]


def test_notes_of_short_runs_and_operations() -> None:
    assert "ended-early" in keys(run_of("3.33-interrupted.json"))
    data = raw("3.42-dfs-randrw.json")
    data["jobs"][0]["read"] |= {"short_ios": 2, "drop_ios": 3}
    data["jobs"][0]["job options"] |= {"ramp_time": "10", "runtime": "5"}
    (run,) = parse(json.dumps(data), "made")
    assert {"short-ios", "dropped-ios", "window-in-ramp"} <= keys(run)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nrfiles": "64", "size": "16g", "touch_objects": "0"}, "128 MiB"),
        ({"nrfiles": "8", "size": "64m", "touch_objects": "0"}, "nrfiles=8"),
        ({"nrfiles": "64", "size": "64m"}, "touch_objects"),
        ({"nrfiles": "64", "size": "50%", "touch_objects": "0"}, "not told"),
        ({"nrfiles": "64", "size": "64m", "touch_objects": "0"}, ""),
    ],
)
def test_rados_phantoms(options: dict[str, str], words: str) -> None:
    data = raw("3.42-dfs-randrw.json")
    data["jobs"][0]["job options"] = {"rw": "randrw", "ioengine": "rados", **options}
    (run,) = parse(json.dumps(data), "made")
    found = [note.message for note in run.notes if note.key == "rados-phantom"]
    assert words in found[0] if words else not found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rwmixwrite": "10"}, {"rwmixread": 90}),
        ({"rate": "1m", "rate_iops": "512"}, {"rate_limit": 1 << 20, "iops_limit": 512}),
        ({"rate": "1m,2m"}, {"rate": "1m,2m"}),
        ({"bs": "4k,64k"}, {"bs": "4k,64k"}),
        ({"bssplit": "4k/90:64k/10"}, {"bssplit": "4k/90:64k/10"}),
        ({"random_distribution": "zipf:1.2"}, {"random_distribution": "zipf:1.2"}),
        ({"size": "50%"}, {"size": "50%"}),
        ({"directory": "/b", "randseed": "7", "write_bw_log": "x", "log_avg_msec": "5"}, {}),
    ],
)
def test_jobs_of_other_options_are_other_work(
    options: dict[str, str], told: dict[str, Any]
) -> None:
    """What is not known here too; not where it was done, by what name, and how it was logged."""
    plain, other = ({"rw": "randrw", **more} for more in ({}, options))
    data = raw("3.33-job-file.json")
    for given in (plain, other):
        data["global options"], data["jobs"][0]["job options"] = {}, given
        (run,) = parse(json.dumps(data | {"jobs": data["jobs"][:1]}), "x")
        expected = {"rw": "randrw"} | (told if given is other else {})
        assert {k: v for k, v in run.options.items() if k != "latencies"} == expected


def test_a_job_that_was_held_back_says_so() -> None:
    data = raw("3.33-job-file.json")
    data["jobs"][0]["job options"] |= {"rate": "1m", "thinktime": "20"}
    noted = [note for run in parse(json.dumps(data), "x") for note in run.notes]
    (found,) = [note.message for note in noted if note.key == "rate-limited"]
    assert found.endswith("was held back: rate=1m, thinktime=20")


def test_reads_that_verify_are_no_part_of_a_write() -> None:
    data = raw("3.42-dfs-randrw.json")
    data["jobs"][0]["job options"] |= {"rw": "randwrite", "verify": "crc32c"}
    (run,) = parse(json.dumps(data), "made")
    assert [p.name for p in run.phases] == ["write"]
    assert int(run.phases[0].operations[0]) == 528
    assert "verify-reads" in keys(run)


@pytest.mark.needs("fio")
def test_groups_as_fio_makes_them(tmp_path: Path) -> None:
    """docs/import.md, "Groups of fio": a run per group, its workers or their sum, never a guess."""
    common = ["--directory=.", "--size=1m", "--bs=64k", "--ioengine=psync"]
    writer, reader = ["--name=writer", "--rw=write"], ["--name=reader", "--rw=randread"]

    def fio(*words: str) -> list[tuple[dict[str, int], int | None, bool]]:
        done = subprocess.run(
            ["fio", "--output-format=json", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return [
            (
                {p.name: p.bytes.size for p in run.phases},
                run.processes,
                "group-reporting" in keys(run),
            )
            for run in parse(done.stdout, "fio")
        ]

    assert fio(*common, *writer, "--numjobs=2") == [({"write": 2}, 2, False)]
    grouped = [*common, "--group_reporting"]
    assert fio(*grouped, *writer, "--numjobs=2") == [({"write": 1}, None, True)]
    assert fio(*common, *writer, *common, *reader) == [({"write": 1, "read": 1}, 2, False)]
    # one entry, under the first job's name and with the last one's options
    assert fio(*grouped, *writer, *grouped, *reader) == [({"mixed": 1}, None, True)]
    assert fio(*grouped, *reader, *grouped, *writer) == [({"mixed": 1}, None, True)]
    apart = fio(*common, *writer, *common, *reader, "--stonewall")
    assert apart == [({"write": 1}, 1, False), ({"read": 1}, 1, False)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"io_bytes": -1}, "io_bytes is -1"),
        ({"io_bytes": 10**30}, "io_bytes is 1000"),
        ({"total_ios": 1.5}, "total_ios is missing or no whole number"),
        ({"runtime": float("nan")}, "runtime is missing"),
    ],
)
def test_absurd_numbers_are_refused(change: dict[str, Any], words: str) -> None:
    data = raw("3.42-dfs-randrw.json")
    data["jobs"][0]["read"] |= change
    with pytest.raises(ParseError, match=words):
        parse(json.dumps(data), "made")


def test_an_option_may_be_anything() -> None:
    data = raw("3.42-dfs-randrw.json")
    data["jobs"][0]["job options"] = {"rw": "write", "verify": []}
    (run,) = parse(json.dumps(data), "made")
    assert run.phases


@pytest.mark.parametrize("key", ["io_bytes", "runtime", "total_ios"])
def test_numbers_that_contradict_each_other_are_noted(key: str) -> None:
    data = raw("3.42-dfs-randrw.json")
    data["jobs"][0]["read"][key] += 1000
    (run,) = parse(json.dumps(data), "made")
    assert "contradiction" in keys(run)


def test_documents_are_whole_in_whatever_stands_around_them() -> None:
    """JSON of another program, keys in another order, lines of a shell between."""
    data = raw("3.33-direct.json")
    (plain,) = parse(json.dumps(data), "x")
    nested = json.dumps({"name": "block", "raw": {"result": data}})
    ordered = json.dumps(data, sort_keys=True, indent=2)
    other = ordered.replace('"jobname": "d"', '"jobname": "e"').replace(
        '"name": "d"', '"name": "e"'
    )
    for text, runs in (
        (nested, 1),
        (f"pod started\n{nested}\ndone\n", 1),
        (f"{ordered}\n{other}\n", 2),
        (f"$ jq -S . a.json\n{ordered}\n$ jq -S . b.json\n{other}", 2),
    ):
        found = parse(text, "x")
        assert len(found) == runs
        for run in found:
            assert (run.options, run.notes, run.failure) == (plain.options, plain.notes, "")
            assert [p.bytes.tolist() for p in run.phases] == [
                p.bytes.tolist() for p in plain.phases
            ]


def test_old_versions_and_other_locales_are_refused() -> None:
    text = text_of("3.42-dfs-randrw.json")
    with pytest.raises(ParseError, match=r"needs fio 3\.0 or newer"):
        parse(text.replace("fio-3.42", "fio-2.21"), "old")
    comma = re.sub(r'("iops" : \d+)\.(\d+)', r"\1,\2", text)
    with pytest.raises(ParseError, match=r"line 31: .*decimal comma"):
        parse(comma, "other locale")


# -- damaged outputs -------------------------------------------------------------------------


def test_units_as_fio_reads_them() -> None:
    assert [size_of(t) for t in ("4096", "4k", "4K", "4kb", "4KiB", "1g", "10%", "4k-8k", "")] == [
        4096,
        4096,
        4096,
        4096,
        4000,
        1 << 30,
        None,
        None,
        None,
    ]
    assert size_of("4KiB", "1000") == 4096
    assert [seconds_of(t) for t in ("60", "500ms", "2m", "1h", "x")] == [60, 0.5, 120, 3600, None]
