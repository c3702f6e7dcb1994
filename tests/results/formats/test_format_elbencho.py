"""elbencho's CSV: tests/data/elbencho holds outputs of a real elbencho 3.1-1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results import iterations
from fsmatrix.results.formats import elbencho
from fsmatrix.results.formats.base import Parsed, ParseError
from fsmatrix.results.metrics import bandwidth, iops, window
from fsmatrix.results.record import Phase
from tests.results.damage import damaged

DATA = Path(__file__).parents[2] / "data" / "elbencho"
MIB = 1 << 20
DIRS = (DATA / "dirs.csv").read_text()
FILE = (DATA / "file.csv").read_text()


def phases(run: Parsed) -> dict[str, Phase]:
    return {phase.name: phase for phase in run.phases}


def keys(run: Parsed) -> set[str]:
    return {note.key for note in run.notes}


def test_lines_of_one_start_are_one_run() -> None:
    (run,) = elbencho.parse(DIRS, "dirs.csv")
    assert [phase.name for phase in run.phases] == [
        "mkdir",
        "write",
        "stat",
        "read",
        "remove",
        "rmdir",
    ]
    assert (run.engine, run.version, run.nodes, run.processes) == ("elbencho", "3.1-1", 1, 2)
    assert run.started == "2026-11-21T16:59:55.796+0000"
    assert run.options["path_type"] == "dir"
    assert (run.options["size"], run.options["block"], run.options["direct"]) == (
        65536,
        16384,
        False,
    )
    assert run.argv[:3] == ("/opt/elbencho/bin/elbencho", "-d", "-w")
    assert run.failure == ""


@pytest.mark.parametrize(
    ("word", "name"), [("--verify", "read"), ("--verifydirect", "write"), ("--readinline", "write")]
)
def test_what_is_verified_takes_time_of_the_window(word: str, name: str) -> None:
    run = elbencho.parse(FILE.replace('"--rand"', f'"--rand" "{word}" "1"'), "file.csv")[0]
    assert [n.phase for n in run.notes if n.key == "verify-in-window"] == [name]
    assert "verify-in-window" not in keys(elbencho.parse(FILE, "file.csv")[0])


def test_direct_io_is_a_fact_and_an_old_version_is_named() -> None:
    assert phases(elbencho.parse(FILE, "f")[0])["write"].facts["direct"] is False
    direct = FILE.replace(",41943040,4096,0,", ",41943040,4096,1,")
    assert phases(elbencho.parse(direct, "f")[0])["write"].facts["direct"] is True
    old = FILE.replace(",3.1-1,", ",1.6-3,").replace(",IOPS [last],", ",")
    with pytest.raises(ParseError, match=r"elbencho 1\.6-3: needs elbencho 2\.0 or newer"):
        elbencho.parse(old, "f")


def test_what_was_moved_and_counted() -> None:
    found = phases(elbencho.parse(DIRS, "dirs.csv")[0])
    assert found["write"].bytes.sum() == 200 * 65536  # the file has 12 whole MiB of 12.5
    assert found["write"].operations.sum() == 800
    assert found["stat"].operations.sum() == 200
    assert (found["mkdir"].operations.sum(), found["mkdir"].bytes.sum()) == (4, 0)


@pytest.mark.parametrize(
    ("name", "rate", "printed"),
    [
        ("mkdir", "iops", 7707),
        ("stat", "iops", 277777),
        ("read", "iops", 191570),
        ("write", "MiB/s", 711),
        ("remove", "iops", 44169),
    ],
)
def test_rates_are_those_printed(name: str, rate: str, printed: int) -> None:
    """The window in whole milliseconds alone would be wrong by up to 100 %."""
    phase = phases(elbencho.parse(DIRS, "dirs.csv")[0])[name]
    value = iops(phase) if rate == "iops" else bandwidth(phase) / MIB
    assert printed <= value < printed + 1


def test_first_finisher_and_latencies_are_facts() -> None:
    facts = phases(elbencho.parse(DIRS, "dirs.csv")[0])["write"].facts
    assert facts["first_done_bytes_per_second"] == 1037 * MIB
    assert facts["first_done_seconds"] == 0.009
    assert facts["latency"] == {"minimum": 12e-6, "mean": 26e-6, "maximum": 4065e-6}
    assert facts["entries"] == 200


def test_another_command_is_another_run_and_iterations_are_nested() -> None:
    plain, mixed, iterated = elbencho.parse(FILE, "file.csv")
    assert [phase.name for phase in plain.phases] == ["write", "read"]
    assert plain.facts == {"label": "my test"}
    assert [phase.name for phase in mixed.phases] == ["mixed"]
    (read,) = iterated.phases
    assert read.iterations["bytes"].tolist() == [40 * MIB, 40 * MIB]
    assert window(read) == pytest.approx(read.iterations["seconds"].sum())
    assert read.bytes.sum() == 80 * MIB


def test_a_mixture_adds_reads_and_writes_and_says_what_it_does_not_know() -> None:
    run = elbencho.parse(FILE, "file.csv")[1]
    (mixed,) = run.phases
    assert (mixed.facts["write_bytes"], mixed.facts["read_bytes"]) == (26 * MIB, 13 * MIB)
    assert mixed.bytes.sum() == 39 * MIB
    assert keys(run) == {"coarse-time", "rounded-bytes"}


def test_the_same_command_again_is_another_run() -> None:
    lines = DIRS.splitlines(keepends=True)
    later = "".join(lines[1:]).replace("T16:", "T17:")
    runs = elbencho.parse(DIRS + later, "twice.csv")
    assert [len(run.phases) for run in runs] == [6, 6]


def test_credentials_are_not_kept() -> None:
    text = DIRS.replace('"--nolive"', '"--s3key" "AKIA" "--s3secret=hush" "--nolive"')
    argv = elbencho.parse(text, "s3.csv")[0].argv
    assert "--s3key" in argv
    assert not {word for word in argv if "AKIA" in word or "hush" in word}


def test_contradicting_numbers_are_left_out() -> None:
    lines = DIRS.splitlines(keepends=True)
    lines[2] = lines[2].replace(",WRITE,9,17,", ",WRITE,9,97,")
    (run,) = elbencho.parse("".join(lines), "x.csv")
    assert "write" not in phases(run)
    assert any(note.key == "left-out" and "contradicts" in note.message for note in run.notes)


BAD = [
    ("", "heading is missing"),
    ("operation,time\n", "heading is missing"),
    (DIRS.splitlines()[0] + "\n", "no line of results"),
    (DIRS.splitlines()[0].replace("operation", "phase") + "\n1,2\n", "heading without operation"),
    (DIRS.replace(",WRITE,", ",WRITE,,").split("\n")[0] + "\n1;2\n", "date"),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[words for _, words in BAD])
def test_what_cannot_be_read_is_refused(text: str, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        elbencho.parse(text, "bad.csv")


@pytest.mark.parametrize("cell", ["-1", "nan", "inf", "1e9", "9" * 30, "1.5", "0x1f"])
def test_absurd_numbers_never_pass(cell: str) -> None:
    text = DIRS.replace(",WRITE,9,17,", f",WRITE,9,{cell},")
    (run,) = elbencho.parse(text, "x.csv")
    assert "write" not in phases(run)
    assert "left-out" in keys(run)


def signature(phase: Phase) -> tuple[str, int, int, float]:
    return (phase.name, int(phase.bytes.sum()), int(phase.operations.sum()), window(phase))


WHOLE = {
    signature(p) for text in (DIRS, FILE) for run in elbencho.parse(text, "") for p in run.phases
}
PARTS = {  # single iterations, where the others were lost
    (phase.name, part["bytes"], part["operations"], part["seconds"])
    for run in elbencho.parse(FILE, "")
    for phase in run.phases
    for part in iterations.rows_of(phase.iterations)
}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([DIRS, FILE]), st.data())
def test_damage_gives_runs_or_an_error_and_no_new_number(text: str, data: st.DataObject) -> None:
    kinds = ["cut", "double", "swap", "garble", "foreign", "crlf"]
    try:
        runs = elbencho.parse(damaged(text, data, kinds), "damaged.csv")
    except ParseError:
        return
    for run in runs:
        for phase in run.phases:
            assert np.isfinite(window(phase))
            assert phase.iterations or signature(phase) in WHOLE | PARTS
