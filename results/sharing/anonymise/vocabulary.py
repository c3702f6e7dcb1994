"""The names that a campaign's texts must not show, learnt from fields and by their form.

The same name gives the same pseudonym everywhere, different names give different ones.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator

from fsmatrix.results.sharing.anonymise.names import (
    COMMON,
    COMMON_PARTS,
    HOMES,
    KINDS,
    ORDINARY,
    SYSTEM,
)

LONGEST_PATH = 4096
LONGEST_LIST = 100_000  # hosts
PART = 4  # letters: a part of a path of so many is replaced in sentences too

RUN_ID = r"(?<![0-9A-Za-z])[0-9a-f]{16}(?:-r\d{4,}-a\d+)?(?![0-9A-Za-z])"
_PART = r"[^\s/\"'<>|;,()\[\]{}=*?\\`]"
PATH = rf"(?<![\w.~/$}}])(?:/(?!/)|(?<!:)//){_PART}+(?:/+{_PART}+)*/?"
FORMS: dict[str, str] = {
    "uuid": r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
    r"|(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])",
    "serial": r"(?<![0-9A-Za-z])(?:naa|eui|t10|nvme)\.[0-9A-Za-z]+",
    "mac": r"(?<![0-9A-Za-z:.-])(?:(?:[0-9A-Fa-f]{2}:){5,19}[0-9A-Fa-f]{2}"
    r"|(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4})"
    r"(?![0-9A-Za-z:])",
    "ipv4": r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\w|\.[0-9])",
    "ipv6": r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?:%\w+)?"
    r"(?![\w:]|\.[0-9])",
    "url": r"(?<=://)[^\s\"'<>/,;]+(?:/[^\s\"'<>,;]*)?",
    "mail": r"[\w.+-]+@[A-Za-z0-9][\w-]*(?:\.[\w-]+)*",
    "below": rf"(?:\$\{{?\w+\}}?|(?<![\w.])~[\w.-]*|(?<![\w.])\.{{1,2}})(?:/+{_PART}+)+",
    "path": PATH,
    "list": r"(?<![0-9A-Za-z])[A-Za-z][\w.-]*\[[0-9][0-9,-]*\]",
    "job": r"(?i:(?<![a-z])(?:jobid|job|slurm|array)[\s_=:#.-]*(?:id)?[\s_=:#-]*)[0-9]+",
}
TOKEN = r"\w+(?:[._-]+\w+)*"
PIECE = re.compile(r"[^\W_]+")
STEM = re.compile(r"([^\W\d_](?:[\w.-]*[^\W\d])?)(\d+)")
_PATH = re.compile(PATH)
_UUID = re.compile(FORMS["uuid"])
_SENTENCE = re.compile(r"\n|: | -|.{4096}")
_ODD = re.compile(r"[\s()\[\]{}'=*?]")
_OWN = re.compile(rf"(?<!\w)({'|'.join(KINDS)})(x*)-\d+(?!\d)")


class Pseudonyms:
    """Name -> pseudonym, of each kind numbered in the order of first use."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        self._prefix = {kind: kind for kind in KINDS}
        self._taken: set[str] = set()

    def avoid(self, text: str) -> None:
        """Names in `text` look like pseudonyms: others will be given, so that they differ."""
        for kind, marks in _OWN.findall(text):
            self._taken.add(kind + marks)
            while self._prefix[kind] in self._taken:
                self._prefix[kind] += "x"

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name, made if it is new."""
        given = self._given[kind]
        if name not in given:
            given[name] = f"{self._prefix[kind]}-{len(given) + 1}"
        return given[name]

    def is_one(self, text: str) -> bool:
        """Whether it is one of ours."""
        kind, dash, number = text.rpartition("-")
        return bool(dash) and number.isdecimal() and kind in self._prefix.values()

    def counts(self) -> dict[str, int]:
        """How many different names of each kind were replaced; kinds without any are left out."""
        return {kind: len(given) for kind, given in self._given.items() if given}


class Vocabulary:
    """What was learnt.  Words are casefolded: host names are the same in any case."""

    def __init__(self) -> None:
        self.names = Pseudonyms()
        self.words: dict[str, str] = {}  # word -> kind
        self.stems: set[str] = set()  # of hosts: "node" of node17
        self.parts: set[str] = set()  # of paths
        self.odd: set[str] = set()  # names and paths that are not made of words and . _ - /
        self.chosen: set[str] = set()  # levels and targets: no part of a path makes them go
        self.longest = 1  # pieces of a name

    def learn(self, kind: str, text: str) -> None:
        """A field of that kind holds `text`: one name, or several."""
        for name in _names(kind, text):
            word = name.casefold()
            if word in COMMON or is_address(name) or _UUID.fullmatch(name):
                continue
            self.names.avoid(f"{word}-1" if word in KINDS else word)
            if kind == "host" and self._learn_host(name):
                continue
            if KINDS.index(kind) < KINDS.index(self.words.get(word, KINDS[-1])):
                self.words[word] = kind
            pieces = PIECE.findall(name)
            self.longest = max(self.longest, len(pieces))
            if not re.fullmatch(TOKEN, name):
                self.odd.add(name)

    def _learn_host(self, name: str) -> bool:
        """Its stem; host and domain of a full name apart (then it is learnt)."""
        short, _, domain = name.partition(".")
        stem = STEM.fullmatch(short.casefold())
        if stem and len(stem[1]) > 1 and stem[1] not in ORDINARY:
            self.stems.add(stem[1])
        if not (short and domain):
            return False
        self.learn("host", short)
        self.learn("domain", domain)
        return True

    def learn_text(self, text: str) -> None:
        """Names that any text tells by their form: users by their homes, parts of paths."""
        if "-" in text:
            self.names.avoid(text)
        if "/" not in text:
            return
        if text.startswith("/") and _ODD.search(text) and not _SENTENCE.search(text):
            parts = text.rstrip("/").split("/")
            self.odd |= {
                "/".join(parts[: end + 1]) for end, part in enumerate(parts) if _ODD.search(part)
            }
            self.odd.add("/".join(parts))
        for path in [text, *_PATH.findall(text)] if text.startswith("/") else _PATH.findall(text):
            self._learn_path(path)

    def _learn_path(self, path: str) -> None:
        if SYSTEM.match(path) or len(path) > LONGEST_PATH:
            return
        parts = path.rstrip("/.:,").split("/")
        for before, part in itertools.pairwise(parts):
            if not re.fullmatch(TOKEN, part):
                continue  # a variable, a pattern
            if before in HOMES:
                self.learn("user", part)
            if len(part) >= PART and part not in COMMON_PARTS:
                self.parts.add(part)


def _names(kind: str, text: str) -> Iterator[str]:
    """The names that a field holds: lists are taken apart, ports and slots removed."""
    if kind == "serial":
        if text.strip():
            yield text.strip()
        return
    if kind == "job":
        yield from re.findall(r"^[0-9]+", text) or [text.strip()] * bool(text.strip())
        return
    for item in re.split(r"[\s,;]+(?![^\[]*\])", text.strip()):
        if kind == "host":
            yield from _hosts(item)
        elif item and "/" not in item and "@" not in item:
            yield item


def _hosts(item: str) -> Iterator[str]:
    listed = re.fullmatch(r"([\w.-]*)\[([0-9,-]+)\]([\w.-]*)", item)
    if listed:
        yield item
        for number in _numbers(listed[2]):
            yield f"{listed[1]}{number}{listed[3]}"
    else:
        name = re.sub(r":\d+$", "", item)
        if re.fullmatch(r"[\w.-]*[^\W\d_][\w.-]*", name):
            yield name


def _numbers(ranges: str) -> Iterator[str]:
    """01-03,7 -> 01 02 03 7, the first LONGEST_LIST of each range."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            end = min(int(last or first), int(first) + LONGEST_LIST)
            yield from (str(number).zfill(len(first)) for number in range(int(first), end + 1))


def is_address(text: str) -> bool:
    """Whether it is an IP address, with or without brackets."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True
