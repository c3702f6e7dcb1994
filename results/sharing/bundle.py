"""One archive of a campaign that another group can look at again and run again.

The archive holds one folder that is a results directory of its own; see docs/bundle.md.  The same
files always give the same bytes.  Memory holds one run at a time.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import json
import mmap
import os
import platform
import re
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import jinja2
import numpy as np
import psutil

from fsmatrix.results.evidence import stored
from fsmatrix.results.evidence.stored import Json, JsonObject, inside
from fsmatrix.results.files import runfile, safefile
from fsmatrix.results.files.campaignfile import merge_files
from fsmatrix.results.files.campaignread import text
from fsmatrix.results.files.safefile import ResultError, descriptor, sync_directory
from fsmatrix.results.files.schema import encode_text, from_json, to_json
from fsmatrix.results.files.store import (
    CAMPAIGN,
    CONTENTS,
    MARKER,
    MERGED,
    NAME,
    RUNS,
    Store,
    StoreError,
    contents_of,
)
from fsmatrix.results.record import RunRecord
from fsmatrix.results.sharing.anonymise import Anonymiser, ClashError, Learner

SUMS = "SHA256SUMS"
LEVEL = 6  # of gzip
Members = Mapping[str, Path]  # name in the archive's folder -> file
Tell = Callable[[str, int, int], None]  # what is done, done so far, in total

# What an archive of results says about them: counts, versions, how to run them again.


MACHINE = ("fsmatrix", "python", "system", "kernel", "cpu")
STATES = ("ok", "failed", "timeout")


def digests_of(members: Members, tell: Tell) -> dict[str, str]:
    """SHA-256 of every member, by name, sorted."""
    digest_of = {}
    for done, name in enumerate(sorted(members), 1):
        with _opened(members[name]) as file:
            digest_of[name] = hashlib.file_digest(file, "sha256").hexdigest()
        tell("checksums", done, len(members))
    return digest_of


def sums(digest_of: Mapping[str, str]) -> str:
    """Checksums as `sha256sum` prints and checks them."""
    return "".join(f"{digest}  {name}\n" for name, digest in digest_of.items())


def pack(
    path: Path,
    folder: str,
    members: Members,
    digest_of: Mapping[str, str],
    time: int,
    tell: Tell,
) -> None:
    """A tar.gz at `path` with all members in one folder, sorted, durable.

    No owner, no host, one time (Unix, seconds) for all.  ResultError if a member is not what
    its checksum in `digest_of` says; OSError as the system gives it.
    """
    with path.open("wb") as raw:
        with (
            gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in ("", "runs/"):
                archive.addfile(_entry(f"{folder}/{name}", 0, time, tarfile.DIRTYPE))
            for done, name in enumerate(sorted(members), 1):
                digest = _add(archive, f"{folder}/{name}", members[name], time)
                if digest != digest_of.get(name, digest):
                    raise ResultError(members[name], "changed while it was packed: try again")
                archive.getmembers().clear()  # it would keep one object for each file
                tell("archive", done, len(members))
        raw.flush()
        os.fsync(raw.fileno())


def _add(archive: tarfile.TarFile, name: str, path: Path, time: int) -> str:
    """Adds one file; its SHA-256."""
    with _opened(path) as file:
        hashed = _Hashed(file)
        archive.addfile(_entry(name, os.fstat(file.fileno()).st_size, time), hashed)
    return hashed.digest.hexdigest()


def _opened(path: Path) -> BufferedReader:
    """ResultError for a link or anything else that is no regular file: it may be new there."""
    return os.fdopen(descriptor(path), "rb")


class _Hashed:
    """A file whose bytes are hashed while they are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _entry(name: str, size: int, time: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    """Nobody's, and readable for all."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.type = size, time, kind
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace the one place of a text in a file, in place, by another of the same length.

    HDF5 itself would keep the old text in a gap of the file.  ValueError for other lengths.
    """
    if len(old) != len(new):
        raise ValueError(f"{old!r} and {new!r} are not of one length")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        place = data.find(old.encode())
        if place < 0 or data.find(old.encode(), place + 1) >= 0:
            return  # what was measured holds the same text: the bytes differ from time to time
        data[place : place + len(old)] = new.encode()


@dataclass(frozen=True)
class Facts:
    """Of the runs in a campaign file."""

    runs: Mapping[str, int]  # total, ok, failed, timeout, invalid
    engines: Mapping[str, list[str]]  # engine -> its versions
    measured_with: Mapping[str, list[str]]  # what -> its different versions


def facts_of(path: Path) -> Facts:
    """Read from a campaign file that was just made."""
    with h5py.File(path, "r") as file:
        ids, first = np.unique(file["run_id"][...], return_index=True)
        status = file["status"][...][first]
        invalid = set(file["run_id"][...][file["worst_finding"][...] == b"invalid"].tolist())
        runs = {state: int((status == state.encode()).sum()) for state in STATES}
        pairs = np.unique(
            np.stack([file["engine"][...].astype("S"), file["engine_version"][...].astype("S")]),
            axis=1,
        )
        engines: dict[str, list[str]] = {}
        for engine, version in pairs.T.tolist():
            engines.setdefault(text(engine), []).append(text(version))
        environments = [
            json.loads(text(environment)) for environment in file["environment_json"][...].tolist()
        ]
    return Facts(
        {"total": len(ids), **runs, "invalid": len(invalid)}, engines, _measured(environments)
    )


def _measured(environments: list[dict[str, Json]]) -> dict[str, list[str]]:
    versions_of: dict[str, set[str]] = {}
    for environment in environments:
        for name, version in _versions(environment):
            versions_of.setdefault(name, set()).add(str(version))
    return {name: sorted(versions) for name, versions in sorted(versions_of.items())}


def _versions(environment: JsonObject) -> Iterator[tuple[str, Json]]:
    machine = inside(environment, "machine")
    yield from ((name, machine[name]) for name in MACHINE if name in machine)
    yield from inside(machine, "libraries").items()
    if "mpi" in environment:
        yield "mpi", environment["mpi"]
    launcher = inside(environment, "launcher")
    if "version" in launcher:
        yield str(launcher.get("name", "launcher")), launcher["version"]


def bundled_with() -> dict[str, str]:
    """Versions of fsmatrix, Python and the packages that fsmatrix needs, on this machine."""
    wanted = importlib.metadata.requires("fsmatrix") or []
    names = sorted(
        re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in wanted if "extra" not in need
    )
    return {
        "fsmatrix": importlib.metadata.version("fsmatrix"),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in names},
    }


