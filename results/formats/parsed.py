"""What the parsers of engines' outputs share: text in, one `Parsed` for each run in it.

A parser is pure and knows no file: it is given a text and a name for messages.  It returns
what can be recovered, and marks with notes what was odd about it; for anything else it
raises ParseError, and nothing but ParseError.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np

from fsmatrix.results.evidence.evidence import Note as Note
from fsmatrix.results.evidence.stored import Json, JsonObject
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.record import OPERATIONS_UNKNOWN, Phase
from fsmatrix.results.registry import Registry


class ParseError(ResultError):
    """A text is not the output that it should be: which one, where, and why."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        """`line` counts from 1; 0 = the text as a whole."""
        super().__init__(source, f"line {line}: {reason}" if line else reason)
        self.line = line


@dataclass(frozen=True)
class Parsed:
    """One run as its output tells it.  What the output does not tell is absent, never guessed."""

    engine: str = ""
    version: str = ""
    phases: tuple[Phase, ...] = ()
    argv: tuple[str, ...] = ()
    options: JsonObject = field(default_factory=dict)  # in the words of the workload
    nodes: int | None = None  # client nodes
    processes: int | None = None  # all together
    started: str = ""  # as printed; ISO 8601 UTC where the output is sure of the zone
    failure: str = ""  # why the run failed, one sentence; empty if it did not
    notes: tuple[Note, ...] = ()
    facts: JsonObject = field(default_factory=dict)  # what else it told


Parser = Callable[[str, str], list[Parsed]]

ROUNDED = 5e-4  # relative: four digits, as people write values down by hand


def agrees(stated: float, again: float, digits: float = 0.0) -> bool:
    """Whether a stated value is what follows from other numbers of its output.

    `digits`: how far it may be off for the digits that are not written, at least.
    """
    return abs(again - stated) <= max(digits, ROUNDED * abs(stated))


_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)
_TIMES = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S")  # of IOR, of mdtest


@dataclass(frozen=True)
class Format:
    """One kind of text: how it is recognised (by content) and parsed."""

    name: str
    recognises: Callable[[str], bool]
    parse: Parser  # (text, source for messages) -> runs, at least one; ParseError


def headless(program: str, recognises: Callable[[str], object]) -> tuple[Format, ...]:
    """Of outputs that lost their first lines: nothing is read, ParseError says what to do."""

    def refuse(_: str, source: str) -> list[Parsed]:
        text = f"{program}'s output, and its first lines are missing: import the whole output"
        raise ParseError(source, 0, text)

    name = f"{program} without its first lines"
    return (Format(name, lambda text: bool(recognises(text)), refuse),)


def is_older(version: str, oldest: str) -> bool:
    """Whether a printed version ("2.21", "3.0.1rc1") is below another; False for no number."""
    seen, least = (_VERSION.match(text) for text in (version, oldest))
    if not seen or not least:
        return False
    return [int(part or 0) for part in seen.groups()] < [int(part or 0) for part in least.groups()]


def totals(
    name: str,
    seconds: float,
    bytes_: int = 0,
    operations: int | None = 0,
    errors: int = 0,
    **more: Any,
) -> Phase:
    """A phase of which only the totals over all workers are known: arrays of one element.

    `operations`: None where the output does not tell them.  `more`: further fields of Phase.
    """
    if operations is None:
        operations, more["facts"] = 0, {**more.get("facts", {}), OPERATIONS_UNKNOWN: True}
    return Phase(
        name=name,
        start=np.zeros(1),
        end=np.array([float(seconds)]),
        bytes=np.array([bytes_], dtype=np.int64),
        operations=np.array([operations], dtype=np.int64),
        errors=np.array([errors], dtype=np.int64),
        **more,
    )


def shared_facts(phases: Sequence[Phase]) -> dict[str, Json]:
    """Facts of several phases as one: the first's; operations are known if those of all are."""
    unknown = any(phase.facts.get(OPERATIONS_UNKNOWN) for phase in phases)
    return {**phases[0].facts, **({OPERATIONS_UNKNOWN: True} if unknown else {})}


