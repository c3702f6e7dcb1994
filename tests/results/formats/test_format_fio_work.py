"""What of fio's numbers is the work, and what its options and outputs say of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsmatrix.results import histogram
from fsmatrix.results.files.run_rows import Row, rows_of
from fsmatrix.results.formats.fio import parse, refuse_text
from fsmatrix.results.formats.fio.phase import merge_nodes
from fsmatrix.results.formats.parsed import ParseError, matching
from fsmatrix.results.record import Phase, RunRecord
from fsmatrix.suite.importing.imported import Source, records
from tests.results.fio_outputs import keys, run_of, text_of

SOURCE = Source("a", "ab" * 32, "fio json", "2026-01-01T00:00:00Z", "0.1.0", {})


def changed(name: str, **options: Any) -> dict[str, Any]:
    """A recorded document whose only job has other options."""
    data: dict[str, Any] = json.loads(text_of(name))
    own = data["jobs"][0]["job options"]
    own |= options
    for key in [key for key, value in own.items() if value is None]:
        del own[key]
    return data


def imported(name: str, **options: Any) -> RunRecord:
    (record,) = records(parse(json.dumps(changed(name, **options)), name), SOURCE, {})
    return record


def the_phase(name: str, **options: Any) -> Phase:
    (phase,) = imported(name, **options).phases
    return phase


def audits(name: str, **options: Any) -> dict[str, str]:
    """Audit -> message, without those of short windows."""
    found = {finding.audit: finding.message for finding in imported(name, **options).findings}
    found.pop("too-short", None)
    return found


def totals_of(phase: Phase) -> tuple[int, int, float]:
    return int(phase.bytes.sum()), int(phase.operations.sum()), float(phase.end.max())


# -- verification ----------------------------------------------------------------------------
def test_reads_of_verification_are_no_work_of_a_mixture_nor_is_their_time() -> None:
    """Seen: 3,102 operations and 12.7 MB in 174 ms."""
    phase = the_phase("3.33-verify-randrw.json")
    assert phase.name == "mixed"
    assert totals_of(phase) == (8 << 20, 2048, 0.083)
    assert phase.facts["directions"] == {
        "read": {"bytes": 994 * 4096, "operations": 994},
        "write": {"bytes": 1054 * 4096, "operations": 1054},
    }
    assert phase.latency == {}, "the histogram of reads is of both, and a mean needs both"
    assert "1054 of its reads" in audits("3.33-verify-randrw.json")["verify-reads"]


def test_latencies_of_work_and_verification_are_left_out_for_that_reason() -> None:
    found = audits("3.33-verify-randrw.json")
    assert "those of the reads are of both" in found["verify-reads"]
    assert "left-out" not in found


def test_the_kind_of_which_there_is_no_histogram_is_named() -> None:
    """The other one is left out too: a mean needs both."""
    data = changed("3.33-verify-randrw.json", verify=None)
    del data["jobs"][0]["read"]["clat_ns"]["bins"]
    (run,) = parse(json.dumps(data), "made")
    (said,) = (note.message for note in run.notes if note.key == "left-out")
    assert said.startswith("the latencies of read are not added up")


@pytest.mark.parametrize("rw", ["rw", "readwrite", "randrw:8"])
def test_every_spelling_of_a_mixture_is_one(rw: str) -> None:
    assert totals_of(the_phase("3.33-verify-randrw.json", rw=rw))[:2] == (8 << 20, 2048)
    aliased = the_phase("3.33-verify-randrw.json", rw=None, readwrite=rw)
    assert totals_of(aliased)[:2] == (8 << 20, 2048)


@pytest.mark.parametrize(
    "options",
    [{"io_size": "4m"}, {"loops": "2"}, {"bs": "4k-8k"}, {"size": "50%"}],
)
def test_reads_that_cannot_be_told_apart_are_said_to_be(options: dict[str, str]) -> None:
    phase = the_phase("3.33-verify-randrw.json", **options)
    assert int(phase.operations.sum()) == 2048 + 1054
    assert "not-told-apart" in audits("3.33-verify-randrw.json", **options)


@pytest.mark.parametrize("rw", ["write", "randwrite", "trimwrite", "randtrimwrite"])
def test_what_only_writes_has_no_reads(rw: str) -> None:
    phase = the_phase("3.33-verify-write.json", rw=rw)
    assert totals_of(phase) == (8 << 20, 2048, 0.027)
    assert list(phase.latency) == ["write"]
    assert set(audits("3.33-verify-write.json")) == {"verify-reads", "write-not-flushed"}


def test_a_verification_inside_the_window_makes_the_rate_doubtful() -> None:
    """44 ms against 28 without it."""
    phase = the_phase("3.33-verify-backlog.json")
    assert totals_of(phase) == (16 << 20, 4096, 0.044)
    assert "verify_backlog=64" in audits("3.33-verify-backlog.json")["verify-in-window"]
    assert totals_of(the_phase("3.33-verify-none.json")) == (16 << 20, 4096, 0.028)
    assert set(audits("3.33-verify-none.json")) == {"write-not-flushed"}
    both = audits("3.33-verify-randrw.json", verify_backlog="64")
    assert {"verify-in-window", "verify-reads"} <= both.keys()


def test_a_mixture_whose_work_took_all_its_runtime_verified_nothing() -> None:
    data = changed("3.33-verify-randrw.json", runtime="83ms")
    data["jobs"][0]["read"]["runtime"] = 83
    (run,) = parse(json.dumps(data), "made")
    assert int(run.phases[0].operations.sum()) == 2048 + 1054
    assert set(run.phases[0].latency) == {"read", "write"}
    assert not {"not-apart", "verify-reads"} & keys(run)
    data["jobs"][0]["job options"]["verify_backlog"] = "8"
    assert "verify-in-window" in keys(parse(json.dumps(data), "made")[0])


def test_a_job_that_verifies_what_it_reads_says_so() -> None:
    for rw in ("read", "randread", None):
        assert "verify-in-window" in audits("3.33-reread.json", rw=rw, verify="md5")
    assert "verify-in-window" not in audits("3.33-reread.json", verify="0")


def test_verification_without_its_writes_is_a_read() -> None:
    data = changed("3.33-verify-write.json")  # without verify_only, a flag that has no value
    data["jobs"][0]["write"]["runtime"] = 0
    (record,) = records(parse(json.dumps(data), "made"), SOURCE, {})
    assert [phase.name for phase in record.phases] == ["read"]
    assert "nothing was written" in str([f.message for f in record.findings])


# -- what moves no bytes ---------------------------------------------------------------------
def trimming(rw: str) -> dict[str, Any]:
    data = changed("3.33-verify-none.json", rw=rw, verify=None, do_verify=None)
    job = data["jobs"][0]
    job["trim"] = json.loads(json.dumps(job["write"]))
    if not rw.endswith("write"):
        job["write"] |= {"io_bytes": 0, "io_kbytes": 0, "total_ios": 0, "runtime": 0}
    return data


def test_trims_count_in_no_sum_of_bytes() -> None:
    ((phase,),) = (run.phases for run in parse(json.dumps(trimming("trimwrite")), "made"))
    assert phase.name == "mixed"
    assert totals_of(phase)[:2] == (16 << 20, 4096)
    assert set(phase.latency) == {"write", "trim"}
    assert phase.facts["directions"]["trim"] == {"bytes": 16 << 20, "operations": 4096}
    ((alone,),) = (run.phases for run in parse(json.dumps(trimming("randtrim")), "made"))
    assert (alone.name, *totals_of(alone)[:2]) == ("trim", 0, 4096)
    assert alone.facts["directions"]["trim"]["bytes"] == 16 << 20


def rows(name: str) -> dict[str, Row]:
    return {row.texts["phase"]: row for row in rows_of(imported(name))}


def test_fdatasync_is_an_operation_of_its_own() -> None:
    """etcd's test of disks: 9.9 us is the mean of the writes, 5.34 ms the p99 that is asked for."""
    phase = the_phase("3.33-fdatasync.json")
    assert totals_of(phase)[:2] == (2300 * 1024, 1024)
    counts = phase.latency["fsync"].counts
    assert int(counts.sum()) == 1023  # total_ios, which counts no fdatasync, is 0
    assert histogram.percentile(counts, 0.99) == pytest.approx(5.34e-3, rel=0.008)
    assert phase.facts["latency"]["fsync"]["lat"]["N"] == 1023
    found = rows("3.33-fdatasync.json")
    syncs, writes = found["write-fsync"].numbers, found["write"].numbers
    assert (syncs["bytes"], syncs["operations"], syncs["window"]) == (0, 1023, 1.624)
    assert syncs["latency_p99"] == pytest.approx(5.34e-3, rel=0.008)
    assert found["write-fsync"].texts["latency_of"] == "fsync"
    assert writes["latency_mean"] == pytest.approx(9.9e-6, rel=0.01)
    assert found["write"].texts["latency_of"] == "write"
    assert "write-fsync" not in rows("3.33-end-fsync.json")