def check_plan(plan: Any) -> None:
    """ValueError, KeyError or TypeError if a campaign.json is not as the conductor writes it."""
    if not isinstance(plan, dict) or not isinstance(plan["source"], dict):
        raise ValueError("it is no mapping")
    texts = [plan["source"]["text"], plan["source"]["file"]]
    texts += [plan.get("campaign", ""), plan.get("description", "")]
    request = plan.get("request", {})
    if not isinstance(request, dict) or not isinstance(plan.get("settings", []), list):
        raise ValueError("request or settings is not what it should be")
    texts += [*request.get("sets", []), *request.get("only", [])]
    for row in plan.get("settings", []):
        texts += [row["origin"], row["key"]]
    if not all(isinstance(text, str) for text in texts) or not isinstance(plan["seed"], int):
        raise ValueError("something else stands where a text or a number should")


def source_text(plan: JsonObject) -> str:
    """The campaign as its author wrote it."""
    return stored.text(inside(plan, "source"), "text")


def command(plan: JsonObject, folder: str) -> str:
    """The command that makes the same plan again from campaign.yaml, on any machine.

    Beside `folder`, since no store may be inside another.  `plan`: campaign.json.  Its shard is
    left out: the whole campaign is run.
    """
    request = {"sets": (), "only": (), **inside(plan, "request")}
    words = ["fsmatrix", "run", f"{folder}/campaign.yaml", "--seed", str(plan["seed"])]
    for setting in [*_of_the_site(plan), *stored.texts(request, "sets")]:
        words += ["--set", setting]
    for selection in stored.texts(request, "only"):
        words += ["--only", selection]
    return shlex.join([*words, "-o", "again"])


