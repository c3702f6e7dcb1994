"""The lessons of a campaign: as sentences, a table, plain data and pictures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.comparison.extension import Extension
from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.data.factors import level_text
from fsmatrix.analysis.data.metric_cells import Study
from fsmatrix.analysis.lessons.backend import TOGETHER
from fsmatrix.analysis.lessons.lessons_words import (
    IN_PART,
    NO_DATA,
    NOT_ASKED,
    STATES,
    TITLES,
    Bound,
    Lesson,
    Question,
    cell_metric,
    names,
    rate_text,
)
from fsmatrix.analysis.lessons.limits import least_attachments
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import Median, of_independent
from fsmatrix.analysis.units import METRICS, Level, factor_title, work_kind
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd


# The answer of the first screen, from lessons: which target, where, how sure, what is invalid.


MOST_PATTERNS = 6
MOST_SIZES = 3
EMULATED = " (emulated)"


def answer(
    lessons: Sequence[Lesson], of: Study, bound: Bound | None, excluded: Sequence[str]
) -> str:
    """One to five sentences."""
    sentences = [*_choice([lesson for lesson in lessons if lesson.question == "backend"], of)]
    if bound is not None:
        sentences += _chunks([lesson for lesson in lessons if lesson.question == "chunk"], bound)
    sentences.append(_sure(lessons, of))
    sentences += _doubts(lessons)
    if excluded:
        sentences.append(f"Left out of all answers: {listed(excluded)}.")
    return " ".join(sentences)


def _chunks(of_chunk: Sequence[Lesson], bound: Bound) -> list[str]:
    """The chunk sizes that keep a bound, by how many series have each as their answer."""
    lessons = [lesson for lesson in of_chunk if lesson.certainty is not Certainty.INVALID]
    if not lessons:
        return []
    counts = Counter((lesson.short, lesson.partly) for lesson in lessons).most_common(MOST_SIZES)
    shown = ", ".join(
        f"{short} in {count}{' (in part)' * partly}" for (short, partly), count in counts
    )
    return [f"For {bound.says}: {shown} of {len(lessons)} series."]


def _choice(lessons: Sequence[Lesson], of: Study) -> list[str]:
    """Which target, by pattern."""
    if all(lesson.certainty is Certainty.INVALID for lesson in lessons):
        return [f"{lesson.answer[0].upper()}{lesson.answer[1:]}." for lesson in lessons[:1]]
    parts = [
        _together(lesson)
        for lesson in lessons
        if lesson.where.startswith(TOGETHER) and lesson.choice
    ]
    lessons = [lesson for lesson in lessons if not lesson.where.startswith(TOGETHER)]
    for short, some in _by_answer(lessons).items():
        sure = [lesson for lesson in some if lesson.settled]
        partly = [lesson for lesson in some if lesson.partly]
        for group, how in ((sure, ""), (partly, " (in part)")):
            if group:
                parts.append(f"{_winner(short)} in {_patterns(group)}{how}")
    rest = [lesson for lesson in lessons if lesson.certainty is Certainty.UNDECIDED]
    if rest and not parts:
        first = f"No target is proven to be faster in {_patterns(rest)}"
        ways = {lesson.answer for lesson in rest}
        sentence = f"{first} ({rest[0].answer})" if len(ways) == 1 else first
        why = {lesson.why for lesson in rest}
        return [f"{sentence}: {rest[0].why}." if len(why) == 1 and rest[0].why else f"{sentence}."]
    if rest:
        parts.append(f"{Certainty.UNDECIDED} in {_patterns(rest)}")
    return [f"By {_metrics(of)}: {'; '.join(parts)}."]


def _together(lesson: Lesson) -> str:
    """What holds over all cells."""
    if lesson.short == "no difference":
        return f"over {lesson.where} no difference that matters"
    return f"over {lesson.where} {lesson.answer}"


def _winner(short: str) -> str:
    """An answer as the start of a sentence."""
    return {"no difference": "no difference that matters", "depends": "it depends on the cell"}.get(
        short, f"{short} is the fastest"
    )


def _metrics(of: Study) -> str:
    """What targets are compared by."""
    own = {cell_metric(cell) for cell in of.cells}
    if own == {"bandwidth", "iops"}:
        kinds = {work_kind(cell_metric(c), str(c.cell.levels.get("phase", ""))) for c in of.cells}
        others = ", ".join(sorted(kinds - {"data"}))
        return f"bandwidth, {others} by operations per second"
    return METRICS[own.pop() if len(own) == 1 else of.metric.name].title.lower()


def _doubts(lessons: Sequence[Lesson]) -> list[str]:
    """What the answers that were given hang on, where that is in doubt."""
    where: dict[str, list[str]] = {}
    for lesson in lessons:
        for doubt in lesson.doubts if lesson.choice else ():
            where.setdefault(doubt, []).append(lesson.where or lesson.short)
    parts = [f"{doubt} ({listed(names)})" for doubt, names in where.items()]
    return [f"In doubt: {listed(parts)}."] if parts else []


def _by_answer(lessons: Sequence[Lesson]) -> dict[str, list[Lesson]]:
    by_answer: dict[str, list[Lesson]] = {}
    for lesson in lessons:
        by_answer.setdefault(lesson.short, []).append(lesson)
    return by_answer


def _patterns(some: Sequence[Lesson]) -> str:
    shown = [lesson.where or "all cells" for lesson in some]
    more = len(shown) - MOST_PATTERNS
    return ", ".join(shown[:MOST_PATTERNS]) + (f" and {more} more" if more > 0 else "")


def _sure(lessons: Sequence[Lesson], of: Study) -> str:
    asked = [lesson for lesson in lessons if lesson.certainty is not None]
    proven = sum(lesson.settled for lesson in asked)
    partly = sum(lesson.partly for lesson in asked)
    low, high = least_attachments(of.valued)
    each = plural(low, "attachment") if low == high else f"{low} to {high} attachments"
    sentence = f"{proven} of {plural(len(asked), 'answer')} proven"
    if partly:
        sentence += f", {partly} in part"
    sentence += f", from {each} per cell"
    if of.cluster.emulated:
        made_up = ", ".join(
            factor_title(n) + (how if how != EMULATED else "")
            for n, how in of.cluster.emulated.items()
        )
        sentence += f"; emulated, so not what hardware does: {made_up}"
    return f"{sentence}."


# Lessons of one question as lines: each, or groups of those that agree.


MOST_LINES = 8  # of one question, one a lesson; more are grouped by answer
OWN_WORDS = ("interface", "pattern", "chunk", "target", "workload", "phase")


def counted(lessons: Sequence[Lesson]) -> str:
    """How many lessons are how sure."""
    if len(lessons) == 1:
        return f"{lessons[0].state}."
    counts = Counter(lesson.state for lesson in lessons)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) + "."


def lines(lessons: Sequence[Lesson], of: Study) -> list[str]:
    """Each lesson, or one line for all that have one answer and are as sure of it."""
    if len(lessons) <= MOST_LINES:
        return _each(lessons)
    groups: dict[tuple[str, str], list[Lesson]] = {}
    for lesson in lessons:
        groups.setdefault((lesson.short, lesson.state), []).append(lesson)
    ordered = sorted(groups.values(), key=lambda some: (not some[0].settled, -len(some)))
    return [_group(some, lessons, of) for some in ordered]


def _each(lessons: Sequence[Lesson]) -> list[str]:
    """A line for each; doubts that all of them share once, above."""
    every = [
        d
        for d in lessons[0].doubts
        if len(lessons) > 1 and all(d in lesson.doubts for lesson in lessons)
    ]
    start = [f"In doubt, all of them: {', '.join(every)}."] if every else []
    own = [
        replace(lesson, doubts=tuple(d for d in lesson.doubts if d not in every))
        for lesson in lessons
    ]
    return start + [_state(lesson) + lesson.says for lesson in own]


def _group(some: Sequence[Lesson], lessons: Sequence[Lesson], of: Study) -> str:
    first = some[0]
    if len(some) == 1:
        return _state(first) + first.says
    state = "" if first.short == first.state else _state(first)
    sentence = f"{state}{first.short}: {len(some)} of {len(lessons)}"
    where = _where(some, lessons, of)
    sentence += f" ({where})" if where else ""
    values = [lesson.estimate.median for lesson in some if lesson.estimate]
    if len(values) == len(some):
        unit = units.fitting("bandwidth", values)
        low, high = (units.text(end(values), unit) for end in (min, max))
        open_ = f" {first.where}: {first.why}." if first.partly else ""
        return f"{sentence}; there {low} to {high} {unit.label}.{open_}"
    return f"{sentence}. One of them: {first.where}: {first.answer}" + (
        f"; {first.why}." if first.why else "."
    )


def _where(some: Sequence[Lesson], lessons: Sequence[Lesson], of: Study) -> str:
    """The levels of a group, if it has all lessons of these levels; else some of its members."""
    if len(some) == len(lessons):
        return ""
    every = _levels(lessons)
    own = _levels(some)
    apart = {name: levels for name, levels in own.items() if levels != every[name]}
    inside = sum(
        all(level in apart[name] for name, level in lesson.levels if name in apart)
        for lesson in lessons
    )
    if inside != len(some) or not apart:
        return names([lesson.where for lesson in some])
    return "; ".join(_described(name, levels, of) for name, levels in apart.items())


def _levels(some: Sequence[Lesson]) -> dict[str, list[Level]]:
    by_factor: dict[str, dict[Level, None]] = {}
    for lesson in some:
        for name, level in lesson.levels:
            by_factor.setdefault(name, {})[level] = None
    return {name: sorted(levels, key=_order) for name, levels in by_factor.items()}


def _order(level: Level) -> tuple[float, str]:
    return (math.inf, level) if isinstance(level, str) else (float(level), "")


def _described(name: str, levels: Sequence[Level], of: Study) -> str:
    if len(levels) == 1:
        return of.label(name, levels[0])
    shown = ", ".join(level_text(name, level) for level in levels)
    return shown if name in OWN_WORDS else f"{of.title(name)} {shown}"


def _state(lesson: Lesson) -> str:
    return f"[{lesson.state}] " if lesson.state in (Certainty.UNDECIDED, IN_PART) else ""


# what `--json` called them before there was one word for each
FORMER = {
    Certainty.PROVEN: "decided", Certainty.EQUAL: "decided", IN_PART: "in part",
    Certainty.UNDECIDED: "too few", NO_DATA: "cannot be said", NOT_ASKED: "not asked",
}  # fmt: skip


@dataclass(frozen=True)
class LessonGroup:
    """All lessons of one question, for a page: title, summary, lines, lessons."""

    question: Question
    title: str
    summary: str
    lines: tuple[str, ...]  # each lesson, or groups of lessons that agree
    lessons: tuple[Lesson, ...]


@dataclass(frozen=True)
class Lessons(Drawn):
    """All lessons of a campaign."""

    lessons: tuple[Lesson, ...]
    limits: tuple[str, ...]  # what the data cannot say
    excluded: tuple[str, ...]  # runs and cells that are in no answer
    study: Study
    bound: Bound | None
    bandwidth: float | None  # B/s
    tolerance: float
    alpha: float
    latencies: Mapping[int, Median]  # by id of a cell of the study: its median
    extension: Extension | None = None  # more blocks, for targets that are not told apart
    compared: tuple[Comparison, ...] = ()  # pairs of targets, if there are few

    @property
    def answer(self) -> str:
        """Which target, where, how sure, what is invalid or in doubt, what would decide more."""
        sentence = answer(self.lessons, self.study, self.bound, self.excluded)
        if self.extension is None or self.extension.record.imported:  # the limits say why
            return sentence
        return f"{sentence} {self.extension.says}".rstrip()

    @property
    def groups(self) -> tuple[LessonGroup, ...]:
        """The lessons by question, those of an answer first; for a template."""
        chosen = []
        for question, title in TITLES.items():
            lessons = tuple(lesson for lesson in self.lessons if lesson.question == question)
            if lessons:
                chosen.append(
                    LessonGroup(
                        question,
                        self._title(question, title),
                        counted(lessons),
                        tuple(lines(lessons, self.study)),
                        lessons,
                    )
                )
        return tuple(chosen)

    def _title(self, question: Question, title: str) -> str:
        if question == "chunk" and self.bound:
            return f"{title} for {self.bound.says}"
        if question == "nodes" and self.bandwidth:
            return f"{title.removesuffix(' a bandwidth')} {rate_text(self.bandwidth)}"
        return title

    @property
    def says(self) -> list[str]:
        """The answer, the lessons of each question, what the data cannot say."""
        sentences = [self.answer]
        for group in self.groups:
            sentences.append(f"{group.title}: {group.summary}")
            sentences += [f"  {line}" for line in group.lines]
        sentences += ["What the data cannot say:"] if self.limits else []
        sentences += [f"  {text}." for text in self.limits]
        look = self.extension.record.says(self.alpha) if self.extension else ""
        sentences += [look] if look else []
        sentences.append(
            "In brackets: the range in which the value lies (95 % sure). How this was tested: "
            "targets over all cells together, other answers each for itself; docs/statistics.md. "
            "p: fsmatrix compare --json."
        )
        return sentences

    @property
    def brief(self) -> list[str]:
        """The answer, each pattern, of other questions what most answers say, and the limits."""
        sentences, silent = [self.answer], []
        for group in self.groups:
            if all(lesson.certainty is Certainty.INVALID for lesson in group.lessons):
                if group.question in ("backend", "nodes"):  # of the others the limits say it
                    silent.append(f"{group.title.lower()}: {group.lessons[0].answer}")
                continue
            sentences.append(f"{group.title}: {group.summary}")
            shown = group.lines if group.question == "backend" else group.lines[:1]
            sentences += [f"  {line}" for line in shown]
            if more := len(group.lines) - len(shown):
                sentences.append(f"  {plural(more, 'other answer')}: --cells.")
        limits = (*silent, *self.limits)
        sentences += ["What the data cannot say:"] if limits else []
        return [*sentences, *(f"  {text}." for text in limits)]

    def table(self) -> pd.DataFrame:
        """One row per lesson with the bandwidth of its choice (NaN without one)."""
        import pandas as pd

        unit, blank = self.study.fitting(), of_independent([])
        frame = pd.DataFrame(
            [
                {
                    "question": lesson.question,
                    "where": lesson.where or "all",
                    "answer": lesson.short,
                    "sure": lesson.state,
                    f"median, {unit.label}": m.median / unit.divisor,
                    f"low, {unit.label}": m.low / unit.divisor,
                    f"high, {unit.label}": m.high / unit.divisor,
                    "attachments": m.independent,
                }
                for lesson in self.lessons
                for m in (lesson.estimate or blank,)
            ]
        )
        frame.attrs |= {"unit": unit.label}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """SI units."""
        data: dict[str, Json] = plain(
            {
                "answer": self.answer,
                "latency_bound": self.bound,
                "bandwidth": self.bandwidth,
                "tolerance": self.tolerance,
                "alpha": self.alpha,
                "lessons": [
                    {
                        **vars(lesson),
                        "levels": dict(lesson.levels),
                        "says": lesson.says,
                        "sure": FORMER[lesson.state],
                    }
                    for lesson in self.lessons
                ],
                "limits": self.limits,
                "excluded": self.excluded,
                "says": self.says,
                "extension": self.extension.to_dict() if self.extension else None,
            }
        )
        return data

    @property
    def drawable(self) -> str:
        """Why there is no figure; "" if there is one."""
        return "" if "chunk" in self.study.varying else "one chunk size: there is nothing to draw"
