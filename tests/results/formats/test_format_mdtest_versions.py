"""What mdtest's versions print differently: a summary of one rank, old headings, other columns.

The texts are made here.  The figures of "rank 0" are those of issue 183 of hpc/ior, those of eight
columns of its issue 300.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats import mdtest
from fsmatrix.results.formats.mdtest.argv import parse_arguments
from fsmatrix.results.formats.mdtest.mdtest_text import Columns, Row
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import iops, window
from tests.results.damage import damaged
from tests.results.mdtest_outputs import TEXTS, known, phases

HEADING = "   Operation                      Max            Min           Mean        Std Dev"
SUMMARY = "SUMMARY rate: (of 1 iterations)"
OF_THREE = "SUMMARY rate: (of 3 iterations)"
STAT = "File stat         :     126072.839     126072.839     126072.839          0.000"
OF_RANK_0 = "V-1:   File stat         :          7.251 sec,      44129.214 ops/sec"
CREATED = "File creation     :     299906.279     299906.279     299906.279          0.000"
EACH = (
    "V-1:   File creation     :          3.200 sec,     100000.000 ops/sec",
    "V-1:   File creation     :          1.600 sec,     200000.000 ops/sec",
    "V-1:   File creation     :          1.067 sec,     299906.279 ops/sec",
)
IN_PLACE = ["cut", "behead", "garble", "foreign", "crlf"]


def text_of(
    rows: str | list[str],
    told: tuple[str, ...] = (),
    *,
    version: str = "1.9.3",
    tasks: int = 32,
    options: str = "-F -n 10000 -u",
    summary: str = SUMMARY,
    heading: str = HEADING,
) -> str:
    rows = [rows] if isinstance(rows, str) else rows
    lines = [
        "-- started at 08/31/2019 10:00:00 --",
        f"mdtest-{version} was launched with {tasks} total task(s) on {tasks} node(s)",
        f"Command line used: mdtest {options} -d /mnt/out",
        f"{tasks} tasks, {tasks * 10000} files",
        *told,
        summary,
        heading,
        *(f"   {row}" for row in rows),
        "-- finished at 08/31/2019 10:00:19 --",
    ]
    return "\n".join(lines) + "\n"


def only(text: str) -> Parsed:
    (run,) = mdtest.parse(text, "made.txt")
    assert run.failure == ""
    return run


def noted(run: Parsed, key: str) -> list[str]:
    return [note.phase for note in run.notes if note.key == key]


# -- before 3.3 the summary is of the fastest rank -------------------------------------------------
def test_the_times_of_rank_0_count_where_the_summary_is_of_the_fastest() -> None:
    run = only(text_of(STAT, (OF_RANK_0,)))
    stat = phases(run)["stat"]
    assert window(stat) == pytest.approx(7.251, abs=0.0005)
    assert iops(stat) == pytest.approx(44129.214)
    assert stat.summary["iops_mean"] == 126072.839  # as printed
    assert (noted(run, "rank-extremes"), noted(run, "fastest-rank")) == (["stat"], [])


def test_rank_0_as_fast_as_the_fastest_needs_no_note() -> None:
    run = only(text_of(STAT, ("V-1:   File stat         :    2.538 sec,     126072.700 ops/sec",)))
    assert run.notes == ()
    assert iops(phases(run)["stat"]) == pytest.approx(126072.7)


def test_each_iteration_is_told_in_order() -> None:
    run = only(text_of(CREATED, EACH, summary=OF_THREE))
    create = phases(run)["create"]
    assert window(create) == pytest.approx(5.867, abs=0.001)
    assert iops(create) == pytest.approx(960_000 / 5.867, rel=1e-4)
    assert create.iterations["seconds"].tolist() == pytest.approx([3.2, 1.6, 1.067], abs=0.0005)
    assert noted(run, "rank-extremes") == ["create"]


@pytest.mark.parametrize(
    ("told", "summary", "row"),
    [
        ((), SUMMARY, STAT),
        ((), SUMMARY.replace(" rate", ""), STAT),
        (EACH[:2], OF_THREE, CREATED),
        ((*EACH, EACH[0]), OF_THREE, CREATED),
        ((), OF_THREE.replace("rate", "time"), "File stat   :  7.251  7.251  7.251  0.000"),
    ],
)
def test_without_them_a_finding_says_so(told: tuple[str, ...], summary: str, row: str) -> None:
    run = only(text_of(row, told, summary=summary))
    assert noted(run, "fastest-rank") == list(phases(run))
    assert len(run.phases) == 1


@pytest.mark.parametrize(
    "text",
    [
        text_of(STAT, tasks=1),
        text_of(STAT, version="3.3.0"),
        text_of(STAT, options="-F -n 10000 -B 1"),
        text_of("Tree creation     :         41.003         41.003         41.003          0.000"),
        text_of(
            "File stat    :  7.251  7.251  7.251  0.000", summary="SUMMARY time: (of 1 iterations)"
        ),
    ],
)
def test_a_summary_of_all_ranks_has_no_such_finding(text: str) -> None:
    run = only(text)
    assert run.phases
    assert noted(run, "fastest-rank") == []


def test_extremes_over_ranks_under_the_same_version_tell_the_slowest() -> None:
    row = "File stat         :     126072.839      44129.214      81023.114      23001.871"
    run = only(text_of(row))
    assert noted(run, "fastest-rank") == []
    assert iops(phases(run)["stat"]) == pytest.approx(44129.214)


@pytest.mark.parametrize(
    "line",
    [
        OF_RANK_0.replace("7.251", "7.951"),
        OF_RANK_0.replace("44129", "44929"),
        OF_RANK_0.replace("44129.214", "0.000"),
        "V-1:   File stat         :          1.600 sec,     200000.000 ops/sec",
    ],
)
def test_times_of_rank_0_that_cannot_be_give_no_number(line: str) -> None:
    (run,) = mdtest.parse(text_of(STAT, (line,)), "x")
    assert run.phases == ()
    assert noted(run, "left-out") == ["stat"]


def test_what_4_tells_of_rank_0_is_not_the_whole() -> None:
    """It is of rank 0's own items, and without the closing barrier."""
    (run,) = mdtest.parse(TEXTS["verbose"], "x")
    assert "401.168 ops/sec" in TEXTS["verbose"]
    assert iops(phases(run)["mkdir"]) == pytest.approx(769.382)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_gives_no_new_number_without_the_finding(data: st.DataObject) -> None:
    whole = text_of([STAT, CREATED], (*EACH, *[OF_RANK_0] * 3), summary=OF_THREE)
    try:
        runs = mdtest.parse(damaged(whole, data, IN_PLACE), "damaged.txt")
    except ParseError:
        return
    for run in runs:
        new = known(run) - known(only(whole))
        assert {name for name, *_ in new} <= set(noted(run, "fastest-rank"))


