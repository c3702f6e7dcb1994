"""The lessons of a campaign: as sentences, a table, plain data and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis.comparison.extension import Extension
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.data.study import Study
from fsmatrix.analysis.lessons.answer import answer
from fsmatrix.analysis.lessons.lines import counted, lines
from fsmatrix.analysis.lessons.words import (
    IN_PART,
    NO_DATA,
    NOT_ASKED,
    TITLES,
    Bound,
    Lesson,
    Question,
    rate_text,
)
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import Median, of_independent
from fsmatrix.results.evidence.values import Json

if TYPE_CHECKING:
    import pandas as pd

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
