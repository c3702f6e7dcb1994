"""What IO500 writes about a run: result_summary.txt and result.txt, line by line.

Until 2020 a shell script (io-500-dev) wrote the summary: underscores in the names of phases, three
decimals, and "GB/s" for what are GiB/s (IOR's MiB/s divided by 1024; later it prints "GiB/s").
Its marks, [RESULT-invalid] and [SCORE-invalid], are those of the program's first versions too.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.formats.base import ParseError
from fsmatrix.results.formats.io500.declared import BANDWIDTHS, PHASES, RATES

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
