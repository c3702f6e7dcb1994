"""Outputs as people publish them: indented, without their heads, of old versions, overlapping."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.results.formats import dbench, elbencho, fio, io500, ior, mdtest
from fsmatrix.results.formats.mdtest.mdtest_text import Row, contradiction_of
from fsmatrix.results.formats.parsed import (
    Parsed,
    ParseError,
    matching,
    recognise,
    runs_of,
    unlabelled,
)
from fsmatrix.results.record import iops, window
from tests.results.ior_outputs import DATA as IOR

DATA = Path(__file__).parents[2] / "data" / "public"
GIB = 1 << 30


def text_of(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def keys(run: Parsed) -> list[str]:
    return [note.key for note in run.notes]


# -- what stands before every line --------------------------------------------------------------
PLAIN = {
    "mdtest": (DATA / "mdtest-plain.txt", mdtest.parse),
    "ior": (IOR / "ior-4.0.0-fpp.txt", ior.parse),
    "ior-json": (IOR / "ior-3.3.0-stdout.json", ior.parse),
    "dbench": (DATA.parent / "dbench" / "two-clients.txt", dbench.parse),
    "elbencho": (DATA.parent / "elbencho" / "file.csv", elbencho.parse),
    "fio": (DATA.parent / "fio" / "3.33-direct.json", fio.parse),
}
OPEN_MPI_5 = "[prterun-host-123@1,0]<stdout>: "


@pytest.mark.parametrize(
    "prefix",
    [
        "   ",
        "\t",
        "> ",
        "    | ",
        "0: ",
        "> 0: ",
        " 0: ",
        "[1,0]<stdout>:",
        OPEN_MPI_5,
        "[0] ",
        "n-1.a: ",
    ],
)
@pytest.mark.parametrize("name", PLAIN)
def test_what_stands_before_every_line_is_left_out(name: str, prefix: str) -> None:
    path, parse = PLAIN[name]
    plain = path.read_text()
    text = "A page says:\n\n" + "".join(prefix + line for line in plain.splitlines(keepends=True))
    before = "A page says:\n\n" + plain
    assert unlabelled(before) == [before]
    (after,) = unlabelled(text)
    found, expected = recognise(after), recognise(before)
    assert found is not None
    assert found is expected
    if plain.startswith("{"):  # JSON may stay indented
        return
    assert after == before
    assert repr(parse(after, "x")) == repr(parse(before, "x"))


STAMPS = (
    "2026-11-27T10:00:{:02}.123456789Z ",
    "2026-11-27 10:00:{:02},123 ",
    "2026-11-27T10:00:{:02}.1Z stdout F ",
    "Nov 27 10:00:{:02} ",
    "Nov  7 10:00:{:02} node1 bash[1234]: ",
    "[10:00:{:02}] ",
    "10:00:{:02}.5 0: ",
)


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", PLAIN)
def test_when_every_line_was_printed_is_left_out(name: str, stamp: str) -> None:
    """By ts, kubectl logs, a container's log, syslog, and srun below it."""
    path, parse = PLAIN[name]
    plain = path.read_text().splitlines(keepends=True)
    text = "".join(stamp.format(i % 60) + line for i, line in enumerate(plain))
    (after,) = unlabelled(text)
    assert repr(parse(after, "x")) == repr(parse("".join(plain), "x"))


def test_colours_are_left_out() -> None:
    plain = text_of("mdtest-plain")
    coloured = "".join(f"\x1b[1;32m{line}\x1b[0m\x1b[K\n" for line in plain.splitlines())
    assert unlabelled(coloured) == [plain]


def test_blanks_behind_a_heading() -> None:
    path, parse = PLAIN["elbencho"]
    heading, rest = path.read_text().split("\n", 1)
    assert repr(parse(f"{heading}  \r\n{rest}", "x")) == repr(parse(f"{heading}\n{rest}", "x"))


