"""Damaged, doubled and foreign outputs of mdtest: whole runs or an error, no new number."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats import mdtest
from fsmatrix.results.formats.mdtest.phases import read_ranks
from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import window
from tests.results.damage import damage, damaged
from tests.results.mdtest_outputs import KNOWN, RANKS, TEXTS, known, phases


def test_a_cut_output_keeps_what_is_whole_and_fails() -> None:
    text = TEXTS["unique"]
    for end in range(len(text)):
        try:
            runs = mdtest.parse(text[:end], "cut")
        except ParseError:
            assert end < text.index("-d' '/mnt/scratch/md'") + 25
            continue
        (run,) = runs
        complete = "-- finished at 11/20/2026 11:55:38 --" in text[:end]
        assert bool(run.failure) is not complete
        assert known(run) <= KNOWN["unique"]


def test_two_outputs_in_one_text_are_two_runs() -> None:
    one, two = mdtest.parse(TEXTS["3.3.0"] + TEXTS["4.0.0"], "both")
    assert (one.version, two.version) == ("3.3.0", "4.0.0")
    assert (known(one), known(two)) == (KNOWN["3.3.0"], KNOWN["4.0.0"])


def test_a_crashed_start_before_a_good_one() -> None:
    begun = TEXTS["4.0.0"].split("SUMMARY")[0]
    first, second = mdtest.parse(begun + TEXTS["4.0.0"], "retried")
    assert "cut" in first.failure
    assert known(second) == KNOWN["4.0.0"]


def test_outputs_of_two_that_wrote_at_once_give_no_number() -> None:
    pairs = zip(TEXTS["4.0.0"].split("\n"), TEXTS["dfs"].split("\n"), strict=False)
    mixed = "\n".join(line for pair in pairs for line in pair)
    runs = mdtest.parse(mixed, "mixed")
    assert runs
    for run in runs:
        assert known(run) <= KNOWN["4.0.0"] | KNOWN["dfs"]
        assert run.failure


def test_foreign_lines_do_no_harm() -> None:
    foreign = "[client:1] setrlimit(RLIMIT_NOFILE) file_limit_bump failed\nWARNING: foreign\n"
    lines = TEXTS["unique"].split("\n")
    text = "".join(f"{foreign}{line}\r\n" for line in lines)
    (run,) = mdtest.parse(text, "foreign")
    assert known(run) == KNOWN["unique"]
    assert len([note for note in run.notes if note.key == "warning"]) == 1


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-1.000", "1e+30", f"{10**13}.000"])
def test_absurd_values_are_left_out(value: str) -> None:
    text = TEXTS["4.0.0"].replace("61425.004", value)
    (run,) = mdtest.parse(text, "absurd")
    assert "create" not in phases(run)
    assert set(phases(run)) >= {"stat", "read", "remove"}


def test_a_wrong_digit_shows_in_a_single_iteration() -> None:
    text = TEXTS["split-create"]
    rate = re.search(r"File creation +(\d+)", text)
    assert rate is not None
    text = text.replace(rate[1], str(int(rate[1]) + 1000), 1)
    (run,) = mdtest.parse(text, "digit")
    assert "create" not in phases(run)


def test_headings_of_rates_and_times_that_were_swapped_give_no_number() -> None:
    lines = TEXTS["five-both"].split("\n")
    rate, time = (lines.index(line) for line in lines if line.startswith("SUMMARY"))
    lines[rate], lines[time] = lines[time], lines[rate]
    (run,) = mdtest.parse("\n".join(lines), "swapped")
    assert run.phases == ()
    assert run.failure


def test_decimal_commas_are_refused() -> None:
    text = re.sub(r"(\d)\.(\d{3}\b)", r"\1,\2", TEXTS["4.0.0"])
    with pytest.raises(ParseError, match=r"line 15: decimal commas .* LC_ALL=C"):
        mdtest.parse(text, "comma.txt")


@pytest.mark.parametrize("text", ["", "mdtest", "IOR-4.0.0: MPI\n", "mdtest-4.0.0 was launched"])
def test_what_is_not_mdtests_is_refused(text: str) -> None:
    assert not mdtest.recognises(text)
    with pytest.raises(ParseError, match="not an output of mdtest"):
        mdtest.parse(text, "other.txt")


@pytest.mark.parametrize("name", sorted(set(TEXTS) - {"help"}))
def test_all_are_recognised(name: str) -> None:
    assert mdtest.recognises(TEXTS[name])


def test_a_damaged_command_line_is_an_error_with_its_place() -> None:
    text = TEXTS["unique"].replace("'-n' '500'", "'-n' '5\ufffd0'")
    with pytest.raises(ParseError, match="line 4: the command line is damaged"):
        mdtest.parse(text, "x")


def test_time_grows_with_the_length_only() -> None:
    """Ten times the text takes about ten times as long, however it looks."""
    noise = "WARNING: unable to stat file /mnt/x\nV-3: noise mdtest- 5 tasks\n" + "x" * 200 + "\n"
    head, tail = TEXTS["unique"].split("SUMMARY")

    def took(times: int) -> float:
        text = head + noise * times + "SUMMARY" + tail
        begun = time.process_time()
        mdtest.parse(text, "long")
        return time.process_time() - begun

    took(100)
    assert took(40_000) < 40 * max(took(4_000), 0.01)


FUZZED = ["3.2.1", "3.3.0", "unique", "stonewall", "five-both", "tasks-swept", "rank-statistics"]


DAMAGES = ["cut", "behead", "copy", "swap", "garble", "foreign", "crlf"]


IN_PLACE = ["cut", "behead", "double", "garble", "foreign", "crlf"]


UNORDERED = {"tasks-swept"}  # a row that moved to the other number of tasks cannot be told


def test_a_row_of_one_summary_only_is_left_out() -> None:
    """Nothing would contradict it if it belonged to the other."""
    lines = TEXTS["five-both"].split("\n")
    last = max(at for at, line in enumerate(lines) if line.startswith("   File creation"))
    del lines[last]
    (run,) = mdtest.parse("\n".join(lines), "one.txt")
    assert "create" not in phases(run)
    assert any("create is left out: it is in one of the two" in note.message for note in run.notes)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FUZZED), st.data())
def test_damage_gives_runs_or_an_error_and_no_new_number(name: str, data: st.DataObject) -> None:
    kinds = IN_PLACE if name in UNORDERED else DAMAGES
    try:
        runs = mdtest.parse(damaged(TEXTS[name], data, kinds), "damaged.txt")
    except ParseError:
        return
    assert runs
    for run in runs:
        for phase in run.phases:
            assert np.isfinite(window(phase))
        assert known(run) <= KNOWN[name]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(RANKS)), st.data())
def test_a_damaged_file_of_ranks_is_refused_or_says_the_same(
    name: str, data: st.DataObject
) -> None:
    whole = read_ranks(RANKS[name], 2)
    lines = damage(RANKS[name].split("\n"), data, DAMAGES)
    try:
        ranks = read_ranks("\n".join(lines), 2)
    except ValueError:
        return
    assert ranks.items == whole.items
    for phase, value in ranks.seconds.items():
        assert value == whole.seconds[phase]
    for phase, pairs in ranks.finished.items():
        assert set(pairs) <= set(whole.finished[phase])
