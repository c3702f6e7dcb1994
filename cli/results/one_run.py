"""One run of a results directory: how its programs were started, and what they printed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.cli import common, completion, terminal
from fsmatrix.results.evidence.values import Json
from fsmatrix.suite.campaign.problems import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.results.record import RunRecord

LONGEST_LOG = 256 << 20  # bytes of a job's log
MOST_NAMED = 5  # of several that were meant
NONE = "{} has no run whose id begins so, and no job or part of a submission that is called so"
UNSET: tuple[Json, ...] = (None, "", [])  # levels that say nothing


def logs(
    results: Annotated[
        Path, typer.Argument(help="A results directory.", autocompletion=completion.results)
    ],
    run: Annotated[
        str,
        typer.Argument(
            help="Id of a run, or how it begins; or a job that submit queued: its number or part.",
            autocompletion=completion.runs,
        ),
    ],
    text: Annotated[
        str | None, typer.Option("--text", help="Only this text, by the name in its first line.")
    ] = None,
    out: common.OutFile = None,
) -> None:
    """Print what the programs of a run, or a job of Slurm, printed.

    Several texts each follow a line with their name; one alone stands as it was printed.

    Example: fsmatrix logs out 0123456789abcdef-r0000-a1 -o fio.json
    """
    from fsmatrix.results.files.asides import write_whole

    if out is not None and not out.parent.is_dir():
        raise refuse(Origin(f"--out {out}"), "", f"no directory {out.parent}")
    texts = _of_job(results, run) or dict(read(results, run).texts)
    if not texts:
        raise refuse(Origin(run), "", "no program printed anything: the built-in player did it")
    if text is not None and text not in texts:
        raise refuse(Origin(f"--text {text}"), "", f"no such text; there are {', '.join(texts)}")
    chosen = texts if text is None else {text: texts[text]}
    whole = "\n".join(
        f"==> {name} <==\n{printed}" if len(chosen) > 1 else printed
        for name, printed in chosen.items()
    )
    if out is not None:
        write_whole(out, whole.encode())
    else:
        terminal.raw(whole)


def read(results: Path, wanted: str) -> RunRecord:
    """The run of that id, or the only one whose id begins so."""
    from fsmatrix.results.files.store import Store

    store = Store.open(results)
    found = [wanted] if wanted in store else [i for i in store.ids() if i.startswith(wanted)]
    if len(found) == 1:
        return store.read(found[0])
    more = ", ..." if len(found) > MOST_NAMED else ""
    which = f"{len(found)} runs begin so: {', '.join(found[:MOST_NAMED])}{more}"
    raise refuse(Origin(f"run {wanted}"), "", which if found else NONE.format(results))


def _of_job(results: Path, wanted: str) -> dict[str, str]:
    """Logs of the jobs with this number, or of this part of a submission."""
    from fsmatrix.results.files import safefile
    from fsmatrix.slurm.submission import submission

    paths = [
        submission.log(results, noted.key, noted.job)
        for noted in submission.submitted(results)
        if wanted in (noted.job, noted.key)
    ]
    there = [path for path in paths if path.exists()]
    if paths and not there:
        raise refuse(Origin(str(paths[-1])), "", "is not there: the job has printed nothing yet")
    return {p.name: safefile.read(p, LONGEST_LOG).decode(errors="replace") for p in there}


def _doubts(record: RunRecord) -> str:
    """ ", invalid (...)" or ", doubtful (...)", with the audits that say so; "" if none does."""
    for severity, word in (("invalid", "invalid"), ("warning", "doubtful")):
        if audits := sorted({one.audit for one in record.findings if one.severity == severity}):
            return f", {word} ({', '.join(audits)})"
    return ""


def tell(results: Path, wanted: str, as_json: bool) -> None:
    """What `show --run` says of a run."""
    record = read(results, wanted)
    if as_json:
        named = ("run_id", "status", "error", "engine", "engine_version", "started", "duration")
        facts = {name: getattr(record, name) for name in (*named, "coordinates", "argv")}
        common.print_json({**facts, "texts": list(record.texts)})
        return
    console = terminal.console()
    engine = f"{record.engine} {record.engine_version}".rstrip()
    verdict = record.status + _doubts(record)
    head = f"{record.run_id}: {verdict}, {engine}, {record.started}, {record.duration:.1f} s"
    terminal.line(console, head)
    if record.error:
        terminal.line(console, record.error, "red")
    levels = {name: level for name, level in record.coordinates.items() if level not in UNSET}
    terminal.line(console, " ".join(f"{name}={level}" for name, level in levels.items()))
    for argv in record.argv:
        terminal.line(console, f"$ {shlex.join(argv)}")
    if record.texts:
        terminal.line(console, f"fsmatrix logs {results} {record.run_id}  # what it printed")
