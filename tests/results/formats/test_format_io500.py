"""IO500: tests/data/io500 is the directory of a real run (2 tasks, stonewall of 1 s: invalid)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats import io500
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError, unlabelled
from fsmatrix.results.record import Phase, bandwidth, iops, window
from tests.results.damage import damaged

DATA = Path(__file__).parents[2] / "data" / "io500"
FILES = {path.name: path.read_text() for path in DATA.iterdir()}
SUMMARY, RESULT = FILES["result_summary.txt"], FILES["result.txt"]
GIB = 1 << 30


def whole() -> Parsed:
    return io500.parse_directory(FILES, "run")


def phases(run: Parsed) -> dict[str, Phase]:
    return {phase.name: phase for phase in run.phases}


def notes(run: Parsed, key: str) -> list[Note]:
    return [note for note in run.notes if note.key == key]


def rate(phase: Phase) -> float:
    return bandwidth(phase) / GIB if phase.facts["unit"] == "GiB/s" else iops(phase) / 1000


# -- the directory -------------------------------------------------------------------------------
def test_a_directory_is_one_run() -> None:
    run = whole()
    assert (run.engine, run.processes, run.nodes) == ("io500", 2, 1)
    assert run.version == "isc26_v2-26-g02091cf254d8"
    assert len(run.phases) == 13
    assert run.failure == ""
    assert run.facts["mode"] == "standard"
    assert run.facts["configuration"]["debug"]["stonewall-time"] == "1"


def test_every_rate_is_the_printed_score() -> None:
    for phase in whole().phases:
        assert rate(phase) == pytest.approx(phase.facts["score"], rel=2e-3)


def test_amounts_are_those_of_ior_and_mdtest() -> None:
    found = phases(whole())
    assert found["ior-easy-write"].bytes.sum() == 2 * 200 << 20
    assert found["mdtest-easy-write"].operations.tolist() == [42211, 42211]  # not 2 x 1000000
    assert found["mdtest-easy-stat"].operations.tolist() == [42211, 42211]
    assert found["mdtest-hard-read"].bytes.sum() == 8300 * 3901
    assert found["find"].operations.tolist() == [92725]
    assert notes(whole(), "derived-amount") == []


def test_the_window_is_not_the_time_of_the_whole_phase() -> None:
    """mdtest sleeps a second at its start, which IO500's time counts and its score does not."""
    stat = phases(whole())["mdtest-easy-stat"]
    assert stat.facts["seconds_of_all"] == 1.892
    assert window(stat) == pytest.approx(0.81581091881)


def test_phases_without_a_score_are_marked() -> None:
    unscored = {phase.name for phase in whole().phases if not phase.facts["scored"]}
    assert unscored == {"ior-rnd4K-easy-read"}


def test_why_it_is_invalid_is_noted() -> None:
    invalid = notes(whole(), "invalid-run")
    assert ("", "IO500 calls its score invalid") in {(n.phase, n.message) for n in invalid}
    assert any("stonewall-time 1s != 300s" in note.message for note in invalid)
    assert {"ior-hard-write", "mdtest-easy-write"} <= {note.phase for note in invalid}


def test_the_score_is_recomputed() -> None:
    run = whole()
    for name, value in run.facts["scores_recomputed"].items():
        assert run.facts["scores"][name] == pytest.approx(value, rel=1e-5)
    assert notes(run, "contradiction") == []


# -- contradictions ------------------------------------------------------------------------------
def test_another_score_than_that_of_the_phases_is_a_contradiction() -> None:
    text = SUMMARY.replace("TOTAL 3.720203", "TOTAL 37.20203")
    (note,) = notes(io500.parse(text, "x")[0], "contradiction")
    assert "the printed score (total) is 37.20203, its phases give 3.7202" in note.message