# -- which latency ---------------------------------------------------------------------------
def test_latencies_from_submission_are_a_kind_of_their_own() -> None:
    total, plain = imported("3.33-lat.json"), imported("3.33-lat-and-clat.json")
    assert list(total.phases[0].latency) == ["read/total"]
    assert list(plain.phases[0].latency) == ["read"]
    assert total.coordinates["latencies"] == "lat"  # so that they are in no cell together
    assert "latencies" not in plain.coordinates
    (row,) = rows_of(total)
    assert row.texts["latency_of"] == "read/total"
    assert row.numbers["latency_mean"] == pytest.approx(69407.975586e-9)


def test_hosts_and_jobs_that_count_from_different_moments_are_not_added_up() -> None:
    one, other = run_of("3.33-lat.json"), run_of("3.33-lat-and-clat.json")
    for first, second in ((one, other), (other, one)):
        merged = merge_nodes([("a", first), ("b", second)])
        assert merged.phases[0].latency == {}
        assert "left-out" in keys(merged)
    same = merge_nodes([("a", one), ("b", one)]).phases[0].latency
    assert int(same["read/total"].counts.sum()) == 2 * 2048
    data = changed("3.33-lat.json")
    data["jobs"] += json.loads(text_of("3.33-lat-and-clat.json"))["jobs"]
    (jobs,) = parse(json.dumps(data), "made")
    assert jobs.phases[0].latency == {}
    assert "left-out" in keys(jobs)


