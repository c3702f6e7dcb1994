"""What `compare`, `lessons`, `report`, `show` and `findings` print is plain English."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.analysis.report.report import write_report
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.results.record import Geometry, RunRecord
from tests.analysis import campaigns
from tests.analysis.commands import call

FORBIDDEN = re.compile(
    r"bare ratio|part them|decided answer|answers decided|not decided|\bopen\b(?! )"
    r"|is open\b|\bopen with\b|p corrected|corrected over|geometric means;|no verdict"
    r"|p = \d|coverage \d|not told apart|too few repetitions",
    re.IGNORECASE,
)
Speed = float | Callable[[str, int], float]  # of a pattern and a chunk size


def runs(
    speeds: Mapping[str, Speed], blocks: int = 6, spread: float = 0.05, seed: int = 3
) -> Iterator[RunRecord]:
    """Targets of these relative speeds; log-normal scatter between their runs."""
    rng = np.random.default_rng(seed)
    for target, speed in speeds.items():
        for block in range(blocks):
            for pattern in campaigns.PATTERNS:
                for chunk in campaigns.CHUNKS:
                    rate = speed(pattern, chunk) if callable(speed) else speed
                    rate *= rng.lognormal(0, spread) * (3e7 if chunk == 4096 else 9e8)
                    name = pattern.split("-")[1]
                    yield campaigns.record(
                        target,
                        coordinates={"pattern": pattern, "chunk": chunk},
                        geometry=Geometry(1, 1),
                        block=block,
                        phases=(campaigns.phase(name, rate, chunk, 1, rng),),
                    )


def one_failed() -> Iterator[RunRecord]:
    """One of three targets without a run that ended well."""
    for record in runs({"xfs": 1.0, "ext4": 0.5, "btrfs": 0.4}):
        if record.coordinates["target"] == "btrfs":
            yield dataclasses.replace(record, status="failed", phases=(), error="rank 0: EIO")
        else:
            yield record


def mixed(pattern: str, chunk: int) -> float:
    return 0.6 if "read" in pattern else 1.5


CAMPAIGNS: dict[str, Callable[[], Iterator[RunRecord]]] = {
    "proven": lambda: runs({"home": 1.0, "array": 20.0}),
    "equal": lambda: runs({"home": 1.0, "other": 1.0}, blocks=10, spread=0.01),
    "unsure": lambda: runs({"home": 1.0, "other": 1.05}, spread=0.1),
    "mixed": lambda: runs({"xfs": 1.0, "ext4": mixed, "btrfs": 0.97}, spread=0.03),
    "failed": one_failed,
    "few": lambda: runs({"xfs": 1.0, "ext4": 0.01}, blocks=3),
    "single": lambda: runs({"xfs": 1.0, "ext4": 0.01}, blocks=1),
    "many": lambda: runs({f"t{i:02d}": 1 + i / 20 for i in range(20)}, spread=0.03),
    "troubles": campaigns.realistic,
}
FIRST = {  # the first words of `compare`
    "proven": r"bandwidth: array is faster in 8 of 8 cells\.",
    "equal": "no difference larger than 5 % in 8 of 8 cells",
    "unsure": r"undecided in 8 of 8 cells \(\w+ is ahead in 5 of 8, with .* %; may be chance\)",
    "few": r"is ahead in all 8 by .* times, each time; 3 blocks are too few; 6 are needed",
    "single": "one value on a side: chance cannot be told from a difference",
    "failed": "xfs is faster in 8 of 8 cells|ext4 against xfs",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("words")
    return {
        name: campaigns.write(folder / f"{name}.h5", made()) for name, made in CAMPAIGNS.items()
    }


@pytest.mark.parametrize("name", CAMPAIGNS)
@pytest.mark.parametrize("command", ["compare", "lessons", "show", "findings"])
def test_no_command_speaks_statistics(
    command: str,
    name: str,
    files: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [command, files[name]]
    if (command, name) == ("compare", "many"):
        words += ["--targets", "t00,t01,t02"]
    words += ["--cells"] * (command != "findings")
    assert call(monkeypatch, *words) == 0
    said = capsys.readouterr().out
    found = [line for line in said.splitlines() if FORBIDDEN.search(line)]
    # the machine's own words stand in the table of the lessons
    assert not [line for line in found if not line.startswith(("backend", "chunk", "processes"))]
    if command == "compare" and name in FIRST:
        assert re.search(FIRST[name], said.splitlines()[0]), said.splitlines()[0]


@pytest.mark.parametrize("name", ["mixed", "few", "troubles"])
def test_no_report_speaks_statistics(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    page = write_report([files[name]], tmp_path / "report.html").read_text(encoding="utf-8")
    for code in ("script", "style"):
        page = re.sub(rf"<{code}\b.*?</{code}>", "", page, flags=re.DOTALL)
    said = html.unescape(re.sub(r"<[^>]+>", "\n", page))
    told = said.partition("Claims of studies")[0]
    wrong = [line for line in told.splitlines() if FORBIDDEN.search(line)]
    assert not wrong


def test_what_all_comparisons_share_is_said_once(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", files["mixed"], "--cells") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("[ ]: 95 % sure") for line in lines) == 1
    assert sum(line.startswith("Runs of xfs vary") for line in lines) == 1
    assert lines[-1].startswith("How this was tested: over 24 cells together by max-T")
    assert lines[-1].endswith("p and intervals: --json.")


@pytest.mark.parametrize(
    ("ratio", "rates", "times"),
    [(100.0, "100 times as fast", "100 times as high"), (1.07, "7 % faster", "7 % higher"),
     (0.93, "7 % slower", "7 % lower"), (0.05, "1/20 as fast", "1/20 as high"),
     (1.0002, "equally fast", "equal"), (0.996, "0.4 % slower", "0.4 % lower")],
)  # fmt: skip
def test_by_how_much_one_is_ahead(ratio: float, rates: str, times: str) -> None:
    assert words.lead(ratio) == rates
    assert words.lead(ratio, more_is_faster=False) == times


def test_by_how_much_one_is_ahead_of_another() -> None:
    assert words.lead(100.0, other="xfs") == "100 times as fast as xfs"
    assert words.lead(0.05, other="xfs") == "1/20 as fast as xfs"
    assert words.lead(0.93, other="xfs") == "7 % slower than xfs"
    assert words.lead(1.0, other="xfs") == "as fast as xfs"


def test_a_span_of_ratios_is_per_cent_or_times() -> None:
    assert words.span(0.99, 1.1) == "-1 to +10 %"
    assert words.span(1.0, 1.0) == "0 %"
    assert words.span(18.0, 24.3) == "18 to 24.3 times"
    assert words.span(0.2, 1.1) == "0.2 to 1.1 times"


def test_how_often_and_how_sure_come_from_the_blocks() -> None:
    logs = np.log([1.2, 1.3, 1.1, 1.25, 1.3, 0.9])
    found = intervals.from_logs((logs,))
    assert words.how_often(found) == " in 5 of 6 blocks"
    assert not words.every_time(found)
    assert words.not_proven(found, "this cell") == words.CHANCE
    every = intervals.from_logs((np.abs(logs),))
    assert words.how_often(every) == " in all 6 blocks"
    assert words.not_proven(every, "this cell") == "for this cell alone not yet proven"
    assert words.sure(every).startswith("95 % sure: ")
    assert words.sure(intervals.from_logs((np.abs(logs[:3]),))).startswith("only 75 % sure: ")
    other = words.inverted(found)
    assert (other.ratio, other.low) == pytest.approx((1 / found.ratio, 1 / found.high))
    assert words.how_often(other) == " in 5 of 6 blocks"
    apart = intervals.from_logs((logs[:3] + 1, logs[:4]))
    assert words.every_time(apart)
    assert words.how_often(apart) == ""