def test_indented_text_of_mdtest() -> None:
    (text,) = unlabelled(text_of("mdtest-indented"))
    (indented,), (plain,) = mdtest.parse(text, "x"), mdtest.parse(text_of("mdtest-plain"), "x")
    assert repr(indented) == repr(plain)
    rates = {phase.name: iops(phase) for phase in indented.phases}
    assert rates["create"] == pytest.approx(8053.735)
    assert rates["stat"] == pytest.approx(285288.229)
    assert indented.failure == ""


@pytest.mark.parametrize(
    "label", ["{}: ", "[1,{}]<{}>:", "[prterun-h-1@1,{}]<{}>: ", "[1,{}][h:99]<{}>:", "[{}] "]
)
@pytest.mark.parametrize(
    "said",
    ["ior ERROR: open64(x) failed, errno 13", "WARNING: Incorrect data on read (1 errors found)"],
)
def test_what_another_rank_says_is_kept(label: str, said: str) -> None:
    lines = (IOR / "ior-4.0.0-fpp.txt").read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("read "))
    plain = "\n".join([*lines[:at], said, *lines[at:]])
    labelled = [label.format(0, "stdout") + line for line in lines]
    labelled.insert(at, label.format(11, "stderr") + said)
    (after,) = unlabelled("\n".join(labelled))
    assert after == plain
    (run,) = ior.parse(after, "x")
    assert run.failure


@pytest.mark.parametrize("label", ["{}: ", "[1,{}]<stdout>:", "[{}] ", "node{}: "])
@pytest.mark.parametrize("name", PLAIN)
def test_worlds_of_one_task_are_told_by_their_labels(name: str, label: str) -> None:
    path, parse = PLAIN[name]
    lines = path.read_text().split("\n")
    labelled = "".join(f"{label.format(rank)}{line}\n" for line in lines for rank in (0, 1))
    texts = unlabelled(f"{labelled}srun: the end\n")
    assert len(texts) == 2
    assert all("srun: the end" in text for text in texts)
    alone = parse(path.read_text(), "x")
    runs = runs_of(parse, texts, "x")
    assert all("simultaneous" in keys(run) for run in runs)
    assert [window(p) for run in runs for p in run.phases] == 2 * [
        window(p) for run in alone for p in run.phases
    ]


# -- heads that are missing, old versions -------------------------------------------------------
def test_dbench_without_its_head() -> None:
    text = text_of("dbench-without-head")
    format = recognise(text)
    assert format is not None
    assert format.name == "dbench"
    (run,) = format.parse(text, "x")
    assert "its beginning is missing (dbench's first lines" in run.failure
    assert run.processes == 32


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (
            dbench.parse,
            "dbench version 3.04 - Copyright Andrew Tridgell 1999-2004\n\n"
            "Running for 600 seconds with load 'client.txt' and minimum warmup 120 secs\n"
            "Throughput 247.011 MB/sec 4 procs\n",
            "dbench 3.04 is too old: outputs of 4.0 and newer",
        ),
        (
            ior.parse,
            "IOR-2.10.3: MPI Coordinated Test of Parallel I/O\n\nRun began: Tue Nov 12 2013\n"
            "access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s) iter\n"
            "write     800.00     4096       256.00     0.001      0.01       0.001    0\n",
            "ior 2.10.3 is too old: outputs of 3.2 and newer",
        ),
        (
            mdtest.parse,
            "-- started at 01/02/2013 10:00:00 --\n\n"
            "mdtest-1.8.4 was launched with 4 total task(s) on 1 nodes\n"
            "Command line used: mdtest -n 10\nPath: /tmp\n4 tasks, 40 files/directories\n",
            "mdtest 1.8.4 is too old: outputs of 1.9 and newer",
        ),
    ],
)
def test_a_version_that_is_too_old_is_named(parse: object, text: str, said: str) -> None:
    assert callable(parse)
    (run,) = parse(text, "x")
    assert said in run.failure


def test_older_outputs_that_say_no_version() -> None:
    text = "Throughput 123.4 MB/sec (NB=154.3 MB/sec  1234 MBit/sec)  10 procs\n"
    assert recognise(text) is not None
    with pytest.raises(ParseError, match=r"dbench before 4.0 is too old"):
        dbench.parse(text, "x")
    heading = elbencho.FIRST_COLUMNS + "dirs,files,operation\n2020-01-01T10:00:00+0100,a,b\n"
    with pytest.raises(ParseError, match=r"without .*, as before elbencho 2.0"):
        elbencho.parse(heading, "x")


