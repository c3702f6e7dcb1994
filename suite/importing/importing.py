"""Import: files of other people's benchmarks become a campaign file, one at a time.

Files are found and recognised by content (`suite/importing/recognise.py`), parsed, labelled and
written in a stream; memory holds one of them.  A campaign file that an import made is added to.

Labels are what the user says about the files: `--set name=value` and `--map pattern`.  A pattern is
a path with placeholders: `{name}` is one or more characters of one component
(never `/`) and becomes the level of a factor; `*`, `?` and `[...]` are as in the shell and
never match `/`; `**` as a whole component is any number of components, none too.

A level that is written as a decimal number is one; all else is text.  `4k` is text: it is
4000 to one and 4096 to another.  `target` and `workload` are always text.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import fsmatrix
from fsmatrix.results.evidence.stored import JsonObject, inside
from fsmatrix.results.files import campaignfile, campaignread
from fsmatrix.results.files.campaignfile import CampaignWriter, reserved
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import from_json
from fsmatrix.results.record import RunRecord
from fsmatrix.results.units import plural
from fsmatrix.suite.campaign.yamlio import CampaignError, Origin, Problem, refuse, shown
from fsmatrix.suite.importing import imported, recognise
from fsmatrix.suite.importing.imported import NAMES
from fsmatrix.suite.importing.recognise import (
    Formats,
    InputEntry,
    NotRecognisedError,
    Text,
    UnreadableError,
)

Level = str | int | float
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
NUMBER = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]{1,15})(?P<fraction>\.[0-9]{1,15})?", re.ASCII)
TOKEN = re.compile(
    r"(?P<tree>(?:(?<=/)|^)\*\*(?:/|$))|(?P<star>\*+)|(?P<one>\?)|(?P<set>\[!?\]?[^\]/]*\])"
    r"|\{(?P<name>[^{}]*)\}|(?P<other>.)",
    re.DOTALL,
)

CAMPAIGN = {"name": "imported results", "imported": True}
Progress = Callable[[int], None]
Labels = Mapping[str, Level]


@dataclass(frozen=True)
class Pattern:
    """A path pattern, compiled twice: with placeholders as long, and as short as possible."""

    text: str
    names: tuple[str, ...]
    longest: re.Pattern[str]
    shortest: re.Pattern[str]

    @property
    def is_anchored(self) -> bool:
        """Whether the first component has no placeholder and no wildcard."""
        return not set(self.text.partition("/")[0]) & set("{*?[")

    def levels(self, paths: Sequence[str]) -> dict[str, Level] | None:
        """What the pattern reads from a file's possible paths; None if it matches none.

        ValueError if it can be read in more than one way.
        """
        readings = []
        for path in paths:
            for expression in (self.longest, self.shortest):
                match = expression.fullmatch(path)
                if match and match.groupdict() not in readings:
                    readings.append(match.groupdict())
        if len(readings) > 1:
            first, other = ({n: level(n, t) for n, t in values.items()} for values in readings[:2])
            raise ValueError(
                f"can be read in two ways, {_listed_names(first)} or {_listed_names(other)}"
            )
        return {name: level(name, text) for name, text in readings[0].items()} if readings else None


@dataclass(frozen=True)
class Labeller:
    """The labels of all files of one import."""

    fixed: Mapping[str, Level]
    pattern: Pattern | None = None

    def labels(self, names: Sequence[str], inside: str) -> dict[str, Level]:
        """Labels of a file (its names: see files.InputEntry); CampaignError if they are unclear.

        Only a pattern that begins with a literal component may match more than `inside`: in
        `{target}/*`, the directory that was named is not a target.
        """
        if self.pattern is None:
            return dict(self.fixed)
        origin = Origin(f"--map {self.pattern.text}")
        try:
            read = self.pattern.levels([*names, inside] if self.pattern.is_anchored else [inside])
        except ValueError as error:
            raise refuse(origin, names[0], str(error)) from error
        if read is None:
            raise refuse(
                origin,
                names[0],
                "the pattern does not match this file: name the files that it matches, or a "
                "pattern for all",
            )
        return {**self.fixed, **read}


def labeller(sets: Iterable[str], pattern: str | None) -> Labeller:
    """From the options of the command; CampaignError with all that is wrong with them."""
    problems: list[Problem] = []
    fixed: dict[str, Level] = {}
    for text in sets:
        origin = Origin(f"--set {text}")
        name, equals, value = text.partition("=")
        problem = _refused(name)
        if not equals or not value:
            problem = "must be name=value, for example target=ceph-a"
        elif name in fixed and fixed[name] != level(name, value):
            problem = f"{name} is set twice: {fixed[name]} and {value}"
        if problem:
            problems.append(Problem(origin.source, 0, "", problem))
        fixed[name] = level(name, value)
    compiled = None
    if pattern is not None:
        origin = Origin(f"--map {pattern}")
        compiled = compile_pattern(pattern)
        reasons = [_refused(name) for name in compiled.names]
        reasons += [f"{n} is in --set too: say it once" for n in compiled.names if n in fixed]
        if not compiled.names:
            reasons.append("names no factor: write {target}, {storage_nodes}, ...")
        problems += [Problem(origin.source, 0, "", text) for text in reasons if text]
    if problems:
        raise CampaignError(problems)
    return Labeller(fixed, compiled)


def compile_pattern(text: str) -> Pattern:
    """A path pattern; any text is one."""
    names: dict[str, str] = {}
    parts: list[str] = []
    for token in TOKEN.finditer(text):
        parts.append(_expression(token, names))
    longest = "".join(parts).format(many="", few="")
    shortest = "".join(parts).format(many="?", few="?")
    return Pattern(text, tuple(names), re.compile(longest), re.compile(shortest))


def _expression(token: re.Match[str], names: dict[str, str]) -> str:
    """Of one token, with {many} and {few} where laziness goes; other braces doubled."""
    name = token["name"]
    if name is not None:
        if name in names:
            return f"(?P={name})"
        if not NAME.fullmatch(name):
            raise refuse(
                Origin("--map"), "", f"{{{name}}} is no name: letters, digits and _, a letter first"
            )
        names[name] = name
        return f"(?P<{name}>[^/]+{{many}})"
    if token["tree"] is not None:
        rest = "(?:[^/]+/)*" if token["tree"].endswith("/") else ".*"
        return rest + "{few}"
    if token["star"] is not None:
        return "[^/]*{few}"
    if token["one"] is not None:
        return "[^/]"
    if token["set"] is not None:
        return "(?!/)" + _class_of(token["set"]).replace("{", "{{").replace("}", "}}")
    return re.escape(token["other"]).replace("{", "{{").replace("}", "}}")


def _class_of(text: str) -> str:
    """`[...]` as fnmatch understands it."""
    translated = re.fullmatch(r"\(\?s:(.*)\)\\[Zz]", fnmatch.translate(text), re.DOTALL)
    assert translated is not None
    return translated[1]


def level(name: str, text: str) -> Level:
    """A label's value: a number where it is written as one, else the text."""
    match = NUMBER.fullmatch(text)
    if name in NAMES or match is None:
        return text
    return float(text) if match["fraction"] else int(text)


