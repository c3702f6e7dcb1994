"""Texts with every name that was learnt, or that its form tells, replaced by its pseudonym.

See docs/bundle.md for what is replaced where.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Iterable

from fsmatrix.results.sharing.anonymise.names import COMMON, COMMON_PARTS, ORDINARY, SYSTEM
from fsmatrix.results.sharing.anonymise.vocabulary import (
    FORMS,
    PIECE,
    RUN_ID,
    STEM,
    TOKEN,
    Vocabulary,
    is_address,
)

REMEMBERED = 1 << 14  # texts whose rewriting is kept: most are in many runs
INSIDE = ("host", "user", "account")
INNER = 5  # letters: names of these kinds of so many are replaced inside longer words too
STEM_INSIDE = 3  # letters: and the hosts whose names begin so and end in a number
LONG_NUMBER = 5  # digits: a job id of so many is replaced wherever it stands

_FORM = re.compile(
    f"(?P<kept>{RUN_ID})|"
    + "|".join(f"(?P<{name}>{form})" for name, form in FORMS.items())
    + f"|(?P<token>{TOKEN})"
)
_ATTACHED = re.compile(r"([^\W\d_]+\d+)(?=[^\W\d_])")


class Rewriter:
    """Rewrites texts by a vocabulary that is complete."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.names = vocabulary.names
        self.ordinary: dict[str, str] = {}  # names that were met and left as words -> kind
        words = vocabulary.words
        inner = {word for word, kind in words.items() if kind in INSIDE and _is_long(word)}
        self._inner = _either(
            {word for word in inner if not word[-1].isdecimal() or words[word] != "host"},
            {stem for stem in vocabulary.stems if len(stem) >= STEM_INSIDE},
        )
        self._odd = _either(vocabulary.odd)
        self._cached = functools.lru_cache(REMEMBERED)(self._rewrite)

    def text(self, text: str, loose: bool | None = None) -> str:
        """`text` with every name replaced.

        `loose`: names that are ordinary words too.  None: only in what is more than one word.
        """
        return self._cached(text, " " in text if loose is None else loose)

    def _rewrite(self, text: str, loose: bool) -> str:
        if self._odd is not None:
            pieces = self._odd.split(text)  # odd positions hold what matched
            if len(pieces) > 1:
                return "".join(
                    self._odd_name(piece) if index % 2 else self._rewrite_plain(piece, loose)
                    for index, piece in enumerate(pieces)
                )
        return self._rewrite_plain(text, loose)

    def _odd_name(self, text: str) -> str:
        kind = self.vocabulary.words.get(text.casefold())
        if kind is not None:
            return self.names.of(kind, text.casefold())
        return self._path(text) if text.startswith("/") else self._rewrite_plain(text, True)

    def _rewrite_plain(self, text: str, loose: bool) -> str:
        return _FORM.sub(lambda match: self._found(match, loose), text)

    def _found(self, match: re.Match[str], loose: bool) -> str:
        form, text = str(match.lastgroup), match[0]
        if form == "token":
            return self._token(text, loose)
        if form == "kept":
            kind = self.vocabulary.words.get(text.casefold())
            return text if kind is None else self.names.of(kind, text.casefold())
        if form in ("uuid", "serial", "mac"):
            return self.names.of(form, text.casefold())
        special: dict[str, Callable[[str, bool], str]] = {
            "ipv4": self._address,
            "ipv6": self._address,
            "url": self._url,
            "mail": self._mail,
            "below": self._below,
            "path": lambda path, _: self._path(path),
            "list": self._list,
            "job": self._job,
        }
        return special[form](text, loose)

    def _address(self, text: str, loose: bool) -> str:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:  # a time of day, a version
            return re.sub(TOKEN, lambda match: self._token(match[0], loose), text)
        if address.is_loopback or address.is_unspecified or str(address) == "255.255.255.255":
            return text
        return self.names.of(f"ipv{address.version}", str(address))

    def _url(self, text: str, loose: bool) -> str:
        authority, slash, rest = text.partition("/")
        user, at, place = authority.rpartition("@")
        host, colon, port = place.rpartition(":")
        if not colon or not port.isdecimal():
            host, colon, port = place, "", ""
        inside = host.strip("[]")
        pseudonym = self._address(inside, loose) if is_address(inside) else self._host(inside)
        host = host.replace(inside, pseudonym) if inside else host
        who = self._person(user) if user else ""
        return f"{who}{at}{host}{colon}{port}" + (self._path(slash + rest) if slash else "")

    def _host(self, text: str) -> str:
        if text.casefold() in COMMON or self.names.is_one(text):
            return text
        short, dot, domain = text.partition(".")
        if self.names.is_one(short) and self.names.is_one(domain):
            return text
        pseudonym = self.names.of("host", short.casefold())
        return f"{pseudonym}.{self.names.of('domain', domain.casefold())}" if dot else pseudonym

    def _mail(self, text: str, loose: bool) -> str:
        who, at, place = text.partition("@")
        if self.names.is_one(who):  # an address of a network's: 10.0.0.1@o2ib
            return who + at + self._token(place, loose)
        return self.names.of("mail", text.casefold())

    def _person(self, text: str) -> str:
        return text if self.names.is_one(text) else self.names.of("user", text.casefold())

    def _below(self, text: str, loose: bool) -> str:
        """A path below a variable, a home or the working directory."""
        first, slash, rest = text.partition("/")
        if first.startswith("~") and len(first) > 1:
            return f"~{self._person(first[1:])}{self._path(slash + rest)}"
        return self._token(first, loose) + self._path(slash + rest)

    def _list(self, text: str, loose: bool) -> str:
        """A list of hosts as Slurm writes it: node[01-16]; or something else."""
        stem = text.partition("[")[0]
        if (
            stem.casefold() in self.vocabulary.stems
            or self.vocabulary.words.get(text.casefold()) == "host"
        ):
            return self.names.of("host", text.casefold())
        return re.sub(TOKEN, lambda match: self._token(match[0], loose), text)

    def _job(self, text: str, loose: bool) -> str:
        digits = re.search(r"[0-9]+$", text)
        assert digits is not None
        before = text[: digits.start()]
        if self.vocabulary.words.get(digits[0]) == "job":
            return before + self.names.of("job", digits[0])
        return re.sub(TOKEN, lambda match: self._token(match[0], loose), text)

    def _path(self, path: str) -> str:
        """A path, part by part: what was below a directory still is."""
        if SYSTEM.match(path):
            return re.sub(TOKEN, lambda match: self._token(match[0], False), path)
        end = re.search(r"[.:]*$", path)  # of the sentence
        body = path[: end.start()] if end else path
        parts = body.split("/")
        return "/".join(map(self._part, parts)) + path[len(body) :]

    def _part(self, part: str) -> str:
        kind = self.vocabulary.words.get(part.casefold())
        if kind in ("host", "user", "account", "job"):
            return self.names.of(kind, part.casefold())
        kept = part in COMMON_PARTS or part in COMMON or self.names.is_one(part)
        if kept or part.startswith("$") or re.fullmatch(RUN_ID, part) or not part.strip("."):
            return part
        return self.names.of("path", part)

    # -- words ---------------------------------------------------------------------------
    def _token(self, token: str, loose: bool) -> str:
        """Words joined by . _ or -: the longest names in them are replaced."""
        if self.names.is_one(token):
            return token
        spans = [match.span() for match in PIECE.finditer(token)]
        parts, done, first = [], 0, 0
        while first < len(spans):
            for last in range(min(len(spans), first + self.vocabulary.longest), first, -1):
                begin, end = spans[first][0], spans[last - 1][1]
                name = self._name(token[begin:end], loose)
                if name is not None:
                    before = token[done:begin]
                    kind = self.vocabulary.words.get(token[begin:end].casefold())
                    parts += [
                        self._in_domain(before) if kind == "domain" else self._inside(before),
                        name,
                    ]
                    done, first = end, last - 1
                    break
            first += 1
        return "".join([*parts, self._inside(token[done:])])

    def _in_domain(self, text: str) -> str:
        """What stands before a domain: a host that was not learnt, or nothing of interest."""
        name = text.removesuffix(".")
        if not name or name == text or self.names.is_one(name):
            return text
        return f"{self.names.of('host', name.casefold())}."

    def _inside(self, text: str) -> str:
        """Names inside longer words: aliceproject, Enode17."""
        if self._inner is None or not text:
            return text
        words = self.vocabulary.words
        return self._inner.sub(
            lambda m: self._known(words.get(m[0].casefold(), "host"), m[0]), text
        )

    def _name(self, text: str, loose: bool) -> str | None:
        """The pseudonym of a word, if it is a name."""
        word = text.casefold()
        kind = self.vocabulary.words.get(word)
        if kind is not None:
            if word in ORDINARY or len(word) == 1 or _is_short_number(word):
                self.ordinary[word] = kind
                return self._known(kind, text) if loose and not word.isdecimal() else None
            return self._known(kind, text)
        stem = STEM.fullmatch(word)
        if stem and stem[1] in self.vocabulary.stems:
            return self._known("host", text)
        joined = _ATTACHED.match(word)
        if joined and self.vocabulary.words.get(joined[1]) == "host":
            return self._known("host", joined[1]) + text[joined.end() :]
        if (
            loose
            and text in self.vocabulary.parts
            and word not in ORDINARY
            and text not in self.vocabulary.chosen
        ):
            return self._known("path", text)
        return None

    def _known(self, kind: str, text: str) -> str:
        return self.names.of(kind, text if kind == "path" else text.casefold())

    def field(self, kind: str, text: str) -> str:
        """A text that a field of this kind holds; a short job id is replaced here."""
        if kind == "job" and (match := re.match(r"[0-9]+", text)):
            return self.names.of("job", match[0]) + self.text(text[match.end() :])
        return self.text(text, True)


def _is_long(word: str) -> bool:
    return len(word) >= INNER and word not in ORDINARY


def _is_short_number(word: str) -> bool:
    return word.isdecimal() and len(word) < LONG_NUMBER


def _either(names: Iterable[str], stems: Iterable[str] = ()) -> re.Pattern[str] | None:
    """Any of the names, longest first, or a stem and a number, in one group; None without any."""
    ordered = [re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))]
    ordered += [rf"{re.escape(stem)}[0-9]+" for stem in sorted(stems, key=lambda n: (-len(n), n))]
    return re.compile(f"({'|'.join(ordered)})", re.IGNORECASE) if ordered else None
