"""Lists of what may be handed on to other programs: whatever is not listed is refused.

A `Form` says what one value may look like, a `Keys` what a list such as `size=4k,crc=0` may
hold, and `Words` which options of a program may stand on its command line.  Nothing is
guessed: an option is written out, short options are not clustered, long ones not shortened,
and no word stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """What a value may look like."""

    says: str  # in messages: "a size: 4096, 16m"
    pattern: str

    def refusal(self, text: str) -> str:
        """Why the value is not allowed (empty: it is)."""
        if re.fullmatch(self.pattern, text, re.ASCII):
            return ""
        return f"{text!r} is not {self.says}"


@dataclass(frozen=True)
class Keys:
    """Comma-separated keys, with a value (Form) or without (None)."""

    keys: Mapping[str, Form | None]

    @property
    def says(self) -> str:
        """The keys, as a user writes them."""
        return ", ".join(f"{key}=..." if form else key for key, form in sorted(self.keys.items()))

    def refusal(self, text: str) -> str:
        """Why the list is not allowed (empty: it is)."""
        for part in text.split(","):
            key, given, value = part.partition("=")
            if key not in self.keys:
                return f"{part!r} is not one of {self.says}"
            form = self.keys[key]
            if form is None and given:
                return f"{part!r}: {key} takes no value"
            if form is not None and (reason := form.refusal(value)):
                return f"{part!r}: {reason}"
        return ""


@dataclass(frozen=True)
class Words:
    """Options of a program, `-x` or `--name`; None for those that take no value."""

    program: str
    options: Mapping[str, Form | Keys | None]

    def refusal(self, words: Sequence[str]) -> str:
        """Why these words are not handed on (empty: they are)."""
        return next(self._refusals(iter(words)), "")

    def _refusals(self, words: Iterator[str]) -> Iterator[str]:
        for word in words:
            name, value = self._split(word)
            if name not in self.options:
                yield f"{word!r} is not handed on to {self.program}; allowed are {self._names}"
                return
            form = self.options[name]
            if form is None:
                if value is not None:
                    yield f"{word!r}: {name} takes no value, and options are written one by one"
                continue
            value = next(words, None) if value is None else value
            if value is None:
                yield f"{word!r} needs a value: {form.says}"
            elif reason := form.refusal(value):
                yield f"{self.program} {name}: {reason}"

    def _split(self, word: str) -> tuple[str, str | None]:
        """The option and the value in the same word; None: it has none there."""
        if word in self.options:
            return word, None
        if word.startswith("--"):
            name, given, value = word.partition("=")
            return name, value if given else None
        return word[:2], word[2:]

    @property
    def _names(self) -> str:
        return ", ".join(sorted(self.options, key=lambda name: (name.lstrip("-").lower(), name)))


def one_of(*words: str) -> Form:
    """A check that a value is one of these words."""
    return Form(f"one of {', '.join(words)}", "|".join(re.escape(word) for word in words))


def label(longest: int) -> Form:
    """The label of a file system, at most that many characters."""
    pattern = rf"[A-Za-z0-9][A-Za-z0-9_.:-]{{0,{longest - 1}}}"
    return Form(f"a label: up to {longest} letters, digits and _ . : -", pattern)


def features(names: str) -> Keys:
    """Names, with blanks between, that may be taken back by a ^."""
    return Keys({prefix + name: None for name in names.split() for prefix in ("", "^")})


def plain(form: Form | None, names: str) -> dict[str, Form | None]:
    """The same form for several keys, separated by blanks."""
    return dict.fromkeys(names.split(), form)


def merged(words: Sequence[str], option: str) -> tuple[list[str], str]:
    """`words` (that are allowed) without an option `-x`, and all of its values, with commas."""
    kept: list[str] = []
    values: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == option:
            values.append(next(rest))
        elif word.startswith(option):
            values.append(word[len(option) :])
        else:
            kept.append(word)
    return kept, ",".join(values)


def checked(reasons: Iterable[str]) -> None:
    """ValueError with the first reason there is."""
    for reason in reasons:
        if reason:
            raise ValueError(reason)


NUMBER = Form("a number", r"\d{1,18}")
SIGNED = Form("a number", r"-?\d{1,18}")
PERCENT = Form("a percentage", r"\d{1,2}(\.\d{1,6})?|100")
SWITCH = one_of("0", "1")
SIZE = Form("a size: 4096, 16k, 1g", r"\d{1,18}[bskmgtpeBSKMGTPE]?")