def apart(line: str, banner: re.Pattern[str]) -> list[str]:
    """A line, in two parts where a banner follows what a killed run did not end; not blank ones."""
    found = banner.search(line)
    start = found.start() if found else 0
    return [part for part in (line[:start], line[start:]) if part.strip()]


def aged(run: Parsed, oldest: str) -> Parsed:
    """The run; if its version is below `oldest` ("3.2") it says so, in its failure or a note."""
    if not is_older(run.version, oldest):
        return run
    text = f"{run.engine} {run.version} is too old: outputs of {oldest} and newer are known here"
    if run.failure:
        return replace(run, failure=f"{run.failure} ({text})")
    return replace(run, notes=(Note("old-version", text), *run.notes))


Span = tuple[str, float, float]  # where a start worked, from when to when (s); "" not known


def overlapping(starts: Sequence[Sequence[Parsed]], spans: Sequence[Span] = ()) -> list[Parsed]:
    """The runs of one output, by starts of the program; a start that is there twice is one.

    Those of starts that overlap in time on one file, or by one command, say so.  `spans`: of the
    starts, if none of them is there twice; without them as their runs tell.
    """
    starts = starts if spans else _once(starts)
    every = [*spans] or [_span(runs[0]) for runs in starts]
    worked = [sum(map(_window, runs)) for runs in starts]
    result: list[Parsed] = []
    for runs, span in zip(starts, every, strict=True):
        beside = sum(_meet(span, other) for other in every)
        same = [seconds for seconds, other in zip(worked, every, strict=True) if other == span]
        if span[0] and sum(same) > span[2] - span[1] + 1:  # whole seconds cannot hold them in turn
            beside = max(beside, len(same))
        text = f"{beside} starts in this output were at work at the same time on {span[0][:200]}"
        note = (Note("simultaneous", text),) if beside > 1 else ()
        result += [replace(run, notes=(*note, *run.notes)) for run in runs]
    return result


def _once(starts: Sequence[Sequence[Parsed]]) -> list[Sequence[Parsed]]:
    """Without those that are equal to an earlier one in every number and time that they tell."""
    kept: dict[str, Sequence[Parsed]] = {}
    again: set[str] = set()
    for number, runs in enumerate(starts):
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            told = repr([replace(run, notes=()) for run in runs])
        key = told if any(run.phases for run in runs) else str(number)
        if kept.setdefault(key, runs) is not runs:
            again.add(key)
    note = Note("recovered", "it is there more than once: it counts once")
    for key in again:
        kept[key] = [replace(run, notes=(*run.notes, note)) for run in kept[key]]
    return list(kept.values())


def _meet(one: Span, other: Span) -> bool:
    long = one[1] < one[2]
    return bool(one[0]) and one[0] == other[0] and long and one[1] < other[2] and other[1] < one[2]


def _window(run: Parsed) -> float:
    """Seconds of its phases."""
    return sum(float(phase.end.max() - phase.start.min()) for phase in run.phases)


def _span(run: Parsed) -> Span:
    """As printed, in whole seconds."""
    times = [*_parsed_times(run.started), *_parsed_times(str(run.facts.get("finished", "")))]
    place = str(run.facts.get("test_file", "")) or " ".join(run.argv)
    if len(times) != 2:
        return "", 0.0, 0.0
    began, ended = (time.replace(tzinfo=UTC).timestamp() for time in times)
    return place, began, ended


def _parsed_times(text: str) -> Iterator[datetime]:
    for form in _TIMES:
        with suppress(ValueError):
            yield datetime.strptime(text, form)


# What terminals, pages, mails and launchers put into an output is taken out of it.