# -- caches and syncs ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [
        {"direct": "1"},
        {"buffered": "0"},
        {"fdatasync": "8"},
        {"end_fsync": "1"},
        {"sync": "1"},
        {"sync": "dsync"},
        {"ioengine": "dfs"},
    ],
)
def test_options_that_leave_nothing_in_memory(options: dict[str, str]) -> None:
    assert "no fsync was requested" in audits("3.33-verify-none.json")["write-not-flushed"]
    assert "write-not-flushed" not in audits("3.33-verify-none.json", **options)


@pytest.mark.parametrize("name", ["fsync32", "fsync1", "end-fsync", "direct", "fdatasync"])
def test_recorded_outputs_that_left_nothing_in_memory(name: str) -> None:
    assert "write-not-flushed" not in audits(f"3.33-{name}.json")


@pytest.mark.parametrize(
    "options",
    [{"fsync": "3000"}, {"fsync_on_close": "1"}, {"sync_file_range": "write:64"}],
)
def test_a_sync_that_was_asked_for_is_never_said_to_be_missing(options: dict[str, str]) -> None:
    message = audits("3.33-verify-none.json", **options)["write-not-flushed"]
    ((name, value),) = options.items()
    assert f"{name}={value}" in message
    assert "no fsync" not in message


@pytest.mark.parametrize(
    "options", [{"sync": "0"}, {"sync": "none"}, {"fsync": "0"}, {"direct": "0"}]
)
def test_options_that_ask_for_nothing(options: dict[str, str]) -> None:
    message = audits("3.33-verify-none.json", **options)["write-not-flushed"]
    assert "no fsync was requested" in message


