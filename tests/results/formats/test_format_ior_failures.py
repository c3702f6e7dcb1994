"""IOR's outputs of runs that failed, and outputs that are damaged."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results import iterations
from fsmatrix.results.formats import ior
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import window
from tests.results.ior_outputs import GOOD, MIB, keys, only, phase, runs, text_of


# -- failures --------------------------------------------------------------------------------
def test_wrong_data_is_a_failure() -> None:
    run = only("ior-4.1-verify-wrong.txt")
    assert run.failure == "IOR found wrong data on read: 1 errors"
    assert phase(run, "read").errors.tolist() == [1]


def test_full_file_system() -> None:
    run = only("ior-enospc.json")
    assert run.failure.startswith("no space left on device; the output is cut")
    assert run.phases == ()
    assert run.options["block_size"] == 3 << 30
    assert run.options["file_per_process"] is True
    assert run.processes == 2
    assert "warning" in keys(run)


FAILED: list[tuple[str, str]] = [
    ("ior-enospc.err", "IOR stopped itself in POSIX_Xfer (aiori-POSIX.c:818): not rc >= 0"),
    ("ior-dfs-nopool.txt", "Failed to connect to pool nopool (DAOS error -1005)"),
    ("ior-4.1-noapi.txt", "IOR: Unrecognized I/O API"),
    ("ior-3.2.1-noapi.txt", "IOR: unrecognized I/O API"),
    ("ior-4.1-nofile.txt", "no such file or directory"),
    ("ior-4.1-nodir.txt", "no such file or directory"),
    ("ior-enospc.json", "no space left on device"),
    ("ior-4.1-verify-wrong.txt", "IOR found wrong data on read: 1 errors"),
]


@pytest.mark.parametrize(("name", "reason"), FAILED)
def test_reasons_of_failures(name: str, reason: str) -> None:
    assert ior.failure_of(text_of(name)) == reason


def test_reasons_that_are_not_there() -> None:
    assert ior.failure_of("") == ""
    for name in GOOD:
        assert ior.failure_of(text_of(name)) == ""
    assert ior.failure_of("mpirun noticed that rank 0 exited on signal 9 (Killed).") == (
        "IOR was ended by signal 9 (Killed)"
    )
    assert ior.failure_of("Error invalid argument: --nope") == (
        "IOR does not know the argument --nope"
    )


def test_without_any_test_it_is_a_failed_run_with_its_reason() -> None:
    (run,) = ior.parse(text_of("ior-dfs-nopool.txt"), "x")
    assert "Failed to connect to pool nopool (DAOS error -1005)" in run.failure
    assert (run.engine, run.version, run.phases) == ("ior", "4.1.0+dev", ())
    assert "--dfs.pool=nopool" in run.argv


def test_without_ior_s_own_head_the_error_says_why() -> None:
    with pytest.raises(ParseError, match="Unrecognized I/O API"):
        ior.parse(text_of("ior-4.1-noapi.txt"), "x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an output of IOR"),
        ("hello\n", "not an output of IOR"),
        ("IOR-4.0.0: MPI Coordinated Test of Parallel I/O\n", "holds no test"),
    ],
)
def test_what_is_no_output(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        ior.parse(text, "x")


def test_old_csv_is_refused_with_the_cure() -> None:
    """Before 4.0 the format CSV writes everything but results."""
    with pytest.raises(ParseError, match="summaryFormat=default or JSON"):
        runs("ior-3.2.1-fpp.csv")
    with pytest.raises(ParseError, match="not an output of IOR"):
        runs("ior-3.3.0-fpp.csv")


def test_overwritten_head_is_recovered() -> None:
    run = only("ior-3.2.1-random.json")
    assert (run.version, run.failure) == ("", "")  # the version was overwritten: not guessed
    assert run.notes[0].key == "recovered"
    assert [p.bytes.tolist() for p in run.phases] == [[16 * MIB], [16 * MIB]]


@pytest.mark.parametrize("name", ["ior-3.3.0-fpp.txt", "ior-posix-fpp.json", "ior-random.csv"])
def test_decimal_commas_are_refused(name: str) -> None:
    text = re.sub(r"(?<=\d)\.(?=\d\d)", ",", text_of(name))
    with pytest.raises(ParseError, match="decimal commas"):
        ior.parse(text, name)


@pytest.mark.parametrize("value", ["nan", "inf", "-", "-107.73", "0.00", "1e400", "10\ufffd.73"])
def test_impossible_numbers_are_no_results(value: str) -> None:
    text = text_of("ior-3.3.0-fpp.txt").replace("107.73     107.77", f"{value}     107.77", 1)
    (run,) = ior.parse(text, "x")
    assert phase(run, "write").iterations["number"].tolist() == [1, 2]
    assert "write has 2 of 3 iterations" in run.failure
    assert iterations.size(phase(run, "read").iterations) == 3


@pytest.mark.parametrize("value", ["NaN", "inf", '"inf"', "-5.0", "", "1.2.3"])
def test_impossible_numbers_in_json(value: str) -> None:
    text = text_of("ior-posix-fpp.json").replace('"bwMiB": 277.0346', f'"bwMiB": {value}')
    (run,) = ior.parse(text, "x")
    assert iterations.size(phase(run, "write").iterations) == 2
    assert "write has 2 of 3 iterations" in run.failure


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ior-3.3.0-fpp.txt", "107.73     107.77", "117.73     107.77"),
        ("ior-posix-fpp.json", '"bwMiB": 277.0346', '"bwMiB": 377.0346'),
    ],
)
def test_numbers_that_contradict_each_other(name: str, old: str, new: str) -> None:
    (run,) = ior.parse(text_of(name).replace(old, new, 1), name)
    assert "contradiction" in keys(run)
    assert "damaged" in run.failure
    assert iterations.size(phase(run, "write").iterations) == 2


def test_two_worlds_in_one_text_never_become_one_number() -> None:
    """Two single processes that wrote the same file in turns, line by line."""
    one = text_of("ior-3.3.0-fpp.txt").splitlines(keepends=True)
    other = [line.replace("0.2", "0.7").replace("107.73", "121.5") for line in one]
    mixed = "".join(line for pair in zip(one, other, strict=True) for line in pair)
    (run,) = ior.parse(mixed, "x")
    assert "two different results" in " ".join(note.message for note in run.notes)
    assert run.failure
    assert run.facts["banners"] == 2


def test_more_iterations_than_there_can_be() -> None:
    text = text_of("ior-3.3.0-fpp.txt")
    line = next(line for line in text.split("\n") if line.startswith("write     663.82"))
    more = text.replace(line, f"{line}\n{line.replace('2   ', '7   ')}")
    assert "write has 4 of 3 iterations" in ior.parse(more, "x")[0].failure


def test_windows_line_ends_and_foreign_lines() -> None:
    name = "ior-3.3.0-fpp.txt"
    whole = only(name)
    lines = text_of(name).split("\n")
    noisy = "".join(
        f"{line}\r\nhost setrlimit(RLIMIT_NOFILE) file_limit_bump 1024\r\n[h:1] PMIX: x\r\n"
        for line in lines
    )
    (run,) = ior.parse(noisy, name)
    assert [iterations.rows_of(p.iterations) for p in run.phases] == [
        iterations.rows_of(p.iterations) for p in whole.phases
    ]
    assert (run.failure, run.options) == ("", whole.options)


def test_warnings_are_kept_once_and_at_most_twenty() -> None:
    head, tail = text_of("ior-3.3.0-fpp.txt").split("access    bw", 1)
    text = head + "".join(f"WARNING: odd {i % 40}\n" for i in range(200)) + "access    bw" + tail
    found = [note for note in ior.parse(text, "x")[0].notes if note.key == "warning"]
    assert len(found) == len({note.message for note in found}) == 20
    assert found[0].message == "odd 0"
    assert found[0].line > 0


def test_a_row_that_looks_whole_where_it_is_cut_or_broken_is_none() -> None:
    """Nine words are a row of 3.2, eleven one of later versions."""
    text = text_of("ior-4.1-stonewall.txt")
    place = text.index("0.000296") + 1
    for broken in (text[:place], f"{text[:place]}\n{text[place:]}"):
        for run in ior.parse(broken, "x"):
            assert facts_seen(run) <= WHOLE["ior-4.1-stonewall.txt"]


def test_a_heading_alone_is_refused() -> None:
    with pytest.raises(ParseError, match="holds no test"):
        ior.parse("s: \n\n\naccess    bw(MiB/s)", "x")


# -- damage ----------------------------------------------------------------------------------
def facts_seen(run: Parsed) -> set[tuple[Any, ...]]:
    """What a result claims of each iteration."""
    return {
        (p.name, part["bytes"], part["operations"], part["bandwidth"])
        for p in run.phases
        for part in iterations.rows_of(p.iterations)
    }


WHOLE = {name: {fact for run in runs(name) for fact in facts_seen(run)} for name in GOOD}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A real output: cut, lines doubled, interleaved with another's, mis-encoded."""
    name = draw(st.sampled_from(GOOD))
    lines = text_of(name).split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["double", "swap", "foreign", "encode", "drop", "split"]))
        if how == "double":
            lines.insert(at, lines[at])
        elif how == "swap" and at:
            lines[at - 1], lines[at] = lines[at], lines[at - 1]
        elif how == "foreign":
            lines.insert(at, draw(st.sampled_from(["", "{", "}", "[h:1] x", "\x00\ufffd", '"'])))
        elif how == "encode" and lines[at]:
            place = draw(st.integers(0, len(lines[at]) - 1))
            lines[at] = lines[at][:place] + "\ufffd" + lines[at][place + 1 :]
        elif how == "drop":
            del lines[at]
            lines = lines or [""]
        elif how == "split" and lines[at]:
            place = draw(st.integers(0, len(lines[at])))
            lines[at : at + 1] = [lines[at][:place], lines[at][place:]]
    text = "\n".join(lines)
    start = draw(st.one_of(st.just(0), st.integers(0, len(text))))
    end = draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))
    return name, text[start:end]