_COLOUR = re.compile(r"\x1b\[[\d;]{0,30}[mK]")
_BLANKS = str.maketrans(dict.fromkeys("\t\u00a0\u2007\u202f", " "))
_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e", '"'))
_HOST = r"([A-Za-z][\w.-]{0,100}):"
# What stands before a line, with the rank or the host that printed it: nothing but marks and
# blanks, srun, hydra, Open MPI and PRRTE, pdsh.
_KINDS = (
    r"()",
    r"[ \t]*(\d{1,7}):",
    r"[ \t]*\[(\d{1,7})\]",
    r"[ \t]*\[[^][\s,]{1,100},(\d{1,7})\](?:\[[^][\s]{1,100}\])?<std(?:out|err)>:",
    rf"[ \t]*{_HOST}",
)
# When a line was printed: moreutils' ts, kubectl logs, container and system logs.
_STAMP = re.compile(
    r"[ \t]*\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: [\w.-]{1,100} [\w./-]{1,100}\[\d{1,9}\]:)?"
    r"|\d\d:\d\d:\d\d(?:\.\d{1,9})?)\]?(?: std(?:out|err) [FP])?(?:[ \t]|$)",
    re.ASCII | re.MULTILINE,
)
_BEFORE = tuple(
    (kind, re.compile(rf"((?:[ \t>|]*[>|])?){kind}([ \t]*)", re.ASCII)) for kind in _KINDS
)
_BEGINNING = re.compile(
    r"mdtest-\S{1,80} was launched|-- started at |IOR-\S{1,40}: MPI Coord|Began {1,40}: "
    r"|access {1,40}bw\(MiB/s\)|access,bw\(MiB/s\)|dbench version |Running for \d{1,9} seconds"
    r"|Throughput \S{1,24} MB/sec|ISO date,label|\[RESULT(?:-invalid)?\]"
    r'|(?P<key>"(?:fio version|Began)" ?:)'
)
_LONGEST = 200  # characters before a beginning
_MOST = 50_000_000  # lines of the texts of all ranks


def unlabelled(text: str) -> list[str]:
    """An output without colours, times and what else stands before each of its lines.

    It is one text, or one for each rank or host that began an output of its own (worlds of one
    task each).  What nobody of them printed is in all of them; every line keeps its place.
    """
    text = _COLOUR.sub("", _plain(text))
    before = list(_before(text))
    if any(_STAMP.match(each) for each, _ in before):
        text = "".join(map(_unstamped, text.splitlines(keepends=True)))
        before = list(_before(text))
    found = _labels(before)
    first = next(found, None)
    if first is None:
        return [text]
    quote, kind, blanks, _ = first
    own = {label[-1]: None for label in (first, *found) if label[1] == kind}
    label = re.compile(rf"{re.escape(quote)}{kind}(?:{blanks}|$)", re.ASCII)
    lines = []
    for line in text.split("\n"):
        match = label.match(line)
        if match is None or (_HOST in kind and match[1] not in own):
            lines.append(("-", line))
        else:
            lines.append((match[1], line[match.end() :]))
    if len(own) == 1 or len(own) * len(lines) > _MOST:
        return ["\n".join(line for _, line in lines)]
    return [
        "\n".join(line if by == one or by not in own else "" for by, line in lines) for one in own
    ]


def _plain(text: str) -> str:
    """With blanks, quotes and ends of lines as programs print them, not as pages show them."""
    if "\r" in text and "\n" not in text:
        text = text.replace("\r", "\n")
    if '"' not in text:
        text = text.replace("&quot;", '"').translate(_QUOTES)
    return text.translate(_BLANKS)


def _before(text: str) -> Iterator[tuple[str, bool]]:
    """What stands in its line before each beginning of an output, and whether that is JSON's."""
    for beginning in _BEGINNING.finditer(text):
        start = beginning.start()
        before = text[max(0, start - _LONGEST) : start].rpartition("\n")[2]
        yield before, beginning["key"] is not None


def _unstamped(line: str) -> str:
    """Without the time at which it was printed."""
    match = _STAMP.match(line)
    return line[match.end() :] if match else line