def test_a_sum_of_both_directions_is_judged_by_the_options() -> None:
    both, mixed = audits("3.33-unified-both.json"), audits("3.33-unified-mixed.json")
    assert set(both) == set(mixed) == {"write-not-flushed"}
    assert "of 4.32 MB written" in both["write-not-flushed"]
    assert "of about 4.19 MB written" in mixed["write-not-flushed"]
    some = audits("3.33-unified-mixed.json", rwmixread="75")["write-not-flushed"]
    assert "2.1 MB" in some
    assert audits("3.33-unified-mixed.json", direct="1") == {}
    assert the_phase("3.33-unified-mixed.json", rw="randwrite").name == "write"
    assert the_phase("3.33-unified-mixed.json", rw="read").name == "read"
    for more in ({"verify": "crc32c"}, {"rw": "randtrimwrite"}):
        assert "not-told-apart" in audits("3.33-unified-mixed.json", **more)


def test_a_buffered_read_that_went_over_its_file_again_is_found() -> None:
    message = audits("3.33-reread.json")["read-again"]
    assert "8.0MiB 14.1 times (112.5MiB)" in message
    for options in ({"direct": "1"}, {"size": "1g"}, {"size": "9%"}, {"ioengine": "rados"}):
        assert "read-again" not in audits("3.33-reread.json", **options)
    assert "read-again" in audits("3.33-reread.json", size="9%", filesize="4m", nrfiles="2")
    grouped = {"numjobs": "15", "group_reporting": "1"}
    assert "read-again" not in audits("3.33-reread.json", **grouped)
    assert "read-again" in audits("3.33-reread.json", group_reporting="1")


# -- how it ended ----------------------------------------------------------------------------
def test_steady_state_is_no_early_end() -> None:
    found = audits("3.33-steady.json")
    assert "attained its steady state in 1.863 s" in found["steady-state"]
    assert "engine-ended-early" not in found
    data = changed("3.33-steady.json")
    data["jobs"][0]["steadystate"]["attained"] = 0
    assert "not-steady" in keys(parse(json.dumps(data), "made")[0])


@pytest.mark.parametrize(
    ("options", "early"),
    [
        ({}, True),
        ({"number_ios": "28799"}, False),
        ({"io_size": "112g"}, False),
        ({"io_limit": "115196k"}, False),
        ({"exitall": "1"}, False),
        ({"exitall": ""}, False),
        ({"exitall": "0"}, True),
        ({"time_based": "1", "io_size": "1g"}, True),
    ],
)
def test_an_end_by_amount_or_with_the_others_is_not_early(
    options: dict[str, str], early: bool
) -> None:
    found = audits("3.33-reread.json", runtime="60", **options)
    assert ("engine-ended-early" in found) is early


# -- texts around it -------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["3.33-normal-json.txt", "3.33-json-normal.txt"])
def test_the_banner_is_no_warning(name: str) -> None:
    run = run_of(name)
    assert "warning" not in keys(run)
    assert int(run.phases[0].operations.sum()) == 2048
    assert [known.family for known in matching(text_of(name))] == ["fio"]
    said = parse("note: something\n" + text_of(name), name)[0]
    assert "warning" in keys(said)


