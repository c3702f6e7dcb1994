"""What the user says about files to be imported: `--set name=value` and `--map pattern`.

A pattern is a path with placeholders: `{name}` is one or more characters of one component
(never `/`) and becomes the level of a factor; `*`, `?` and `[...]` are as in the shell and
never match `/`; `**` as a whole component is any number of components, none too.

A level that is written as a decimal number is one; all else is text.  `4k` is text: it is
4000 to one and 4096 to another.  `target` and `workload` are always text.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.results.files.campaign.campaignfile import reserved
from fsmatrix.suite.campaign.yamlio import CampaignError, Origin, Problem, refuse, shown
from fsmatrix.suite.importing.imported import NAMES

Level = str | int | float
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
NUMBER = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]{1,15})(?P<fraction>\.[0-9]{1,15})?", re.ASCII)
TOKEN = re.compile(
    r"(?P<tree>(?:(?<=/)|^)\*\*(?:/|$))|(?P<star>\*+)|(?P<one>\?)|(?P<set>\[!?\]?[^\]/]*\])"
    r"|\{(?P<name>[^{}]*)\}|(?P<other>.)",
    re.DOTALL,
)


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
            raise ValueError(f"can be read in two ways, {_listed(first)} or {_listed(other)}")
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
        return "(?!/)" + _class(token["set"]).replace("{", "{{").replace("}", "}}")
    return re.escape(token["other"]).replace("{", "{{").replace("}", "}}")


def _class(text: str) -> str:
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


def _listed(levels: Mapping[str, Level]) -> str:
    return " ".join(f"{name}={value}" for name, value in levels.items())
