"""mdtest 3.2 to 4.1: its text, and beside it its file of all ranks where there is one."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import Json, Scalar
from fsmatrix.results.formats.mdtest.argv import Tree
from fsmatrix.results.formats.mdtest.mdtest_text import LAUNCHED, NAMES, Problem, Run, Test, runs_of
from fsmatrix.results.formats.mdtest.phases import Phases, Ranks, read_ranks
from fsmatrix.results.formats.parsed import (
    Format,
    Note,
    Parsed,
    ParseError,
    aged,
    headless,
    overlapping,
    shared_facts,
    totals,
)
from fsmatrix.results.record import Phase

OLDEST = "1.9"  # version: so the mdtest of IOR 3.2 calls itself
MOST_NOTES = 20
LONGEST = 400  # characters of the line that gives the version
EMPTY_READ = "Read bytes is 0"
NO_RESULT = "the output has no result that can be used"
NO_BYTES = "no bytes are read (-e): files are only opened and closed"
# where, which phases of the work (each has its name), how it is reported: no other work
NO_WORK = frozenset({
    "directory", "create_only", "stat_only", "read_only", "remove_only", "rename", "first", "last",
    "pre_delay", "stonewall_status", "random-seed", "verbose", "verbosity", "print_time",
    "print_rate_and_time", "time_unique_dir_overhead", "print_all_procs", "rank_statistics",
    "warning_as_errors", "saveRankPerformanceDetails", "savePerOpDataCSV",
    "run-cmd-before-phase", "run-cmd-after-phase",
})  # fmt: skip


def recognises(text: str) -> bool:
    """Whether mdtest wrote it: the line in which it gives its version."""
    return "mdtest-" in text and any(
        LAUNCHED.fullmatch(text[start:end].rstrip()) for start, end in _places(text)
    )


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of lines that begin with "mdtest-"."""
    at = text.find("mdtest-")
    while at >= 0:
        end = text.find("\n", at, at + LONGEST)
        if end >= 0 or at + LONGEST >= len(text):
            yield at, end if end >= 0 else len(text)
        at = text.find("mdtest-", at + 1)


def parse(text: str, source: str) -> list[Parsed]:
    """Every run in a text: one for each start of mdtest and number of tasks.

    A run that did not end, or has nothing to show, says so by `failure`.  ParseError if
    there is no run in it, none of which it is known what was done, or decimal commas.
    """
    return parse_with_ranks(text, "", source)


def parse_with_ranks(
    text: str, ranks: str, source: str, created: int | None = None
) -> list[Parsed]:
    """As `parse`; `derived` is the text of its `--saveRankPerformanceDetails`, if there is one.

    `created`: files that another run of mdtest created for this one, all tasks together.

    It is used where the text has one run of one iteration: it then gives windows with more
    digits and the operations and times of each rank.
    """
    runs = list(runs_of(text, source))
    if not runs:
        raise ParseError(source, 0, 'not an output of mdtest: no line "mdtest-... was launched"')
    single = len(runs) == 1 and len(runs[0].tests) == 1
    starts = [
        [aged(result, OLDEST) for result in _results(run, ranks if single else "", created)]
        for run in runs
    ]
    if all(run.command_error for run in runs):
        raise ParseError(source, runs[0].command_line, _damaged(runs[0]))
    return overlapping(starts)


def _damaged(run: Run) -> str:
    return f"the command line is damaged, so that it is unknown what was done: {run.command_error}"


def _results(run: Run, ranks: str, created: int | None) -> Iterator[Parsed]:
    facts: dict[str, Json] = {
        "finished": run.finished,
        "directory": _directory(run),
    }
    whole = Parsed(
        engine="mdtest",
        version=run.version,
        argv=run.argv,
        options=_recorded(run),
        nodes=run.nodes,
        processes=run.tasks,
        started=run.started,
        notes=tuple(_notes(run)),
        facts={name: value for name, value in facts.items() if value},
    )
    if not run.tests:
        yield replace(whole, failure=_failure(run, None, ()))
        return
    for test in run.tests:
        yield _result(run, test, ranks, whole, created)