# -- asked for and done -------------------------------------------------------------------------
def test_mdtest_that_made_no_file() -> None:
    (run,) = mdtest.parse(text_of("mdtest-zero-files"), "x")
    (note,) = run.notes
    assert note.key == "less"
    assert note.message == "40 files were asked for by 4 tasks, 0 worked on"
    assert [phase.name for phase in run.phases] == ["mkdir-tree", "rmdir-tree"]


def test_ior_that_moved_less_than_asked() -> None:
    text = (IOR / "ior-4.0.0-fpp.txt").read_text()
    (whole,) = ior.parse(text, "x")
    assert "less" not in keys(whole)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("write "))
    lines.insert(at, f"WARNING: Using actual aggregate bytes moved = {31 << 20}.")
    (run,) = ior.parse("\n".join(lines), "x")
    assert "less" in keys(run)


def test_elbencho_that_did_fewer_files() -> None:
    text = (DATA.parent / "elbencho" / "dirs.csv").read_text()
    assert all("less" not in keys(run) for run in elbencho.parse(text, "x"))
    heading, *lines = text.splitlines()
    column = heading.split(",").index("files")
    more = [line.split(",") for line in lines]
    for cells in more:
        cells[column] = str(int(cells[column] or 0) * 2)
    text = "\n".join([heading, *map(",".join, more), ""])
    assert any("less" in keys(run) for run in elbencho.parse(text, "x"))


# -- IOR ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["out", "summary", "with-line"])
def test_bytes_of_stonewalled_text_follow_from_rate_and_time(name: str) -> None:
    """hpc/ior 495; `-O summaryFile` sends the messages elsewhere."""
    (run,) = ior.parse(text_of(f"ior-stonewall-{name}"), name)
    assert run.failure == ""
    (phase,) = run.phases
    assert int(phase.bytes.sum()) == 76 * GIB
    assert window(phase) == pytest.approx(60.32, abs=0.005)
    assert "recovered" not in keys(run)


@pytest.mark.parametrize("name", ["3.2.1-wearout", "4.1-stonewall"])
def test_messages_of_another_stream_belong_to_no_row(name: str) -> None:
    lines = (IOR / f"ior-{name}.txt").read_text().splitlines()
    said = [line for line in lines if line.startswith("WARNING")]
    rest = [line for line in lines if not line.startswith("WARNING")]
    without, before, behind = (
        ior.parse("\n".join([*text, ""]), "x") for text in (rest, [*said, *rest], [*rest, *said])
    )
    assert without[0].failure == ""
    assert "derived-amount" in keys(without[0])
    for (run,) in (before, behind):
        assert repr(replace(run, notes=())) == repr(replace(without[0], notes=()))
        assert keys(run) == keys(without[0])


def test_worlds_of_one_task_are_no_repetitions() -> None:
    """open-mpi/ompi 13523."""
    runs = ior.parse(text_of("ior-worlds-sequence"), "x")
    assert len(runs) == 4
    for run in runs:
        (note,) = (note for note in run.notes if note.key == "simultaneous")
        assert note.message.startswith("4 starts in this output were at work at the same time")
    (mixed,) = ior.parse(text_of("ior-worlds-interleaved"), "x")
    assert "simultaneous" in keys(mixed)
    (alone,) = ior.parse((IOR / "ior-4.0.0-fpp.txt").read_text(), "x")
    assert "simultaneous" not in keys(alone)


def test_worlds_within_one_second_are_told_by_their_windows() -> None:
    text = text_of("ior-worlds-sequence").replace("10:00:03", "10:00:01")
    for run in ior.parse(text, "x"):  # four times 0.96 s
        (note,) = (note for note in run.notes if note.key == "simultaneous")
        assert note.message.startswith("4 starts")
    one = text[: text.index("IOR-4.0.0", 10)]
    (alone,) = ior.parse(one, "x")
    assert "simultaneous" not in keys(alone)