def test_another_rate_than_that_of_the_output_is_left_out() -> None:
    files = {
        name: text.replace("0.220641", "0.320641") if name.startswith("result") else text
        for name, text in FILES.items()
    }
    run = io500.parse_directory(files, "x")
    assert "ior-easy-write" not in phases(run)
    assert any("ior-easy-write.txt gives 0.2206" in n.message for n in notes(run, "contradiction"))


def test_two_files_that_differ_are_a_contradiction() -> None:
    files = FILES | {"result_summary.txt": SUMMARY.replace("0.450678", "0.550678")}
    run = io500.parse_directory(files, "x")
    assert "ior-easy-read" not in phases(run)
    assert any("result.txt says 0.450678" in n.message for n in notes(run, "contradiction"))


# -- until 2020 ----------------------------------------------------------------------------------
def old_summary(unit: str = "GB/s") -> str:
    """As the script of 2018 to 2020 printed it: three decimals, underscores, GB/s for GiB/s."""
    lines, kinds = [], {"GiB/s": ("BW", unit), "kIOPS": ("IOPS", "kiops")}
    for number, phase in enumerate((p for p in whole().phases if p.facts["scored"]), 1):
        kind, shown = kinds[phase.facts["unit"]]
        name = phase.name.replace("-", "_")
        lines.append(
            f"[RESULT] {kind:<4} phase {number:<2} {name:>22} {phase.facts['score']:>20.3f} {shown}"
            f" : time {phase.facts['seconds_of_all']:6.2f} seconds"
        )
    again = whole().facts["scores"]
    lines.append(
        f"[SCORE] Bandwidth {again['bandwidth']:.6g} {unit} : IOPS {again['rate']:.6g} kiops"
        f" : TOTAL {again['total']:.6g}"
    )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("unit", ["GB/s", "GiB/s"])
def test_a_summary_of_2018_to_2020(unit: str) -> None:
    text = old_summary(unit)
    assert io500.recognises(text)
    (run,) = io500.parse(text, "result_summary.txt")
    now = {p.name: p for p in whole().phases if p.facts["scored"]}
    assert phases(run).keys() == now.keys()
    for name, phase in phases(run).items():
        assert rate(phase) == pytest.approx(now[name].facts["score"], abs=5.1e-4)
    assert run.failure == ""
    assert notes(run, "contradiction") == []
    assert {note.phase for note in notes(run, "derived-amount")} == set(phases(run))


def test_files_with_underscores_belong_to_a_summary_of_2018_to_2020() -> None:
    files = {"result_summary.txt": old_summary()}
    files |= {
        name.replace("-", "_"): text
        for name, text in FILES.items()
        if name.startswith(("ior", "mdtest")) and name.endswith(".txt")
    }
    run = io500.parse_directory(files, "run")
    found, own = phases(run), phases(whole())
    assert (run.nodes, run.processes) == (1, 2)
    assert found["ior-easy-write"].bytes.sum() == own["ior-easy-write"].bytes.sum()
    for name in ("write", "stat", "delete"):  # by -x: as many as were created
        assert found[f"mdtest-easy-{name}"].operations.sum() == 2 * 42211
        assert rate(found[f"mdtest-easy-{name}"]) == pytest.approx(
            own[f"mdtest-easy-{name}"].facts["score"], rel=2e-3
        )
    derived = {note.phase for note in notes(run, "derived-amount")}
    assert "find" in derived
    assert "ior-easy-write" not in derived


def test_what_an_old_summary_calls_invalid_is_noted() -> None:
    text = old_summary().replace("[RESULT] IOPS phase 2 ", "[RESULT-invalid] IOPS phase 2 ", 1)
    text = text.replace("[SCORE]", "[SCORE-invalid]")
    (run,) = io500.parse(text, "x")
    said = {note.message for note in notes(run, "invalid-run")}
    assert said == {"IO500 calls its score invalid", "IO500 calls mdtest-easy-write invalid"}


def test_an_old_summary_is_judged_by_its_own_digits() -> None:
    other = old_summary().replace("[SCORE] Bandwidth 0.391", "[SCORE] Bandwidth 0.491")
    assert other != old_summary()
    (note,) = notes(io500.parse(other, "x")[0], "contradiction")
    assert "the printed score (bandwidth)" in note.message


