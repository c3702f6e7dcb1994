"""Lessons of one question as lines: each, or groups of those that agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fsmatrix.analysis import units
from fsmatrix.analysis.data.roles import level_text
from fsmatrix.analysis.data.study import Study
from fsmatrix.analysis.lessons.words import IN_PART, STATES, Lesson, names
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import Level

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
    ordered = sorted(groups.values(), key=lambda some: -len(some))
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
