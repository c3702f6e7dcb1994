"""IOR 3.2 to 4.1: text, JSON and CSV, recognised by content.

What IOR counts: its window is from the first open to the last close over all ranks, fsync
(-e) inside.  Bytes are what was moved: under stonewalling IOR says how much in a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from fsmatrix.results.formats.ior.as_text import (
    BANNER,
    CSV_HEADER,
    RankTimes,
    parse_ranks,
    read_csv,
    read_text,
)
from fsmatrix.results.formats.ior.ior_json import read_json
from fsmatrix.results.formats.ior.ior_runs import failure_of, result
from fsmatrix.results.formats.ior.ior_tests import Output
from fsmatrix.results.formats.parsed import (
    Format,
    Note,
    Parsed,
    ParseError,
    aged,
    headless,
    overlapping,
)

__all__ = ["FORMATS", "RankTimes", "failure_of", "parse", "parse_ranks"]

OLDEST = "3.2"  # version
# keys that only IOR's JSON has
JSON_KEYS = re.compile(r'"(bwMiB|wrRdTime|deadlineForStonewall)" ?:')
JSON_HEAD = (re.compile(r'"Command line" ?: ?"'), re.compile(r'"tests" ?: ?\['))
# how a whole document begins, as IOR or jq prints it; and a table
JSON_BEGINS = re.compile(r'^[ \t]*\{(?=\s*"(?:Version|Began|Command line)" ?:)', re.MULTILINE)
CSV_BEGINS = re.compile(rf"^{re.escape(CSV_HEADER)}", re.MULTILINE)
TABLE = "access    bw(MiB/s)"


def is_json(text: str) -> bool:
    """IOR's JSON, also where it is damaged."""
    started = all(head.search(text) for head in JSON_HEAD)
    return started or len(set(JSON_KEYS.findall(text))) > 1


def is_csv(text: str) -> bool:
    """IOR's table of results as CSV."""
    return CSV_HEADER in text


def is_text(text: str) -> bool:
    """IOR's text; launchers may have written before it."""
    return (TABLE in text or BANNER.search(text) is not None) and not is_json(text)


def parse(text: str, source: str) -> list[Parsed]:
    """All runs in an output: the tests of a script, and several outputs in one text.

    Raises ParseError when it is no output of IOR, or holds no test and does not say why.
    """
    if is_json(text):
        outputs = [read_json(part, source) for part in _apart(text, JSON_BEGINS, is_json)]
        kind = "JSON"
    elif is_csv(text):
        outputs = [read_csv(part, source) for part in _apart(text, CSV_BEGINS, _has_rows)]
        kind = "CSV"
    elif is_text(text):
        outputs = read_text(text, source)
        kind = "text"
    else:
        reason = failure_of(text)
        raise ParseError(source, 0, reason or "not an output of IOR")
    inline = any(
        row.moved is not None for output in outputs for t in output.tests for row in t.taken
    )
    starts = [
        [aged(result(output, test, inline, source), OLDEST) for test in output.tests]
        or [_without_test(output, _empty(text, kind))]
        for output in outputs
    ]
    if not outputs:
        raise ParseError(source, 0, _empty(text, kind))
    if not any(output.tests for output in outputs):
        return [_ended_before_its_first_test(outputs[0], text, source, kind)]
    begun = text.lstrip().startswith(("{", "IOR-")) or outputs[0].version
    if kind == "JSON" and not begun:
        starts[0][0] = _beheaded(starts[0][0])
    return overlapping(starts)


def _has_rows(text: str) -> bool:
    return re.search("^(write|read),", text, re.MULTILINE) is not None


def _apart(text: str, begins: re.Pattern[str], whole: Callable[[str], bool]) -> list[str]:
    """Outputs of several starts, one after the other, each with its own line numbers.

    Only if each is one: a head that is there twice may be an accident.
    """
    starts = [match.start() for match in begins.finditer(text)]
    bounds = [0, *starts[1:], len(text)]
    parts = [text[start:end] for start, end in pairwise(bounds)]
    if len(parts) < 2 or not all(map(whole, parts)):
        return [text]
    return ["\n" * text.count("\n", 0, at) + part for at, part in zip(bounds, parts, strict=False)]


def _ended_before_its_first_test(output: Output, text: str, source: str, kind: str) -> Parsed:
    """A run that failed, if the output says why; ParseError if it does not."""
    reason = failure_of(text)
    run = _without_test(output, f"no test: {reason}" if reason else _empty(text, kind))
    if not reason or not output.version:
        raise ParseError(source, 0, run.failure)
    return run


def _without_test(output: Output, failure: str) -> Parsed:
    argv = tuple(output.head.get("Command line", "").split())
    return aged(Parsed(engine="ior", version=output.version, argv=argv, failure=failure), OLDEST)


def _empty(text: str, kind: str) -> str:
    if kind == "text" and "summaryFormat=CSV" in text:
        return "IOR before 4.0 writes no results in CSV: use summaryFormat=default or JSON"
    return f"IOR's {kind} holds no test: it ended before it began, or its head is cut off"


def _beheaded(run: Parsed) -> Parsed:
    text = (
        "the head of the file is missing or overwritten (IOR 3.2 opens its summary file twice): "
        "the rest was recovered"
    )
    return replace(run, notes=(Note("recovered", text, 1), *run.notes))


FORMATS: tuple[Format, ...] = (
    Format("ior-json", is_json, parse),
    Format("ior-csv", is_csv, parse),
    Format("ior-text", is_text, parse),
)
# what IOR prints below its rows
_REST = re.compile(
    r"^ *Operation +Max\(MiB\) +Min\(MiB\) +Mean\(MiB\)"
    r"|^ *Max (?:Write|Read): +[\d.]+ MiB/sec \([\d.]+ MB/sec\)",
    re.MULTILINE,
)


def _is_rest(text: str) -> bool:
    """Whether it is an output's end alone: its summary, without a row."""
    return _REST.search(text) is not None and not (is_text(text) or is_csv(text) or is_json(text))


HEADLESS = headless("IOR", _is_rest)