@settings(max_examples=400, deadline=None)
@given(damaged())
def test_damage_gives_a_result_or_an_error_and_no_new_number(case: tuple[str, str]) -> None:
    name, text = case
    try:
        found = ior.parse(text, name)
    except ParseError:
        return
    assert found
    for run in found:
        assert facts_seen(run) <= WHOLE[name]
        for made in run.phases:
            assert math.isfinite(window(made))
            assert (made.bytes >= 0).all()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GOOD), st.data())
def test_a_cut_output_fails_and_keeps_what_is_whole(name: str, data: st.DataObject) -> None:
    text = text_of(name)
    last = text.rindex("Finished") + 10 if "Finished" in text else len(text.rstrip()) - 1
    end = data.draw(st.integers(0, last))
    try:
        found = ior.parse(text[:end], name)
    except ParseError:
        return
    for run in found:
        assert facts_seen(run) <= WHOLE[name]
    if not name.endswith(".csv"):  # a CSV has no end
        assert found[-1].failure


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(GOOD), st.sampled_from(GOOD), st.integers(0, 2**32), st.integers(1, 60))
def test_interleaved_outputs(first: str, second: str, seed: int, longest: int) -> None:
    pair = [text_of(name).split("\n") for name in (first, second)]
    mixed: list[str] = []
    turns = random.Random(seed)
    while pair[0] or pair[1]:
        side = pair[turns.randrange(2)]
        count = turns.randint(1, longest)
        mixed += side[:count]
        del side[:count]
    try:
        found = ior.parse("\n".join(mixed), "mixed")
    except ParseError:
        return
    rates = {fact[3] for fact in WHOLE[first] | WHOLE[second]}
    assert {fact[3] for run in found for fact in facts_seen(run)} <= rates


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='IOR-: write read 0123456789.,"{}[]\n\\x', max_size=400))
def test_any_text(text: str) -> None:
    for prefix in ("", "IOR-4.0.0: MPI Coordinated Test of Parallel I/O\nTestID : 0\n"):
        try:
            found = ior.parse(prefix + text, "x")
        except ParseError:
            continue
        assert found
        assert all(run.failure for run in found)  # no such text has an end


