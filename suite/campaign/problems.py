"""What is wrong with a user's input, collected: where it stands and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

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


def did_you_mean(name: str, known: Iterable[str], what: str = "allowed") -> str:
    """' (did you mean x?); allowed: a, b, x', to be appended to a message."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{hint}; {what}: {', '.join(names) if names else 'none'}"


def shown(value: object, limit: int = 60) -> str:
    """A value as it appears in a message: repr, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