def test_some_of_2018_printed_the_square_of_the_score() -> None:
    bandwidth_, rate_ = 0.391092, 35.3879
    head = old_summary().split("[SCORE]")[0]
    text = f"{head}[SCORE] Bandwidth {bandwidth_} GB/s : IOPS {rate_} kiops : TOTAL "
    text += f"{bandwidth_ * rate_:.5f}\n"
    (run,) = io500.parse(text, "x")
    assert notes(run, "contradiction") == []
    assert run.facts["scores"]["total"] == pytest.approx((bandwidth_ * rate_) ** 0.5)


OLD_IOR = """IOR-3.1.0: MPI Coordinated Test of Parallel I/O

Began: Fri Nov  9 10:00:00 2018
Command line used: /opt/ior/bin/ior -w -C -Q 1 -k -e -t 1m -b 1m -F -s 100 -o /mnt/scratch/file
Machine: Linux node1

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
write     226        1024       1024       0.010982   1.76       0.000996   1.77     0

Max Write: 225.94 MiB/sec (236.91 MB/sec)

Finished: Fri Nov  9 10:00:03 2018
"""


def test_an_ior_that_is_too_old_to_be_read_leaves_the_rate_to_the_summary() -> None:
    """Seen: the run failed for damaged results, and 0 bytes in 0 s contradicted the summary."""
    files = {"result_summary.txt": old_summary(), "ior_easy_write.txt": OLD_IOR}
    run = io500.parse_directory(files, "x")
    assert run.failure == ""
    assert rate(phases(run)["ior-easy-write"]) == pytest.approx(0.221, rel=1e-5)
    assert "ior-easy-write" in {note.phase for note in notes(run, "derived-amount")}
    assert any("IOR 3.1.0, which is not read" in note.message for note in notes(run, "recovered"))
    assert notes(run, "contradiction") == []


def test_a_newer_ior_with_damaged_results_is_a_failed_run_as_before() -> None:
    files = {
        "result_summary.txt": old_summary(),
        "ior_easy_write.txt": OLD_IOR.replace("IOR-3.1.0", "IOR-3.3.0"),
    }
    assert "ior-easy-write: " in io500.parse_directory(files, "x").failure


def test_an_old_summary_that_was_cut_is_a_failed_run() -> None:
    text = old_summary().split("[SCORE]")[0]
    assert "no line [SCORE ]" in io500.parse(text, "x")[0].failure


# -- less than a directory -----------------------------------------------------------------------
def test_result_alone_knows_files_but_not_bytes() -> None:
    (run,) = io500.parse(RESULT, "result.txt")
    found = phases(run)
    assert found["mdtest-easy-write"].operations.tolist() == [2 * 42211]
    assert found["find"].operations.tolist() == [92725]
    derived = {note.phase for note in notes(run, "derived-amount")}
    assert derived == {name for name in found if name.startswith("ior")}


def test_the_summary_alone_knows_rates_only() -> None:
    (run,) = io500.parse(SUMMARY, "result_summary.txt")
    assert {note.phase for note in notes(run, "derived-amount")} == set(phases(run))
    for phase in run.phases:
        assert rate(phase) == pytest.approx(phase.facts["score"], rel=1e-6)
    assert (run.processes, run.nodes) == (None, None)


def test_the_summary_alone_does_not_know_operations_of_ior() -> None:
    """Seen: 0 operations per second, and the advice to give it more work."""
    found = phases(io500.parse(SUMMARY, "x")[0])
    unknown = {name for name, phase in found.items() if np.isnan(iops(phase))}
    assert unknown == {name for name in found if name.startswith("ior")}


