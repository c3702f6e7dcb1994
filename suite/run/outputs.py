"""What the steps of a run gave: outputs, the texts that are kept, and why a program failed."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.evidence import EngineOutput, Note
from fsmatrix.results.evidence.values import Json, inside
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.record import Status
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.launchers.base import LauncherError
from fsmatrix.suite.session.client.death import SessionError
from fsmatrix.suite.session.messages import RankOutput
from fsmatrix.suite.workloads.base import Output, Step, Workload

KEPT_TEXT = 1 << 20  # characters kept of the beginning, and as many of the end, of one text
TAIL_LINES = 3
TRACEBACK = "unexpected/traceback"  # name of a run's text


class RunFailed(Exception):
    """A step failed; the session lives on."""

    def __init__(self, reason: str, status: Status = "failed", **facts: Json) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.facts = facts


def reason_of(error: Exception) -> str:
    """An error for a run's record: with its type, where its text is not made for readers."""
    worded = isinstance(
        error, RunFailed | BackendError | ResultError | SessionError | LauncherError
    )
    if worded or (isinstance(error, OSError) and error.errno is not None):
        return str(error)
    return f"{type(error).__name__}: {error}"


def outputs_of(step: Step, answers: Sequence[RankOutput]) -> list[Output]:
    """The answers of a step as outputs, on the common clock."""
    return [_output(step, answer) for answer in answers]


def _output(step: Step, answer: RankOutput) -> Output:
    done, correction = answer.done, answer.clock_correction
    return Output(
        step=step.name,
        host=answer.host,
        rank=answer.rank,
        returncode=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        files=done.files,
        value=inside(answer.value),
        began=done.began + correction,
        ended=done.ended + correction,
        clock_correction=correction,
        clock_uncertainty=answer.clock_uncertainty,
    )


def texts_of(outputs: Sequence[Output], index: int) -> dict[str, str]:
    """What programs printed and wrote, by a name: index of the step, its name, host, which.

    The rank is told too where a host has several.
    """
    texts = {}
    several = len({output.host for output in outputs}) < len(outputs)
    for output in outputs:
        where = f"{index:02d}-{output.step}" + (f"/{output.host}" if output.host else "")
        where += f"-{output.rank}" if several else ""
        for name, text in {
            "stdout": output.stdout,
            "stderr": output.stderr,
            **output.files,
        }.items():
            if text.strip():
                texts[f"{where}/{name}"] = shortened(text)
    return texts


def shortened(text: str) -> str:
    """The text, or its beginning and its end with a line that says what is missing."""
    left_out = len(text) - 2 * KEPT_TEXT
    if left_out <= 0:
        return text
    return f"{text[:KEPT_TEXT]}\n[{left_out} characters left out here]\n{text[-KEPT_TEXT:]}"


def check(
    workload: Workload, step: Step, answers: Sequence[RankOutput], outputs: Sequence[Output]
) -> None:
    """RunFailed with the first reason if a step failed anywhere."""
    for answer, output in zip(answers, outputs, strict=True):
        where = f"{step.name} on {output.host}" if output.host else step.name
        if answer.error is not None:
            raise RunFailed(f"{where} raised {answer.error}", rank=output.rank, host=output.host)
        if answer.done.timed_out:
            raise RunFailed(
                f"{where}: the program passed its deadline", "timeout", host=output.host
            )
        if output.returncode:
            reason = workload.explain(output) or _tail(output)
            raise RunFailed(
                f"{where}: the program {_ending(output.returncode)}: {reason}",
                host=output.host,
                returncode=output.returncode,
            )
        if answer.done.dropped:
            raise RunFailed(
                f"{where}: the program printed too much: {answer.done.dropped} bytes in the middle "
                "could not be kept",
                host=output.host,
            )


def _ending(returncode: int) -> str:
    if returncode > 0:
        return f"ended with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def _tail(output: Output) -> str:
    text = output.stderr.strip() or output.stdout.strip()
    return " | ".join(text.splitlines()[-TAIL_LINES:]) or "it printed nothing"


def engine_output(parsed: Parsed, engine: Engine) -> EngineOutput:
    """What the engine's output tells beside numbers, for the audits."""
    notes = parsed.notes
    if parsed.version and engine.version and parsed.version != engine.version:
        text = f"its output is of version {parsed.version}, found before was {engine.version}"
        notes = (*notes, Note("versions-differ", text))
    return EngineOutput(
        name=parsed.engine or engine.name,
        version=parsed.version or engine.version,
        nodes=parsed.nodes,
        processes=parsed.processes,
        notes=notes,
        facts=parsed.facts,
    )
