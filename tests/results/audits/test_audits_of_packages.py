"""Audits of other packages: asked beside ours, named in the run, never instead of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from fsmatrix.results import audits, registry
from fsmatrix.results.audits.audit import Audit, Remark
from fsmatrix.results.record import RunRecord
from fsmatrix.results.registry import BrokenEntry
from tests.results import audit_records

Judge = Callable[[RunRecord], Iterator[Remark]]


def remark(*parts: Any) -> Judge:
    def judge(_: RunRecord) -> Iterator[Remark]:
        yield parts  # type: ignore[misc]

    return judge


def fails(_: RunRecord) -> Iterator[Remark]:
    raise KeyError("world")
    yield


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make audits those of another package."""
    module = ModuleType("a_package")
    monkeypatch.setitem(sys.modules, "a_package", module)

    def clear() -> None:
        audits.run_audits.cache_clear()
        audits.packaged.cache_clear()

    def installed(*found: Audit, family: str = "theirs") -> None:
        module.AUDITS = found  # type: ignore[attr-defined]
        entry = EntryPoint(family, "a_package:AUDITS", "fsmatrix.audits")
        monkeypatch.setattr(registry, "entry_points", lambda group: {entry.group: [entry]}[group])
        clear()

    yield installed
    monkeypatch.undo()
    clear()


def of(name: str, judge: Judge) -> Audit:
    return Audit(name, 3, "run", judge, "do something else")


def test_they_are_asked_too_and_the_run_names_them(install: Callable[..., None]) -> None:
    record = audit_records.record(environment={"mpi": "m"})
    before = audits.judged(record)
    assert before.environment == {"mpi": "m"}
    install(of("theirs", remark("invalid", "", "it cannot be", {"a": 1})))
    after = audits.judged(record)
    (first, *others) = after.findings
    assert (first.audit, first.version, first.severity) == ("theirs", 3, "invalid")
    assert tuple(others) == before.findings
    assert after.environment == {"mpi": "m", "audits": {"theirs": "version 3, unknown package"}}


def test_none_takes_the_place_of_ours(install: Callable[..., None]) -> None:
    install(of("too-short", remark("info", "", "nothing is", {})))
    with pytest.raises(BrokenEntry, match=r"audit 'theirs' .*: there is a 'too-short'"):
        audits.run_audits()
    install(of("theirs", remark("info", "", "nothing is", {})), family="timing")  # a family of ours
    assert "theirs" not in audits.run_audits()
    assert "too-short" in audits.run_audits()


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (fails, "KeyError: 'world'"),
        (remark("fatal", "", "no such severity", {}), "ValueError: "),
        (remark("info", "", "no JSON", {"a": object()}), "TypeError: object is not JSON-able"),
        (remark("info", "too few"), "ValueError: not enough values to unpack"),
    ],
)
def test_one_that_fails_gives_a_finding_that_says_so(
    install: Callable[..., None], judge: Judge, said: str
) -> None:
    install(of("theirs", judge))
    (found,) = [one for one in audits.audit_run(audit_records.record()) if one.audit == "theirs"]
    assert found.severity == "warning"
    assert found.message.startswith(f"the audit itself failed: {said}")
    assert found.advice == "mend the audit, or remove its package"