def test_a_damaged_output_of_an_engine_falls_back() -> None:
    files = FILES | {"mdtest-easy-write.txt": "?", "ior-easy-write.txt": "?"}
    run = io500.parse_directory(files, "x")
    assert phases(run)["mdtest-easy-write"].operations.tolist() == [2 * 42211]  # from result.txt
    assert [note.phase for note in notes(run, "derived-amount")] == ["ior-easy-write"]
    assert {note.phase for note in notes(run, "recovered")} == {
        "mdtest-easy-write",
        "ior-easy-write",
    }


def test_a_run_that_did_not_finish_failed() -> None:
    lines = SUMMARY.splitlines(keepends=True)
    (run,) = io500.parse("".join(lines[:6]), "cut")
    assert "cut or the run did not finish" in run.failure
    assert set(phases(run)) == {
        "ior-easy-write",
        "mdtest-easy-write",
        "ior-hard-write",
        "mdtest-hard-write",
    }


def test_a_phase_that_was_not_run_is_not_there() -> None:
    line = next(line for line in SUMMARY.splitlines() if " find " in line)
    zero = line.replace("247.020297", "0.000000")
    (run,) = io500.parse(SUMMARY.replace(line, zero), "x")
    assert "find" not in phases(run)


def test_a_time_without_digits_gives_no_amount() -> None:
    text = SUMMARY.replace("time 0.376 seconds", "time 0.000 seconds")
    (run,) = io500.parse(text, "x")
    assert "find" not in phases(run)
    assert any("too few digits" in note.message for note in notes(run, "left-out"))


# -- several runs in one text --------------------------------------------------------------------
OTHER = SUMMARY.replace("0.220641", "0.320641")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (SUMMARY, OTHER),
        (SUMMARY.split("[SCORE")[0], OTHER),  # the first was killed
        (SUMMARY, OTHER.split("\n", 1)[1]),  # the version is told once
        (old_summary(), old_summary().replace("0.221", "0.321")),
    ],
)
def test_two_runs_in_one_text_are_two_runs(one: str, two: str) -> None:
    """Seen: one failed run, "the output is cut"."""
    runs = io500.parse(one + two, "x")
    assert [len(run.phases) for run in runs] == [
        len(io500.parse(t, "x")[0].phases) for t in (one, two)
    ]
    assert [run.failure for run in runs] == [io500.parse(t, "x")[0].failure for t in (one, two)]
    lines = [n.line for n in runs[1].notes if n.phase == "ior-easy-write"]
    assert lines[0] > one.count("\n")


def test_a_run_that_is_there_twice_counts_once_and_one_without_results_failed() -> None:
    assert len(io500.parse(SUMMARY + SUMMARY, "x")) == 1
    head = SUMMARY.split("\n")[0]
    assert head.startswith("IO500 version")
    first, second = io500.parse(SUMMARY + head, "x")
    assert (first.failure, second.phases) == ("", ())
    assert "cut or the run did not finish" in second.failure


def test_what_is_there_twice_and_differs_is_the_reason() -> None:
    (line,) = (each for each in SUMMARY.splitlines() if " ior-hard-write " in each)
    with pytest.raises(ParseError, match=r"line 2: ior-hard-write: twice, and they differ"):
        io500.parse(f"{line}\n{line.replace('0.', '1.')}\n", "x")
    scores = SUMMARY[SUMMARY.index("[SCORE") :]
    (run,) = io500.parse(SUMMARY + scores.replace("TOTAL 3", "TOTAL 4"), "x")
    assert run.failure.startswith("SCORE: twice, and they differ")


# -- the first versions of the program, of 2020 --------------------------------------------------
INVALID = """IO500 version io500-isc20_v3-2-g46e0e53a3abf
[RESULT-invalid]       ior-easy-write        3.456000 GiB/s  : time 100.000 seconds
[RESULT]    mdtest-easy-write        5.000000 kIOPS  : time 310.000 seconds
[RESULT-invalid]       ior-hard-write        1.250000 GiB/s  : time 90.000 seconds
[SCORE-invalid] Bandwidth 2.078461 GiB/s : IOPS 5.000000 kiops : TOTAL 3.223709
"""