@pytest.mark.parametrize("name", ["3.33-normal.txt", "3.33-terse.txt"])
def test_texts_of_fio_are_refused_with_what_to_do(name: str) -> None:
    text = text_of(name)
    (known,) = matching(text)
    with pytest.raises(ParseError, match="--output-format=json") as refused:
        known.format.parse(text, name)
    assert "needs" not in str(refused.value)
    with pytest.raises(ParseError, match=r"fio 2\.21: needs fio 3\.0 or newer"):
        refuse_text(text.replace("fio-3.33", "fio-2.21"), name)


# -- what a reviewer's variants showed ---------------------------------------------------------
def test_an_output_that_counts_no_sync_had_none_whatever_was_asked() -> None:
    """fio syncs before the next write: 64 writes with fsync=64 are never synced."""
    phase = the_phase("3.33-fsync-every-64.json")
    assert int(phase.operations.sum()) == 64
    assert phase.facts["synced"] is False
    assert "write-not-flushed" in audits("3.33-fsync-every-64.json")


def test_a_mean_over_one_direction_is_none_of_a_mixture() -> None:
    phase = the_phase("3.33-verify-two-jobs.json")
    assert totals_of(phase)[:2] == (8 << 20, 2048), "of both jobs that fio has added up"
    assert phase.latency == {}
    said = audits("3.33-verify-two-jobs.json")["verify-reads"]
    assert said.endswith("are left out, and so are all latencies: those of the reads are of both")
    assert set(the_phase("3.33-unified-both.json").latency) == {"read", "write"}


def test_who_does_not_verify_has_no_reads_of_verification() -> None:
    options = {"do_verify": "0"}
    phase = the_phase("3.33-verify-randrw.json", **options)
    assert int(phase.operations.sum()) == 2048 + 1054
    assert set(phase.latency) == {"read", "write"}
    assert (
        not {"not-told-apart", "verify-reads"} & audits("3.33-verify-randrw.json", **options).keys()
    )


def test_trims_of_what_is_to_be_verified_are_no_work() -> None:
    data = changed("3.33-verify-write.json", trim_percentage="50", trim_backlog="8")
    data["jobs"][0]["trim"] = {**data["jobs"][0]["write"], "total_ios": 1024, "io_bytes": 4 << 20}
    (run,) = parse(json.dumps(data), "made")
    assert run.phases[0].name == "write"
    assert totals_of(run.phases[0])[:2] == (8 << 20, 2048)
    assert any("1024 trims" in note.message for note in run.notes if note.key == "verify-in-window")


@pytest.mark.parametrize("name", ["3.33-fdatasync.json", "3.33-sync-file-range.json"])
def test_syncs_are_no_short_reads_or_writes(name: str) -> None:
    assert "short-ios" not in audits(name)
    data = changed(name)
    syncs = data["jobs"][0]["sync"]["lat_ns"]["N"]
    data["jobs"][0]["write"] |= {"short_ios": syncs + 7}
    (run,) = parse(json.dumps(data), name)
    assert [n.message.partition(": ")[2] for n in run.notes if n.key == "short-ios"] == [
        "7 writes moved less than asked"
    ]


def test_bytes_of_a_sum_follow_from_two_sizes_of_blocks() -> None:
    facts = the_phase("3.33-unified-sizes.json").facts
    assert (facts["write_bytes"], facts["read_bytes"]) == (80 * 16384, 677 * 4096)
    guessed = the_phase("3.33-unified-sizes.json", bs="4k,32k").facts  # of no whole number
    assert guessed["write_bytes"] == round(4083712 * 0.1 * 32 / (0.1 * 32 + 0.9 * 4))


def test_jobs_that_share_a_file_went_over_it_once_each() -> None:
    said = audits("3.33-reread-shared.json")["read-again"]
    assert "went over its 4.0MiB 1" in said


