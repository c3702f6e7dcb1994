"""Runs counted by what became of them, in the words of the terminal and of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.record import Finding

MOST_NAMED = 3  # audits; more are counted


@dataclass(frozen=True, kw_only=True)
class Tally(Stored):
    """What docs/audits.md says of single numbers, of whole runs; `..._by`: audit -> runs."""

    valid: int = 0
    doubtful: int = 0  # of the valid ones: an audit warns
    invalid: int = 0  # ended well, but does not count
    failed: int = 0  # or timed out
    timeout: int = 0  # of the failed ones
    doubtful_by: Mapping[str, int] = field(default_factory=dict)
    invalid_by: Mapping[str, int] = field(default_factory=dict)

    def plus(self, status: str, findings: Iterable[Finding]) -> Tally:
        """With one more run."""
        if status != "ok":
            timeout = self.timeout + (status == "timeout")
            return replace(self, failed=self.failed + 1, timeout=timeout)
        invalid, warning = (
            {finding.audit for finding in findings if finding.severity == severity}
            for severity in ("invalid", "warning")
        )
        if invalid:
            by = Counter(self.invalid_by) + Counter(invalid)
            return replace(self, invalid=self.invalid + 1, invalid_by=by)
        by = Counter(self.doubtful_by) + Counter(warning)
        doubtful = self.doubtful + bool(warning)
        return replace(self, valid=self.valid + 1, doubtful=doubtful, doubtful_by=by)

    def __add__(self, other: Tally) -> Tally:
        """Of the runs of both."""
        return Tally(
            valid=self.valid + other.valid,
            doubtful=self.doubtful + other.doubtful,
            invalid=self.invalid + other.invalid,
            failed=self.failed + other.failed,
            timeout=self.timeout + other.timeout,
            doubtful_by=Counter(self.doubtful_by) + Counter(other.doubtful_by),
            invalid_by=Counter(self.invalid_by) + Counter(other.invalid_by),
        )

    @property
    def runs(self) -> int:
        """All of them."""
        return self.valid + self.invalid + self.failed

    @property
    def says(self) -> str:
        """ "96 valid, 48 invalid (read-served-by-cache)": what there is none of is not said."""
        return self._said(f" ({named(self.doubtful_by)})", f" ({named(self.invalid_by)})")

    @property
    def counts(self) -> str:
        """`says` without the audits."""
        return self._said("", "")

    def _said(self, doubtful: str, invalid: str) -> str:
        parts = [f"{self.valid} valid"]
        parts += [f"{self.doubtful} of them doubtful{doubtful}"] if self.doubtful else []
        parts += [f"{self.invalid} invalid{invalid}"] if self.invalid else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(parts)


def named(audits: Mapping[str, int]) -> str:
    """The audits of the most runs first."""
    names = sorted(audits, key=lambda name: (-audits[name], name))
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
