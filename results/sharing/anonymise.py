"""Run records and campaigns without the names of hosts, users, paths, addresses and jobs.

Two passes: `learn...` sees everything, then each `record` and `document` is made anew.
Numbers, ids of cases and runs, and what the suite itself calls things stay.
See docs/bundle.md.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.tokens import KeyToken, ScalarToken

from fsmatrix.results.evidence.evidence import Evidence, Rank
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, StoredError, inside, read
from fsmatrix.results.files.runfile import ANONYMISED
from fsmatrix.results.record import Finding, Monitor, Phase, RunRecord, canonical_json
from fsmatrix.results.sharing.vocabulary import (
    COMMON,
    COMMON_PARTS,
    FIELDS,
    FORMS,
    ORDINARY,
    PIECE,
    RUN_ID,
    SOURCES,
    STEM,
    SYSTEM,
    TOKEN,
    Vocabulary,
    is_address,
)

# Texts with every name that was learnt, or that its form tells, replaced by its pseudonym.
#
# See docs/bundle.md for what is replaced where.


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


S = TypeVar("S", bound=Stored)
V = TypeVar("V")
W = TypeVar("W")
_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
_BLANK = re.compile(r"[ \t]*\n(?:[ \t]*\n)+")
_JOB = re.compile(r"[0-9]+(?:[._][0-9a-z]+)*")


class ClashError(ValueError):
    """Two names that differ would become the same."""


class Learner:
    """The first pass: collects what must not be shown."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()

    def record(self, record: RunRecord) -> None:
        """All names in one record."""
        vocabulary = self.vocabulary
        vocabulary.learn("job", record.job)
        vocabulary.chosen.update(str(name) for name in record.coordinates)
        vocabulary.chosen.update(v for v in record.coordinates.values() if isinstance(v, str))
        for monitor in filter(None, (record.monitor, record.nodes)):
            for host in monitor.hosts:
                vocabulary.learn("host", host)
        for host in record.evidence.nodes:
            vocabulary.learn("host", host)
        for shares in record.evidence.cpu.values():
            for host in shares:
                vocabulary.learn("host", host)
        self.document(_plain(record))

    def document(self, value: Any, kind: str = "") -> None:
        """All names in JSON-able data; `kind`: of what the field that holds it tells."""
        if isinstance(value, Mapping):
            for name, item in value.items():
                self.vocabulary.learn_text(str(name))
                self.document(item, _kind(str(name)))
            if isinstance(value.get("key"), str) and "value" in value:  # a list of settings
                self.document(value["value"], _kind(value["key"].rpartition(".")[2]))
        elif isinstance(value, list | tuple):
            for item in value:
                self.document(item, kind)
        elif isinstance(value, str) or (type(value) is int and kind in ("serial", "job")):
            self._text(str(value), kind)

    def _text(self, text: str, kind: str) -> None:
        self.vocabulary.learn_text(text)
        if kind == "source":
            host, colon, path = text.partition(":/")
            kind, text = ("host", host.partition("@")[0]) if colon and path else ("", text)
        if kind and (kind != "job" or _JOB.fullmatch(text)):
            self.vocabulary.learn(kind, text)
        key, equals, value = text.partition("=")
        if equals and not kind and len(text) < 1000:  # --set targets.a.options.serial=...
            word_kind = _kind(key.rpartition(".")[2].lstrip("-"))
            if word_kind and word_kind != "source":
                self.vocabulary.learn(word_kind, value.strip("[]\"'"))

    def campaign(self, text: str) -> None:
        """All names in a campaign's YAML; a text that is none is only looked through."""
        self.vocabulary.learn_text(text)
        try:
            self.document(YAML(typ="safe", pure=True).load(text))
        except YAMLError:
            return


