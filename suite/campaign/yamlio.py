"""YAML, loaded safely, with the line of every value.

Only plain data is made (mappings with text keys, lists, text, numbers, booleans, null);
tags that would make anything else are refused.  Anchors, aliases and merge keys work; what
they expand to is bounded, so that a small text cannot fill the memory.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError

# What is wrong with a user's input, collected: where it stands and what is allowed.


MAX_SHOWN = 50


@dataclass(frozen=True)
class Origin:
    """Where a value was said: a file with its line, or something without lines."""

    source: str = "default"
    line: int = 0  # from 1; 0 = the source has no lines ("default", "--set a=1")

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    file: str
    line: int  # from 1; 0 = not in a line of a file
    where: str  # key path, "targets.xfs.options.size"
    message: str

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{Origin(self.file, self.line)}: {where}{self.message}"


class CampaignError(Exception):
    """The input is refused; every problem found is in `problems`, in order of appearance."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"... and {len(self.problems) - MAX_SHOWN} more problems")
        return "\n".join(lines)


def refuse(origin: Origin, where: str, message: str) -> CampaignError:
    """A CampaignError with a single problem."""
    return CampaignError([Problem(origin.source, origin.line, where, message)])


def shown(value: object, limit: int = 60) -> str:
    """A value as it appears in a message: repr, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


KeyPath = tuple[str | int, ...]
MAX_TEXT = 4 << 20  # characters
MAX_VALUES = 200_000  # values after aliases were expanded
MAX_DEPTH = 50
MAX_BYTES = 4 * MAX_TEXT  # of a file in UTF-8
_TAG = "tag:yaml.org,2002:"


@dataclass
class Tree:
    """Plain data and where each part of it was said."""

    data: Any = None
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Of the value at `path`, or of the nearest part around it that was written."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return Origin()

    def has(self, path: KeyPath) -> bool:
        """Whether there is a value at `path`."""
        return path in self.origins

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem with the value at `path`."""
        origin = self.origin(path)
        return Problem(origin.source, origin.line, dotted(path), message)


