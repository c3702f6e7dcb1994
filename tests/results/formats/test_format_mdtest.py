"""mdtest's text, 3.2 to 4.1: all of tests/data/mdtest was printed by real ones.

3.2.1.txt, stonewall.*, five-both, time-only, rank-statistics, tasks-swept, verbose,
missing-files and split-* were recorded with builds of IOR 3.2.1 and 4.1.0+dev on two tasks.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats import mdtest
from fsmatrix.results.formats.mdtest.argv import Tree, parse_arguments, parse_command
from fsmatrix.results.formats.mdtest.mdtest_text import Row
from fsmatrix.results.formats.mdtest.phases import each_rate
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import iops, window
from tests.results.mdtest_outputs import DATA, RANKS, TEXTS, phases

ALL = ["mkdir", "stat-directories", "rename-directories", "rmdir", "create", "stat", "read"]


def only(name: str, ranks: str = "") -> Parsed:
    (run,) = mdtest.parse_with_ranks(TEXTS[name], ranks, name)
    return run


def keys(run: Parsed) -> set[str]:
    return {note.key for note in run.notes}


def seconds(run: Parsed, name: str) -> list[float]:
    return list(phases(run)[name].iterations["seconds"])


# -- what the real outputs tell ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "version", "tasks", "count"),
    [
        ("3.2.1", "1.9.3", 2, 9),  # the mdtest of IOR 3.2 calls itself so, and renames nothing
        ("3.3.0", "3.3.0", 2, 9),
        ("4.0.0", "4.0.0", 2, 10),
        ("tree-data", "4.1.0+dev", 4, 10),
        ("unique", "4.1.0+dev", 4, 10),
        ("dfs", "4.1.0+dev", 2, 10),
        ("rank-statistics", "4.1.0+dev", 2, 10),
        ("verbose", "4.1.0+dev", 2, 10),
    ],
)
def test_every_version_is_read(name: str, version: str, tasks: int, count: int) -> None:
    run = only(name)
    assert (run.engine, run.version, run.processes, run.nodes) == ("mdtest", version, tasks, 1)
    assert len(run.phases) == count
    assert run.failure == ""
    assert re.fullmatch(r"\d\d/\d\d/2026 \d\d:\d\d:\d\d", run.started)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-R", {"random_stat": True}),
        ("-B 1 --dfs.oclass=S2", {"no_barriers": 1, "dfs.oclass": "S2"}),
        ("-v -x /tmp/status -R7", {"random_stat": True}),
        ("-d /elsewhere -V 2", {}),
    ],
)
def test_options_that_make_other_work_are_told(words: str, told: dict[str, Any]) -> None:
    """Runs that differ in them are no repetitions; not where it was done and how it was told."""
    text = re.sub(r"(?m)^(Command line used: .*?)$", rf"\1 {words}", TEXTS["4.0.0"], count=1)
    (run,) = mdtest.parse_with_ranks(text, "", "x")
    assert run.options == only("4.0.0").options | told


def test_two_iterations_follow_from_the_extremes() -> None:
    create = phases(only("4.0.0"))["create"]
    assert create.operations.tolist() == [1200]
    assert window(create) == pytest.approx(600 / 61425.004 + 600 / 38565.357, rel=1e-9)
    assert seconds(only("4.0.0"), "create") == pytest.approx([600 / 61425.004, 600 / 38565.357])


def test_three_iterations_follow_from_extremes_and_mean() -> None:
    run = only("unique")
    third = 3 * 42850.865 - 66429.687 - 17310.054
    assert seconds(run, "create") == pytest.approx(
        [2000 / r for r in (66429.687, third, 17310.054)]
    )
    mean_of_rates = 3 * 2000 / 42850.865
    assert window(phases(run)["create"]) > 1.3 * mean_of_rates  # what a mean of rates hides
    assert "mean-of-rates" not in keys(run)


def test_extremes_over_ranks_are_marked() -> None:
    notes = [note for note in only("3.3.0").notes if note.key == "rank-extremes"]
    assert {note.phase for note in notes} >= {"create", "stat", "rmdir"}
    approximate = phases(only("3.3.0"))["create"]
    assert approximate.iterations == {}  # no iteration's own time is printed
    assert approximate.summary["iterations"] == 2


def test_more_iterations_are_estimated_and_marked_or_taken_from_times() -> None:
    run = only("five-both")
    estimated = {note.phase for note in run.notes if note.key == "mean-of-rates"}
    assert estimated == {"mkdir-tree", "stat", "read", "remove", "rmdir-tree"}
    create = phases(run)["create"]  # its time is long enough for the digits of -P
    assert window(create) == pytest.approx(5 * 0.324)
    assert create.facts["number_of_iterations"] == 5
    assert "iterations" not in create.facts


def test_time_is_seconds_whatever_its_heading_says() -> None:
    """4.1 calls it "ms/op"; 400 directories were made in 0.336 s."""
    run = only("time-only")
    assert "(in ms/op)" in TEXTS["time-only"]
    assert iops(phases(run)["mkdir"]) == pytest.approx(400 / 0.336)
    left = {note.phase for note in run.notes if note.key == "left-out"}
    assert {"stat", "read"} <= left  # 0.028 s: three decimals are too few
    assert set(phases(run)) == {"mkdir", "rmdir", "create"}


def test_items_of_a_tree_are_rounded_to_its_directories() -> None:
    run = only("tree-data")
    create, read = phases(run)["create"], phases(run)["read"]
    assert create.operations.tolist() == [2 * 780]  # 4 x 195, not 4 x 200
    assert create.bytes.tolist() == [2 * 780 * 3901]
    assert read.bytes.tolist() == [2 * 780 * 3901]
    assert phases(run)["mkdir-tree"].operations.tolist() == [2 * 13]
    assert "empty-read" not in keys(run)


def test_unique_trees_are_all_counted() -> None:
    """mdtest counts the directories of one task only."""
    tree = phases(only("unique"))["mkdir-tree"]
    assert tree.operations.tolist() == [3 * 4]
    assert tree.facts["counted"] == 1


def test_columns_per_rank_are_not_taken_for_those_of_iterations() -> None:
    create = phases(only("rank-statistics"))["create"]
    assert window(create) == pytest.approx(400 / 2503.737 + 400 / 1710.871)


def test_numbers_of_tasks_swept_are_runs_of_their_own() -> None:
    two, four = mdtest.parse(TEXTS["tasks-swept"], "swept")
    assert (two.processes, two.nodes, four.processes, four.nodes) == (2, None, 4, 1)
    assert phases(two)["create"].operations.tolist() == [200]
    assert phases(four)["create"].operations.tolist() == [400]
    assert not {"contradiction"} & (keys(two) | keys(four))


@pytest.mark.parametrize("name", ["3.2.1", "3.3.0", "4.0.0", "dfs"])
def test_reading_nothing_is_noted(name: str) -> None:
    notes = [note for note in only(name).notes if note.key == "empty-read"]
    if name == "3.2.1":  # -w 10 -e 10
        assert notes == []
        assert phases(only(name))["read"].bytes.tolist() == [8000]
    else:
        assert [note.phase for note in notes] == ["read"]
        assert phases(only(name))["read"].bytes.tolist() == [0]


def test_the_stonewall_tells_how_many_files_there_are() -> None:
    create = phases(only("stonewall"))["create"]
    assert create.operations.tolist() == [2 * 509]  # and not 2 x 100000
    assert create.bytes.tolist() == [2 * 509 * 100]
    assert create.facts["stonewall_seconds"] == 1.0
    assert create.facts["synced"] is True
    assert phases(only("stonewall"))["remove"].operations.tolist() == [2 * 509]


def test_the_file_of_ranks_adds_digits_and_ranks() -> None:
    create = phases(only("stonewall", RANKS["stonewall"]))["create"]
    assert create.operations.tolist() == [509, 509]
    assert create.end.tolist() == [1.0274817944, 1.0274817944]
    assert create.io_end is not None
    assert create.io_end.tolist() == [1.0253069401, 1.0235757828]
    assert iops(create) == pytest.approx(990.772, abs=0.0005)


def test_files_found_by_a_later_invocation_are_known_from_the_file_of_ranks_only() -> None:
    alone = only("split-stat")
    assert alone.phases == ()
    assert any("stonewall status file" in note.message for note in alone.notes)
    known = only("split-stat", RANKS["split-stat"])
    assert phases(known)["stat"].operations.tolist() == [1940, 1940]
    assert known.failure == ""


def test_files_found_by_a_later_invocation_are_those_that_the_run_before_created() -> None:
    made = int(phases(only("split-create"))["create"].operations.sum())
    (run,) = mdtest.parse_with_ranks(TEXTS["split-stat"], "", "x", made)
    assert phases(run)["stat"].operations.tolist() == [made]
    assert iops(phases(run)["stat"]) == pytest.approx(121329.304, abs=0.0005)
    (note,) = [note for note in run.notes if note.key == "derived-amount"]
    assert (note.phase, f"{made} files" in note.message) == ("stat", True)


def test_rate_and_time_give_the_files_that_only_the_status_file_tells() -> None:
    """-P prints both: the rate stays the printed one, the number follows from its digits."""
    head, rows = TEXTS["split-stat"].split("SUMMARY rate (in ops/sec)")
    assert "'-T'" in head
    time = rows.split("-- finished")[0].replace("121329.304", f"{'0.032':>10}")
    time = "SUMMARY time (in ms/op)" + time
    text = head.replace("'-T'", "'-T' '-P'") + "SUMMARY rate (in ops/sec)"
    text += rows.replace("-- finished", time + "-- finished")
    alone = mdtest.parse(text, "x")[0]
    assert alone.phases == ()  # 0.032 s has too few digits
    longer = text.replace("0.032", "2.032")
    (run,) = mdtest.parse(longer, "x")
    stat = phases(run)["stat"]
    assert stat.operations.tolist() == [round(121329.304 * 2.032)]
    assert iops(stat) == pytest.approx(121329.304, rel=1e-6)
    assert [note.phase for note in run.notes if note.key == "derived-amount"] == ["stat"]
    assert run.failure == ""


def test_a_damaged_file_of_ranks_is_not_used() -> None:
    run = only("stonewall", RANKS["stonewall"].replace("all,", "al,"))
    assert phases(run)["create"].operations.tolist() == [2 * 509]
    assert any(n.key == "recovered" and "file of all ranks" in n.message for n in run.notes)


def test_a_file_of_ranks_of_another_run_is_a_contradiction() -> None:
    run = only("stonewall", RANKS["stonewall"].replace("all,509", "all,510"))
    assert "create" not in phases(run)
    assert any(note.key == "left-out" and "510" in note.message for note in run.notes)


def test_errors_that_mdtest_goes_on_after_fail_the_run() -> None:
    run = only("missing-files")  # exit status 0
    assert "went on after 100 errors" in run.failure
    stat = phases(run)["stat"]
    assert (stat.errors.tolist(), stat.operations.tolist()) == ([100], [0])
    (note,) = [note for note in run.notes if note.key == "warning"]
    assert "(100 of this kind)" in note.message


def test_an_abort_is_the_reason() -> None:
    run = only("probe-3.2.1")
    assert "FAILED in show_file_system_size" in run.failure
    assert run.phases == ()


# -- traps in the command line -------------------------------------------------------------------
@pytest.mark.parametrize(("flag", "phase"), [("-X", "read"), ("--verify-write", "create")])
def test_what_is_verified_takes_time_of_the_window(flag: str, phase: str) -> None:
    command = next(line for line in TEXTS["4.0.0"].split("\n") if "Command line used" in line)
    run = changed("4.0.0", command, f"{command} {flag}")
    assert [note.phase for note in run.notes if note.key == "verify-in-window"] == [phase]


def changed(name: str, old: str, new: str) -> Parsed:
    assert old in TEXTS[name]
    (run,) = mdtest.parse(TEXTS[name].replace(old, new), name)
    return run


def test_items_counted_otherwise_than_made_are_left_out() -> None:
    """-n with -I in a tree: 300 files were made where mdtest's rate counts 100 (tried)."""
    run = changed("tree-data", "'-n' '200'", "'-n' '200' '-I' '100'")
    assert set(phases(run)) == {"mkdir-tree", "rmdir-tree"}
    assert any("mdtest counts other items" in note.message for note in run.notes)