def _refused(name: str) -> str:
    """Why a factor cannot have this name; empty if it can."""
    if name in NAMES:
        return ""
    if not NAME.fullmatch(name):
        return f"{shown(name)} is no name of a factor: letters, digits and _, a letter first"
    if name in reserved():
        return (
            f"{name} is a name of the results' own: set target, workload, or a factor with "
            "another name, such as storage_nodes"
        )
    return ""


def _listed_names(levels: Mapping[str, Level]) -> str:
    return " ".join(f"{name}={value}" for name, value in levels.items())


class _Unchanged(Exception):
    """Nothing new: the file stays as it is."""


@dataclass(frozen=True)
class Taken:
    """A file, or a directory that is one run, that was imported."""

    file: str
    format: str
    run_ids: tuple[str, ...]
    failed: tuple[str, ...]  # why runs of it are failed
    target: str


@dataclass
class Outcome:
    """What became of everything that was found."""

    taken: list[Taken] = field(default_factory=list)
    already_imported: list[tuple[str, str]] = field(
        default_factory=list
    )  # file, which has the same text
    not_recognised: list[tuple[str, str]] = field(default_factory=list)  # file, why
    refused: list[tuple[str, str]] = field(default_factory=list)  # file, why
    kept: int = 0  # runs that were in the campaign file before
    # of runs without a target: what their own fields name
    directories: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)

    @property
    def runs(self) -> int:
        """How many runs were added."""
        return sum(len(taken.run_ids) for taken in self.taken)

    @property
    def mixed(self) -> str:
        """What to do about runs of different storage that nobody told apart; "" if there are none.

        One cell would hold all of them.
        """
        counts = [plural(len(self.hosts), "host")] if len(self.hosts) > 1 else []
        if len(self.directories) > 1:
            counts.insert(0, f"{len(self.directories)} directories")
        if not counts:
            return ""
        return (
            f"{' and '.join(counts)} and no target: --map gives each run its own, or "
            "--set target=NAME all the same"
        )

    def learn(self, environment: JsonObject) -> None:
        """What the record of a run says of its storage."""
        facts = inside(environment, "imported")
        storage = facts.get("storage")
        if isinstance(storage, list) and "target" not in inside(facts, "labels"):
            for names, name in zip((self.directories, self.hosts), storage, strict=False):
                names.update([str(name)] if name else [])