def test_what_the_first_versions_call_invalid_is_there_and_noted() -> None:
    """Seen: left out without a word, and then the score was called wrong."""
    (run,) = io500.parse(INVALID, "x")
    assert run.version == "isc20_v3-2-g46e0e53a3abf"
    assert run.facts["mode"] == ""
    assert set(phases(run)) == {"ior-easy-write", "mdtest-easy-write", "ior-hard-write"}
    assert {note.phase for note in notes(run, "invalid-run")} == {
        "", "ior-easy-write", "ior-hard-write",
    }  # fmt: skip
    assert (run.failure, notes(run, "contradiction")) == ("", [])
    labelled = "".join(f"0: {line}" for line in INVALID.splitlines(keepends=True)[3:])
    assert io500.recognises(unlabelled(labelled)[0])


def test_a_score_of_0_is_that_of_a_phase_that_is_0() -> None:
    zero = "[RESULT-invalid]  find  0.000000 kIOPS : time 0.000 seconds\n[SCORE"
    text = (
        INVALID.replace("[SCORE", zero)
        .replace("IOPS 5.0", "IOPS 0.0")
        .replace("3.223709", "0.000000")
    )
    assert notes(io500.parse(text, "x")[0], "contradiction") == []


# -- what it is not ------------------------------------------------------------------------------
@pytest.mark.parametrize("text", [SUMMARY, RESULT, "noise\n" + SUMMARY])
def test_recognised(text: str) -> None:
    assert io500.recognises(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[RESULT] BW phase 1 ior_easy_write 24.5 MB/s : time 345.02 seconds\n",
        FILES["ior-easy-write.txt"],
        FILES["mdtest-easy-write.txt"],
        FILES["config.ini"],
    ],
)
def test_not_recognised(text: str) -> None:
    assert not io500.recognises(text)


def test_nothing_to_read_is_an_error() -> None:
    with pytest.raises(ParseError, match="no result of any phase"):
        io500.parse_directory({"config.ini": FILES["config.ini"]}, "empty")


def test_decimal_commas_are_refused() -> None:
    with pytest.raises(ParseError, match=r"line 2: decimal commas"):
        io500.parse_directory({"result_summary.txt": SUMMARY.replace(".", ",")}, "x")


# -- damage --------------------------------------------------------------------------------------
def known(run: Parsed) -> set[tuple[str, int, int, float]]:
    return {
        (phase.name, int(phase.bytes.sum()), int(phase.operations.sum()), window(phase))
        for phase in run.phases
    }


KNOWN = {text: known(io500.parse(text, "")[0]) for text in (SUMMARY, RESULT)}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([SUMMARY, RESULT]), st.data())
def test_damage_gives_a_run_or_an_error_and_no_new_rate(text: str, data: st.DataObject) -> None:
    """result.txt without one of its details falls back to the rate: that stays as printed."""
    spoilt = damaged(text, data, ["cut", "double", "garble", "foreign", "crlf"])
    name = "result_summary.txt" if text is SUMMARY else "result.txt"
    try:
        run = io500.parse_directory({name: spoilt}, "damaged")
    except ParseError:
        return
    rates = {(p.name, p.facts["score"]) for p in io500.parse(text, "")[0].phases}
    assert {(phase.name, phase.facts["score"]) for phase in run.phases} <= rates
    for phase in run.phases:
        assert np.isfinite(window(phase))
        assert rate(phase) == pytest.approx(phase.facts["score"], rel=2e-3)
    if text is SUMMARY:
        assert known(run) <= KNOWN[SUMMARY]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_any_file_of_a_directory_may_be_cut(name: str, data: st.DataObject) -> None:
    text = FILES[name]
    files = FILES | {name: text[: data.draw(st.integers(0, len(text)))]}
    run = io500.parse_directory(files, "cut")
    scores = {phase.name: phase.facts["score"] for phase in whole().phases}
    for phase in run.phases:
        assert rate(phase) == pytest.approx(scores[phase.name], rel=2e-3)
