"""Run records of outputs that somebody else's runs left behind.

What the output and the labels do not tell is absent, never guessed.  Of the cache state
nothing is known, and nothing of independence: all imported runs share one attachment, so
that no interval over attachments, and no verdict, is made from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from fsmatrix.results.audits import judged
from fsmatrix.results.evidence.evidence import EngineOutput, Evidence
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, Stored
from fsmatrix.results.files import phases
from fsmatrix.results.files.run_rows import plain_level
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats.parsed import Note, Parsed
from fsmatrix.results.record import RunRecord, canonical_json, digest

UNKNOWN = "unknown"  # the target that nobody named, the cache state that no output tells
ATTACHMENT = "imported"  # one for all: not known to be independent
UNALIGNED = "nodes-unaligned"
NAN = float("nan")
NAMES = ("target", "workload")  # labels that are not levels of a factor

Labels = Mapping[str, str | int | float]


class ContradictionError(ResultError):
    """A label says something else than the output itself."""


@dataclass(frozen=True)
class Source:
    """Where the text of some runs is from."""

    file: str  # as it is named in the provenance
    sha256: str  # of its bytes, uncompressed
    format: str
    at: str  # of the import: UTC, ISO 8601
    by: str  # version of fsmatrix
    texts: Mapping[str, str]  # name -> text


@dataclass(frozen=True, kw_only=True)
class Work(Stored):
    """What is known of the work."""

    workload: str
    cache: str = UNKNOWN
    options: Level = field(default_factory=dict)
    geometry: Mapping[str, int | None]  # what is not told is null, not the default
    processes: int | None = None


def records(parsed: Sequence[Parsed], source: Source, labels: Labels) -> list[RunRecord]:
    """One record for each run of a source, with its findings.

    ContradictionError if a label contradicts what an output says; InvalidRecordError if a
    parser gave what cannot be stored.
    """
    made = []
    seen: Counter[str] = Counter()
    for index, run in enumerate(parsed):
        record = _record(_aligned(run), index, source, labels)
        seen[record.case] += 1
        made.append(replace(record, repetition=seen[record.case]))
    return made


def case_id(sha256: str, index: int) -> str:
    """Of a run of a source: importing it twice adds nothing."""
    return digest([sha256, index])


def storage(run: Parsed) -> tuple[str, str]:
    """Directory (or device) and host that a run's own fields name; "" for what they do not."""
    options = run.facts.get("job_options")
    asked = options[0] if isinstance(options, list) and options else {}
    facts = {**run.facts, **(asked if isinstance(asked, dict) else {})}
    file = str(facts.get("test_file") or facts.get("filename") or "")
    folder = str(facts.get("directory") or "")
    if file.startswith("/") and not folder:
        folder = file if file.startswith("/dev/") or ":" in file else str(Path(file).parent)
    hosts = facts.get("hosts")
    machine = str(facts.get("machine") or "").rpartition(" ")[2]
    host = str(hosts[0]) if isinstance(hosts, list) and hosts else machine
    return folder, host if run.nodes == 1 else ""


def _aligned(run: Parsed) -> Parsed:
    """The run; where several nodes measured for themselves and at unknown times, it says so."""
    told = any(note.key == UNALIGNED for note in run.notes)
    if run.engine != "fio" or (run.nodes or 1) < 2 or told:
        return run
    text = "the nodes' windows are on no common clock: their overlap is unknown"
    lost = [Note(UNALIGNED, text, phase=phase.name) for phase in run.phases if not phase.began]
    return replace(run, notes=(*run.notes, *lost))


def _record(parsed: Parsed, index: int, source: Source, labels: Labels) -> RunRecord:
    phases.check(Path(source.file), parsed.phases)
    declared = _told(parsed)
    _compare(declared, labels, source)
    work = _work(parsed, str(labels.get("workload", parsed.engine or source.format)))
    target = str(labels.get("target", UNKNOWN))
    level = {name: value for name, value in labels.items() if name not in NAMES}
    case = {**work.document(), "target": target, "device_state": UNKNOWN}
    if level:
        case["level"] = level
    error = parsed.failure or ("" if parsed.phases else "the output holds no result")
    record = RunRecord(
        case=canonical_json(case),
        case_id=case_id(source.sha256, index),
        work_id=digest(work.document()),
        repetition=1,
        attempt=1,
        block=0,
        attachment=ATTACHMENT,
        session="",
        status="failed" if error else "ok",
        engine=parsed.engine or UNKNOWN,
        engine_version=parsed.version,
        started=_utc(parsed.started),
        duration=NAN,
        error=error,
        argv=(parsed.argv,) if parsed.argv else (),
        coordinates={"target": target, "workload": work.workload, **declared, **level},
        environment={"imported": _provenance(source, labels, storage(parsed))},
        phases=parsed.phases,
        evidence=Evidence(engine=_engine(parsed)),
        texts=source.texts,
    )
    return judged(record)


def _told(parsed: Parsed) -> JsonObject:
    """Factor -> level, of what the output tells; runs of two versions are not repetitions."""
    declared: dict[str, Json] = dict(parsed.options) | {
        "version": parsed.version or None,
        "nodes": parsed.nodes,
        "processes": parsed.processes,
    }
    declared["processes_per_node"] = _per_node(parsed)
    return {name: value for name, value in declared.items() if value is not None}


def _per_node(parsed: Parsed) -> int | None:
    """Processes per node, if both are known and every node has as many."""
    if not parsed.nodes or parsed.processes is None or parsed.processes % parsed.nodes:
        return None
    return parsed.processes // parsed.nodes


def _compare(printed: JsonObject, labels: Labels, source: Source) -> None:
    for name, value in labels.items():
        own = plain_level(printed[name]) if name in printed else value
        if name not in NAMES and own != value and str(own) != str(value):
            raise ContradictionError(
                source.file,
                f"the output says {name} = {own}, the label says {value}: take another name "
                "for the factor, or correct it",
            )


def _work(parsed: Parsed, workload: str) -> Work:
    return Work(
        workload=workload,
        options={n: v for n, o in parsed.options.items() if (v := plain_level(o)) is not None},
        geometry={"nodes": parsed.nodes, "processes_per_node": _per_node(parsed)},
        processes=parsed.processes,
    )


def _provenance(source: Source, labels: Labels, storage: tuple[str, str]) -> JsonObject:
    facts = {name: value for name, value in vars(source).items() if name != "texts"}
    if any(storage):
        facts["storage"] = list(storage)
    return facts | ({"labels": dict(labels)} if labels else {})


def _engine(parsed: Parsed) -> EngineOutput:
    """What the audits of engines read."""
    return EngineOutput(
        name=parsed.engine,
        version=parsed.version,
        nodes=parsed.nodes,
        processes=parsed.processes,
        started=parsed.started,
        notes=parsed.notes,
        facts=parsed.facts,
    )


def _utc(text: str) -> str:
    """ISO 8601 in UTC; empty if the text is none or does not know its zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z") if time.tzinfo else ""