@dataclass(frozen=True)
class _Seen:
    """A text that is in the file."""

    file: str
    labels: dict[str, Level]


class Import:
    """One import.  `run` does it."""

    def __init__(self, out: Path, labeller: Labeller, formats: Formats | None = None) -> None:
        self.out = out
        self.labeller = labeller
        self.formats = formats or Formats.all()
        self.outcome = Outcome()
        self._seen: dict[str, _Seen] = {}
        self._problems: list[Problem] = []
        self._now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def run(
        self, entries: Sequence[InputEntry], dry: bool = False, progress: Progress | None = None
    ) -> Outcome:
        """Import all that was found; `dry`: write nothing.  `progress` is told how many are
        done.

        CampaignError with everything that is wrong with files that were named, or with
        labels; ResultError if `out` is something else than a campaign file of imported runs.
        Then nothing is written.
        """
        before = _identity(self.out)
        with suppress(_Unchanged), ExitStack() as stack:
            writer = None if dry else stack.enter_context(campaignfile.writing(self.out))
            self._keep(writer)
            for done, entry in enumerate(entries, 1):
                self._take(entry, writer)
                if progress is not None:
                    progress(done)
            self._judge()
            if writer is not None:
                writer.finish(json.dumps(CAMPAIGN), self._left_out())
                if _identity(self.out) != before:
                    raise ResultError(self.out, "was changed by somebody else: import again")
        return self.outcome

    def _judge(self) -> None:
        """Raise what forbids to write."""
        if self._problems:
            raise CampaignError(self._problems)
        if not self.outcome.taken and not self.outcome.already_imported:
            raise CampaignError([Problem(str(self.out), 0, "", self._nothing())])
        if not self.outcome.taken:
            raise _Unchanged

    # -- one file ----------------------------------------------------------------------
    def _take(self, entry: InputEntry, writer: CampaignWriter | None) -> None:
        """Import what was found, or say why not."""
        try:
            if entry.members and not recognise.is_run(entry, self.formats):
                for member in entry.members:
                    self._take(member, writer)
                return
            text = self._text(entry)
            labels = self.labeller.labels(text.place.names, text.place.inside)
            if self._is_known(text, labels):
                return
            records = imported.records(text.parse(), self._source(text), labels)
        except NotRecognisedError as error:
            self._skip(entry, str(error), self.outcome.not_recognised)
        except UnreadableError as error:
            self._skip(entry, str(error), self.outcome.refused)
        except ResultError as error:
            self._skip(entry, error.reason, self.outcome.refused)
        except CampaignError as error:
            self._problems += error.problems
        else:
            self._put(text, labels, records, writer)

    def _skip(self, entry: InputEntry, reason: str, where: list[tuple[str, str]]) -> None:
        """What was named must be imported; what was found in a directory need not."""
        if entry.named:
            self._problems.append(Problem(entry.shown, 0, "", reason))
        else:
            where.append((entry.shown, reason))

    def _put(
        self, text: Text, labels: Labels, records: list[RunRecord], writer: CampaignWriter | None
    ) -> None:
        for record in records:
            self.outcome.learn(record.environment)
            if writer is not None:
                writer.add(record)
        self._seen[text.sha256] = _Seen(text.entry.shown, dict(labels))
        ids = tuple(record.run_id for record in records)
        failed = tuple(record.error for record in records if record.status != "ok")
        target = str(labels.get("target", imported.UNKNOWN))
        self.outcome.taken.append(Taken(text.entry.shown, text.format, ids, failed, target))
        if text.others:
            reason = (
                f"holds output of {', '.join(text.others)} too, which was not imported (only "
                f"{text.format}): split it"
            )
            self.outcome.refused.append((text.entry.shown, reason))

    def _text(self, entry: InputEntry) -> Text:
        if not entry.members:
            return recognise.of_file(entry, self.formats)
        text, skipped = recognise.of_directory(entry, self.formats)
        for member, error in skipped:
            foreign = isinstance(error, NotRecognisedError)
            where = self.outcome.not_recognised if foreign else self.outcome.refused
            where.append((member.shown, str(error)))
        return text

    def _source(self, text: Text) -> imported.Source:
        return imported.Source(
            file=text.entry.recorded,
            sha256=text.sha256,
            format=text.format,
            at=self._now,
            by=fsmatrix.__version__,
            texts=text.texts,
        )

    # -- what is there already ---------------------------------------------------------
    def _is_known(self, text: Text, labels: Labels) -> bool:
        """Whether the same text is in the file; ResultError if it is there as something else."""
        seen = self._seen.get(text.sha256)
        if seen is None:
            return False
        if seen.labels != dict(labels):
            raise ResultError(
                text.entry.shown,
                f"has the same text as {seen.file}, which was imported as "
                f"{_listed(seen.labels)}, not as {_listed(labels)}",
            )
        self.outcome.already_imported.append((text.entry.shown, seen.file))
        return True

    def _keep(self, writer: CampaignWriter | None) -> None:
        """The runs that are in the campaign file go into the new one, in their order."""
        if not self.out.exists():
            return
        with campaignread.reading(self.out) as file:
            if not _is_imported(str(file.attrs.get("campaign", ""))):
                raise ResultError(
                    self.out,
                    "is a campaign file that was not made by an import, and will not be changed: "
                    "choose another name",
                )
            for entry in campaignread.entries(file, self.out):
                self._remember(entry.environment)
                self.outcome.kept += 1
                if writer is not None:
                    writer.put(entry)

    def _remember(self, environment: str) -> None:
        """The text that a run in the file is of."""
        try:
            facts = from_json(environment)["imported"]
            self.outcome.learn({"imported": facts})
            sha256, file, labels = facts["sha256"], facts["file"], facts.get("labels", {})
            self._seen[str(sha256)] = _Seen(str(file), dict(labels))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = f"holds a run that does not say what it was imported from ({error})"
            raise ResultError(self.out, reason) from error

    def _nothing(self) -> str:
        outcome = self.outcome
        bad = [f"{file}: {why}" for file, why in (*outcome.refused, *outcome.not_recognised)[:5]]
        return "; ".join(["nothing to import", *bad])

    def _left_out(self) -> list[dict[str, str]]:
        return [{"file": file, "reason": reason} for file, reason in self.outcome.refused]


def _listed(labels: Labels) -> str:
    return " ".join(f"{name}={value}" for name, value in labels.items()) or "nothing in particular"


def _is_imported(campaign: str) -> bool:
    """Whether the text of a campaign says that an import made it."""
    try:
        facts = from_json(campaign or "{}")
    except ValueError:
        return False
    return isinstance(facts, dict) and facts.get("imported") is True


def _identity(path: Path) -> tuple[int, int] | None:
    """Changes when the file is replaced."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