def test_starts_one_after_the_other_are_repetitions() -> None:
    text = text_of("ior-worlds-sequence")
    one = text[: text.index("IOR-4.0.0", 10)]
    later = one.replace("10:00:03", "10:00:05").replace("10:00:01", "10:00:03")
    assert all("simultaneous" not in keys(run) for run in ior.parse(one + later, "x"))


def test_ior_that_its_own_time_limit_ended_did_not_fail() -> None:
    """-T, also as a directive, ends the test after the iteration in which the time is over."""
    text = (IOR / "ior-4.0.0-fpp.txt").read_text()
    command = next(line for line in text.splitlines() if line.startswith("Command line"))
    more = text.replace("repetitions         : ", "repetitions         : 9")
    (run,) = ior.parse(more, "x")
    assert "iterations" in run.failure
    for limit in ("-T 1", "-O maxTimeDuration=1"):
        (run,) = ior.parse(more.replace(command, f"{command} {limit}"), "x")
        assert run.failure == ""


# -- IO500 --------------------------------------------------------------------------------------
def test_a_value_that_a_person_rounded_contradicts_nothing() -> None:
    folder = DATA.parent / "io500"
    files = {path.name: path.read_text() for path in folder.iterdir()}
    summary = files["result_summary.txt"]
    for value, contradicts in (("45.9", False), ("45.8977", False), ("45.2", True)):
        assert "45.897938" in summary
        files["result_summary.txt"] = summary.replace("45.897938", value)
        run = io500.parse_directory(files, "x")
        wrong = [note for note in run.notes if note.key == "contradiction"]
        assert bool(wrong) == contradicts, value


@pytest.mark.parametrize(
    ("name", "printed", "rounded", "wrong"),
    [
        ("ior/ior-4.0.0-fpp.txt", "write     769.90", "write     769.7 ", "write     768.2 "),
        ("dbench/two-clients.txt", "Throughput 216.138", "Throughput 216.1", "Throughput 215.8"),
        ("fio/3.33-direct.json", '"iops" : 4571.428571', '"iops" : 4571.0', '"iops" : 4561.0'),
        ("elbencho/file.csv", ",565121,", ",569000,", ",580000,"),
    ],
)
def test_nor_does_one_in_an_engine_s_output(
    name: str, printed: str, rounded: str, wrong: str
) -> None:
    """Four digits, as people write them, not always by the rules; more is a contradiction."""
    parse = {"ior": ior.parse, "dbench": dbench.parse, "fio": fio.parse, "elbencho": elbencho.parse}
    folder = name.partition("/")[0]
    text = (DATA.parent / name).read_text()
    assert printed in text

    def odd(number: str) -> list[object]:
        runs = parse[folder](text.replace(printed, number), name)
        return [(keys(run), run.failure) for run in runs]

    assert odd(rounded) == odd(printed)
    assert odd(wrong) != odd(printed)


def test_nor_does_one_in_mdtest_s_rates_beside_its_times() -> None:
    time = Row(11.828, 11.828, 11.828, 0.0)
    assert not contradiction_of(Row(84.548, 84.548, 84.548, 0.0), time, 1000)
    assert not contradiction_of(Row(84.520, 84.520, 84.520, 0.0), time, 1000)
    assert contradiction_of(Row(84.448, 84.448, 84.448, 0.0), time, 1000)


# -- the same text twice ------------------------------------------------------------------------
@pytest.mark.parametrize("name", PLAIN)
def test_a_text_that_is_there_twice_is_there_once(name: str) -> None:
    path, parse = PLAIN[name]
    once, twice = parse(path.read_text(), "x"), parse(path.read_text() * 2, "x")
    assert [(run.started, len(run.phases)) for run in twice] == [
        (run.started, len(run.phases)) for run in once
    ]
    assert not any("simultaneous" in keys(run) for run in twice)
    assert name == "fio" or any("recovered" in keys(run) for run in twice)