class Anonymiser:
    """The second pass: makes records and documents without the names that were learnt."""

    def __init__(self, learner: Learner) -> None:
        self.rewriter = Rewriter(learner.vocabulary)
        self.names = learner.vocabulary.names
        self._levels: dict[tuple[str, str], str] = {}  # (factor, what it became) -> level

    def text(self, text: str) -> str:
        """A sentence, or what a program printed."""
        return self.rewriter.text(text, True)

    def label(self, text: str) -> str:
        """A key or a name of the suite's own: ordinary words stay."""
        return self.rewriter.text(text, False)

    def document(self, value: Any, kind: str = "") -> Any:
        """JSON-able data; ClashError if two keys would become the same."""
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            return [self.document(item, kind) for item in value]
        if isinstance(value, str):
            named = kind and kind != "source" and (kind != "job" or _JOB.fullmatch(value))
            return self.rewriter.field(kind, value) if named else self.rewriter.text(value)
        if type(value) is int and kind in ("serial", "job"):
            return self.rewriter.field(kind, str(value))
        return value

    def _mapping(self, value: JsonObject) -> dict[str, Json]:
        renamed = {self.label(str(k)): self.document(v, _kind(str(k))) for k, v in value.items()}
        _same_size(value, renamed)
        if isinstance(key := value.get("key"), str) and "value" in value:
            renamed["value"] = self.document(value["value"], _kind(key.rpartition(".")[2]))
        return renamed

    # -- records ---------------------------------------------------------------------------
    def record(self, record: RunRecord) -> RunRecord:
        """The same run: same ids, same numbers.  ClashError if two levels would be one."""
        return replace(
            record,
            case=self._case(record.case),
            attachment=self.rewriter.text(record.attachment),
            session=self.label(record.session),
            engine=self.label(record.engine),
            engine_version=self.label(record.engine_version),
            started=self.label(record.started),
            job=self.rewriter.field("job", record.job),
            error=self.text(record.error),
            failure=self.document(record.failure),
            argv=tuple(tuple(map(self.text, words)) for words in record.argv),
            coordinates=self._coordinates(record.coordinates),
            environment={**self.document(record.environment), ANONYMISED: True},
            companions=tuple(map(self.label, record.companions)),
            ranks=tuple(map(self._rank, record.ranks)),
            phases=tuple(map(self._phase, record.phases)),
            monitor=self._monitor(record.monitor) if record.monitor else None,
            nodes=self._monitor(record.nodes) if record.nodes else None,
            evidence=self._evidence(record.evidence),
            findings=tuple(map(self._finding, record.findings)),
            texts=self._keys(record.texts, self.text),
        )

    def _case(self, case: str) -> str:
        try:
            return canonical_json(self.document(json.loads(case)))
        except (ValueError, TypeError):
            return self.rewriter.text(case)

    def _coordinates(self, levels: JsonObject) -> dict[str, Json]:
        renamed: dict[str, Json] = self.document(levels)
        for (factor, before), after in zip(levels.items(), renamed.values(), strict=True):
            if (
                isinstance(before, str)
                and isinstance(after, str)
                and self._levels.setdefault((factor, after), before) != before
            ):
                raise ClashError(
                    f"levels {self._levels[factor, after]!r} and {before!r} of factor {factor!r} "
                    "would become the same: give them other names"
                )
        return renamed

    def _evidence(self, evidence: Evidence) -> Evidence:
        stored = evidence.document()
        rewritten: dict[str, Json] = self.document(stored)
        if evidence.cpu:  # by phase, then by host
            rewritten["cpu"] = {
                self.label(phase): self._keys(
                    inside(stored, "cpu", phase), self.document, self.text
                )
                for phase in evidence.cpu
            }
        return _typed(Evidence, rewritten, "evidence")

    def _rank(self, rank: Rank) -> Rank:
        return _typed(Rank, self.document(rank.document()), "rank")

    def _phase(self, phase: Phase) -> Phase:
        return replace(
            phase,
            name=self.label(phase.name),
            latency=self._keys(phase.latency, lambda latency: latency),
            timeline=self._keys(phase.timeline, lambda table: table),
            errors_by_errno=self._keys(phase.errors_by_errno, lambda count: count),
            facts=self.document(phase.facts),
        )

    def _monitor(self, monitor: Monitor) -> Monitor:
        return replace(
            monitor,
            hosts=tuple(self.rewriter.field("host", host) for host in monitor.hosts),
            series=self._keys(monitor.series, lambda series: series),
            units=self._keys(monitor.units, self.label),
        )

    def _finding(self, finding: Finding) -> Finding:
        return replace(
            finding,
            audit=self.label(finding.audit),
            message=self.text(finding.message),
            advice=self.text(finding.advice),
            phase=self.label(finding.phase),
            evidence=self.document(finding.evidence),
        )

    def _keys(
        self,
        values: Mapping[str, V],
        value: Callable[[V], W],
        key: Callable[[str], str] | None = None,
    ) -> dict[str, W]:
        renamed = {(key or self.label)(name): value(item) for name, item in values.items()}
        _same_size(values, renamed)
        return renamed

    # -- the campaign ----------------------------------------------------------------------
    def campaign(self, text: str) -> str:
        """A campaign's YAML without names and without comments: those are free text.

        ValueError if it is no YAML.
        """
        try:
            tokens = list(YAML(typ="safe", pure=True).scan(text))
        except YAMLError as error:
            raise ValueError(f"the campaign is no YAML: {error}") from error
        parts, done = [], 0
        for before, token in zip([None, *tokens], tokens, strict=False):
            if not isinstance(token, ScalarToken):
                continue
            begin, end = token.start_mark.index, token.end_mark.index
            loose = " " in token.value and not isinstance(before, KeyToken)
            parts += [self._gap(text[done:begin]), self.rewriter.text(text[begin:end], loose)]
            done = end
        return "".join([*parts, self._gap(text[done:])]).lstrip("\n")

    def _gap(self, text: str) -> str:
        """What stands between two values: colons, brackets, blanks, anchors, comments."""
        return self.label(_BLANK.sub("\n", _COMMENT.sub("", text)))


def _kind(name: str) -> str:
    """What a field of this name holds; empty: nothing in particular."""
    lower = name.lower()
    return "source" if lower in SOURCES else FIELDS.get(lower, "")


def _typed(kind: type[S], rewritten: Any, key: str) -> S:
    try:
        return read(kind, rewritten, key)
    except StoredError as error:
        raise ClashError(f"a name is a word of the evidence too: {error}") from error


def _plain(record: RunRecord) -> dict[str, Json]:
    """The record's texts as data: for the first pass."""
    return {
        "texts": dict(record.texts),
        "error": record.error,
        "failure": record.failure,
        "argv": record.argv,
        "factors": record.coordinates,
        "environment": record.environment,
        "ranks": [rank.document() for rank in record.ranks],
        "evidence": record.evidence.document(),
        "attachment": record.attachment,
        "own": [record.session, record.engine, record.engine_version],
        "case": json.loads(record.case) if record.case.startswith("{") else record.case,
        "phases": [[phase.name, phase.facts] for phase in record.phases],
        "findings": [
            [finding.message, finding.advice, finding.evidence] for finding in record.findings
        ],
    }


def _same_size(before: Mapping[str, object], after: Mapping[str, object]) -> None:
    if len(before) != len(after):
        raise ClashError(f"of the names {', '.join(map(str, before))} two would become the same")