def test_an_output_that_has_moved_less_is_no_later_state() -> None:
    first = json.loads(text_of("3.33-reread.json"))
    later = json.loads(text_of("3.33-reread.json"))
    kind = "read"
    runtime = first["jobs"][0][kind]["runtime"]
    for data, more in ((first, 0), (later, 50)):
        data["timestamp_ms"] = first["timestamp_ms"] + more
        data["jobs"][0].pop("job_start", None)
        data["jobs"][0][kind]["runtime"] = runtime + more
        rate = 1000 * data["jobs"][0][kind]["io_bytes"] // (runtime + more)
        data["jobs"][0][kind] |= {"bw_bytes": rate, "iops": None}
    assert len(parse(json.dumps(first) + json.dumps(later), "made")) == 1
    later["jobs"][0][kind]["io_bytes"] -= 4096
    assert len(parse(json.dumps(first) + json.dumps(later), "made")) == 2


def worlds(*ended: int, runtime: int = 5000) -> str:
    """Documents of fio, printed at these milliseconds, each with a job of `runtime` ms."""
    texts = []
    for number, at in enumerate(ended):
        data = changed("3.33-verify-none.json", filename="one")
        data["timestamp_ms"] = 1_700_000_000_000 + at
        job = data["jobs"][0]
        job["job_start"] = data["timestamp_ms"] - runtime
        moved = job["write"]["io_bytes"] - 4096 * number
        rate = 1000 * moved // runtime
        job["write"] |= {
            "runtime": runtime, "io_bytes": moved, "io_kbytes": moved >> 10, "bw_bytes": rate,
            "iops": None,
        }  # fmt: skip
        texts.append(json.dumps(data))
    return "\n".join(texts)


def test_worlds_at_one_time_on_one_file_are_told() -> None:
    runs = parse(worlds(0, 200, 300), "made")
    assert len(runs) == 3
    said = [note.message for run in runs for note in run.notes if note.key == "simultaneous"]
    assert len(said) == 3
    assert all(text.startswith("3 starts in this output") for text in said)
    for apart in ((0, 5100, 10300), (0, 6000)):
        assert not any("simultaneous" in keys(run) for run in parse(worlds(*apart), "made"))