@pytest.mark.parametrize("name", ["mdtest", "ior", "dbench"])
def test_a_killed_run_does_not_spoil_the_next_one(name: str) -> None:
    """Its last line is cut, and the banner of the next one is glued to it."""
    path, parse = PLAIN[name]
    text = path.read_text()
    (alone,) = parse(text, "x")
    for cut in range(len(text) // (20 if name == "ior" else 4), len(text) - 20, 41):
        killed, whole = parse(text[:cut] + text, "x")
        assert killed.failure, text[:cut]
        assert repr(replace(whole, notes=())) == repr(replace(alone, notes=()))
        assert keys(whole) == keys(alone)
    first, _ = parse(text + text[: len(text) - 30], "x")
    assert repr(replace(first, notes=())) == repr(replace(alone, notes=()))


@pytest.mark.parametrize("name", ["ior-posix-fpp.json", "ior-4.0.0-fpp.txt"])
def test_blanks_quotes_and_line_ends_of_pages_are_those_of_programs(name: str) -> None:
    """Copied from a web page, a mail or a table: the same runs."""
    plain = (Path(__file__).parents[2] / "data" / "ior" / name).read_text()
    (expected,) = unlabelled(plain)
    pages = [plain.replace("  ", "\u00a0 "), plain.replace("    ", "\t   ").replace("\n", "\r")]
    if '"' in plain:
        pages += [plain.replace('"', "&quot;"), plain.replace('"', "\u201c")]
    for page in pages:
        (after,) = unlabelled(page)
        assert after == expected


# -- what lost its first lines ------------------------------------------------------------------
FIO_JSON = (DATA.parent / "fio" / "3.33-direct.json").read_text()
IOR_TEXT = (IOR / "ior-4.0.0-fpp.txt").read_text()
MDTEST = text_of("mdtest-plain")
MDTEST_4 = (DATA.parent / "import" / "mdtest-4.0.0.txt").read_text()


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (FIO_JSON[400:], "fio"),
        (MDTEST[MDTEST.index("Path: ") :], "mdtest"),
        (MDTEST[MDTEST.index("SUMMARY") :], "mdtest"),
        (MDTEST_4[MDTEST_4.index("SUMMARY") :], "mdtest"),
        (MDTEST_4[MDTEST_4.index("   File creation") :], "mdtest"),
        (IOR_TEXT[IOR_TEXT.index("Summary of all") :], "IOR"),
        ("Max Write: 663.8 MiB/sec (696.1 MB/sec)\n", "IOR"),
    ],
)
def test_what_lost_its_first_lines_is_named_and_not_imported(text: str, program: str) -> None:
    (found,) = matching(text)
    with pytest.raises(ParseError, match=f"{program}'s output, and its first lines are missing"):
        found.format.parse(text, "x")


def test_only_what_lost_its_first_lines_is_taken_for_such() -> None:
    """Whole outputs of all programs are not, nor what other programs print and people write."""
    data, docs = DATA.parent, DATA.parents[2] / "docs"
    names = [*data.rglob("*.txt"), *data.rglob("*.json"), *data.rglob("*.csv"), *docs.glob("*.md")]
    for name in names:
        found = [known.family for known in matching(name.read_text(errors="replace"))]
        assert not [family for family in found if family.endswith("-headless")], name
    kept = {"jobs": [{"jobname": "a", "read": {"io_kbytes": 4, "bw_bytes": 9, "total_ios": 1}}]}
    for text in (
        json.dumps(kept),
        '{"write": {"bw_bytes": 1, "iops": 2.0, "clat_ns": {"mean": 3}}, "usr_cpu": 1}',
        "   File creation : 12.000 per second\n   File stat: 3\n",
        "File creation 8053.735\nFile stat 285288.229\n",
        "SUMMARY: (of 3 iterations) all passed\n",
        "Operation   Max   Min\nwrite 1 2\nMax Write: 12 MB\n",
    ):
        assert matching(text) == []


def test_an_output_beside_the_end_of_another_is_imported_and_that_is_told() -> None:
    text = IOR_TEXT + MDTEST[MDTEST.index("SUMMARY") :]
    assert [known.family for known in matching(text)] == ["ior", "mdtest-headless"]
