"""A command, or the ranks of an MPI program, under strace, whose texts become one trace."""

from __future__ import annotations

import functools
import heapq
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files import safefile
from fsmatrix.traces.capture import descriptors, naming
from fsmatrix.traces.capture.descriptors import Handler
from fsmatrix.traces.capture.processes import Files, Sizes, found_sizes
from fsmatrix.traces.capture.system import System
from fsmatrix.traces.capture.text import (
    ELAPSED,
    HEADER,
    SECONDS,
    Call,
    Event,
    Malformed,
    OtherFormError,
    Text,
    What,
)
from fsmatrix.traces.trace_model import NO_TIMES, Header, Roots, TraceError
from fsmatrix.traces.tracefile import TraceWriter, writing

SOURCE = "strace"
HANDLERS: Mapping[str, Handler] = {
    **descriptors.TRANSFERS,
    **naming.OPENING,
    **naming.NAMING,
    **descriptors.HANDLERS,
}
NAMES = tuple(
    dict.fromkeys((*HANDLERS, *descriptors.NAMES))
)  # of the calls that a capture looks at
OPERATIONS = frozenset((*descriptors.TRANSFERS, *naming.OPENING, *naming.NAMING, "close"))
ON_HANDLES = frozenset(descriptors.TRANSFERS) | {"close", "fstat", "fstat64", "getdents64"}
MOST_HELD = 1 << 20  # events of processes whose maker is not known yet
MOST_RANK = 1 << 24

STRACE = "strace"
_NANOSECONDS = ("--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns")  # 5.6
_MICROSECONDS = ("-ttt", "-T")
_FILTER = "--seccomp-bpf"  # 5.3: only the calls that are asked for stop the program
_VECTORS = "readv,writev,preadv,pwritev,preadv2,pwritev2"
_SIGNALLED = 128  # and the signal's number: what shells give
# Where launchers tell a process its rank, the surest first.
VARIABLES = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
END = ".strace"


def read(
    paths: Sequence[Path],
    writer: TraceWriter,
    roots: Sequence[Path | str] = (),
    *,
    folder: Path | str | None = None,
    sizes: Sizes | None = None,
    command: Sequence[str] = (),
) -> Header:
    """Read texts of strace into a trace; the header to finish it with.

    `paths`: one text (strace -f -o), those of strace -ff (their names end in process ids), or one
    for each rank.  `roots`: directories whose files are in the trace, absolute.  `folder`: the
    working directory at the start; relative names that are used before the text tells it are
    counted.  Both are not needed for texts that `fsmatrix trace rank` has written.  `sizes`: what
    was there at the start.  Malformed lines, but for a header, are counted in `unseen`.

    TraceError names the file and the line; OSError as the system gives it.
    """
    texts = [_text(path, index) for index, path in enumerate(paths)]
    places = _roots(texts, roots)
    if not places.paths:
        raise TraceError(texts[0].path, "give the root: the directory whose files are traced")
    files = Files(writer, sizes)
    system = System(writer, files, places, [_folder(text, folder) for text in texts])
    system.ranks = {text.space: _rank(text) for text in texts}
    reading = Reading(system)
    for text, event in _merged(texts):
        try:
            reading.event(event)
        except Malformed as error:
            text.odd(error, event[2].line)
        except OtherFormError as error:
            raise TraceError(text.path, f"line {event[2].line}: {error}") from error
    reading.finish()
    if not command and isinstance(recorded := texts[0].header.get("command"), list):
        command = tuple(map(str, recorded))
    return _header(system, texts, tuple(command), sizes is not None)