def test_much_foreign_output_is_no_obstacle() -> None:
    """Long lines and many lines, among them what the patterns begin to match."""
    junk = ["IOR-" * 20_000, "FS : " + " " * 60_000 + "x", '"a": ' * 10_000, "x" * 1_000_000]
    junk += ["write 1.0 2.0"] * 20_000 + ["WARNING: something else"] * 20_000
    head, tail = text_of("ior-3.3.0-fpp.txt").split("Results:", 1)
    (run,) = ior.parse(head + "Results:\n" + "\n".join(junk) + tail, "x")
    assert [p.iterations["bandwidth"][2] / MIB for p in run.phases] == [663.82, 6344.0]


# -- several outputs in one text ---------------------------------------------------------------
@pytest.mark.parametrize("name", ["ior-posix-fpp.json", "ior-random.csv", "ior-4.0.0-fpp.txt"])
def test_outputs_one_after_the_other_are_runs_of_their_own(name: str) -> None:
    """A job that starts IOR twice; whatever a shell printed before each."""
    text = text_of(name)
    later = re.sub(r"Nov 20", "Nov 21", text).replace("0.0136", "0.0137")
    later = later.replace("495.6634", "495.6635") if name.endswith("csv") else later
    alone = ior.parse(text, "x")
    found = ior.parse(f"Loading module openmpi\n{text}srun: job 7\n{later}", "x")
    assert len(found) == 2 * len(alone)
    for run, whole in zip(found, alone * 2, strict=True):
        assert (run.failure, run.version) == (whole.failure, whole.version)
        assert [p.operations.tolist() for p in run.phases] == [
            p.operations.tolist() for p in whole.phases
        ]
        assert {note.key for note in run.notes} == {note.key for note in whole.notes}


