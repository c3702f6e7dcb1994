"""The answer of the first screen, from lessons: which target, where, how sure, what is invalid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.data.study import Study
from fsmatrix.analysis.lessons.limits import least_attachments
from fsmatrix.analysis.lessons.overall import TOGETHER
from fsmatrix.analysis.lessons.words import Bound, Lesson, cell_metric
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.units import METRICS, factor_title, work_kind
from fsmatrix.results.units import plural

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
        sentences.append(f"Left out of all answers: {'; '.join(excluded)}.")
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
        for group, how in ((sure, ""), (partly, " (in part: not each pair is proven)")):
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