def test_a_stonewall_over_directories_is_marked() -> None:
    run = changed("4.0.0", "'-u'", "'-u' '-W' '300'")
    assert not {"mkdir", "rmdir"} & set(phases(run))
    assert "create" in phases(run)
    assert "miscounted" in keys(run)


def test_a_sync_of_nothing_is_marked() -> None:
    run = changed("4.0.0", "'-u'", "'-u' '-y'")
    assert "sync-ignored" in keys(run)
    assert phases(run)["create"].facts["synced"] is False


def test_a_shared_file_is_removed_by_one_task() -> None:
    run = changed("five-both", "2 tasks, 600 files", "2 tasks, 1 file")
    found = phases(run)
    assert found["create"].operations.tolist() == [5 * 600]
    assert (found["remove"].operations.tolist(), found["remove"].facts["counted"]) == ([1500], 600)


def test_other_numbers_than_the_printed_time_are_left_out() -> None:
    text = (DATA / "split-create.txt").read_text()
    rate = re.search(r"File creation +(\d+\.\d+)", text)
    assert rate is not None
    table = f"\nSUMMARY time: (of 1 iterations)\n   File creation  {'9.999 ' * 3}0.000\n-- finished"
    (run,) = mdtest.parse(text.replace("\n-- finished", table), "x")
    assert "create" not in phases(run)
    assert any("9.999 s are printed" in note.message for note in run.notes)