OLD = """IOR-3.0.1: MPI Coordinated Test of Parallel I/O

Began: Fri Mar 22 12:41:45 2019
Command line used: /opt/ior -b 200m -t 20m -a POSIX -w -k -o /scratch/f
Machine: Linux n1

Test 0 started: Fri Mar 22 12:41:45 2019
Summary:
\tapi                = POSIX
\taccess             = single-shared-file
\tordering inter file= random task offsets >= 1, seed=0
\tclients            = 16 (8 per node)
\trepetitions        = 1
\txfersize           = 20 MiB
\tblocksize          = 200 MiB
\taggregate filesize = 3.12 GiB

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
write     158.39     204800     20480      0.003322   1.47       20.06      20.20      0   

Summary of all tests:
Operation Max Min Mean StdDev Mean(s) Test# #Tasks tPN reps fPP reord reordoff reordrand seed
write   158.39 158.39 158.39 0.00 20.20281 0 16 8 1 0 0 1 1 0 1 209715200 20971520 3355443200 POSIX 0

Finished: Fri Mar 22 12:42:05 2019
"""  # noqa: E501 W291


def test_an_older_version_is_read_and_named() -> None:
    """3.0 writes settings with "=", another head, and a shorter summary (ubccr/akrr's output)."""
    (run,) = ior.parse(OLD, "x")
    assert (run.version, run.failure, run.processes, run.nodes) == ("3.0.1", "", 16, 2)
    assert keys(run) == {"old-version"}
    (write,) = run.phases
    assert (write.name, write.bytes.sum()) == ("write", 16 * 200 * MIB)
    assert write.bytes.sum() / write.end.max() == pytest.approx(158.39 * MIB, rel=1e-3)
    assert run.options["reorder_random"] is True


# -- what somebody has rounded ---------------------------------------------------------------
def rounded(text: str, digits: int, cut: bool) -> str:
    """All decimals of a text's results as a person would keep them: rounded, or cut off."""

    def keep(match: re.Match[str]) -> str:
        return (
            match[0][: match[0].index(".") + 1 + digits] if cut else f"{float(match[0]):.{digits}f}"
        )

    rows = r"^ *(?:write|read)\b.*$|^ *\"(?:\w+Time|\w+iB|iops|latency)\".*$"
    number = rf"\d+\.\d{{{digits + 1},}}"
    return re.sub(rows, lambda row: re.sub(number, keep, row[0]), text, flags=re.M)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("digits", [1, 2, 3])
# but for a JSON that a stonewall ended: its bytes are rate x time, as exact as the time
@pytest.mark.parametrize("name", [name for name in GOOD if name != "ior-4.1-wearout.json"])
def test_rounded_numbers_are_believed_as_far_as_their_digits_go(
    name: str, digits: int, cut: bool
) -> None:
    again = ior.parse(rounded(text_of(name), digits, cut), name)
    for one, other in zip(runs(name), again, strict=True):
        assert (one.failure, one.options) == (other.failure, other.options)
        assert "contradiction" not in keys(other)
        for before, after in zip(one.phases, other.phases, strict=True):
            assert before.bytes.tolist() == after.bytes.tolist()
            assert window(after) == pytest.approx(window(before), rel=2e-2)


def test_what_is_computed_from_rounded_numbers_says_so() -> None:
    (run,) = ior.parse(rounded(text_of("ior-random.csv"), 1, cut=True), "x")
    notes = {note.message for note in run.notes if note.key == "derived-amount"}
    assert notes == {
        "iteration 0: its bytes are the fewest that its rounded numbers allow",
        "iteration 1: its bytes are the fewest that its rounded numbers allow",
        "times are printed as 0, which is below 0.1 s: they are bytes / rate",
    }


@pytest.mark.parametrize(("printed", "wrong"), [("0.1   0  ", "0.3   0  "), ("495.4", "49.5")])
def test_rounded_numbers_that_contradict_each_other_are_still_damage(
    printed: str, wrong: str
) -> None:
    text = rounded(text_of("ior-4.0.0-fpp.txt"), 1, cut=False)
    row = next(line for line in text.split("\n") if line.startswith("write  "))
    assert printed in row + "  "
    (run,) = ior.parse(text.replace(row, (row + "  ").replace(printed, wrong)), "x")
    assert (run.failure, "contradiction" in keys(run)) == ("1 result is damaged", True)