class Reading:
    """Gives events to the system, in the order in which processes were made.

    A child may be seen before the call that made it has returned: its events wait for that.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._forking: set[int] = set()  # tasks in a fork, vfork or clone
        self._held: dict[int, list[Event]] = {}
        self._count = 0  # of held events

    def event(self, event: Event) -> None:
        """The next event of the texts.  Malformed for what cannot be."""
        task = event[2].task
        if task in self._held or (self._forking and task not in self._system.tasks):
            self._hold(task, event)
            return
        self._do(event)

    def finish(self) -> None:
        """No more events."""
        self._release()
        self._system.order.finish()
        self._system.files.finish()

    def _hold(self, task: int, event: Event) -> None:
        self._held.setdefault(task, []).append(event)
        self._system.unfinished.setdefault(task, event[0])
        self._count += 1
        if self._count > MOST_HELD:
            self._release()

    def _release(self, task: int | None = None) -> None:
        """The events of a process, or all, now in the order of each process."""
        for held in [task] if task is not None else [*self._held]:
            self._system.unfinished.pop(held, None)
            events = self._held.pop(held, [])
            self._count -= len(events)
            for event in events:
                self._do(event)

    def _do(self, event: Event) -> None:
        _, what, call = event
        system = self._system
        if what == What.EXIT:
            system.gone(call.task, call.time)
            self._forking.discard(call.task)
        elif what == What.SUPERSEDED:
            self._forking.discard(call.task)
            system.superseded(call.task, call.result or 0, call.time)
        elif what == What.BEGUN:
            self._begun(call)
        else:
            try:
                done(system, call)
            finally:
                system.unfinished.pop(call.task, None)
                if call.name in descriptors.FORKS:
                    self._forked(call)

    def _begun(self, call: Call) -> None:
        system = self._system
        task = system.task(call.task)
        descriptors.begun(system, task, call)
        if call.name in descriptors.FORKS:
            self._forking.add(call.task)
        if call.name in OPERATIONS and not _elsewhere(system, call):
            system.unfinished[call.task] = call.time

    def _forked(self, call: Call) -> None:
        self._forking.discard(call.task)
        if call.result is not None and call.result > 0:
            child = (call.task >> 40 << 40) | (call.result & 0x7FFFFFFF)
            if child in self._held:
                self._release(child)
        if not self._forking:
            self._release()


def _elsewhere(system: System, call: Call) -> bool:
    """Whether an unfinished call works on no file of the trace: it may last for hours."""
    if call.name not in ON_HANDLES:
        return False
    number = call.arguments.partition(b",")[0].partition(b"<")[0].strip()
    table = system.task(call.task).table
    file = table.get(int(number)) if number.isdigit() and len(number) < 10 else None
    return file is None or file.slot < 0


def done(system: System, call: Call) -> None:
    """A call has ended, or its process has in it."""
    name = call.name
    handler = HANDLERS.get(name)
    touching = name in descriptors.TOUCHING or name in descriptors.ALWAYS
    if handler is None and not touching:
        return
    task = system.task(call.task)
    if call.error.startswith("ERESTART"):
        system.unseen["interrupted and begun again"] += 1
        return
    try:
        if b"<" in call.arguments and name != "close":
            system.told(task, call, name in ON_HANDLES)
        if touching:
            descriptors.count(system, task, call)
        if handler is not None:
            handler(system, task, call)
    except Malformed:
        if call.result is not None:
            raise
        system.unseen["cut off by the end of its process"] += 1  # in the middle of its arguments


# -- what the texts are ------------------------------------------------------------------------
def _text(path: Path, index: int) -> Text:
    text = Text(path, index)
    try:
        text.read_header()
    except Malformed as error:
        raise TraceError(path, f"line 1: {error}") from error
    return text


def _folder(text: Text, given: Path | str | None) -> bytes | None:
    folder = given if given is not None else text.header.get("folder")
    if folder is None:
        return None
    path = os.fsencode(folder) if isinstance(folder, str | Path) else b""
    if not path.startswith(b"/") or b"\0" in path:
        raise TraceError(text.path, f"its working directory is {folder!r}, not an absolute path")
    return path.rstrip(b"/")


def _roots(texts: Sequence[Text], given: Sequence[Path | str]) -> Roots:
    header = texts[0].header.get("roots", [])
    roots = given or (header if isinstance(header, list) else [])
    paths = [os.fsencode(root) if isinstance(root, str | Path) else b"" for root in roots]
    for path, root in zip(paths, roots, strict=True):
        if not path.startswith(b"/") or b"\0" in path:
            raise TraceError(texts[0].path, f"its root is {root!r}, not an absolute path")
    try:
        return Roots(paths)
    except ValueError as error:
        raise TraceError(texts[0].path, f"roots: {error}") from error


def _rank(text: Text) -> int:
    rank: Any = text.header.get("rank", text.space)
    if not isinstance(rank, int) or not 0 <= rank < MOST_RANK:
        raise TraceError(text.path, f"line 1: {rank!r} is not a rank")
    return rank


def _merged(texts: Sequence[Text]) -> Iterator[tuple[Text, Event]]:
    """Events of all texts, by their times."""

    def events(text: Text) -> Iterator[tuple[Text, Event]]:
        try:
            for event in text.events():
                if len(texts) > 1 and (not text.stamps.timed or text.stamps.form == ELAPSED):
                    reason = f"its lines have {text.stamps.form}, which brings several texts in no"
                    raise TraceError(text.path, f"{reason} order: use -ttt")
                yield text, event
        except OtherFormError as error:
            raise TraceError(text.path, str(error)) from error

    if len(texts) == 1:
        return events(texts[0])
    return heapq.merge(*map(events, texts), key=lambda pair: pair[1][0])


def _header(
    system: System, texts: Sequence[Text], command: tuple[str, ...], looked: bool
) -> Header:
    counts = system.unseen
    counts["a line that is malformed"] += sum(text.malformed for text in texts)
    counts["a call that began before the trace"] += sum(text.begun_before for text in texts)
    facts: dict[str, Json] = {
        "roots": [os.fsdecode(root or b"/") for root in system.roots.paths],
        "sizes_from": "a look before the start" if looked else "the calls themselves",
        "lines": sum(text.line for text in texts),
        "texts": len(texts),
        "issue_times_moved": system.order.moved,
        **{name: count for name, count in sorted(system.facts.items()) if count},
    }
    if first := next((text for text in texts if text.malformed), None):
        facts["first_malformed"] = f"{first.path.name}, {first.first_malformed}"
    if texts[0].stamps.form == SECONDS:
        facts[NO_TIMES] = "its times are whole seconds"
    return Header(
        source=SOURCE,
        command=command,
        timed=texts[0].stamps.timed,
        unseen={what: count for what, count in sorted(counts.items()) if count},
        facts=facts,
    )


@functools.cache
def options() -> tuple[str, ...]:
    """The words for the strace of this machine.  ToolError: there is none, or it may not trace."""
    if reason := tools.missing(STRACE):
        raise ToolError(reason)
    calls = "trace=" + ",".join(f"?{name}" for name in NAMES)
    # -s 0: no data is written down; paths are whole nevertheless
    common = ("-f", "-q", "-s", "0", "-e", calls, "-e", "signal=none", "-e", f"abbrev=!{_VECTORS}")
    complaint = ""
    for more in ((_FILTER, *_NANOSECONDS), _NANOSECONDS, _MICROSECONDS):
        words = (*common, *more)
        ran = tools.run([STRACE, *words, "-o", os.devnull, "true"], check=False)
        if ran.returncode == 0 and not ran.stderr:
            return words
        complaint = ran.complaint
    raise ToolError(
        f"strace cannot trace here: {complaint}; ptrace must be allowed (containers: the "
        "capability SYS_PTRACE; else kernel.yama.ptrace_scope below 3)"
    )


def capture(
    command: Sequence[str], roots: Sequence[Path], out: Path, to_stderr: bool = False
) -> int:
    """Run a command and write the trace of what it did below `roots` to `out`; its status.

    The text of strace, about 100 bytes for each call, stands in TMPDIR meanwhile.
    ToolError if the command cannot be run, OSError if `out` or the text cannot be written.
    """
    options()  # before anything takes time
    try:
        sizes = found_sizes(Roots([os.fsencode(root) for root in roots]))
    except ValueError as error:
        raise ToolError(f"roots: {error}") from error
    folder = Path.cwd()
    with work_folder() as work:
        text = work / "text"
        status = run(command, text, to_stderr)
        with writing(out) as writer:
            writer.finish(
                read(
                    [text],
                    writer,
                    roots,
                    folder=folder,
                    sizes=sizes,
                    command=command,
                )
            )
    return status


def run(command: Sequence[str], text: Path, to_stderr: bool = False) -> int:
    """Run a command under strace, which writes to `text`; the command's exit status.

    Its standard streams are ours; `to_stderr`: its standard output is our standard error.
    A command that a signal ends has 128 + the number of the signal.  Ctrl-C is the command's.
    ToolError if it cannot be started.
    """
    program = tools.find(STRACE)
    if program is None or not options():
        raise ToolError(tools.lacking(STRACE))
    found = tools.find(command[0]) if command else None
    if found is None:
        name = command[0] if command else "the command"
        raise ToolError(tools.refusal(name) or f"{name}: no such program")
    sys.stdout.flush()
    argv = [program, *options(), "-o", str(text), "--", found, *command[1:]]
    with _deaf(), subprocess.Popen(argv, stdout=sys.stderr if to_stderr else None) as process:
        status = process.wait()
    if not text.exists() or text.stat().st_size == 0:
        raise ToolError(f"{command[0]} was not started: strace wrote nothing")
    return status if status >= 0 else _SIGNALLED - status


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C reaches the command, which has the same terminal; we wait for its end."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def this_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Our rank.  ToolError if no launcher has started us."""
    for variable in VARIABLES:
        value = environment.get(variable, "")
        if value.isdecimal() and len(value) < 8:
            return int(value)
    raise ToolError(
        f"no rank: none of {', '.join(VARIABLES)} is set; start it by mpirun, mpiexec or srun"
    )


def run_rank(command: Sequence[str], roots: Sequence[Path], folder: Path) -> int:
    """Run our rank's part of a command; its text appears in `folder`.  The exit status.

    ToolError if it cannot be started; OSError if the text cannot be written.
    """
    number = this_rank()
    path = folder / f"rank-{number}{END}"
    with work_folder() as work:
        text = work / "text"
        facts = {
            "rank": number,
            "folder": str(Path.cwd()),
            "roots": [str(root.absolute()) for root in roots],
            "command": list(command),
        }
        status = run(command, text)
        with (
            safefile.naming(path),
            safefile.replacing(path) as aside,
            text.open("rb") as source,
            aside.open("xb") as target,
        ):
            target.write(HEADER + json.dumps(facts).encode("ascii") + b"\n")
            shutil.copyfileobj(source, target)
    return status