def rounded(text: str, decimals: int) -> str:
    return re.sub(r"\d+\.\d{3}\b", lambda number: f"{float(number[0]):.{decimals}f}", text)


@pytest.mark.parametrize("decimals", [0, 1, 2])
def test_numbers_that_somebody_rounded_are_read(decimals: int) -> None:
    """Where all of a row have as few digits; what these do not tell to 1 % is left out."""
    whole = phases(only("4.0.0"))
    (run,) = mdtest.parse(rounded(TEXTS["4.0.0"], decimals), "rounded")
    found = phases(run)
    assert run.failure == ""
    assert {"create", "stat", "read", "remove"} <= set(found)
    assert set(whole) - set(found) <= ({"rmdir-tree"} if decimals < 2 else set())
    for name, phase in found.items():
        assert iops(phase) == pytest.approx(iops(whole[name]), rel=0.01)


def test_a_number_that_alone_lost_digits_is_left_out() -> None:
    run = changed("4.0.0", "38565.357", "38565.3")
    assert set(phases(only("4.0.0"))) - set(phases(run)) == {"create"}


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("-n 3", {"items": 3}),
        ("-n=3", {"items": 3}),
        ("-n3", {"items": 3}),
        ("-w 4k -e 1m", {"write_bytes": 4096, "read_bytes": 1 << 20}),
        ("-Fuvvv", {"files_only": True, "unique_dir": True, "verbose": True}),
        ("--dfs.pool=p --dfs.destroy", {"dfs.pool": "p", "dfs.destroy": True}),
        ("--dfs.cont c", {"dfs.cont": "c"}),
        ("-G -1", {"buffer_offset": -1}),
        ("--random-seed=5 -X", {"random-seed": 5, "verify_read": True}),
    ],
)
def test_arguments_are_read_as_mdtest_reads_them(arguments: str, options: dict[str, Any]) -> None:
    assert parse_arguments(arguments.split()) == options