# -- jobs that do not work at once, or are merged ----------------------------------------------
def jobs_of(*own: dict[str, str], **document: Any) -> str:
    """A document with a job of 2 MiB in one second for each of these options."""
    data = changed("3.33-end-fsync.json") | {"global options": {}}
    (job,) = data["jobs"]
    zero = {"io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "total_ios": 0}
    moved = {"io_bytes": 2 << 20, "io_kbytes": 2048, "bw_bytes": 2 << 20, "iops": 512.0}
    moved |= {"total_ios": 512, "runtime": 1000}
    data["jobs"] = [
        {**job, "jobname": options.get("name", "a"), "job options": options, "sync": {}, **document}
        | {"read": {"runtime": 0, **zero}, "trim": {"runtime": 0, **zero}, "write": moved}
        for options in ({"rw": "write", "size": "2m", **each} for each in own)
    ]
    return json.dumps(data)


@pytest.mark.parametrize(
    ("second", "start"),
    [
        ({"startdelay": "2"}, 2.0),
        ({"wait_for": "a"}, 1.0),
        ({"wait_for": "a", "startdelay": "500ms"}, 1.5),
    ],
)
def test_jobs_that_begin_later_are_not_added_up_as_if_at_once(
    second: dict[str, str], start: float
) -> None:
    """Seen: 4 MiB/s of two jobs in turn at 2 MiB/s each."""
    (run,) = parse(jobs_of({"name": "a"}, {"name": "b", **second}), "")
    (phase,) = run.phases
    assert phase.start.tolist() == [0.0, start]
    assert totals_of(phase) == (4 << 20, 1024, start + 1.0)
    assert run.failure == ""


def test_a_delay_of_all_jobs_changes_nothing() -> None:
    (run,) = parse(jobs_of(*({"name": n, "startdelay": "3"} for n in "ab")), "")
    assert run.phases[0].start.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("told", [{"startdelay": "1-3"}, {"wait_for": "c"}])
def test_a_begin_that_is_not_told_is_no_rate(told: dict[str, str]) -> None:
    (run,) = parse(jobs_of({"name": "a"}, {"name": "b", **told}), "")
    assert run.failure.startswith("when job b began is not known")


def test_a_group_of_several_jobs_has_not_the_options_of_its_last() -> None:
    """group_reporting keeps the name of the first job and the options of the last."""
    (run,) = parse(jobs_of({"name": "b", "bs": "64k"}, jobname="a"), "")
    assert run.processes is None
    assert not {"bs", "size", "rw"} & run.options.keys()
    (note,) = [note for note in run.notes if note.key == "group-reporting"]
    assert "jobs a to b are one" in note.message
    (run,) = parse(jobs_of({"name": "b", "wait_for": "a"}, jobname="a"), "")
    assert "did not begin together (wait_for=a)" in run.failure


def test_the_time_of_several_jobs_tells_a_group() -> None:
    """Of fio's clients, that tell no names: two servers with two jobs each are not two."""
    (run,) = parse(jobs_of({"numjobs": "2"}, job_runtime=1992, hostname="h"), "")
    assert run.processes is None
    (run,) = parse(jobs_of({"numjobs": "1"}, job_runtime=998, hostname="h"), "")
    assert run.processes == 1


# -- runs that were ended ------------------------------------------------------------------------
def test_less_than_its_amount_in_less_than_its_time_is_said() -> None:
    def less(text: str) -> list[str]:
        (run,) = parse(text, "")
        return [note.message for note in run.notes if note.key == "less"]

    (said,) = less(jobs_of({"size": "30m", "runtime": "20"}))
    assert (
        said == "job a moved 2.0MiB of the 30.0MiB it was asked to, in 1 s of 20 s: was it ended?"
    )
    assert less(jobs_of({"size": "30m"}))
    assert not less(jobs_of({"size": "30m", "runtime": "1"}))
    assert not less(jobs_of({"size": "30m", "number_ios": "512"}))
    assert not less(jobs_of({"size": "30m", "rw": "write:4k"}))


def test_an_interrupted_run_is_a_failed_one() -> None:
    said = "\nfio: terminating on signal 2\n"
    (run,) = parse(said + jobs_of({"size": "30m", "runtime": "20"}), "")
    assert run.failure == said.strip()
    (run,) = parse(said + jobs_of({}), "")  # its work was done
    assert run.failure == ""


def test_the_last_window_of_a_latency_target_is_no_early_end() -> None:
    (run,) = parse(jobs_of({"latency_target": "1ms", "runtime": "3", "time_based": "1"}), "")
    assert not [note for note in run.notes if note.key == "ended-early"]


# -- states on the way ---------------------------------------------------------------------------
def states(*moments: tuple[int, int, list[tuple[int, int]]], **own: str) -> str:
    """Documents at (ms, elapsed s, (runtime ms, bytes) of jobs one after the other)."""
    texts = []
    for moment, elapsed, jobs in moments:
        data = json.loads(jobs_of(*({"name": n, **own} for n in "ab"[: len(jobs)])))
        data["timestamp_ms"] = 1_795_766_000_000 + moment
        for group, (job, (runtime, moved)) in enumerate(zip(data["jobs"], jobs, strict=True)):
            job |= {"groupid": group, "elapsed": elapsed}
            job["write"] = {"runtime": runtime, "io_bytes": moved, "total_ios": moved >> 12}
        texts.append(json.dumps(data))
    return "\n".join(texts)


def test_states_of_groups_one_after_the_other_are_no_runs() -> None:
    """Seen: 12 runs of two."""
    done = 2 << 20
    text = states(
        *((500, 1, [(450, 450 << 10), (0, 0)]), (1000, 1, [(950, 950 << 10), (0, 0)])),
        *((2400, 3, [(1997, done), (149, 160 << 10)]), (2900, 3, [(1997, done), (649, 700 << 10)])),
        (4250, 5, [(1997, done), (1997, done)]),
    )
    runs = parse(text, "")
    assert [totals_of(run.phases[0])[::2] for run in runs] == [(done, 1.997), (done, 1.997)]


def test_states_before_the_work_and_in_its_ramp_are_no_runs() -> None:
    text = states((500, 1, [(0, 0)]), (1000, 1, [(0, 0)]), (1900, 2, [(900, 2 << 20)]))
    (run,) = parse(text, "")
    assert totals_of(run.phases[0]) == (2 << 20, 512, 0.9)
    ramp = states((900, 1, [(880, 1 << 20)]), (1500, 2, [(480, 1 << 19)]), ramp_time="1")
    (run,) = parse(ramp, "")
    assert totals_of(run.phases[0]) == (1 << 19, 128, 0.48)


def test_two_worlds_at_once_are_not_two_states_of_one() -> None:
    """Each of them ran its two seconds; the second had printed 300 ms later."""
    text = states((2100, 3, [(2000, 2 << 20)]), (2400, 3, [(2004, 3 << 20)]))
    assert len(parse(text, "")) == 2


# -- documents -----------------------------------------------------------------------------------
def test_a_document_that_is_lost_takes_no_other_with_it() -> None:
    whole = jobs_of({})
    (run,) = parse(whole[:400] + "\n" + whole, "")
    (note,) = [note for note in run.notes if note.key == "recovered"]
    assert note.message.startswith("left out: line 1: ")
    with pytest.raises(ParseError, match="no job in it is whole"):
        parse(whole[:400], "")


def test_keys_may_be_in_another_order() -> None:
    (run,) = parse(json.dumps(json.loads(jobs_of({})), sort_keys=True), "")
    assert totals_of(run.phases[0]) == (2 << 20, 512, 1.0)


def test_latencies_without_histograms_are_said_to_be_left_out() -> None:
    data = changed("3.33-end-fsync.json")
    del data["jobs"][0]["write"]["clat_ns"]["bins"]
    (run,) = parse(json.dumps(data), "")
    assert any("no histogram" in note.message for note in run.notes if note.key == "left-out")


@pytest.mark.parametrize(
    ("size", "ran", "asked"),
    [
        ("2m", 1000, "was it ended, or exitall?"),  # the other one did all of it, just then
        ("2m", 9000, "was it ended?"),
        ("30m", 1000, "was it ended?"),  # neither did all of it
    ],
)
def test_jobs_that_ended_with_one_that_was_done_may_have_been_told_to(
    size: str, ran: int, asked: str
) -> None:
    """--exitall on the command line is in no output."""
    data = json.loads(jobs_of({"size": "30m"}, {"size": size}))
    data["jobs"][1]["write"]["runtime"] = ran
    data["jobs"][1]["job_start"] = data["jobs"][0]["job_start"] = 0
    (run,) = parse(json.dumps(data), "")
    assert next(n.message for n in run.notes if n.key == "less").endswith(asked)


def test_shares_of_a_sum_are_exact_where_sizes_of_blocks_tell_them() -> None:
    equal, other = (the_phase("3.33-unified-mixed.json", bs=f"4k,{each}") for each in ("4k", "8k"))
    assert equal.facts["shares_estimated"] is True
    assert "shares_estimated" not in other.facts
    assert "shares_estimated" not in the_phase("3.33-unified-both.json").facts
    runs = [("a", run_of("3.33-unified-mixed.json")), ("b", run_of("3.33-unified-mixed.json"))]
    assert merge_nodes(runs).phases[0].facts["shares_estimated"] is True
    assert "shares_estimated" not in the_phase("3.33-unified-mixed.json", rw="trimwrite").facts
