"""What IO500 writes about a run, and what a submission to it says of itself.

A run writes result_summary.txt and result.txt, read line by line.  Until 2020 a shell script
(io-500-dev) wrote the summary: underscores in the names of phases, three decimals, and "GB/s" for
what are GiB/s (IOR's MiB/s divided by 1024; later it prints "GiB/s").  Its marks, [RESULT-invalid]
and [SCORE-invalid], are those of the program's first versions too.

A submission has its place in the collection (github.com/IO500/submission-data),
institution/system/file system/year/submission-N/..., and its own form: lines `io500_info_...=` in
the script that ran it or in what that printed, later system-information.txt of such lines, or
system-information.json.  Where nothing was filled in there is nothing here, never a guess.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from fsmatrix.results.evidence.stored import Json, Stored
from fsmatrix.results.formats.parsed import Parsed, ParseError

# The score of IO500: its phases, their units, and how one number is made of them.
#
# The score is the geometric mean of two values: the geometric mean of the four bandwidths in
# GiB/s and that of the eight rates in thousands of operations per second (IO500's main.c,
# calc_score).  IO500 leaves out of its means what is zero, and calls the run invalid; here
# there is no score then.
GIB = 1 << 30
KILO = 1000.0
BANDWIDTHS = ("ior-easy-write", "ior-easy-read", "ior-hard-write", "ior-hard-read")
RATES = (
    "mdtest-easy-write",
    "mdtest-easy-stat",
    "mdtest-easy-delete",
    "mdtest-hard-write",
    "mdtest-hard-stat",
    "mdtest-hard-read",
    "mdtest-hard-delete",
    "find",
)
PHASES = (*BANDWIDTHS, *RATES)
RANDOM_READ = "ior-rnd4K-easy-read"  # since 2024; no part of the score
_KINDS = {"create": "write", "remove": "delete"}  # of the workload `io500` -> IO500's word

_VALUE = r"(\d{1,18}\.\d{1,9})"
_INVALID = r"( \[INVALID\])?"
_PHASE = re.compile(
    r"\[(RESULT|      )(-invalid)?\] +([A-Za-z0-9-]{1,40}) +"
    rf"{_VALUE} (GiB/s|kIOPS) *: time {_VALUE} seconds{_INVALID}",
    re.ASCII,
)
_SCORE = re.compile(
    rf"\[SCORE ?(-invalid)?\] Bandwidth {_VALUE} GiB/s : IOPS {_VALUE} kiops"
    rf" : TOTAL {_VALUE}{_INVALID}",
    re.ASCII,
)
_OLD_PHASE = re.compile(
    r"\[RESULT(-invalid)?\] +(?:BW|IOPS) +phase +\d{1,2} +([a-z_]{1,40}) +"
    rf"{_VALUE} (GB/s|GiB/s|kiops) *: time +{_VALUE} seconds",
    re.ASCII,
)
_OLD_VALUE = r"(\d{0,18}(?:\.\d{1,9})?)"  # six significant digits, as bc prints them
_OLD_SCORE = re.compile(
    rf"\[SCORE(-invalid)?\] +Bandwidth +{_OLD_VALUE} (?:GB/s|GiB/s) : IOPS +{_OLD_VALUE} kiops"
    rf" : TOTAL +{_OLD_VALUE}",
    re.ASCII,
)
_VERSION = re.compile(r"IO500 version (\S{1,80})(?: \((\w{1,20})\))?")  # without a mode in 2020
_SECTION = re.compile(r"\[([A-Za-z0-9-]{1,40})\]", re.ASCII)
_PAIR = re.compile(r"([A-Za-z][\w-]{0,40}) *= (.*)", re.ASCII)
_COMMAS = re.compile(r"^\[(RESULT|SCORE ?|      )(-invalid)?\].* \d+,\d+ ", re.ASCII)
_SCORED = re.compile(rf"(\d{{1,18}}\.\d{{6}}){_INVALID}", re.ASCII)  # "%f": fewer digits are a cut
_PRINTED = re.compile(rf"{_VALUE}{_INVALID}", re.ASCII)
DECIMALS = 6  # of scores as they are printed now
OLD_PRECISION = 1e-5  # of scores with six significant digits
NO_PHASES = frozenset({"run", "SCORE", "SCOREX"})
_ANNOUNCED = ("ERROR INVALID", "score-is-invalid")


@dataclass(frozen=True)
class Score:
    """The three numbers of an IO500 run; None where a phase that they need is missing."""

    bandwidth: float | None  # GiB/s
    rate: float | None  # thousands of operations per second
    total: float | None


def phase_of(name: str) -> str:
    """IO500's name of a phase that it or the workload `io500` calls `name`; empty if none.

    The workload puts the kind first: create-mdtest-easy is mdtest-easy-write.
    """
    kind, _, home = name.partition("-")
    for spelling in (name, f"{home}-{_KINDS.get(kind, kind)}"):
        if spelling in PHASES or spelling == RANDOM_READ:
            return spelling
    return ""


def score(values: Mapping[str, float]) -> Score:
    """Of IO500's phases by name: GiB/s of BANDWIDTHS, thousands per second of RATES."""
    bandwidth, rate = (_mean(values, names) for names in (BANDWIDTHS, RATES))
    complete = bandwidth is not None and rate is not None
    return Score(bandwidth, rate, math.sqrt(bandwidth * rate) if complete else None)  # type: ignore[operator]