def _directory(run: Run) -> str:
    """Where it worked: as its option -d says; as its line "Path" where that is no whole path."""
    asked = str((run.options or {}).get("directory", ""))
    return asked if asked.startswith("/") or not run.path else run.path


def _result(run: Run, test: Test, ranks: str, whole: Parsed, created: int | None) -> Parsed:
    phases, notes = _phases(run, test, ranks, created)
    swept = len(run.tests) > 1 or "first" in run.options if run.options else False
    if test.tasks != run.tasks and not swept:
        text = f"mdtest was launched with {run.tasks} tasks and worked with {test.tasks}"
        notes = (*notes, Note("contradiction", text, test.line))
    return replace(
        whole,
        phases=phases,
        processes=test.tasks,
        nodes=run.nodes if test.tasks == run.tasks else None,
        notes=(*whole.notes, *notes),
        failure=_failure(run, test, phases),
    )


def _phases(
    run: Run, test: Test, text: str, before: int | None
) -> tuple[tuple[Phase, ...], tuple[Note, ...]]:
    """Nothing where it is unknown what was done, or whose results these are."""
    if run.command_error or run.options is None or run.mixed:
        return (), ()
    if run.overlaps and not run.finished:
        return (), ()
    notes: list[Note] = []
    ranks: Ranks | None = None
    if text:
        try:
            ranks = read_ranks(text, test.tasks)
        except (ValueError, csv.Error) as error:
            notes.append(Note("recovered", f"the file of all ranks is not used: {error}"))
    try:
        notes += _less(test, run.options, Tree.of(run.options))
    except ValueError as error:
        return (), (Note("left-out", str(error), run.command_line),)
    builder = Phases(run, test, ranks, notes, before)
    phases = builder.all()
    read = any(phase.name == "read" and not phase.bytes.any() for phase in phases)
    if read and not any(EMPTY_READ in problem.text for problem in run.problems.values()):
        notes.append(Note("empty-read", NO_BYTES, phase="read"))
    return phases, tuple(notes)


def _less(test: Test, options: Mapping[str, Scalar], tree: Tree) -> Iterator[Note]:
    """Fewer items than the command line asks for, but for those that a stonewall cut off."""
    both = options.get("items") and options.get("items_per_directory")
    asked = (int(options.get("items", 0)) or tree.items) * test.tasks
    if not both and not options.get("stonewall") and test.kind != "file" and test.count < asked:
        text = f"{asked} {test.kind} were asked for by {test.tasks} tasks, {test.count} worked on"
        yield Note("less", text, test.line)


def _recorded(run: Run) -> dict[str, Json]:
    return {name: value for name, value in (run.options or {}).items() if name not in NO_WORK}


def _failure(run: Run, test: Test | None, phases: Sequence[Phase]) -> str:
    """Why the run failed; empty if it did not."""
    worst = [problem for problem in run.problems.values() if problem.severity != "WARNING"]
    if worst:
        return f"mdtest says: {worst[0].text}"
    if run.command_error:
        return _damaged(run)
    if run.mixed or (run.overlaps and not run.finished):
        return "outputs of two runs are mixed"
    last = test is None or test is run.tests[-1]
    if not run.finished and last:
        return 'the output is cut: it has no line "-- finished at"'
    if test is None or not phases:
        return NO_RESULT
    serious = [problem for problem in run.problems.values() if not _harmless(problem)]
    if serious:
        return f"mdtest went on after {run.counts[serious[0].kind]} errors: {serious[0].text}"
    return ""


def _harmless(problem: Problem) -> bool:
    """Warnings that are no failed operation; others are: "unable to stat file ..."."""
    return problem.severity == "WARNING" and not problem.kind.startswith(FAILED_OPERATIONS)


