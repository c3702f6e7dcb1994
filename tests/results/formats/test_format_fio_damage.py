"""Damaged outputs of fio: whole jobs are kept, or an error, and nothing is invented."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats.fio import parse
from fsmatrix.results.formats.parsed import Parsed, ParseError
from tests.results.fio_outputs import keys, text_of

DAMAGED = ["3.33-job-file.json", "3.33-randrw-node1.json", "3.42-dfs-randrw.json"]


def facts_of(runs: list[Parsed]) -> set[tuple[int, int, int]]:
    """(bytes, operations, milliseconds) of every worker."""
    return {
        (int(b), int(n), round(float(e - s) * 1000))
        for run in runs
        for p in run.phases
        for b, n, s, e in zip(p.bytes, p.operations, p.start, p.end, strict=True)
    }


@cache
def whole_of(name: str) -> list[Parsed]:
    return parse(text_of(name), name)


def checked(text: str, name: str) -> None:
    """A result or a ParseError; nothing in it that the whole output does not have."""
    whole = whole_of(name)
    try:
        runs = parse(text, name)
    except ParseError:
        return
    assert runs
    assert all(run.failure or facts_of([run]) for run in runs)
    if all("contradiction" not in keys(run) for run in runs):
        assert facts_of(runs) <= facts_of(whole)
    if not any(run.failure or keys(run) & {"contradiction", "recovered"} for run in runs):
        assert facts_of(runs) == facts_of(whole)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(DAMAGED), where=st.floats(0, 1), foreign=st.booleans())
def test_cut_anywhere(name: str, where: float, foreign: bool) -> None:
    text = text_of(name)
    cut = text[: int(len(text) * where)]
    checked(cut + ("\nmpirun: killed\n" if foreign else ""), name)


def test_whole_jobs_of_a_cut_output_are_kept_and_the_run_failed() -> None:
    text = text_of("3.33-job-file.json")
    cut = text[: text.index('"jobname" : "b"', text.index('"jobname" : "b"') + 1) + 500]
    (run,) = parse(cut, "cut")
    assert "2 of 3 jobs" in run.failure
    assert "recovered" in keys(run)
    assert [w["number"] for p in run.phases for w in p.facts["workers"]] == [1, 2]
    (complete,) = parse(text[: text.index('"disk_util"')], "cut behind its jobs")
    assert complete.failure == ""
    assert "recovered" in keys(complete)
    assert complete.processes == 3


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(DAMAGED), data=st.data())
def test_doubled_lost_swapped_foreign_and_misencoded_lines(name: str, data: st.DataObject) -> None:
    lines = text_of(name).splitlines(keepends=True)
    index = st.integers(0, len(lines) - 1)
    at, other = data.draw(index), data.draw(index)
    how = data.draw(st.sampled_from(["double", "lose", "swap", "foreign", "bytes", "twice"]))
    if how == "double":
        lines.insert(at, lines[at])
    elif how == "lose":
        del lines[at]
    elif how == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    elif how == "foreign":
        lines.insert(at, data.draw(st.sampled_from(FOREIGN)) + "\n")
    elif how == "bytes":
        damaged = bytearray(lines[at].encode())
        damaged[other % len(damaged)] = 0xFF
        lines[at] = damaged.decode(errors="replace")
    else:
        lines = lines + lines
    checked("".join(lines), name)


FOREIGN = [
    "11/20-12:38:29.40 node1 setrlimit(): file_limit_bump() Failed: 1",
    "fio: terminating on signal 15",
    "Jobs: 1 (f=1): [m(1)][100.0%][r=31.0MiB/s,w=33.0MiB/s][r=496,w=528 IOPS][eta 00m:00s]",
]


@pytest.mark.parametrize("name", DAMAGED)
def test_foreign_lines_everywhere_lose_nothing(name: str) -> None:
    lines = text_of(name).splitlines()
    mixed = "\n".join(
        f"{line}\n{FOREIGN[i % 3]}" if i % 7 == 0 else line for i, line in enumerate(lines)
    )
    (run,) = parse(mixed, name)
    assert facts_of([run]) == facts_of(parse(text_of(name), name))
    assert run.failure == ""
    assert {"recovered", "warning"} <= keys(run)


@pytest.mark.parametrize("piece", ['"fio version" : ', "{", '{"jobname":', '"', "[", "fio: a\n"])
def test_large_nonsense_is_refused(piece: str) -> None:
    with pytest.raises(ParseError):
        parse('{"fio version" : "fio-3.33", "jobs" : [' + piece * 200_000, "nonsense")
