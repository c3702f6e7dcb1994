"""elbencho's CSV: tests/data/elbencho holds outputs of a real elbencho 3.1-1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.formats import elbencho
from fsmatrix.results.formats.parsed import Parsed, ParseError, recognise
from fsmatrix.results.record import Phase, bandwidth, iops, window
from fsmatrix.suite.importing.imported import Source, records
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


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (
            '"--csvfile" "/home/u/f.csv" "--nolive" "/mnt/a/f" "/mnt/b/f" "/mnt/b/g"',
            "/mnt/a:/mnt/b",
        ),
        ('"/dev/sdx" "-b" "4k"', "/dev/sdx"),
        ('"--s3endpoints" "http://s3:9000" "--csvfile" "/home/u/f.csv" "bucket"', "http://s3:9000"),
        ('"--csvfile" "/home/u/f.csv" "d/f"', None),
    ],
)
def test_the_place_is_that_of_the_paths_of_the_command(arguments: str, place: str | None) -> None:
    text = FILE.replace(
        '"-b" "4k" "--csvfile" "file.csv" "--label" "my test" "--nolive" "d/f"', arguments
    )
    assert elbencho.parse(text, "file.csv")[0].facts.get("directory") == place


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--nolive", "and no fsync was requested"),
        ("--sync", "and --sync syncs only a part of it, or after the window"),
        ("-c", "and the output does not say whether it was synced"),
    ],
)
def test_the_command_tells_whether_it_was_synced(word: str, said: str) -> None:
    text = FILE.replace('"--nolive"', f'"{word}" "x"')
    source = Source("file.csv", "ab" * 32, "elbencho-csv", "", "", {})
    run, mixed, _ = records(elbencho.parse(text, "file.csv"), source, {})
    for record in (run, mixed):
        (found,) = (each for each in record.findings if each.audit == "write-not-flushed")
        assert said in found.message
    assert "synced" not in {p.name: p for p in run.phases}["read"].facts


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


# -- other outputs -------------------------------------------------------------------------------
OTHER = {
    "printed results": "OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n"
    "=========== ================    ==========   =========\n"
    "WRITE       Elapsed time     :        9ms        17ms\n",
    "progress": "ISO Date,Label,Phase,RuntimeMS,Rank,MixType,Done%,DoneBytes\n"
    "2026-11-21T16:59:55.796+0000,,WRITE,9,Total,,35,1024\n",
    "another separator": DIRS.replace(",", ";"),
    "JSON": '{"config": {"io_depth": "1"}, "first_done": {"elapsed_time_ms": "9"}}\n',
}


@pytest.mark.parametrize("what", OTHER)
def test_other_outputs_are_refused_with_what_to_do(what: str) -> None:
    form = recognise(OTHER[what])
    assert form is not None
    with pytest.raises(ParseError, match=f"{what}.*: import what --csvfile writes"):
        form.parse(OTHER[what], "x")


def test_a_csv_beside_what_was_printed_is_read() -> None:
    form = recognise(OTHER["printed results"] + DIRS)
    assert form is elbencho.FORMATS[0]


# -- work that differs ---------------------------------------------------------------------------
MIX = FILE.splitlines(keepends=True)[0] + next(
    x for x in FILE.splitlines(keepends=True) if "RWMIX30" in x
)


def options(text: str) -> JsonObject:
    (run,) = elbencho.parse(text, "x")
    return run.options


def test_mixtures_with_other_shares_of_reads_are_no_repetitions() -> None:
    """Seen: RWMIX10 and RWMIX90 in one cell."""
    assert options(MIX)["rwmixread"] == 30
    assert options(MIX.replace("RWMIX30", "RWMIX90"))["rwmixread"] == 90
    threads = options(MIX.replace("RWMIX30", "MIX-T1").replace("rwmixpct", "rwmixthrpct"))
    assert (threads["rwmixthr"], threads["rwmixread"]) == (1, 30)
    assert "rwmixread" not in options(DIRS)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ('"--limitwrite" "32m" "--limitread=33554432"', 32 * MIB),
        ('"--limitwrite" "32m"', f"write={32 * MIB}"),  # and reads have none
        ('"--limitread" "1K" "--limitwrite" "2K"', "read=1024,write=2048"),
        ('"--limitread" "0"', None),
    ],
)
def test_a_limit_of_the_rate_is_an_option(words: str, limit: int | str | None) -> None:
    assert options(DIRS.replace('"--nolive"', words)).get("rate_limit") == limit
    mixed = options(MIX.replace('"--nolive"', '"--limitwrite" "1m"'))
    assert mixed["rate_limit"] == MIB  # of reads and writes


def test_what_no_column_tells_is_an_option() -> None:
    words = '"--strided" "--blockvarpct" "0" "--verify" "0" "--timelimit=60" "--randamount" "1g"'
    found = options(DIRS.replace('"--nolive"', words)).items() - options(DIRS).items()
    assert dict(found) == {
        "strided": True,
        "blockvarpct": 0,
        "timelimit": 60,
        "randamount": 1 << 30,
    }


def test_a_command_that_a_spreadsheet_has_quoted_is_read() -> None:
    head, line = MIX.splitlines()
    start, command = line.split('"', 1)
    quoted = f'"{command}'.replace('"', '""')
    (run,) = elbencho.parse(f'{head}\n{start}"{quoted}"\n', "x")
    assert run.argv == elbencho.parse(MIX, "x")[0].argv


# -- less than was asked for ---------------------------------------------------------------------
def less(text: str) -> list[str]:
    return [n.message for run in elbencho.parse(text, "x") for n in run.notes if n.key == "less"]


def test_a_phase_that_never_ran_is_less_than_was_asked_for() -> None:
    """Seen: -w -r with a time limit, and only the write ran."""
    assert less(DIRS) == less(FILE) == []
    lines = DIRS.splitlines(keepends=True)
    assert less("".join(x for x in lines if ",READ," not in x)) == [
        "read was asked for, and is not there"
    ]
    once = "".join(FILE.splitlines(keepends=True)[:-1])
    assert less(once) == ["read was asked for 2 times, and is there for 1 of them"]


def test_half_of_the_bytes_in_a_time_limit_is_less_than_was_asked_for() -> None:
    line = FILE.splitlines(keepends=True)[-1]
    head = FILE.splitlines(keepends=True)[0]
    half = line.replace('"-i" "2"', '"--timelimit" "2"').replace(",41943040,", ",83886080,")
    assert less(head + half) == ["80 MiB were asked for, and 40 done in the time limit"]


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


def test_work_that_was_held_back_says_so() -> None:
    (run,) = elbencho.parse(MIX.replace('"--nolive"', '"--limitwrite" "1m"'), "x")
    noted = [note.message for note in run.notes if note.key == "rate-limited"]
    assert noted == [f"each thread was held back: to {MIB} bytes per second"]
    assert "rate-limited" not in keys(elbencho.parse(MIX, "x")[0])
