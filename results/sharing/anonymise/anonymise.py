"""Run records and campaigns without the names of hosts, users, paths, addresses and jobs.

Two passes: `learn...` sees everything, then each `record` and `document` is made anew.
Numbers, ids of cases and runs, and what the suite itself calls things stay.
See docs/bundle.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.tokens import KeyToken, ScalarToken

from fsmatrix.results.case import canonical_json
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.rank import Rank
from fsmatrix.results.evidence.stored import Stored, StoredError, read
from fsmatrix.results.evidence.values import Json, JsonObject, inside
from fsmatrix.results.files.run.recordcheck import ANONYMISED
from fsmatrix.results.record import Finding, Monitor, Phase, RunRecord
from fsmatrix.results.sharing.anonymise.names import FIELDS, SOURCES
from fsmatrix.results.sharing.anonymise.text import Rewriter
from fsmatrix.results.sharing.anonymise.vocabulary import Vocabulary

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
        if record.monitor is not None:
            for host in record.monitor.hosts:
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
