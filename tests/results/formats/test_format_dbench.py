"""dbench's outputs: real ones of 4.0 (Debian) and 5.0, damaged ones, several nodes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats.dbench import FORMATS, parse
from fsmatrix.results.formats.dbench_nodes import NodeRun, merge, start_of
from fsmatrix.results.formats.parsed import Parsed, ParseError, shared_facts
from fsmatrix.results.record import OPERATIONS_UNKNOWN, Phase, iops

DATA = Path(__file__).parents[2] / "data" / "dbench"
WHOLE = ("two-clients", "per-client", "sync", "fsync-xattr", "rate", "version-5")
RECORDED = sorted(path.stem for path in DATA.glob("*.txt") if not path.stem.startswith("probe"))


def text_of(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def one(name: str) -> Parsed:
    (parsed,) = parse(text_of(name), name)
    return parsed


def phase_of(parsed: Parsed) -> Phase:
    (phase,) = parsed.phases
    return phase


def keys(parsed: Parsed) -> set[str]:
    return {note.key for note in parsed.notes}


# -- whole outputs ---------------------------------------------------------------------------
def test_a_whole_run() -> None:
    parsed = one("two-clients")
    phase = phase_of(parsed)
    assert (parsed.version, parsed.processes, parsed.nodes, parsed.failure) == ("4.00", 2, 1, "")
    told = {"runtime": 6, "loadfile": "client.txt", "sync": False, "sync_directories": False}
    assert parsed.options == told
    assert (phase.name, phase.start.tolist(), phase.end.tolist()) == ("mixed", [0.0], [6.0])
    assert phase.bytes.tolist() == [1_296_828_000]  # 216.138 MB/s of 10^6 bytes for 6 s
    table = phase.facts["operations"]
    assert table["Flush"] == {"count": 2988, "mean_seconds": 0.001572, "max_seconds": 0.033381}
    assert phase.operations.tolist() == [sum(row["count"] for row in table.values())] == [245_601]
    assert phase.facts["latency_maximum"] == pytest.approx(0.033385)
    assert (phase.facts["warm_up_seconds"], phase.facts["throughput_seconds"]) == (1, 5)
    assert "window" in phase.facts
    assert keys(parsed) == {"warm-up"}


def test_a_last_line_that_somebody_rounded_is_read() -> None:
    text = text_of("two-clients").replace("216.138 MB/sec", "216.1 MB/sec")
    (parsed,) = parse(re.sub(r"(max_latency=\d+)\.\d+", r"\1", text), "rounded")
    assert (parsed.failure, keys(parsed)) == ("", {"warm-up"})
    assert phase_of(parsed).bytes.tolist() == [6 * 216_100_000]
    assert phase_of(parsed).facts["latency_maximum"] == pytest.approx(0.033)


@pytest.mark.parametrize("name", WHOLE)
def test_the_rate_is_the_one_that_dbench_prints(name: str) -> None:
    phase = phase_of(one(name))
    match = re.search(r"^Throughput (\S+) MB/sec", text_of(name), re.MULTILINE)
    assert match is not None
    rate = phase.bytes.sum() / phase.end.max()
    assert rate == pytest.approx(float(match[1]) * 1e6, rel=1e-9)


def test_the_window_is_that_of_the_operations() -> None:
    """The bytes of the clients, counted to their end, agree with it, and not with 4 s."""
    phase = phase_of(one("per-client"))
    exact = sum(phase.facts["client_bytes"])
    assert exact == 2_024_196_506
    assert phase.end.tolist() == [5.0]
    assert phase.bytes.sum() == pytest.approx(exact, rel=0.01)
    assert phase.operations.sum() == 376_846  # of all clients, not of all twice


def test_the_series_is_differenced_from_cumulative_means() -> None:
    phase = phase_of(one("two-clients"))
    assert phase.interval == 1.0
    assert phase.interval_bytes is not None
    # 1 s at 183.71, then 2 s at 201.45 in the mean, ...
    assert phase.interval_bytes[:2].tolist() == [183_710_000, 219_190_000]
    assert phase.interval_bytes.sum() == pytest.approx(5 * 216.14e6)
    assert phase.facts["interval_uncertainty_bytes"] == pytest.approx(45_000)
    latencies = re.findall(r"execute +\d+ sec  latency (\S+) ms", text_of("two-clients"))
    assert phase.interval_latency_max is not None
    assert phase.interval_latency_max.tolist() == [float(one) / 1000 for one in latencies]


def slow_run(rates: list[float]) -> str:
    """An output of one client whose seconds moved so many MB each."""
    means = np.cumsum(rates) / np.arange(1, len(rates) + 1)
    lines = [
        f"   1  {100 * second:8d}  {mean:7.2f} MB/sec  execute {second:3d} sec  "
        f"latency {second}.000 ms"
        for second, mean in enumerate(means, 1)
    ]
    seconds = len(rates) + 1
    head = f"Running for {seconds} seconds with load 'x' and minimum warmup 0 secs\n"
    head += "1 of 1 processes prepared for launch   0 sec\nreleasing clients\n"
    end = f"   1  cleanup {seconds} sec\n   0  cleanup {seconds} sec\n\n"
    end += " Operation      Count    AvgLat    MaxLat\n"
    end += " Flush          60     1.000    60.000\n\n"
    end += f"Throughput {means[-1]:g} MB/sec  1 clients  1 procs  max_latency=60.000 ms\n"
    return head + "\n".join(lines) + "\n" + end


def test_intervals_are_as_long_as_rounding_needs() -> None:
    """60 s at 2 MB/s, then at 4: two decimals of the mean blur a second by 0.6 MB, 6 s by 3 %."""
    truth = [2.0] * 30 + [4.0] * 30
    (parsed,) = parse(slow_run(truth), "slow")
    phase = phase_of(parsed)
    assert phase.interval_bytes is not None
    assert phase.interval_latency_max is not None
    width = int(phase.interval)
    assert 3 <= width <= 6
    count = 60 // width
    expected = 1e6 * np.array(truth)[: count * width].reshape(count, width).sum(axis=1)
    blur = phase.facts["interval_uncertainty_bytes"]
    assert blur <= 0.05 * expected.mean()
    assert np.abs(phase.interval_bytes - expected).max() <= blur
    assert phase.interval_latency_max.tolist() == [(i + 1) * width / 1000 for i in range(count)]


def test_a_series_that_rounding_blurs_is_left_out() -> None:
    slow = re.sub(r"\d+\.\d\d MB/sec  execute", "   0.05 MB/sec  execute", text_of("two-clients"))
    (parsed,) = parse(slow.replace("Throughput 216.138", "Throughput 0.05"), "slow")
    phase = phase_of(parsed)
    assert (phase.interval, phase.interval_bytes) == (0.0, None)
    assert phase.bytes.tolist() == [300_000]


def test_sync_is_told_by_the_last_line() -> None:
    parsed = one("sync")
    told = {"runtime": 5, "loadfile": "client.txt", "sync": True, "sync_directories": True}
    assert parsed.options == told
    assert phase_of(parsed).facts["synced"] is True
    assert "synced" not in phase_of(one("fsync-xattr")).facts  # -F leaves no trace


def test_version_5() -> None:
    parsed = one("version-5")
    phase = phase_of(parsed)
    assert (parsed.version, parsed.processes, parsed.failure) == ("5.0", 2, "")
    assert phase.facts["operations"]["QUERY_PATH_INFORMATION"]["count"] == 35135
    assert (phase.facts["warm_up_seconds"], phase.end.tolist()) == (2, [4.0])


@pytest.mark.parametrize("name", ["barrier-one-client", "barrier-two-clients"])
def test_the_semaphores_message_is_a_false_alarm(name: str) -> None:
    """It is printed when the first semaphore of a namespace has number 0, a valid one."""
    assert keys(one(name)) == {"barrier-message", "warm-up"}
    unproven = re.sub(r"^\d of \d processes prepared.*\n", "", text_of(name), flags=re.MULTILINE)
    (parsed,) = parse(unproven, name)
    assert keys(parsed) == {"unsynchronised", "warm-up"}


def test_the_warm_up_is_told() -> None:
    texts = {name: one(name).notes[-1].message for name in ("two-clients", "rate")}
    assert "left out its first 1 s" in texts["two-clients"]
    assert "no warm-up" in texts["rate"]


# -- runs that failed ------------------------------------------------------------------------
FAILED = [
    ("enospc", "write failed on handle 9952 (No space left on device) (and 2 more)"),
    ("unwritable", "open /mnt/scratch/clients/client0 failed"),
    ("no-semaphore", "failed to initialize the barrier semaphore"),
    ("no-loadfile", "cut"),
    ("not-started", "FAILED TO START 5 CLIENTS (started 2)"),  # exit status 0
    ("client-killed", "1 clients died"),  # exit status 0
    ("one-second", "nothing was measured within the time limit of 1 s"),  # exit status 0
    ("killed", "the output is cut"),
    ("probe-zero", "nothing was measured"),
]


@pytest.mark.parametrize(("name", "words"), FAILED)
def test_a_failed_run_says_why(name: str, words: str) -> None:
    assert words in one(name).failure


def test_a_version_that_is_not_known_is_named_and_nothing_else_is_said() -> None:
    """3.04 prints other lines (sahlberg/dbench issue 6): not cut, not damaged, and no number."""
    (run,) = parse(
        "dbench version 3.04 - Copyright Andrew Tridgell 1999-2004\n\n"
        "Running for 10 seconds with load 'client.txt' and minimum warmup 2 secs\n"
        "1 clients started\n   1    122253   676.39 MB/sec  warmup   1 sec   \n"
        "   1    372673   677.01 MB/sec  execute   1 sec   \n"
        "   1   1486909   672.38 MB/sec  cleanup  10 sec   \n\n"
        "Throughput 673.168 MB/sec 1 procs\n",
        "x",
    )
    assert run.failure == (
        "its lines are not those that are known here "
        "(dbench 3.04 is too old: outputs of 4.0 and newer are known here)"
    )
    assert run.phases == ()
    assert run.notes == ()


def test_errors_of_a_run_that_went_on_are_counted() -> None:
    line = "[12345] read failed on handle 10025 (Input/output error)\n"
    (parsed,) = parse(text_of("two-clients").replace("   2  cleanup", line + "   2  cleanup"), "x")
    assert "read failed on handle 10025" in parsed.failure
    assert phase_of(parsed).errors.tolist() == [1]
    assert phase_of(parsed).errors_by_errno == {"EIO": 1}


def test_a_cut_output_keeps_what_it_has() -> None:
    parsed = one("killed")
    phase = phase_of(parsed)
    assert (phase.end.tolist(), phase.bytes.tolist()) == ([3.0], [668_250_000])
    assert "recovered" in keys(parsed)
    assert np.isnan(iops(phase))  # not 0: its table of operations is missing


def test_operations_of_several_phases_are_unknown_if_those_of_one_are() -> None:
    every = [phase_of(one(name)) for name in ("two-clients", "killed")]
    assert shared_facts(every)[OPERATIONS_UNKNOWN] is True
    assert OPERATIONS_UNKNOWN not in shared_facts(every[:1])


# -- texts that are damaged or none ----------------------------------------------------------
NONE = [
    ("", "no output of a dbench run"),
    ("Throughput of the line is 3 MB/sec\n", "no output of a dbench run"),
    (text_of("version-5-machine-readable"), "--machine-readable"),
    (text_of("two-clients").replace("183.71 MB", "183,71 MB"), "decimal comma"),
    (text_of("two-clients").replace("Throughput 216.138", "Throughput nan"), "no measurement"),
    (text_of("two-clients").replace("Throughput 216.138", "Throughput -1"), "no measurement"),
    (text_of("two-clients").replace("Throughput 216.138", "Throughput inf"), "no measurement"),
    (text_of("two-clients").replace("Throughput 216.138", "Throughput 1e99"), "no measurement"),
]


@pytest.mark.parametrize(("text", "words"), NONE, ids=lambda value: str(value)[-20:])
def test_what_is_no_result_is_refused(text: str, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse(text, "x")


def same(a: Parsed, b: Parsed) -> bool:
    """Whether two runs carry the same numbers (but for the series, which may be missing)."""
    x, y = phase_of(a), phase_of(b)
    return bool(
        x.bytes.tolist() == y.bytes.tolist()
        and x.operations.tolist() == y.operations.tolist()
        and x.end.tolist() == y.end.tolist()
        and x.facts["operations"] == y.facts["operations"]
    )


@pytest.mark.parametrize(
    "foreign", ["WARN file_limit_bump: setrlimit 1", "[host:1] MPI: hello", "\x1b[0m"]
)
def test_foreign_lines_change_nothing(foreign: str) -> None:
    text = "".join(f"{foreign}\n{line}\r\n" for line in text_of("two-clients").split("\n"))
    (parsed,) = parse(text, "x")
    assert same(parsed, one("two-clients"))
    assert parsed.failure == ""


def test_a_lost_line_is_no_wrong_number() -> None:
    """Without its first `cleanup` line nobody knows how long the operations were counted."""
    (parsed,) = parse(text_of("two-clients").replace("   2  cleanup   6 sec\n", ""), "x")
    assert "no line tells when the clients stopped" in parsed.failure
    assert phase_of(parsed).operations.tolist() == [0]


def test_a_look_at_the_clients_that_stands_before_the_head_belongs_to_it() -> None:
    look = "0 of 2 processes prepared for launch   0 sec\n"
    (parsed,) = parse(look + text_of("two-clients").replace(look, ""), "x")
    assert same(parsed, one("two-clients"))
    assert parsed.facts == one("two-clients").facts
    assert parsed.failure == ""


@pytest.mark.parametrize("start", [" NTCreateX", "[12345] read failed"])
def test_what_stands_before_the_head_may_be_missing_behind_it(start: str) -> None:
    """A row of the table, a client's error: the run that begins below them is not whole."""
    error = "[12345] read failed on handle 10025 (Input/output error)\n"
    text = text_of("two-clients").replace("   2  cleanup", error + "   2  cleanup")
    lines = text.splitlines(keepends=True)
    tick = next(line for line in lines if "execute   1 sec" in line)
    row = next(line for line in lines if line.startswith(start))
    rest = "".join(line for line in lines if line not in (tick, row, error))
    *_, run = parse(tick + row + rest, "x")
    assert "lines of a run stand before its first one" in run.failure