def _of_the_site(plan: JsonObject) -> Iterator[str]:
    """Settings that neither the campaign nor the command line made: the site's and the user's."""
    own = f"{stored.text(inside(plan, 'source'), 'file')}:"
    settings = plan.get("settings")
    for row in map(inside, settings if isinstance(settings, list) else ()):
        origin, key = stored.text(row, "origin"), stored.text(row, "key")
        elsewhere = re.search(r":\d+$", origin) and not origin.startswith((own, "--set", "varied"))
        if elsewhere and not key.startswith("site."):
            yield f"{key}={json.dumps(row['value'])}"


def readme(**facts: Any) -> str:
    """Text of the archive's README.md, which tells what is in it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return re.sub(r"\n{3,}", "\n\n", environment.get_template("bundle.md.j2").render(facts))


SUFFIXES = (".tar.gz", ".tgz")
REPORT = "report.html"


@dataclass(frozen=True)
class Options:
    """What goes into the archive."""

    anonymise: bool = False
    runs: bool = True


@dataclass(frozen=True)
class Bundle:
    """An archive that was made."""

    path: Path
    folder: str  # the one inside it
    runs: dict[str, int]  # total, ok, failed, timeout, invalid
    files: int
    size: int  # bytes
    left_out: tuple[tuple[str, str], ...]  # file, why
    replaced: dict[str, int] = field(default_factory=dict)  # kind -> different names
    ordinary: dict[str, str] = field(default_factory=dict)  # name like an ordinary word -> kind


def bundle(
    directory: Path, target: Path, options: Options = Options(), tell: Tell | None = None
) -> Bundle:
    """Make the archive `target` of the results directory `directory`.

    The archive appears whole, durable, or not at all; the same results give the same bytes.
    Damaged run files and links are left out and named.  ResultError if `target` is there or
    `directory` is no store or holds no run; OSError as the system gives it.
    """
    store = Store.open(directory)
    folder = _folder(target)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as stage:
            return _Maker(store, Path(stage), options, tell or _silent).make(target, folder)
    except ClashError as error:
        raise ResultError(store.directory, f"cannot be made anonymous: {error}") from error


def _folder(target: Path) -> str:
    name = next((target.name.removesuffix(s) for s in SUFFIXES if target.name.endswith(s)), "")
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ResultError(target, f"an archive is named NAME{' or NAME'.join(SUFFIXES)}")
    if os.path.lexists(target):
        raise ResultError(target, "is there already: choose another name")
    if not target.parent.is_dir():
        raise ResultError(target, f"there is no directory {target.parent}")
    return name


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total


class _Maker:
    """Collects the members of one archive; `stage` takes what is made for it."""

    def __init__(self, store: Store, stage: Path, options: Options, tell: Tell) -> None:
        self.store = store
        self.stage = stage
        self.options = options
        self.tell = tell
        self.left_out: list[tuple[str, str]] = []
        self.anonymiser: Anonymiser | None = None
        self.members: dict[str, Path] = {}  # name in the folder -> file
        self.runs: dict[str, int] = {}

    def make(self, target: Path, folder: str) -> Bundle:
        files = list(self._usable())
        time = int(max((path.stat().st_mtime for path in files), default=0.0))
        plan = self._plan()
        if self.options.anonymise:
            files, plan = self._anonymous(files, plan)
            assert self.anonymiser is not None
            folder = self.anonymiser.label(folder)
        self._merge(files, plan, time)
        self._documents(folder, plan)
        digests = digests_of(self.members, self.tell)
        self._write(SUMS, sums(digests))
        aside = self.stage / target.name
        pack(aside, folder, self.members, digests, time, self.tell)
        if os.path.lexists(target):
            raise ResultError(target, "is there already: choose another name")
        aside.rename(target)
        sync_directory(target.parent)
        return self._outcome(target, folder)

    # -- runs --------------------------------------------------------------------------------
    def _usable(self) -> Iterator[Path]:
        """Run files where they should be; links are not followed."""
        if self.store.runs.is_symlink():
            self.left_out.append((RUNS, "is a symbolic link"))
            return
        for path in self.store.files():
            if path.is_symlink():
                self._leave(path, "is a symbolic link")
            elif reason := safefile.unusable(path.stat().st_mode):
                self._leave(path, reason)
            elif not NAME.fullmatch(path.stem) or path != self.store.path(path.stem):
                self._leave(path, "is not named or placed as a run file")
            else:
                yield path

    def _leave(self, path: Path, reason: str) -> None:
        self.left_out.append((str(path.relative_to(self.store.directory)), reason))

    def _merge(self, files: list[Path], plan: dict[str, Json] | None, time: int) -> None:
        """campaign.h5, and the run files among the members."""
        merged = self.stage / MERGED
        root = self.stage if self.anonymiser else self.store.directory
        text = json.dumps(plan) if plan is not None else ""
        left_out = merge_files(
            files, merged, text, root, lambda done: self.tell("merge", done, len(files))
        )
        bad = {error.path: error.reason for error in left_out}
        self.left_out += [(str(path.relative_to(root)), why) for path, why in bad.items()]
        kept = [path for path in files if path not in bad]
        if not kept:
            raise StoreError(self.store.directory, "holds no run that could go into an archive")
        left = [{"file": name, "reason": reason} for name, reason in self._told_left_out()]
        with h5py.File(merged, "r+") as file:
            created = str(file.attrs["created"])
            if left:
                file.attrs["left_out"] = encode_text(to_json(left))
            if self.options.runs:
                file.attrs[CONTENTS] = contents_of(kept, root, text)
        replace_text(merged, created, datetime.fromtimestamp(time, UTC).isoformat())
        self.members[MERGED] = merged
        if self.options.runs:
            self.members |= {str(path.relative_to(root)): path for path in kept}
            self.members |= dict(self._nodes(kept))

    def _nodes(self, kept: list[Path]) -> Iterator[tuple[str, Path]]:
        """Series of storage nodes that were imported; anonymous runs hold theirs themselves."""
        for path in () if self.anonymiser else kept:
            nodes = self.store.nodes_path(path.stem)
            if nodes.is_symlink() or (nodes.exists() and not nodes.is_file()):
                self._leave(nodes, "is no regular file")
            elif nodes.exists():
                yield str(nodes.relative_to(self.store.directory)), nodes

    def _told_left_out(self) -> list[tuple[str, str]]:
        """As the archive names them."""
        if self.anonymiser is None:
            return sorted(self.left_out)
        text = self.anonymiser.text
        return sorted((text(name), text(reason)) for name, reason in self.left_out)

    # -- anonymous ---------------------------------------------------------------------------
    def _anonymous(
        self, files: list[Path], plan: dict[str, Json] | None
    ) -> tuple[list[Path], dict[str, Json] | None]:
        """Run files and plan without names; the run files stand in the stage."""
        learner = Learner()
        vocabulary = learner.vocabulary
        vocabulary.learn("host", platform.node())
        vocabulary.learn("user", psutil.Process().username())
        vocabulary.learn_text(str(Path.home()))
        vocabulary.learn_text(str(self.store.directory.resolve()))
        if plan is not None:
            learner.document(plan)
            learner.campaign(source_text(plan))
        readable = []
        for path, record in self._records(files, "read"):
            learner.record(record)
            readable.append(path)
        self.anonymiser = anonymiser = Anonymiser(learner)
        if plan is not None:
            plan = self._anonymous_plan(anonymiser, plan)
        staged = []
        for path, record in self._records(readable, "anonymise"):
            new = self.stage / path.relative_to(self.store.directory)
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(runfile.run_image(new, anonymiser.record(record)))
            staged.append(new)
        return staged, plan

    def _records(self, files: list[Path], what: str) -> Iterator[tuple[Path, RunRecord]]:
        for done, path in enumerate(files, 1):
            try:
                record = self.store.with_nodes(runfile.read_checked(path))
            except ResultError as error:
                self._leave(path, error.reason)
                continue
            yield path, record
            self.tell(what, done, len(files))

    def _anonymous_plan(self, anonymiser: Anonymiser, plan: dict[str, Json]) -> dict[str, Json]:
        file = inside(plan, "source")["file"]
        renamed: dict[str, Json] = anonymiser.document({**plan, "source": {"file": file}})
        try:
            text = anonymiser.campaign(source_text(plan))
        except ValueError as error:
            raise StoreError(self.store.directory / CAMPAIGN, str(error)) from error
        return {**renamed, "source": {**inside(renamed, "source"), "text": text}}

    # -- documents ---------------------------------------------------------------------------
    def _plan(self) -> dict[str, Json] | None:
        """campaign.json; None if there is none."""
        path = self.store.directory / CAMPAIGN
        if path.is_symlink():
            self._leave(path, "is a symbolic link")
        if path.is_symlink() or not path.exists():
            return None
        try:
            plan: dict[str, Json] = from_json(safefile.read_text(path))
            check_plan(plan)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(path, f"damaged: {error}") from error
        return plan

    def _documents(self, folder: str, plan: dict[str, Json] | None) -> None:
        facts = facts_of(self.members[MERGED])
        versions = {
            "bundled_with": bundled_with(),
            "measured_with": facts.measured_with,
            "engines": facts.engines,
        }
        self.members[MARKER] = self.store.directory / MARKER
        self._write("versions.json", json.dumps(versions, indent=1) + "\n")
        if plan is not None:
            self._write("campaign.yaml", source_text(plan))
            self._write(CAMPAIGN, json.dumps(plan))
        report = self.store.directory / REPORT
        if not self.anonymiser and report.is_file() and not report.is_symlink():
            self.members[REPORT] = report
        names = self.anonymiser.names.counts() if self.anonymiser else {}
        text = readme(
            name=folder,
            campaign=(plan or {}).get("campaign", ""),
            description=(plan or {}).get("description", ""),
            versions=versions,
            runs=facts.runs,
            engines=facts.engines,
            rerun=command(plan, folder) if plan else "",
            planned=plan is not None,
            with_runs=self.options.runs,
            report=REPORT in self.members,
            anonymous=self.anonymiser is not None,
            replaced=names,
            ordinary=_count(self._ordinary().values()),
            left_out=self._told_left_out(),
        )
        self._write("README.md", text)
        self.runs = dict(facts.runs)

    def _ordinary(self) -> dict[str, str]:
        return dict(self.anonymiser.rewriter.ordinary) if self.anonymiser else {}

    def _write(self, name: str, text: str) -> None:
        self.members[name] = self.stage / name
        self.members[name].write_text(text, encoding="utf-8")

    def _outcome(self, target: Path, folder: str) -> Bundle:
        return Bundle(
            target,
            folder,
            self.runs,
            len(self.members),
            target.stat().st_size,
            tuple(sorted(self.left_out)),
            self.anonymiser.names.counts() if self.anonymiser else {},
            self._ordinary(),
        )


def _count(kinds: Iterable[str]) -> dict[str, int]:
    kinds = sorted(kinds)
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