FAILED_OPERATIONS = (
    "create ",
    "stat ",
    "open ",
    "read ",
    "write ",
    "remove ",
    "rename ",
    "mknode ",
    "verify ",
)


def _notes(run: Run) -> Iterator[Note]:
    """What was odd about the text, and the engine's own warnings."""
    for text, line in dict(reversed(run.oddities[:MOST_NOTES])).items():
        yield Note("recovered", f"{text}; what is left is used", line)
    options = run.options or {}
    if options.get("sync") and not options.get("write_bytes"):
        yield Note("sync-ignored", "-y syncs files with data only, and they are empty (no -w)")
    if options.get("stonewall") and not options.get("files_only"):
        text = "-W without -F: mdtest counts directories that it may not have made"
        yield Note("miscounted", text, run.command_line)
    for option, phase in (("verify_read", "read"), ("verify_write", "create")):
        if options.get(option):
            text = f"--{option.replace('_', '-')} compares data inside the window"
            yield Note("verify-in-window", text, run.command_line, phase)
    for problem in list(run.problems.values())[:MOST_NOTES]:
        count = run.counts[problem.kind]
        message = problem.text.split("WARNING: ", 1)[-1]
        if EMPTY_READ in problem.text:
            yield Note("empty-read", message, problem.line, "read")
        else:
            often = f" ({count} of this kind)" if count > 1 else ""
            yield Note("warning", message + often, problem.line)


def joined(parts: Sequence[Phase]) -> Phase:
    """One phase of several in one another's wake: sums of bytes, operations and windows.

    Arrays over ranks stay where all parts have the same number of ranks.
    """
    if len(parts) == 1:
        return parts[0]
    seconds = [float(part.end.max() - part.start.min()) for part in parts]
    rows = [_iteration(part, window) for part, window in zip(parts, seconds, strict=True)]
    facts = {**shared_facts(parts), "number_of_iterations": len(parts)}
    own = iterations.summary(rows, "iops", sample=True)
    first = parts[0]
    if len({part.start.size for part in parts}) > 1:
        return totals(
            first.name,
            sum(seconds),
            sum(int(part.bytes.sum()) for part in parts),
            sum(int(part.operations.sum()) for part in parts),
            sum(int(part.errors.sum()) for part in parts),
            facts=facts,
            iterations=iterations.columns(rows),
            summary=own,
        )
    ranks = first.start.size
    return replace(
        first,
        start=np.zeros(ranks),
        end=np.full(ranks, sum(seconds)),
        bytes=sum((part.bytes for part in parts), np.zeros(ranks, dtype=np.int64)),
        operations=sum((part.operations for part in parts), np.zeros(ranks, dtype=np.int64)),
        errors=sum((part.errors for part in parts), np.zeros(ranks, dtype=np.int64)),
        io_start=None,
        io_end=None,
        facts=facts,
        iterations=iterations.columns(rows),
        summary=own,
    )


def _iteration(part: Phase, seconds: float) -> dict[str, float]:
    """A phase of one iteration as column -> value; its rate as it was printed, if it was."""
    done = {"operations": int(part.operations.sum()), "bytes": int(part.bytes.sum())}
    rates = part.iterations.get("iops", np.empty(0)).tolist()
    return {**done, "seconds": seconds, **({"iops": rates[0]} if len(rates) == 1 else {})}


# a line of a summary: the only table with these names and at least three numbers of mdtest's
_ROW = re.compile(
    rf"^ *({'|'.join(NAMES)}) *:? +\d+\.\d{{3}}(?: +\d+\.\d{{3}}){{2,}} *$", re.MULTILINE
)


def _is_rest(text: str) -> bool:
    """Whether it is what mdtest prints below its first lines: two phases of a summary."""
    return not recognises(text) and len(set(_ROW.findall(text))) > 1


FORMATS: tuple[Format, ...] = (Format("mdtest-text", recognises, parse),)
HEADLESS = headless("mdtest", _is_rest)
