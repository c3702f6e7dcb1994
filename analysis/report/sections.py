"""Sections of the report that analyses make: lessons, comparison, studies, claims."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from fsmatrix.analysis import catalogue
from fsmatrix.analysis.catalogue import Analysis
from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.comparison.compared import Compared
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.data.summary import Summary, made_once, summarise
from fsmatrix.analysis.draw import pictures, tables
from fsmatrix.analysis.lessons.lessons_result import Lessons
from fsmatrix.analysis.questions.timeline.timeline import MOST_DRAWN, UNEVEN, doubtful
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.analysis.studies.claims.claims_file import StudyFile
from fsmatrix.analysis.units import METRICS, MISSING, OWN, brief, p_text, text
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.units import plural

MOST_PAIRS = 6
MOST_LINES = 60  # cells in a table of the page
MOST_SENTENCES = 16  # of a study
MOST_RUNS = 100_000  # above which comparison and studies are left to their commands
POOLED = "shrunk ratio"
LATENCY = "latency_p99"
COMPARED = ("bandwidth", "iops", LATENCY)


@dataclass(frozen=True)
class SectionLine:
    """One cell of a comparison, as text."""

    cell: str
    a: str
    b: str
    ratio: str
    pooled: str  # "" where no cell of the comparison has it
    p: str
    kind: str
    verdict: str
    doubts: str


@dataclass(frozen=True)
class Block:
    """One result: a heading, sentences, images, perhaps a table."""

    heading: str
    says: tuple[str, ...]
    images: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    answer: str = ""  # beside the heading of a table
    lines: tuple[SectionLine, ...] = ()
    more_lines: int = 0
    opened: bool = False


@dataclass(frozen=True)
class Section:
    """One heading of the report."""

    id: str
    title: str
    blocks: tuple[Block, ...]


def sections(
    ds: xr.Dataset,
    summary: Summary,
    learned: Lessons | None = None,
    studies: Sequence[StudyFile] = (),
    place: str = "",
) -> tuple[Section, ...]:
    """What this campaign's factors allow.

    `learned`: its lessons; `studies`: whose claims are judged; `place`: its results directory.
    """
    data, drawn = rows(ds), not summary.many_targets
    all_sections = [Section("lessons", "Lessons", tuple(_lessons(learned)) if learned else ())]
    own = learned.compared if learned else ()
    all_sections += [Section("comparison", "Comparison", tuple(_comparison(ds, summary, own)))]
    if len(data) <= MOST_RUNS:
        factors = catalogue.STUDIES | catalogue.outside()
        all_sections += [
            Section("studies", "Studies of factors", tuple(_of(ds, data, factors, drawn))),
            Section("variation", "Variation", tuple(_of(ds, data, catalogue.VARIATION, drawn))),
            Section("inside", "Inside runs", tuple(_inside(ds, place))),
            Section("claims", "Claims of studies", tuple(_claims(ds, studies))),
        ]
    return tuple(section for section in all_sections if section.blocks)


def _lessons(lessons: Lessons) -> Iterator[Block]:
    for group in lessons.groups:
        decided = any(lesson.settled for lesson in group.lessons)
        drawn = group.question == "chunk" and decided and not lessons.drawable
        images, notes = _pictured(lessons) if drawn else ((), ())
        heading = f"{group.title}: {group.summary.removesuffix('.')}"
        yield Block(heading, (*group.lines, *notes), images, opened=True)
    if lessons.limits:
        yield Block("What the data cannot say", tuple(f"{text}." for text in lessons.limits))


def _claims(ds: xr.Dataset, studies: Sequence[StudyFile]) -> Iterator[Block]:
    for study in studies:
        try:
            judged = claims(ds, study)
        except ValueError as error:
            yield Block(study.title, (f"Not judged: {error}.",))
            continue
        images, notes = _pictured(judged)
        yield Block(study.title, (*judged.says, *notes), images)


def _inside(ds: xr.Dataset, place: str) -> Iterator[Block]:
    """Of cells whose runs were not even, the one nearest the median; where the runs still are."""
    try:
        shown, more = doubtful(ds, place) if place else ((), 0)
    except (ValueError, ResultError, OSError):  # no values, or the runs were moved
        return
    for one in shown:
        step(f"report: inside {one.runs[0].run_id}")
        images, notes = _pictured(one)
        yield Block(one.runs[0].title, (*one.says, *notes), images)
    if shown:
        audits = ", ".join(sorted(UNEVEN))
        counted = f"{plural(more, 'more cell')} not drawn; " if more else ""
        text = f"Drawn: the first {MOST_DRAWN} cells with one of the findings {audits}; {counted}"
        yield Block("Which cells, and all others", (f"{text}`fsmatrix timeline` draws any run.",))


def _comparison(ds: xr.Dataset, summary: Summary, own: Sequence[Comparison]) -> Iterator[Block]:
    """Each pair of targets; `own`: those of each phase's own metric, if they are made already."""
    targets = [name for name in summary.targets if name not in summary.references]
    if len(targets) < 2:
        return
    pairs = list(itertools.combinations(targets, 2))
    runs = ds.sizes["run"]
    if len(pairs) > MOST_PAIRS or runs > MOST_RUNS:
        many = f"{len(pairs)} pairs" if len(pairs) > MOST_PAIRS else f"{runs} runs"
        command = f"fsmatrix compare FILE --targets {shlex.quote(','.join(targets[:2]))}"
        yield Block(
            f"{len(targets)} targets",
            (f"{many} are too many for this page: `{command}` compares two of them.",),
            opened=True,
        )
        return
    drawn = False
    for metric in metrics_of(summary):
        step(f"report: {plural(len(pairs), 'pair')} of targets{f', {metric}' if metric else ''}")
        try:
            at_hand = own if metric == OWN else ()
            compared: Sequence[Comparison] = at_hand or comparisons(ds, metric, sides=targets)
        except ValueError as error:
            yield Block(_title(metric), (f"Not compared: {error}.",), opened=True)
            continue
        for comparison in compared:
            yield _compared(comparison, not drawn)
        drawn = True