def test_numbers_of_tasks_have_lines_of_their_own() -> None:
    """Those of one number of tasks stand before its summary."""
    first, second = text_of(STAT, (OF_RANK_0,), tasks=16), text_of(STAT, (OF_RANK_0,))
    half = OF_RANK_0.replace("44129.214", "22064.607")
    part = first.split("/mnt/out\n")[1].split("-- finished")[0].replace(OF_RANK_0, half)
    swept = second.replace("32 tasks, ", f"{part}32 tasks, ").replace("-n ", "-f 16 -s 16 -n ")
    runs = mdtest.parse(swept, "x")
    rates = [iops(phases(run)["stat"]) for run in runs]
    assert rates == pytest.approx([22064.607, 44129.214])


# -- mdtest 1.9.3 before it came to IOR ------------------------------------------------------------
def test_the_old_summary_is_of_rates() -> None:
    row = "File creation     :     845203.634     845203.634     845203.634          0.000"
    run = only(text_of(row, summary="SUMMARY: (of 1 iterations)"))
    assert window(phases(run)["create"]) == pytest.approx(320_000 / 845203.634)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("-R15", {"random_stat": True, "random-seed": 15}),
        (
            "-FuR15 -n 3",
            {"files_only": True, "unique_dir": True, "items": 3}
            | {
                "random_stat": True,
                "random-seed": 15,
            },
        ),
        ("-RF", {"random_stat": True, "files_only": True}),
        ("-dR15", {"directory": "R15"}),
    ],
)
def test_a_seed_is_attached_to_its_flag(arguments: str, options: dict[str, object]) -> None:
    assert parse_arguments(arguments.split()) == options


@pytest.mark.parametrize("arguments", ["-R15x", "-F15", "-R15=3"])
def test_no_other_flag_has_a_number(arguments: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_arguments(arguments.split())


# -- columns are those of the heading --------------------------------------------------------------
PER_RANK = "   Operation         per Rank:      Max            Min           Mean          Std Dev"
SEVEN = f"{PER_RANK}     per Iteration: Max            Min           Mean"
OF_RANKS = "File creation   :  301409.087  61433.665  125683.173  64712.016"
OF_ITERATIONS = "104202.595  61433.665  84093.570"
THIRD = 3 * 84093.570 - 104202.595 - 61433.665


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        (SEVEN, f"{OF_RANKS}  {OF_ITERATIONS}"),
        (f"{SEVEN}        Std Dev", f"{OF_RANKS}  {OF_ITERATIONS}  21498.269"),
        (HEADING, f"File creation  {OF_ITERATIONS}  21498.269"),
    ],
)
def test_iterations_are_read_from_their_own_columns(heading: str, row: str) -> None:
    text = text_of(row, version="3.4.0+dev", summary=OF_THREE, heading=heading)
    rates = [320_000 / s for s in phases(only(text))["create"].iterations["seconds"]]
    assert rates == pytest.approx([104202.595, THIRD, 61433.665])


def test_a_deviation_that_is_not_printed_is_not_made_up() -> None:
    text = text_of(f"{OF_RANKS}  {OF_ITERATIONS}", version="3.4.0+dev", heading=SEVEN)
    create = phases(only(text.replace("of 1 ", "of 3 ")))["create"]
    assert create.summary["iops_max"] == 104202.595
    assert "iops_stddev" not in create.summary


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        (f"{SEVEN}        Std Dev", f"{OF_RANKS}  {OF_ITERATIONS}"),
        (HEADING, f"File creation  {OF_ITERATIONS}"),
        ("", f"{OF_RANKS}  {OF_ITERATIONS}"),
    ],
)
def test_which_number_a_short_row_lacks_is_not_guessed(heading: str, row: str) -> None:
    text = text_of(row, version="3.4.0+dev", summary=OF_THREE, heading=heading)
    (run,) = mdtest.parse(text, "x")
    assert run.phases == ()
    (message,) = [note.message for note in run.notes if note.key == "recovered"]
    assert "numbers under" in message


def test_a_heading_without_a_mean_gives_no_row() -> None:
    columns = Columns.of("   Operation     Max            Min        Std Dev")
    assert Row.of(["3.000", "1.000", "1.000"], columns) is None