def dotted(path: KeyPath) -> str:
    """('a', 0, 'b') as 'a[0].b'."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def load(path: Path) -> Tree:
    """Read a YAML file; CampaignError if it cannot be read or is not plain YAML."""
    try:
        text = safefile.read_text(path, MAX_BYTES, follow=True)
    except ResultError as error:
        raise refuse(Origin(str(path)), "", error.reason) from error
    except OSError as error:
        raise refuse(Origin(str(path)), "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise refuse(Origin(str(path)), "", f"is not UTF-8 text: {error.reason}") from error
    return parse(text, str(path))


def parse(text: str, file: str) -> Tree:
    """Plain data of one YAML document with the origin of every value."""
    if len(text) > MAX_TEXT:
        raise refuse(Origin(file), "", f"longer than {MAX_TEXT} characters")
    return _Reader(file).read(_compose(text, file))


def parse_value(text: str, source: str) -> Tree:
    """As `parse`, for a value outside a file: every origin is `source`, without line."""
    try:
        tree = parse(text, source)
    except CampaignError as error:
        raise CampaignError(
            Problem(source, 0, problem.where, problem.message) for problem in error.problems
        ) from error
    return Tree(tree.data, dict.fromkeys(tree.origins, Origin(source)))


def _compose(text: str, file: str) -> Node | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a re-used anchor is legal YAML
            node: Node | None = YAML(typ="safe", pure=True).compose(text)
            return node
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else -1
        message = f"not valid YAML: {_tab(text, line) or error.problem or error.context}"
        raise refuse(Origin(file, line + 1), "", message) from error
    except YAMLError as error:
        line = str(error).strip().splitlines()
        raise refuse(Origin(file), "", f"not valid YAML: {line[0] if line else ''}") from error
    except RecursionError as error:
        raise refuse(Origin(file), "", "not valid YAML: nested too deeply") from error
    except (ValueError, AttributeError, IndexError, TypeError, KeyError) as error:
        # ruamel.yaml lets these escape for some malformed directives and tags
        raise refuse(Origin(file), "", f"not valid YAML: {error}") from error


def _tab(text: str, number: int) -> str:
    """What is wrong with an indentation that holds a tab (empty: that line's holds none)."""
    line = [*text.split("\n"), ""][number]
    begin = line[: len(line) - len(line.lstrip())]
    return "a tab indents this line: use spaces" if "\t" in begin else ""


class _Reader:
    """Turns nodes into plain data, collecting every problem on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.values = 0
        self.tree = Tree()
        self.problems: list[Problem] = []
        self.scalars = YAML(typ="safe", pure=True).constructor

    def read(self, node: Node | None) -> Tree:
        if node is not None:
            self.tree.data = self.value(node, ())
        if self.problems:
            raise CampaignError(self.problems)
        return self.tree

    def complain(self, node: Node, path: KeyPath, message: str) -> None:
        line = node.start_mark.line + 1
        self.problems.append(Problem(self.file, line, dotted(path), message))

    def count(self, node: Node, path: KeyPath, depth: int) -> None:
        """Bounds what aliases and merge keys can expand to."""
        self.values += 1
        if self.values > MAX_VALUES or depth > MAX_DEPTH:
            self.complain(node, path, f"more than {MAX_VALUES} values or {MAX_DEPTH} levels deep")
            raise CampaignError(self.problems)

    def value(self, node: Node, path: KeyPath, line: int | None = None) -> Any:
        self.count(node, path, len(path))
        self.tree.origins[path] = Origin(self.file, line or node.start_mark.line + 1)
        kind = str(node.tag).removeprefix(_TAG)
        if isinstance(node, MappingNode) and kind == "map":
            return self.mapping(node, path)
        if isinstance(node, SequenceNode) and kind == "seq":
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode):
            return self.scalar(node, path, kind)
        self.complain(node, path, f"the tag {node.tag} is not allowed; use plain YAML values")
        return None

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Json]:
        data: dict[str, Json] = {}
        seen: dict[str, int] = {}
        for key, item, line in self.pairs(node, path):
            if key in seen:
                message = f"the key {shown(key)} occurs twice, first in line {seen[key]}"
                self.problems.append(Problem(self.file, line, dotted((*path, key)), message))
                continue
            seen[key] = line
            data[key] = self.value(item, (*path, key), line)
        for key, item, line in self.merged(node, path, 0):
            if key not in data:
                data[key] = self.value(item, (*path, key), line)
        return data

    def pairs(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, Node, int]]:
        """Key, value and line of a mapping's own entries."""
        for key, item in node.value:
            if key.tag == _TAG + "merge":
                continue
            if not isinstance(key, ScalarNode) or key.tag != _TAG + "str":
                text = shown(getattr(key, "value", "")) if isinstance(key, ScalarNode) else "it"
                self.complain(key, path, f"a key must be text, {text} is not; put it in quotes")
                continue
            yield key.value, item, key.start_mark.line + 1

    def merged(
        self, node: MappingNode, path: KeyPath, depth: int
    ) -> Iterator[tuple[str, Node, int]]:
        """Entries that come by merge keys; an earlier one wins."""
        for key, item in node.value:
            if key.tag != _TAG + "merge":
                continue
            for source in item.value if isinstance(item, SequenceNode) else [item]:
                if not isinstance(source, MappingNode):
                    self.complain(key, path, "<< merges mappings only")
                    continue
                self.count(source, path, depth)
                yield from self.pairs(source, path)
                yield from self.merged(source, path, depth + 1)

    def scalar(self, node: ScalarNode, path: KeyPath, kind: str) -> Any:
        if kind in ("str", "timestamp"):
            return node.value
        if kind not in ("null", "bool", "int", "float"):
            self.complain(node, path, f"the tag {node.tag} is not allowed; use plain YAML values")
            return None
        try:
            value = getattr(self.scalars, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, YAMLError):
            self.complain(node, path, f"{shown(node.value)} is not a valid {kind}")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self.complain(node, path, f"{shown(node.value)} is not a finite number")
            return None
        return float(value) if isinstance(value, float) else value


def flatten(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Leaves of nested mappings; lists and empty mappings are leaves."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from flatten(value, (*path, key))
    else:
        yield path, data