@pytest.mark.parametrize(
    "text", ["", "mdtest -n", "mdtest -n 3x", "mdtest 3", "mdtest '-n", "m -q 1"]
)
def test_a_command_that_is_not_mdtests_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_command(text)


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 10_000), st.booleans())
def test_tree_holds_what_it_says(depth: int, factor: int, items: int, leaf_only: bool) -> None:
    tree = Tree.of(
        {"depth": depth, "branching_factor": factor, "items": items, "leaf_only": leaf_only}
    )
    assert tree.directories == sum(factor**level for level in range(depth + 1))
    holding = factor**depth if leaf_only else tree.directories
    assert tree.items % holding == 0
    assert 0 <= items - tree.items < holding


@settings(deadline=None)
@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=3))
def test_rates_follow_from_what_is_printed(rates: list[float]) -> None:
    count = len(rates)
    mean = sum(rates) / count
    squares = sum((rate - mean) ** 2 for rate in rates)
    deviation = (squares / (count - 1)) ** 0.5 if count > 1 else 0.0
    row = Row(*(round(x, 3) for x in (max(rates), min(rates), mean, deviation)))
    assert each_rate(row, count) == pytest.approx(sorted(rates, reverse=True), abs=0.005)


def test_the_place_is_that_of_the_head_where_the_option_is_no_whole_path() -> None:
    assert only("3.2.1").facts["directory"] == "/mnt/scratch/md"
    for option in ('"-d" "md"', ""):
        text = TEXTS["3.2.1"].replace('"-d" "/mnt/scratch/md"', option)
        assert mdtest.parse(text, "x")[0].facts["directory"] == "/mnt/scratch"
