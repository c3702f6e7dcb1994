"""The workload `dbench`: one dbench on each client node, a client for each process.

Each node works in a directory of its own, so that the clients of two nodes do not meet in
files of one name.  dbench reads what it has just written itself, and has no O_DIRECT: its
only honest cache state is `warm`.  Its warm-up and time limit: see results/formats/dbench.py.

A loadfile is known by the SHA-256 of its bytes, never by its path: two files with the same
content are the same work.  One line is one operation (traces/importing/dbench.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator

from fsmatrix.backends.access import Access
from fsmatrix.backends.allowed import NUMBER, Form, Words, plain
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats import dbench as output_format
from fsmatrix.results.formats.dbench_nodes import NodeRun, merge
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import Case
from fsmatrix.results.units import Duration
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.workload import (
    Argv,
    ContentFile,
    Footprint,
    Output,
    Step,
    Workload,
    WorkloadOptions,
    stored_digest,
)
from fsmatrix.traces.importing.dbench import DIRECTORY, TRUNCATING, directive, integer

# Further arguments of dbench: which are handed on, and why others are not.


# What the suite says itself, or what makes a number that is none.
REFUSED = {
    "--fake-io": "it counts bytes that nobody moves",
    "--run-once": "dbench then ends before its time limit",
    "--machine-readable": "the suite reads the ordinary output",
    "--clients-per-process": "the number of clients comes from the geometry",
    "--directory": "the suite says where dbench works",
    "--loadfile": "use the option loadfile",
    "--timelimit": "use the option runtime",
    "--warmup": "use the option warm_up",
    "--backend": "the suite measures file systems",
    "--sync": "use the option sync",
    "--sync-dir": "use the option sync_directories",
    "--fsync": "use the option fsync",
    "-D": "the suite says where dbench works",
    "-c": "use the option loadfile",
    "-t": "use the option runtime",
    "-B": "the suite measures file systems",
    "-s": "use the option sync",
    "-S": "use the option sync_directories",
    "-F": "use the option fsync",
}
_RATE = Form("a rate", r"\d{1,9}(\.\d{1,9})?")
WORDS = Words(
    "dbench",
    {
        **plain(None, "--stat-check --one-byte-write-fix --per-client-results --no-resolve"),
        **plain(None, "-x --xattr --skip-cleanup"),
        **plain(_RATE, "-R --target-rate"),
        **plain(NUMBER, "--trunc-io"),
    },
)
LIMIT = 256 << 20  # bytes; dbench's own has 25 MB
OUTSIDE = re.compile(r"""(?:^|[\s"\\/])(\.\.)(?:[\s"\\/]|$)""", re.MULTILINE)

PHASE = "mixed"
LOADFILE_STEP = "loadfile"
NODE_DIRECTORY = "{path}/node{node}"
SHORTEST = 2  # seconds; with 1 dbench prints a throughput of 0
DIGEST = re.compile(r"^\\?([0-9a-f]{64}) ", re.MULTILINE)


@dataclass(frozen=True)
class Survey:
    """What one pass of one client over a loadfile does."""

    written: int  # bytes
    space: int  # bytes of its files, at most at one time
    files: int  # files and directories, at most at one time


@dataclass(frozen=True)
class Loadfile(ContentFile):
    """A loadfile by its content; `path` and `survey` are known where it can be read."""

    survey: Survey | None = field(default=None, compare=False)


def loadfile(value: object) -> Loadfile:
    """The loadfile at an absolute path, or of a text "sha256:..."; ValueError with the reason."""
    if isinstance(value, Loadfile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a loadfile is the path of a file, not {value!r}")
    if digest := stored_digest(value, "loadfile"):
        return Loadfile(digest)
    path = Path(value)
    if not path.is_absolute():
        raise ValueError(f"{value!r} must be an absolute path, the same on all client nodes")
    try:
        state = path.stat()
        return _read(value, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise ValueError(f"the loadfile {value!r} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=64)
def _read(path: str, modified: int, size: int) -> Loadfile:  # noqa: ARG001
    """Read and survey a file; `modified` and `size` make a changed one be read again."""
    try:
        data = safefile.read(path, LIMIT, follow=True)
    except ResultError as error:
        raise ValueError(f"the loadfile {path!r} {error.reason}") from error
    if data.startswith(b"\x1f\x8b"):
        raise ValueError(f"the loadfile {path!r} is compressed: unpack it")
    text = data.decode("latin-1")
    if match := OUTSIDE.search(text):
        line = text.count("\n", 0, match.start(1)) + 1
        raise ValueError(f"{path!r}, line {line}: a name with '..' would leave dbench's directory")
    survey = survey_of(text)
    if survey is None:
        raise ValueError(f"{path!r} is no loadfile: no line of it is an operation of dbench")
    return Loadfile(hashlib.sha256(data).hexdigest(), path, survey)


def survey_of(text: str) -> Survey | None:
    """What one pass does; None if no line opens a file or makes a directory."""
    names: dict[str, str] = {}  # handle -> name
    sizes: dict[str, int] = {}  # of the files that there are
    directories: set[str] = set()
    written = total = space = files = 0
    for each in map(directive, text.split("\n")):
        if each is None or not each.ok or not each.parameters:
            continue
        verb, parameters = each.verb, each.parameters
        name = parameters[0].lower()
        if verb == "Mkdir" or (
            verb == "NTCreateX" and len(parameters) > 3 and integer(parameters[1]) & DIRECTORY
        ):
            directories.add(name)
        elif verb == "NTCreateX" and len(parameters) > 3:
            names[parameters[3]] = name
            if integer(parameters[2]) in TRUNCATING:
                total -= sizes.pop(name, 0)
            sizes.setdefault(name, 0)
        elif verb == "WriteX" and parameters[0] in names and len(parameters) > 2:
            written += integer(parameters[2])
            end = integer(parameters[1]) + integer(parameters[2])
            target = names[parameters[0]]
            total += max(end - sizes.get(target, 0), 0)
            sizes[target] = max(end, sizes.get(target, 0))
        elif verb == "Unlink":
            total -= sizes.pop(name, 0)
        elif verb == "Rename" and len(parameters) > 1 and name in sizes:
            moved, new = sizes.pop(name), parameters[1].lower()
            total -= sizes.pop(new, 0)
            sizes[new] = moved
        space = max(space, total)
        files = max(files, len(sizes) + len(directories))
    return Survey(written, space, files) if files else None


# Debian's client.txt (SHA-256 ec2792b86d74...), by the same survey as other loadfiles.
CLIENT_TXT = Survey(written=1_015_974_170, space=23_965_486, files=97)


def _loadfile(value: object) -> Loadfile | None:
    return None if value is None else loadfile(value)


LoadfileOption = Annotated[
    Loadfile | None,
    BeforeValidator(_loadfile),
    PlainSerializer(lambda value: value and str(value), return_type=str | None),
]


class DbenchOptions(WorkloadOptions):
    """dbench's own options, in its words where it has words."""

    loadfile: LoadfileOption = Field(
        default=None,
        description="-c: absolute path, the same on all client nodes; known by its SHA-256; "
        "the program's own if absent",
    )
    clients: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="NPROCS: clients on each node; processes_per_node if absent"
    )
    runtime: Duration = Field(default=60.0, description="-t: time limit after the warm-up")
    warm_up: Duration | None = Field(
        default=None,
        description="--warmup (version 5): a fifth of runtime if absent, as version 4 always does",
    )
    sync: bool = Field(default=False, description="-s: files are opened with O_SYNC")
    sync_directories: bool = Field(default=False, description="-S: changes of directories, too")
    fsync: bool = Field(default=False, description="-F: fsync after each write")
    xattr: bool = Field(default=False, description="-x: extended attributes, as Samba uses them")
    target_rate: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="-R: MB/s (10^6) of each client; as fast as it can if absent"
    )
    no_resolve: bool = Field(
        default=False, description="--no-resolve: no search of names that differ in case"
    )
    skip_cleanup: bool = Field(
        default=False, description="--skip-cleanup: leave the files to the suite's own removal"
    )
    extra_arguments: tuple[str, ...] = Field(
        default=(), description="further arguments, at the end: those in SECURITY.md"
    )

    @field_validator("runtime", "warm_up")
    @classmethod
    def _whole(cls, value: float | None) -> float | None:
        if value is not None and not value.is_integer():
            raise ValueError(f"dbench takes whole seconds, not {value:g}")
        return value

    @field_validator("runtime")
    @classmethod
    def _enough(cls, value: float) -> float:
        if value < SHORTEST:
            raise ValueError(f"dbench measures nothing in less than {SHORTEST} s")
        return value

    @field_validator("extra_arguments")
    @classmethod
    def _allowed(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            short = word.startswith("-") and not word.startswith("--")  # dbench: -xD is -x -D
            names = [f"-{letter}" for letter in word[1:]] if short else [word.partition("=")[0]]
            if reason := next((REFUSED[name] for name in names if name in REFUSED), ""):
                raise ValueError(f"{word}: {reason}")
        if reason := WORDS.refusal(value):
            raise ValueError(reason)
        return value

    @property
    def flags(self) -> dict[str, tuple[str, ...]]:
        """Long names of the options that a dbench must know -> their arguments."""
        switches = {
            "sync": self.sync,
            "sync-dir": self.sync_directories,
            "fsync": self.fsync,
            "xattr": self.xattr,
            "no-resolve": self.no_resolve,
            "skip-cleanup": self.skip_cleanup,
        }
        flags: dict[str, tuple[str, ...]] = {
            name: (f"--{name}",) for name, wanted in switches.items() if wanted
        }
        if self.warm_up is not None:
            flags["warmup"] = (f"--warmup={self.warm_up:.0f}",)
        if self.target_rate is not None:
            flags["target-rate"] = (f"--target-rate={self.target_rate!r}",)
        return flags


class Dbench(Workload):
    """dbench's mixture of a file server's operations, by dbench itself."""

    name: ClassVar[str] = "dbench"
    Options: ClassVar[type[WorkloadOptions]] = DbenchOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path"})
    engines: ClassVar[tuple[str, ...]] = ("dbench",)
    options: DbenchOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:  # noqa: ARG002
        """A directory for each node, the digest of the loadfile there, and the run."""
        options = self.options
        argv = [engine.program, "-D", NODE_DIRECTORY, "-t", f"{options.runtime:.0f}"]
        if "option:backend" in engine.features:  # version 5
            argv += ["-B", "fileio"]
        if options.loadfile is not None:
            argv += ["-c", options.loadfile.path]
        for arguments in options.flags.values():
            argv += arguments
        argv += [str(case.geometry.processes_per_node), *options.extra_arguments]
        path = self._path(engine)
        return [
            Step("make-directory", "node", "setup", Argv(("mkdir", "-p", NODE_DIRECTORY))),
            Step(LOADFILE_STEP, "node", "setup", Argv(("sha256sum", path))),
            Step(PHASE, "node", "timed", Argv(tuple(argv))),
        ]

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """One phase `mixed` over all nodes; a run that is not what was asked for has failed."""
        nodes = []
        for output in outputs:
            if output.step != PHASE:
                continue
            source = f"dbench on {output.host}"
            runs = output_format.parse(f"{output.stdout}\n{output.stderr}", source)
            if len(runs) != 1:
                raise ParseError(source, 0, f"{len(runs)} runs in the output of one")
            nodes.append(NodeRun(output.host, runs[0], output.began, output.ended))
        if not nodes:
            raise ParseError("dbench", 0, "no node gave an output of it")
        parsed = merge(nodes)
        digests = {
            digest
            for output in outputs
            if output.step == LOADFILE_STEP
            for digest in DIGEST.findall(output.stdout)
        }
        reasons = [parsed.failure, *self._unlike(case, nodes), *self._other_loadfile(digests)]
        facts = {"synced": self.options.sync or self.options.fsync}
        return replace(
            parsed,
            phases=tuple(replace(p, facts={**p.facts, **facts}) for p in parsed.phases),
            failure="; ".join(reason for reason in reasons if reason),
            facts={**parsed.facts, "loadfile_sha256": sorted(digests)},
        )

    def explain(self, output: Output) -> str:
        """Why dbench failed, from what it printed."""
        try:
            run = output_format.parse(f"{output.stdout}\n{output.stderr}", "dbench")[0]
        except ParseError:
            return ""
        return run.failure

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        options, geometry = self.options, case.geometry
        if options.clients not in (None, geometry.processes_per_node):
            return (
                f"clients: {options.clients} contradicts processes_per_node: "
                f"{geometry.processes_per_node}; leave clients out"
            )
        if geometry.threads > 1:
            return f"dbench's clients have one thread each, not {geometry.threads}"
        if case.cache != "warm":
            return (
                f"dbench cannot work with cache: {case.cache}: it reads what it has just written, "
                "and has no O_DIRECT; say cache: warm"
            )
        if options.loadfile is not None and not options.loadfile.path:
            return f"where the loadfile {options.loadfile} lies is not known: give its path"
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this dbench cannot do the case (empty: it can)."""
        del case
        if access not in self.accesses:
            return f"dbench speaks only paths, not {access}"
        for name in self.options.flags:
            if f"option:{name}" not in engine.features:
                return f"dbench {engine.version} has no option --{name}"
        if not self._path(engine):
            return (
                f"dbench {engine.version} finds no loadfile of its own: install one (Debian's "
                "package dbench has /usr/share/dbench/client.txt) or give the option loadfile"
            )
        return ""

    def footprint(self, case: Case) -> Footprint:
        """An estimate: each client goes once through the loadfile; how often is not known."""
        loadfile_survey = self.options.loadfile.survey if self.options.loadfile else CLIENT_TXT
        survey = loadfile_survey or Survey(0, 0, 0)
        clients, nodes = case.geometry.processes, case.geometry.nodes
        warm_up = self.options.warm_up
        return Footprint(
            space=survey.space * clients,
            written=survey.written * clients,
            files=survey.files * clients + 2 * nodes,
            seconds=self.options.runtime
            + (self.options.runtime // 5 if warm_up is None else warm_up),
        )

    # -- parts -----------------------------------------------------------------------------
    def _path(self, engine: Engine) -> str:
        """The loadfile on the nodes: the option's, or the program's own; empty: none."""
        if self.options.loadfile is not None:
            return self.options.loadfile.path
        own = [name for name in sorted(engine.features) if name.startswith("loadfile:")]
        return own[0].removeprefix("loadfile:") if own else ""

    def _unlike(self, case: Case, nodes: Sequence[NodeRun]) -> list[str]:
        """What the outputs say that was not asked for (extra arguments can do that)."""
        asked = {
            "clients": case.geometry.processes_per_node,
            "runtime": self.options.runtime,
        }
        reasons = []
        if len(nodes) != case.geometry.nodes:
            reasons.append(f"{len(nodes)} nodes gave an output, not {case.geometry.nodes}")
        for node in nodes:
            printed = {
                "clients": node.parsed.processes,
                "runtime": node.parsed.options.get("runtime"),
            }
            reasons += [
                f"{node.host}: dbench had {name} {printed[name]}, not {value:g}"
                for name, value in asked.items()
                if printed[name] is not None and printed[name] != value
            ]
        return reasons

    def _other_loadfile(self, digests: set[str]) -> list[str]:
        """The nodes must have played one loadfile, and the one that the case names."""
        wanted = self.options.loadfile
        if len(digests) > 1:
            return [f"the nodes have different loadfiles: {', '.join(sorted(digests))}"]
        if wanted is not None and digests and digests != {wanted.sha256}:
            return [f"the nodes' loadfile is not the one of the plan ({wanted})"]
        return []
