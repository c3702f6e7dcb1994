"""IO500: its summary alone, or the directory of a run with the outputs of IOR and mdtest.

A phase keeps IO500's name.  Its bytes, operations and window are those of IOR's or mdtest's
own output where that is there; otherwise they come from result.txt (time, number of files).
The summary alone tells a rate and the time of the whole phase, start-up included: bytes or
operations are then rate x time, which leaves the rate as printed, and marked so.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fsmatrix.results.formats import ior, mdtest
from fsmatrix.results.formats.io500_text import (
    GIB,
    KILO,
    PARTS,
    Entry,
    PhaseFacts,
    PrintedScores,
    RunFacts,
    Scores,
    Summary,
    differences,
    is_result,
    is_summary,
    read_result,
    read_summaries,
    read_summary,
    recomputed,
)
from fsmatrix.results.formats.parsed import (
    Format,
    Note,
    Parsed,
    ParseError,
    agrees,
    is_older,
    overlapping,
    totals,
)
from fsmatrix.results.record import Phase, bandwidth, iops, window

SUMMARY, RESULT, CONFIG = "result_summary.txt", "result.txt", "config.ini"
MOST_NOTES = 60
SAME = 2e-3  # relative: IOR prints times with six decimals and fast ones are short
MDTEST_PHASES = {"write": "create", "stat": "stat", "read": "read", "delete": "remove"}
CUT = "the output is cut"  # IO500 closes IOR's output before its end: that is usual there
TWICE = "twice, and they differ: of two runs (give each its own file), or damaged"
UNREAD = "3.2"  # older versions of IOR whose text is not always understood (3.2 and newer are)
HARMLESS = (CUT, mdtest.NO_RESULT)  # the summary has the rate of what mdtest's text does not tell


def recognises(text: str) -> bool:
    """Whether it is result_summary.txt (or IO500's standard output) or result.txt."""
    return is_summary(text) or is_result(text)


def parse(text: str, source: str) -> list[Parsed]:
    """The run of result.txt, or those of a summary; ParseError where there is none."""
    if not is_summary(text):
        return [parse_directory({RESULT: text}, source)]
    summaries = read_summaries(text, source)
    return overlapping([[_parsed(_Run({}, source, each, Summary()))] for each in summaries])


def parse_directory(files: Mapping[str, str], source: str) -> Parsed:
    """One run from the texts of its directory by name ("result.txt", "ior-easy-write.txt").

    ParseError where no phase can be understood.
    """
    summary = read_summary(files.get(SUMMARY, ""), source)
    result = read_result(files.get(RESULT, ""))
    return _parsed(_Run(files, source, summary, result))


def _parsed(run: _Run) -> Parsed:
    summary, result = run.summary, run.result
    phases = run.phases()
    if not phases and not run.entries and not summary.version:
        reason = run.twice() or "no result of any phase of IO500"
        raise ParseError(run.source, min(run.torn.values(), default=0), reason)
    scores = summary.scores or result.scores
    version = summary.version or result.version
    return Parsed(
        engine="io500",
        version=version.removeprefix("io500-"),
        phases=phases,
        nodes=run.nodes,
        processes=result.processes or run.processes,
        started=result.details.get("run", {}).get("t_start", ""),
        failure=run.failure(scores, phases),
        notes=tuple([*run.judged(scores), *run.notes][:MOST_NOTES]),
        facts=run.facts(scores).document(),
    )


@dataclass
class _Run:
    files: Mapping[str, str]
    source: str
    summary: Summary
    result: Summary
    notes: list[Note] = field(default_factory=list)
    nodes: int | None = None
    processes: int | None = None
    failures: list[str] = field(default_factory=list)
    created: dict[str, int] = field(default_factory=dict)  # "easy": files that mdtest created

    @property
    def entries(self) -> dict[str, Entry]:
        """Every phase that one of the two files tells of."""
        return self.result.entries | self.summary.entries

    def phases(self) -> tuple[Phase, ...]:
        """Those that were run and are understood."""
        for torn in (self.summary.torn, self.result.torn):
            for name, line in torn.items():
                text = f"{name} is there twice and differs, or is damaged: it is left out"
                self.notes.append(Note("left-out", text, line, name))
        as_phases = (
            self._phase(entry)
            for name, entry in self.entries.items()
            if entry.score > 0 and name not in self.torn
        )
        return tuple(phase for phase in as_phases if phase is not None)

    def _phase(self, entry: Entry) -> Phase | None:
        other = self.result.entries.get(entry.name, entry)
        digits = 3 * max(entry.half_digit, other.half_digit)
        if not agrees(entry.score, other.score, digits):
            text = f"{SUMMARY} says {entry.score} {entry.unit}, {RESULT} says {other.score}"
            self._contradiction(entry, text)
            return None
        own = self._own(entry)
        phase = own or self._detailed(entry) or self._derived(entry)
        if phase is None:
            return None
        rate = bandwidth(phase) / GIB if entry.unit == "GiB/s" else iops(phase) / KILO
        if not abs(rate - entry.score) <= SAME * entry.score + 2 * entry.half_digit:
            text = f"{entry.name}.txt gives {rate:.6g} {entry.unit}, IO500 says {entry.score}"
            self._contradiction(entry, text)
            return None
        facts = PhaseFacts(
            score=entry.score,
            unit=entry.unit,
            scored=entry.scored,
            seconds_of_all=entry.seconds,
            own_output=own is not None,
        )
        return replace(phase, name=entry.name, facts={**phase.facts, **facts.document()})

    def _contradiction(self, entry: Entry, text: str) -> None:
        self.notes.append(Note("contradiction", f"{text}: left out", entry.line, entry.name))

    def _own(self, entry: Entry) -> Phase | None:
        """From IOR's or mdtest's own output."""
        text = self._file(entry.name, "txt")
        program, _, rest = entry.name.partition("-")
        if not text or program not in ("ior", "mdtest"):
            return None
        name = rest.rpartition("-")[2]
        where = f"{self.source}/{entry.name}.txt"
        try:
            if program == "ior":
                runs = ior.parse(text, where)
            else:
                ranks, home = self._file(entry.name, "csv"), rest.rpartition("-")[0]
                runs = mdtest.parse_with_ranks(text, ranks, where, self.created.get(home))
                name = MDTEST_PHASES.get(name, name)
        except ParseError as error:
            self.notes.append(Note("recovered", str(error)[:300], 0, entry.name))
            return None
        run = runs[0]
        phases = [phase for phase in run.phases if phase.name == name and window(phase) > 0]
        if program == "ior" and is_older(run.version, UNREAD) and len(phases) != 1:
            text = f"{entry.name}.txt is of IOR {run.version}, which is not read: the summary is"
            self.notes.append(Note("recovered", text, 0, entry.name))
            return None
        if run.failure and not run.failure.startswith(HARMLESS):
            self.failures.append(f"{entry.name}: {run.failure}")
        self.nodes, self.processes = run.nodes or self.nodes, run.processes or self.processes
        for note in run.notes:
            if note.phase in ("", name):
                self.notes.append(replace(note, phase=entry.name))
        if program == "mdtest" and name == "create" and len(phases) == 1:
            self.created[rest.rpartition("-")[0]] = int(phases[0].operations.sum())
        return phases[0] if len(phases) == 1 else None

    def _file(self, phase: str, suffix: str) -> str:
        """The text of a file of a phase; until 2020 they had underscores in their names."""
        names = (f"{phase}.{suffix}", f"{phase.replace('-', '_')}.{suffix}")
        return next((self.files[name] for name in names if name in self.files), "")

    def _detailed(self, entry: Entry) -> Phase | None:
        """From result.txt: mdtest's time, or the number of files that find saw."""
        details = self.result.details.get(entry.name, {})
        if entry.unit != "kIOPS" or entry.name not in self.result.entries:
            return None
        rate = entry.score * KILO
        if (files := details.get("total-files", "")) and files.isdecimal():
            count = int(files[:18])
            return totals(entry.name, count / rate, operations=count) if count else None
        try:
            seconds = float(details.get("time", ""))
        except ValueError:
            return None
        if not 0 < seconds < 1e9:
            return None
        return totals(entry.name, seconds, operations=round(rate * seconds))

    def _derived(self, entry: Entry) -> Phase | None:
        """Rate as printed; the amounts follow from the time of the whole phase."""
        whole = GIB if entry.unit == "GiB/s" else KILO
        amount = round(entry.score * whole * entry.seconds)
        if not 0 < amount < 1 << 62:
            text = f"{entry.score} {entry.unit} in {entry.seconds} s: the time has too few digits"
            self.notes.append(Note("left-out", text, entry.line, entry.name))
            return None
        seconds = amount / (entry.score * whole)
        what = "bytes" if entry.unit == "GiB/s" else "operations"
        text = f"{what} are the printed rate x the time of the whole phase; only the rate is known"
        self.notes.append(Note("derived-amount", text, entry.line, entry.name))
        if what == "bytes":
            return totals(entry.name, seconds, amount, operations=None)
        return totals(entry.name, seconds, operations=amount)

    @property
    def torn(self) -> dict[str, int]:
        """What is there twice and differs -> its line."""
        return self.summary.torn | self.result.torn

    def twice(self) -> str:
        """What is there twice and differs, with what to do about it; empty for nothing."""
        return f"{', '.join(self.torn)}: {TWICE}" if self.torn else ""

    # -- the run as a whole ----------------------------------------------------------------
    def judged(self, scores: Scores | None) -> list[Note]:
        """Notes on the score and on what makes the run invalid."""
        notes = [
            Note("invalid-run", text, line, phase)
            for text, line, phase in (*self.result.invalid, *self.summary.invalid)
        ]
        noted = {note.phase for note in notes}
        for entry in self.entries.values():
            if entry.invalid and entry.name not in noted:
                text = f"IO500 calls {entry.name} invalid"
                notes.append(Note("invalid-run", text, entry.line, entry.name))
        if scores is None:
            return notes
        if scores.invalid:
            notes.insert(0, Note("invalid-run", "IO500 calls its score invalid"))
        for difference in differences(self.entries, scores):
            if agrees(difference.printed, difference.recomputed):
                continue
            text = (
                f"the printed score ({difference.part}) is {difference.printed}, "
                f"its phases give {difference.recomputed:.6f}"
            )
            notes.insert(0, Note("contradiction", text))
        return notes

    def failure(self, scores: Scores | None, phases: tuple[Phase, ...]) -> str:
        """Why the run failed; empty if it did not."""
        if self.failures:
            return "; ".join(self.failures)
        if scores is None and ("SCORE" in self.torn or not self.entries) and self.torn:
            return self.twice()
        if scores is None:
            return f"{CUT} or the run did not finish: there is no line [SCORE ]"
        return "" if phases else "no phase of it has a usable result"

    def facts(self, scores: Scores | None) -> RunFacts:
        """Scores, printed and recomputed, mode, and the configuration."""
        mode = self.summary.mode or self.result.mode
        configuration = _configuration(self.files.get(CONFIG, ""))
        if scores is None:
            return RunFacts(mode=mode, configuration=configuration)
        again = recomputed(self.entries)
        return RunFacts(
            mode=mode,
            scores=PrintedScores(
                bandwidth=scores.bandwidth,
                rate=scores.rate,
                total=scores.total,
                invalid=scores.invalid,
                product=scores.product,
            ),
            scores_recomputed={name: getattr(again, name) for name in PARTS},
            scores_differ=tuple(differences(self.entries, scores)),
            configuration=configuration,
        )


def _configuration(text: str) -> dict[str, dict[str, str]]:
    """config.ini as a dict; empty if it cannot be read."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {name: {k: v or "" for k, v in parser[name].items()} for name in parser.sections()}


FORMATS: tuple[Format, ...] = (Format("io500-summary", recognises, parse),)