def _labels(found: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, str, str, str]]:
    """What stands before each beginning of an output: marks, kind, blanks, and who printed it."""
    for before, is_json in found:
        if is_json:  # JSON is indented
            before = before.rstrip(" \t")
        for kind, pattern in _BEFORE if before else ():
            if match := pattern.fullmatch(before):
                yield match[1], kind, match[3], match[2]
                break


def runs_of(parse: Parser, texts: Sequence[str], source: str) -> list[Parsed]:
    """All runs of an output; those of several ranks were at work at the same time."""
    runs = [run for text in texts for run in parse(text, source)]
    if len(texts) == 1:
        return runs
    note = Note("simultaneous", f"{len(texts)} ranks or hosts each began an output of their own")
    return [replace(run, notes=(note, *run.notes)) for run in runs]


# The formats that import knows, recognised by content; a module is loaded when first asked.
#
# A name is that of a family, and stands for a `tuple[Format, ...]`.  A directory that IO500 wrote
# is one run: `io500.parse_directory` is given the texts of all its files.


# the most specific first: what IO500 prints holds what IOR prints, and not the other way
BUILTIN: dict[str, str] = {
    name: f"fsmatrix.results.formats.{name}:FORMATS"
    for name in ("io500", "elbencho", "fio", "mdtest", "ior", "dbench")
}
# only to say what to do instead
BUILTIN["fio-text"] = "fsmatrix.results.formats.fio:TEXTS"
BUILTIN["elbencho-text"] = "fsmatrix.results.formats.elbencho:OTHER_FORMATS"
BUILTIN |= {
    f"{name}-headless": f"fsmatrix.results.formats.{name}:HEADLESS"
    for name in ("fio", "mdtest", "ior")
}
# values are tuples of Format
FORMATS: Registry[Any] = Registry("fsmatrix.formats", BUILTIN, "format")


@dataclass(frozen=True)
class KnownFormat:
    """A format and the family (a name of FORMATS) that it belongs to."""

    family: str
    format: Format


@dataclass(frozen=True)
class DirectoryFormat:
    """A directory that is one run.

    `summaries`: names of the files that may tell, the preferred first; the directory is
    recognised if `format` recognises the text of one.
    """

    name: str
    summaries: tuple[str, ...]
    format: Format
    parse: Callable[[Mapping[str, str], str], Parsed]  # (name -> text, source); ParseError


@functools.cache
def formats() -> tuple[KnownFormat, ...]:
    """All formats in the order in which they are tried; those of other packages come last.

    BrokenEntry if another package's cannot be loaded.
    """
    return tuple(
        KnownFormat(name, known_format)
        for name in (*BUILTIN, *FORMATS.outside())
        for known_format in cast("tuple[Format, ...]", FORMATS.load(name))
    )


@functools.cache
def directory_formats() -> tuple[DirectoryFormat, ...]:
    """All directories that are one run."""
    io500 = importlib.import_module("fsmatrix.results.formats.io500")
    return tuple(
        DirectoryFormat(
            "io500 directory",
            ("result_summary.txt", "result.txt"),
            known_format,
            io500.parse_directory,
        )
        for known_format in io500.FORMATS
    )


def matching(text: str, candidates: Sequence[KnownFormat] | None = None) -> list[KnownFormat]:
    """The formats that recognise `text`, one for each family, the most specific first.

    `candidates`: formats to try; all of `formats()` without it.
    """
    matches: dict[str, KnownFormat] = {}
    for known_format in formats() if candidates is None else candidates:
        if known_format.family not in matches and known_format.format.recognises(text):
            matches[known_format.family] = known_format
    return list(matches.values())


def recognise(text: str, candidates: Sequence[KnownFormat] | None = None) -> Format | None:
    """The format of `text`; None if there is none."""
    matches = matching(text, candidates)
    return matches[0].format if matches else None
