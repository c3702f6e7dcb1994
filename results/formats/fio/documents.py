"""fio's JSON documents in a text: found, cleaned of foreign lines, recovered when damaged.

fio prints one document per run (several with --status-interval) and may print warnings around
and inside it.  A document that is no JSON is cleaned of lines that cannot be fio's; what is
still damaged is searched for whole job objects.  A job is kept whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fsmatrix.results.evidence.stored import Json, JsonObject
from fsmatrix.results.formats.parsed import Note, ParseError

MARK = re.compile(r'"fio version"\s*:')
_TOKEN = re.compile(r'"fio version"\s*:|(?P<job>"jobname"\s*:)')
_JOB = re.compile(r'\{\s*"jobname"\s*:')
_HEADER = re.compile(r'^\s*"(fio version|timestamp|timestamp_ms)"\s*:\s*("[^"\n]*"|\d+)', re.M)
_DECIMAL_COMMA = re.compile(r'^[ \t]*"[^"\n]*"[ \t]*:[ \t]*-?\d+,\d+,?[ \t\r]*$', re.M)
_NO_NUMBER = re.compile(r"(:\s*)-?(?:nan|inf)(?=\s*[,}\n])")
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|-?[0-9.eE+-]+|-?nan|-?inf|null|true|false|[{\[]|\{\}|\[\])'
_LINE = re.compile(rf'\s*(?:(?:"(?:[^"\\]|\\.)*"\s*:\s*)?{_VALUE}|[\]}}])?\s*,?\s*')
_WHOLE_REST = re.compile(r"\s*(?:\]|,?\s*$)")  # what may follow a job
_NEEDED = {"groupid", "error", "usr_cpu", "latency_ms"}  # first and last keys of a job
_LIST_KEYS = ("jobs", "client_stats")
_OPENS = re.compile(r"^[ \t\ufeff]*(?P<brace>[{\[])", re.M)
DEPTH = 8  # to which another program may have put a document into its own
MOST_FAILED = 20  # values that are no JSON, before a text is taken for a damaged one


@dataclass(frozen=True)
class Document:
    """One JSON document of fio."""

    header: JsonObject  # everything but the jobs
    jobs: tuple[JsonObject, ...]
    numbers: tuple[int, ...]  # of these jobs among all, from 1: fio's thread numbers
    line: int  # on which it begins, from 1
    notes: tuple[Note, ...] = ()
    damage: str = ""  # why jobs may be missing; empty: it is whole


def documents(text: str, source: str) -> list[Document]:
    """All documents of a text, at least one; ParseError if there is none, or nothing whole."""
    if whole := _undamaged(text):
        return [_whole(data, line, (), source) for data, line in whole]
    parsed, lost = [], list[ParseError]()
    for part, line in _parts(text):
        try:
            parsed.append(_document(part, line, source))
        except ParseError as error:
            lost.append(error)
    if not parsed:
        raise (
            lost[0]
            if lost
            else ParseError(
                source, 0, "no JSON of fio 3.0 or newer in it (run fio with --output-format=json+)"
            )
        )
    notes = tuple(Note("recovered", f"left out: {error.reason}", error.line) for error in lost)
    return [replace(document, notes=(*document.notes, *notes)) for document in parsed]


def _undamaged(text: str) -> list[tuple[JsonObject, int]]:
    """All documents and their lines, if each is whole: whatever stands around them, also JSON of
    another program, and in whatever order their keys are.  None if one may be damaged."""
    found: list[tuple[JsonObject, int]] = []
    end = failed = counted = 0
    line = 1
    for start in _OPENS.finditer(text):
        if start.start("brace") < end:
            continue
        try:
            value, end = _DECODER.raw_decode(text, start.start("brace"))
        except (ValueError, RecursionError):
            if (failed := failed + 1) > MOST_FAILED:
                return []
            continue
        line += text.count("\n", counted, start.start("brace"))
        counted = start.start("brace")
        found += [(document, line) for document in _inside(value)]
    return found if len(found) == len(MARK.findall(text)) else []


def _inside(value: Json) -> Iterator[JsonObject]:
    """The documents in a JSON value, at any depth; at most DEPTH levels are looked at."""
    level: list[Json] = [value]
    for _ in range(DEPTH):
        below: list[Json] = []
        for each in level:
            if isinstance(each, dict):
                if "fio version" in each and any(isinstance(each.get(k), list) for k in _LIST_KEYS):
                    yield each
                else:
                    below += each.values()
            elif isinstance(each, list):
                below += each
        level = below


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """The text of each document, from its brace to the next document, and its line."""
    starts: list[int] = []
    jobs = True  # since the last start; without, the line of the version stands twice
    for token in _TOKEN.finditer(text):
        if token["job"]:
            jobs = True
        elif jobs:
            from_ = max(token.start() - 200, 0)
            before = text[from_ : token.start()].rstrip()
            own = before.endswith("{")
            starts.append(from_ + len(before) - 1 if own else token.start())
            jobs = False
    line, position = 1, 0
    for start, end in pairwise([*starts, len(text)]):
        line += text.count("\n", position, start)
        position = start
        yield text[start:end], line


def _document(part: str, line: int, source: str) -> Document:
    if comma := _DECIMAL_COMMA.search(part):
        raise ParseError(
            source,
            line + part.count("\n", 0, comma.start() + 1),
            "a number with a decimal comma: fio ran in another locale (use LC_ALL=C)",
        )
    part = _NO_NUMBER.sub(r"\1null", part)
    data = _decoded(part)
    if data is not None:
        return _whole(data, line, (), source)
    kept, foreign = _without_foreign_lines(part)
    if foreign:
        data = _decoded(kept)
        text = f"{len(foreign)} foreign lines inside the JSON were left out"
        notes = (Note("recovered", text, line + foreign[0]),)
        if data is not None:
            return _whole(data, line, notes, source)
        return _salvaged(kept, line, notes, source)
    return _salvaged(part, line, (), source)


def _whole(data: JsonObject, line: int, notes: tuple[Note, ...], source: str) -> Document:
    lists = [found for key in _LIST_KEYS if isinstance(found := data.get(key), list)]
    if not lists:
        raise ParseError(source, line, "fio's JSON has no list of jobs")
    jobs = tuple(job for job in lists[0] if isinstance(job, dict))
    header = {key: value for key, value in data.items() if key not in _LIST_KEYS}
    return Document(header, jobs, tuple(range(1, len(jobs) + 1)), line, notes)


def _salvaged(part: str, line: int, notes: tuple[Note, ...], source: str) -> Document:
    """Whole job objects of a damaged document."""
    header = {key: _decoded_value(value) for key, value in _HEADER.findall(part)}
    if (where := part.find('"global options"')) >= 0:
        brace = part.find("{", where)
        options = _decoded(part[brace : part.find("}", brace) + 1]) if brace >= 0 else None
        header["global options"] = options or {}
    starts = [match.start() for match in _JOB.finditer(part)]
    jobs, numbers, closed = [], [], False
    for number, (start, end) in enumerate(pairwise([*starts, len(part)]), 1):
        job, rest = _decoded_with_rest(part[start:end])
        if job is None or not _WHOLE_REST.match(rest) or not job.keys() >= _NEEDED:
            continue
        jobs.append(job)
        numbers.append(number)
        closed = number == len(starts) and rest.lstrip().startswith("]")
    if not jobs:
        raise ParseError(source, line, "fio's JSON is damaged and no job in it is whole")
    text = f"the JSON is damaged: {len(jobs)} of {len(starts)} jobs in it are whole and kept"
    whole = len(jobs) == len(starts)
    damage = "" if closed and whole else text
    if whole and not closed:
        damage = f"the output is cut after job {len(jobs)}: whether more followed is unknown"
    notes = (*notes, Note("recovered", text, line))
    return Document(header, tuple(jobs), tuple(numbers), line, notes, damage)


def _without_foreign_lines(part: str) -> tuple[str, list[int]]:
    """The lines that fio's JSON can have, and the indices of the others before its end.

    Lines after the last closing brace in the first column are not counted.
    """
    lines = part.splitlines()
    last = max((i for i, line in enumerate(lines) if line.rstrip() == "}"), default=len(lines) - 1)
    kept, foreign = [], []
    for index, line in enumerate(lines[: last + 1]):
        if len(line) < 20_000 and _LINE.fullmatch(line):
            kept.append(line)
        else:
            foreign.append(index)
    return "\n".join(kept) + "\n", foreign


class _TwiceError(ValueError):
    """One key with two different values: lines of two places are mixed up."""


def _object(pairs: Sequence[tuple[str, Json]]) -> JsonObject:
    values = dict(pairs)
    if len(values) != len(pairs):
        for key, value in pairs:
            if values[key] != value:
                raise _TwiceError(key)
    return values


def _nothing(_: str) -> None:
    """NaN and Infinity are no numbers."""


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_nothing)


def _decoded_with_rest(text: str) -> tuple[JsonObject | None, str]:
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None, ""
    return (value, text[end : end + 200]) if isinstance(value, dict) else (None, "")


def _decoded(text: str) -> JsonObject | None:
    return _decoded_with_rest(text)[0]


def _decoded_value(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return None
    return value