def metrics_of(summary: Summary) -> list[str]:
    """Each phase's own metric, then the latency: those that have values."""
    measured = {name for cell in summary.cells for name in COMPARED if cell.metrics[name].runs}
    return [OWN] * bool(measured - {LATENCY}) + [LATENCY] * (LATENCY in measured)


def _title(metric: str) -> str:
    return METRICS[metric].title if metric != OWN else "Each phase in its own metric"


def _ratio(ratio: Ratio) -> str:
    """With its interval, or with the range of too few blocks, which a * says."""
    if ratio.low != ratio.low:
        return brief(ratio.ratio)
    few = "" if ratio.decides else "*"
    return f"{brief(ratio.ratio)}{few} [{brief(ratio.low)}, {brief(ratio.high)}]"


def _pooled(cell: Compared) -> str:
    if cell.pooled is None:
        return MISSING
    return f"{brief(cell.pooled.ratio)} [{brief(cell.pooled.low)}, {brief(cell.pooled.high)}]"


def _compared(comparison: Comparison, draw: bool) -> Block:
    """Cells with their ratios; of test beds on one machine only why there are none."""
    heading = f"{comparison.title}: {comparison.a} against {comparison.b}"
    if comparison.one_machine:
        return Block(heading, tuple(comparison.beside))
    answer, *says = comparison.says
    pooled = (POOLED,) if any(cell.pooled for cell in comparison.cells) else ()
    lines = [
        SectionLine(
            cell.named or "the only case",
            text(cell.a.median, comparison.unit),
            text(cell.b.median, comparison.unit),
            _ratio(cell.ratio),
            _pooled(cell) if pooled else "",
            "" if cell.verdict.p != cell.verdict.p else p_text(cell.verdict.p),
            cell.kind.replace(" ", "-"),
            comparison.word(cell.kind),
            "; ".join(cell.doubts),
        )
        for cell in comparison.cells
    ]
    return Block(
        heading=heading,
        says=tuple(says),
        answer=answer.partition(": ")[2],
        images=_pictured(comparison)[0] if draw else (),
        columns=(
            "cell",
            f"{comparison.a}, {comparison.unit.label}",
            f"{comparison.b}, {comparison.unit.label}",
            f"typical ratio {comparison.a} / {comparison.b}",
            *pooled,
            "verdict",
            "in doubt",
        ),
        lines=tuple(lines[:MOST_LINES]),
        more_lines=max(len(lines) - MOST_LINES, 0),
        opened=draw,
    )