def test_several_runs_in_one_text() -> None:
    runs = parse(text_of("two-clients") + text_of("enospc") + text_of("sync"), "x")
    assert [run.phases != () for run in runs] == [True, False, True]
    assert same(runs[2], one("sync"))


def test_another_last_line_is_a_contradiction() -> None:
    (parsed,) = parse(text_of("two-clients").replace("Throughput 216.138", "Throughput 300"), "x")
    assert "contradiction" in keys(parsed)


def numbers(parsed: Parsed) -> set[float]:
    """Rates that a run claims, MB/s."""
    return {float(p.bytes.sum() / p.end.max() / 1e6) for p in parsed.phases}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A real output, and what is left of it after some accidents.

    It is cut first: a line of the table that was moved behind the cut would be lost from the
    middle, which nobody can see.
    """
    name = draw(st.sampled_from(WHOLE))
    text = text_of(name)
    text = text[: draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))]
    lines = text.split("\n")
    for kind in draw(st.lists(st.sampled_from(["double", "mix", "bytes", "foreign"]), max_size=3)):
        at = draw(st.integers(0, len(lines) - 1))
        if kind == "double":
            lines.insert(at, lines[at])
        elif kind == "mix":
            to = draw(st.integers(0, len(lines) - 1))
            lines.insert(to, lines.pop(at))
        elif kind == "bytes" and lines[at]:
            spot = draw(st.integers(0, len(lines[at]) - 1))
            lines[at] = lines[at][:spot] + "\ufffd" + lines[at][spot + 1 :]
        else:
            lines.insert(at, draw(st.text(max_size=30)).replace("\n", ""))
    return name, "\n".join(lines)


def moved(name: str, *starts: str) -> tuple[str, str]:
    """A real output whose first lines with such starts come first of all, the last one first."""
    lines = text_of(name).split("\n")
    for start in starts:
        lines.insert(0, lines.pop(next(i for i, x in enumerate(lines) if x.startswith(start))))
    return name, "\n".join(lines)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
@example(moved("two-clients", " NTCreateX", "0 of 2"))
@example(moved("two-clients", " NTCreateX", "   2     34861"))
def test_damage_gives_a_run_or_a_parse_error_and_no_new_number(case: tuple[str, str]) -> None:
    name, text = case
    try:
        runs = parse(text, "x")
    except ParseError:
        return
    assert runs
    whole = one(name)
    said = {
        float(n)
        for n in re.findall(r"(\d+\.\d+) MB/sec|Throughput (\S+) ", text_of(name))
        for n in n
        if n
    }
    for parsed in runs:
        for rate in numbers(parsed):
            assert any(rate == pytest.approx(value, rel=1e-6) for value in said)
        if parsed.phases and not parsed.failure:
            assert same(parsed, whole)


@settings(max_examples=200, deadline=None)
@given(
    st.text(
        alphabet=st.sampled_from(list(" 0123456789.,MB/secCleanup-[]()\n%\ufffd")), max_size=300
    )
)
def test_any_text_is_a_run_or_a_parse_error(text: str) -> None:
    banner = "Running for 5 seconds with load 'x' and minimum warmup 1 secs\n"
    for whole in (text, banner + text):
        try:
            runs = parse(whole, "x")
        except ParseError:
            continue
        (run,) = runs
        assert run.engine == "dbench"
        assert run.failure  # no such text has an end


def test_a_large_output_is_read() -> None:
    """Many lines and a line without end; only the first faults are kept, all are counted."""
    line = "[7] read failed on handle 10025 (Input/output error)\n"
    (parsed,) = parse(text_of("killed") + line * 200_000 + " " * 5_000_000, "x")
    assert "(and 199999 more)" in parsed.failure


@pytest.mark.parametrize("name", RECORDED)
def test_every_output_is_recognised(name: str) -> None:
    (format_,) = FORMATS
    assert format_.recognises(text_of(name))
    assert not format_.recognises(re.sub("dbench version|Running|Throughput", "", text_of(name)))


# -- several nodes ---------------------------------------------------------------------------
def node(name: str, host: str, began: float) -> NodeRun:
    """A node whose process began at a Unix time and ended 0.2 s after its last line."""
    parsed = one(name)
    facts = parsed.facts
    start = began + facts.get("launch_seconds", 0) + 1  # warm-up
    return NodeRun(host, parsed, began, start + facts.get("last_second", 0) + 0.2)


def test_nodes_add_up() -> None:
    parsed = merge([node("two-clients", "a", 100.0), node("two-clients", "b", 100.1)])
    phase, alone = phase_of(parsed), phase_of(one("two-clients"))
    assert (parsed.nodes, parsed.processes, parsed.failure) == (2, 4, "")
    assert phase.bytes.sum() == 2 * alone.bytes.sum()
    assert phase.operations.sum() == 2 * alone.operations.sum()
    assert phase.start.tolist() == pytest.approx([0.0, 0.1])
    assert phase.end.tolist() == pytest.approx([6.0, 6.1])
    assert phase.facts["overlap"] == pytest.approx(5.9 / 6.1)
    assert 0 < phase.clock_uncertainty < 0.5
    assert phase.interval_bytes is not None
    assert alone.interval_bytes is not None
    assert phase.interval_bytes.tolist() == (2 * alone.interval_bytes).tolist()
    assert phase.interval_latency_max is not None
    assert alone.interval_latency_max is not None
    assert phase.interval_latency_max.tolist() == alone.interval_latency_max.tolist()
    assert "nodes-overlap" not in keys(parsed)


def test_tables_of_nodes_are_weighted_by_their_counts() -> None:
    parsed = merge([node("two-clients", "a", 0.0), node("per-client", "b", 0.0)])
    row = phase_of(parsed).facts["operations"]["Flush"]
    assert row["count"] == 2988 + 4600
    assert row["mean_seconds"] == pytest.approx((2988 * 1.572e-3 + 4600 * 2.784e-3) / 7588)
    assert row["max_seconds"] == pytest.approx(0.033381)
    assert phase_of(parsed).facts["latency_maximum"] == pytest.approx(0.033385)


def test_nodes_that_hardly_overlap_are_noted() -> None:
    parsed = merge([node("two-clients", "a", 0.0), node("two-clients", "b", 3.0)])
    phase = phase_of(parsed)
    assert phase.facts["overlap"] == pytest.approx(3 / 9)
    assert "nodes-overlap" in keys(parsed)
    assert phase.end.max() == pytest.approx(9.0)  # the union: rates do not profit from it
    assert phase.interval_bytes is None


def test_nodes_apart_do_not_overlap_at_all() -> None:
    parsed = merge([node("two-clients", "a", 0.0), node("two-clients", "b", 50.0)])
    assert phase_of(parsed).facts["overlap"] == 0.0


def test_one_failed_node_fails_the_run() -> None:
    parsed = merge([node("two-clients", "a", 0.0), node("enospc", "b", 0.0)])
    assert parsed.failure.startswith("b: dbench reports errors")
    assert parsed.phases == ()


def test_different_versions_fail_the_run() -> None:
    parsed = merge([node("two-clients", "a", 0.0), node("version-5", "b", 0.0)])
    assert "different versions of dbench: 4.00, 5.0" in parsed.failure


@given(st.floats(0, 0.9), st.floats(0, 0.49), st.floats(0, 2))
def test_the_true_start_lies_within_the_uncertainty(spawn: float, drift: float, rm: float) -> None:
    """Simulated: start-up, late alarms and a cleanup of any length."""
    run = one("two-clients")
    phase = phase_of(run)
    true = spawn + run.facts["launch_seconds"] + 1 + drift
    stop = 6 + drift
    last = round(stop + rm)
    ended = true + stop + rm
    seen = NodeRun("a", replace(run, facts={**run.facts, "last_second": last}), 0.0, ended)
    start, uncertainty = start_of(seen)
    assert abs(start - true) <= uncertainty + 1e-9
    assert phase.end.tolist() == [6.0]


def test_a_run_that_ended_before_its_time_is_told() -> None:
    text = text_of("two-clients")
    (whole,) = parse(text, "a")
    assert "ended-early" not in {note.key for note in whole.notes}
    (run,) = parse(text.replace("Running for 6 seconds", "Running for 30 seconds"), "a")
    said = [note.message for note in run.notes if note.key == "ended-early"]
    assert said == ["it ran 6 s of the 30 s it was asked to"]
