"""The minutes of a run: a line for each folder of tests, and the modules that took longest."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 10
OUTCOMES = {"skipped": "skipped", "failure": "failed", "error": "failed"}


@dataclass
class Tally:
    """What came of some tests, and how long they took together."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def tests(self) -> int:
        """How many there were."""
        return self.passed + self.failed + self.skipped


def by_module(reports: Iterable[Path]) -> dict[str, Tally]:
    """Tallies by module (tests.suite.run.test_x) from pytest's reports (--junitxml)."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            tally = tallies[case.get("classname", "")]
            outcome = next((OUTCOMES[e.tag] for e in case if e.tag in OUTCOMES), "passed")
            setattr(tally, outcome, getattr(tally, outcome) + 1)
            tally.seconds += float(case.get("time", 0))
    return tallies


def table(modules: dict[str, Tally], seconds: float) -> str:
    """The table as text; `seconds` is how long the whole took, with what ran side by side."""
    folders: dict[str, Tally] = defaultdict(Tally)
    for module, tally in sorted(modules.items()):
        for sum_ in (folders[module.removeprefix("tests.").partition(".")[0]], folders["all"]):
            sum_.passed += tally.passed
            sum_.failed += tally.failed
            sum_.skipped += tally.skipped
            sum_.seconds += tally.seconds
    folders["all"] = folders.pop("all", Tally())  # last; none of a run that was ended at once
    lines = [f"{'folder':<12}{'tests':>7}{'passed':>8}{'failed':>8}{'skipped':>9}{'minutes':>9}"]
    lines += [
        f"{folder:<12}{t.tests:>7}{t.passed:>8}{t.failed:>8}{t.skipped:>9}{t.seconds / 60:>9.1f}"
        for folder, t in folders.items()
    ]
    slowest = sorted(modules.items(), key=lambda pair: -pair[1].seconds)[:SLOWEST]
    lines += ["", f"slowest modules{'minutes':>46}"]
    lines += [f"{name.removeprefix('tests.'):<52}{t.seconds / 60:>9.1f}" for name, t in slowest]
    return "\n".join([*lines, "", f"side by side in {seconds / 60:.1f} minutes"])