def _pictured(result: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The first page of a result's figures; or no image, and the sentence why not."""
    try:
        return (pictures.data_uri(next(pictures.figures(result))),), ()
    except ValueError as error:
        return (), (f"Not drawn: {error}.",)


def _of(ds: xr.Dataset, data: Rows, among: Mapping[str, Analysis], drawn: bool) -> Iterator[Block]:
    """What the campaign has the factors for; `drawn`: with its pictures (a panel per target)."""
    for name, analysis in catalogue.possible(data, among).items():
        step(f"report: {name}")
        try:
            result = analysis.run(ds)
        except ValueError as error:
            yield Block(analysis.title, (f"Not shown: {error}.",))
            continue
        says, command = result.says, analysis.command or name
        more = [f"{len(says) - MOST_SENTENCES} more lines."] if len(says) > MOST_SENTENCES else []
        drawing = f"{command} FILE --out figure.pdf"
        if name not in catalogue.EVERY:  # another package's: it has no command
            drawing = "report FILE --figures DIR"
        draws = f"`fsmatrix {drawing}` draws it."
        images, notes = _pictured(result) if analysis.drawn and drawn else ((), ())
        yield Block(analysis.title, (*says[:MOST_SENTENCES], *more, *notes, draws), images)


# Every figure and table that a campaign allows, each in a file of its own.


@dataclass(frozen=True)
class Wanted:
    """A directory and the suffixes of its files (`pictures.FORMATS` or `tables.FORMATS`)."""

    directory: Path
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Exported:
    """Files written, and what could not be made: (name, why)."""

    files: tuple[Path, ...]
    missing: tuple[tuple[str, str], ...]


@made_once
def export(ds: xr.Dataset, figures: Wanted | None, tabled: Wanted | None) -> Exported:
    """Write them; a directory is made if it is not there, other files in it stay.

    Each file is written aside and renamed.  OSError as the system gives it.
    """
    files: list[Path] = []
    missing: list[tuple[str, str]] = []
    for wanted in (figures, tabled):
        if wanted is not None:
            wanted.directory.mkdir(exist_ok=True)
    for name, result in results(ds):
        if isinstance(result, ValueError):
            missing.append((name, str(result)))
            continue
        if figures is not None:
            try:
                out = figures.directory / f"{name}.pdf"
                files += pictures.save_as([result], out, figures.formats)
            except ValueError as error:  # a table, and nothing to draw
                missing.append((f"figure {name}", str(error)))
        if tabled is not None:
            made: list[Path] = []
            for suffix in tabled.formats:
                made += tables.save([result], tabled.directory / f"{name}{suffix}")
            files += made
            if not made:
                missing.append((f"table {name}", tables.EMPTY))
    return Exported(tuple(files), tuple(missing))


def results(ds: xr.Dataset) -> Iterator[tuple[str, Any]]:
    """(name of a file, result, or the ValueError why there is none)."""
    summary = summarise(ds)
    targets = [name for name in summary.targets if name not in summary.references]
    for metric in metrics_of(summary) if len(targets) > 1 else ():
        yield from _exported(ds, metric, targets)
    for name, analysis in catalogue.possible(
        rows(ds), catalogue.EVERY | catalogue.outside()
    ).items():
        try:
            yield name, analysis.run(ds)
        except ValueError as error:
            yield name, error


def _exported(ds: xr.Dataset, metric: str, targets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Every pair of targets."""
    pairs = len(list(itertools.combinations(targets, 2)))
    if pairs > MOST_PAIRS:
        yield (
            f"compare-{metric or 'own'}",
            ValueError(
                f"{pairs} pairs of targets are too many: `fsmatrix compare --targets A,B` takes two"
            ),
        )
        return
    try:
        compared = comparisons(ds, metric, sides=targets)
    except ValueError as error:
        yield f"compare-{metric or 'own'}", error
        return
    taken: set[str] = set()
    for comparison in compared:
        name = f"compare-{comparison.metric.name}-{_plain(comparison.a)}-{_plain(comparison.b)}"
        name += f"-{_plain(comparison.part)}" if comparison.part else ""
        while name in taken:
            name += "-again"  # two targets whose names differ in what a file name cannot hold
        taken.add(name)
        yield name, comparison


def _plain(name: str) -> str:
    """A target's name as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_+-]+", "_", name)[:60]