def _mean(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """Geometric mean; None if one of them is missing or not a positive number."""
    factors = [values.get(name, math.nan) for name in names]
    if not all(math.isfinite(value) and value > 0 for value in factors):
        return None
    return math.exp(math.fsum(map(math.log, factors)) / len(factors))


_FILES = re.compile(
    r"system-information\.(txt|json)|.{1,80}\.sh|io500\.cfg|io-500-summary\..{1,60}\.txt"
)
_LINE = re.compile(
    r"^[ \t]*(?:echo[ \t]+)?[\"']?io500_info_([A-Za-z_-]{1,60})=[ \t\"'\\]*([^\"'\\#\n]{0,300})",
    re.MULTILINE,
)
_SUBMISSION = re.compile(r"submission-\d{1,9}")
_YEAR = re.compile(r"(?:19|20)\d\d")
_EMPTY = frozenset({"", "xxx"})
# what names the file system, the most telling first; the form of 2018 had a name misspelt
_FILE_SYSTEM = (
    "filesystem_type",
    "filesystem",
    "filesysem",
    "filesystem_name",
    "filesystem_version",
    "filesystem_vendor",
    "storage_vendor",
)
_NODES = ("client_nodes", "num_client_nodes", "number_clientNodes")
_OF_STORAGE = ("type", "name", "version", "vendor")  # of StorageSystem in the JSON


@dataclass(frozen=True)
class Place:
    """Where a run lies in a collection; empty or None where its path does not tell."""

    submission: str  # the path down to submission-N; of a run outside of any, its own path
    system: str  # institution/system
    filesystem: str
    year: int | None


@dataclass(frozen=True)
class Declared:
    """What a submission's form says of its system."""

    filesystem: tuple[str, ...] = ()  # texts that name it, the most telling first
    nodes: int | None = None  # client nodes


def place_of(path: str) -> Place:
    """Of a path below the root of a collection; the innermost submission-N counts."""
    parts = PurePosixPath(path).parts
    at = next((i for i in reversed(range(len(parts))) if _SUBMISSION.fullmatch(parts[i])), None)
    if at is None:
        return Place(path, path, "", None)
    before = list(parts[:at])
    year = int(before.pop()) if before and _YEAR.fullmatch(before[-1]) else None
    filesystem = before.pop().strip() if before else ""
    name = "/".join(parts[: at + 1])
    return Place(name, "/".join(before) or name, filesystem, year)


def is_form(name: str) -> bool:
    """Whether a file of this name may hold the form."""
    return _FILES.fullmatch(name) is not None


def declared(texts: Iterable[str]) -> Declared:
    """What the forms of a submission say; of several answers the first that was filled in."""
    answers: dict[str, list[str]] = {}
    for text in texts:
        pairs = _of_json(text) if text.lstrip().startswith("{") else _of_lines(text)
        for key, value in pairs:
            if value.strip() not in _EMPTY:
                answers.setdefault(key, []).append(value.strip())
    names = dict.fromkeys(name for key in _FILE_SYSTEM for name in answers.get(key, ()))
    counts = [value for key in _NODES for value in answers.get(key, ()) if _whole(value)]
    return Declared(tuple(names), int(counts[0]) if counts else None)


def _whole(value: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,7}", value) is not None


def _of_lines(text: str) -> Iterator[tuple[str, str]]:
    for match in _LINE.finditer(text):
        yield match[1], match[2]


def _of_json(text: str) -> Iterator[tuple[str, str]]:
    """The site's form: objects of a type, attributes and children; nothing if it is damaged."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            given = node.get("att")
            if isinstance(given, dict):
                yield from _attributes(str(node.get("type")), given)


def _attributes(kind: str, given: dict[str, Json]) -> Iterator[tuple[str, str]]:
    names = _OF_STORAGE if kind == "StorageSystem" else _NODES if kind == "information" else ()
    for name in names:
        if isinstance(value := given.get(name), str):
            yield (f"filesystem_{name}" if kind == "StorageSystem" else name), value


# A run of IO500 out of a directory of many, with what its submission says of itself.


@dataclass(frozen=True)
class Collected:
    """A run as it was read."""

    file: str  # the summary that tells it, below the directory that was named
    place: Place
    declared: Declared
    sha256: str  # of the summary
    parsed: Parsed


@dataclass(frozen=True)
class Collection:
    """All runs below a directory, by path, and what could not be read."""

    runs: tuple[Collected, ...]
    unread: tuple[tuple[str, str], ...]  # path, why
    without: tuple[str, ...]  # submissions in which no file is the summary of a run


@dataclass(frozen=True)
class Entry:
    """One phase as IO500 prints it."""

    name: str
    score: float  # in `unit`
    unit: str  # GiB/s, kIOPS
    seconds: float  # of the whole phase, start-up and preparation included
    scored: bool
    invalid: bool
    line: int
    half_digit: float = 5e-7  # of the last digit of `score`


@dataclass(frozen=True)
class Scores:
    """GiB/s, thousands of operations per second, and the score."""

    bandwidth: float
    rate: float
    total: float
    invalid: bool
    precision: float = 0.0  # relative, beyond six decimals
    product: bool = False  # the product of both was printed as the total, which is its root


@dataclass
class Summary:
    """A run as one of the two files tells it.  What is there twice and differs is in `torn`."""

    entries: dict[str, Entry] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    scores: Scores | None = None
    version: str = ""
    mode: str = ""
    processes: int | None = None
    started: str = ""
    details: dict[str, dict[str, str]] = field(default_factory=dict)  # section -> key -> value
    invalid: list[tuple[str, int, str]] = field(default_factory=list)  # text, line, phase

    def add(self, entry: Entry) -> None:
        """Keep it; two that differ are both given up."""
        earlier = self.entries.get(entry.name)
        if earlier is None and entry.name not in self.torn:
            self.entries[entry.name] = entry
        elif earlier is None or (earlier.score, earlier.seconds) != (entry.score, entry.seconds):
            self.entries.pop(entry.name, None)
            self.torn[entry.name] = entry.line

    def add_scores(self, scores: Scores, line: int) -> None:
        """Keep the scores; two that differ are both given up."""
        if "SCORE" in self.torn or (self.scores is not None and self.scores != scores):
            self.scores, self.torn["SCORE"] = None, line
        else:
            self.scores = scores


def is_summary(text: str) -> bool:
    """result_summary.txt, or what IO500 prints."""
    return any(
        _PHASE.fullmatch(line) or _OLD_PHASE.fullmatch(line)
        for _, line in _lines(text)
        if line.startswith("[")
    )


def is_result(text: str) -> bool:
    """Whether a text is IO500's result.txt."""
    sections = {match[1] for match in _sections(text)}
    return bool(sections & set(PHASES)) and "\nscore" in text


def _sections(text: str) -> Iterator[re.Match[str]]:
    for _, line in _lines(text):
        if line.startswith("[") and (match := _SECTION.fullmatch(line)):
            yield match


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        yield number, line.rstrip()


def read_summary(text: str, source: str) -> Summary:
    """result_summary.txt; ParseError for decimal commas."""
    summary = Summary()
    for number, line in _lines(text):
        _read_line(summary, line, number, source)
    return summary


def read_summaries(text: str, source: str) -> list[Summary]:
    """One for each run in a text; ParseError for decimal commas.

    A run begins where IO500 prints its version, or a phase after the score of the one before.
    """
    summaries = [Summary()]
    for number, line in _lines(text):
        last = summaries[-1]
        begun, ended = last.entries or last.torn, last.scores or "SCORE" in last.torn
        if (begun and _VERSION.fullmatch(line)) or (ended and is_summary(line)):
            summaries.append(Summary())
        _read_line(summaries[-1], line, number, source)
    return summaries


def _read_line(summary: Summary, line: str, number: int, source: str) -> None:
    if phase := _PHASE.fullmatch(line):
        mark, bad, name, score, unit, seconds, invalid = phase.groups()
        wrong = bool(bad or invalid)
        entry = Entry(name, float(score), unit, float(seconds), mark == "RESULT", wrong, number)
        summary.add(entry)
    elif old := _OLD_PHASE.fullmatch(line):
        summary.add(_old_entry(old, number))
    elif score_line := _SCORE.fullmatch(line):
        bad, *numbers, invalid = score_line.groups()
        summary.add_scores(_scores(numbers, bool(bad or invalid)), number)
    elif old_score := _OLD_SCORE.fullmatch(line):
        bad, *numbers = old_score.groups()
        if all(numbers):
            summary.add_scores(_scores(numbers, bool(bad)), number)
    elif version := _VERSION.fullmatch(line):
        summary.version, summary.mode = version[1], version[2] or ""
    elif _COMMAS.match(line):
        raise ParseError(source, number, f"decimal commas: {line[:80]!r}; run it in LC_ALL=C")
    elif any(word in line for word in _ANNOUNCED):
        summary.invalid.append((line.strip()[:300], number, ""))


def _scores(numbers: Sequence[str], invalid: bool) -> Scores:
    """Bandwidth, rate and total as they were printed: with six decimals, or six digits."""
    bandwidth, rate, total = map(float, numbers)
    exact = all(len(number.partition(".")[2]) >= DECIMALS for number in numbers)
    product = not exact and abs(total - bandwidth * rate) <= 4 * OLD_PRECISION * total
    if product:
        total = math.sqrt(bandwidth * rate)  # some of 2018 printed the square
    return Scores(bandwidth, rate, total, invalid, 0.0 if exact else OLD_PRECISION, product)


def _old_entry(match: re.Match[str], line: int) -> Entry:
    mark, name, score, unit, seconds = match.groups()
    ours = name.replace("_", "-")
    return Entry(
        ours,
        float(score),
        "kIOPS" if unit == "kiops" else "GiB/s",
        float(seconds),
        ours in PHASES,
        bool(mark),
        line,
        half_digit=5 / 10 ** (len(score.partition(".")[2]) + 1),
    )


def read_result(text: str) -> Summary:
    """result.txt: sections, their pairs, and why the run is invalid."""
    summary = Summary()
    section = ""  # none, or unknown since a line that is neither pair nor remark
    places: dict[str, int] = {}
    for number, line in _lines(text):
        if head := _SECTION.fullmatch(line):
            section = head[1]
            if section in places:
                summary.torn[section] = number
            places[section] = number
        elif any(word in line for word in _ANNOUNCED):
            reason = line.split("INVALID", 1)[-1].strip() or line.strip()
            summary.invalid.append((reason[:300], number, section if section in PHASES else ""))
        elif line and not line.startswith(";") and not _PAIR.fullmatch(line):
            section = ""
        elif section and (pair := _PAIR.fullmatch(line)):
            values = summary.details.setdefault(section, {})
            if values.setdefault(pair[1], pair[2].strip()) != pair[2].strip():
                summary.torn[section] = number
    _entries(summary, places)
    return summary


def _entries(summary: Summary, places: dict[str, int]) -> None:
    run = summary.details.get("run", {})
    summary.version, summary.mode = run.get("version", ""), run.get("mode", "")
    if run.get("procs", "").isdecimal():
        summary.processes = int(run["procs"][:18])
    for name, values in summary.details.items():
        score = _SCORED.fullmatch(values.get("score", ""))
        seconds = _PRINTED.fullmatch(values.get("t_delta", ""))
        if score is None or name in summary.torn or name in NO_PHASES:
            continue
        unit = "GiB/s" if name.startswith("ior") else "kIOPS"
        invalid = any(phase == name for _, _, phase in summary.invalid)
        wall = float(seconds[1]) if seconds else 0.0
        scored = name in PHASES
        summary.add(Entry(name, float(score[1]), unit, wall, scored, invalid, places[name]))
    last = summary.details.get("SCORE", {})
    numbers = [_PRINTED.fullmatch(last.get(key, "")) for key in ("BW", "MD", "SCORE")]
    if "SCORE" not in summary.torn and all(numbers):
        bandwidth, rate, total = (float(number[1]) for number in numbers if number)
        invalid = "[INVALID]" in last["SCORE"]
        summary.scores = Scores(bandwidth, rate, total, invalid)


# The scores that IO500 prints, computed again from the phases that it prints.


HALF_DIGIT = 5e-7  # of scores as they are printed now: six decimals
PARTS = ("bandwidth", "rate", "total")


@dataclass(frozen=True)
class Difference(Stored):
    """A printed score that its phases do not give.  GiB/s, thousands per second, or the total."""

    part: str  # of PARTS
    printed: float
    recomputed: float


@dataclass(frozen=True, kw_only=True)
class PrintedScores(Stored):
    """GiB/s, thousands per second, and the total."""

    bandwidth: float
    rate: float
    total: float
    invalid: bool
    product: bool  # the total is the product of both, not its root


@dataclass(frozen=True, kw_only=True)
class RunFacts(Stored):
    """The facts of a run; scores where they were printed."""

    mode: str
    scores: PrintedScores | None = None
    scores_recomputed: Mapping[str, float] | None = None  # by PARTS
    scores_differ: tuple[Difference, ...] | None = None
    configuration: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhaseFacts(Stored):
    """The facts of a phase that are IO500's own."""

    score: float
    unit: str
    scored: bool
    seconds_of_all: float
    own_output: bool  # IOR's or mdtest's own output was understood


def recomputed(entries: Mapping[str, Entry]) -> Scores:
    """By IO500's rule (main.c, calc_score): geometric means over what is above zero."""
    means = []
    for names in (BANDWIDTHS, RATES):
        positive = [entry.score for entry in _positive(entries, names)]
        means.append(statistics.geometric_mean(positive) if positive else 0.0)
    return Scores(means[0], means[1], (means[0] * means[1]) ** 0.5, invalid=False)


def differences(entries: Mapping[str, Entry], printed: Scores) -> list[Difference]:
    """Printed scores that differ by more than the digits lost in print explain.

    A geometric mean of n values is off, relatively, by the mean of what they are off: by half of
    the last digit of each at most.  The total is off by the mean of both.
    """
    again = recomputed(entries)
    lost = [_lost(entries, names) for names in (BANDWIDTHS, RATES)]
    differing = []
    for part, share in zip(PARTS, (*lost, sum(lost) / 2), strict=True):
        score, own = getattr(printed, part), getattr(again, part)
        if score == 0 and any(entry.scored and entry.score == 0 for entry in entries.values()):
            continue  # the first versions multiplied all phases, also those that are 0
        if abs(score - own) > score * (share + printed.precision) + 2 * HALF_DIGIT:
            differing.append(Difference(part, score, own))
    return differing


def _positive(entries: Mapping[str, Entry], names: tuple[str, ...]) -> list[Entry]:
    return [entries[name] for name in names if name in entries and entries[name].score > 0]


def _lost(entries: Mapping[str, Entry], names: tuple[str, ...]) -> float:
    """How far the mean of these phases may be off for the digits that were not printed."""
    shares = [entry.half_digit / entry.score for entry in _positive(entries, names)]
    return statistics.fmean(shares) if shares else 0.0
