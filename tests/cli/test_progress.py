"""What people are shown of failures: a reason once, with the number of its runs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.cli.common import MOST_REASONS, say_failures
from fsmatrix.cli.progress import Mode, Terminal, listener
from fsmatrix.results.audits.audit import Tally
from fsmatrix.results.record import Finding
from fsmatrix.suite.run.events import Event, Facts
from fsmatrix.suite.run.forecast import Forecast
from tests.suite.running import fsmatrix


def console() -> Terminal:
    return Terminal(file=io.StringIO(), width=200)


def printed(on: Terminal) -> list[str]:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue().splitlines()


@pytest.mark.parametrize("mode", ["live", "quiet"])
def test_a_reason_is_printed_once_and_a_run_that_failed_by_itself_too(mode: Mode) -> None:
    on = console()
    facts = Facts(status="failed", findings=(), begun=False)
    with listener(mode, 5, on, Forecast({})) as tell:
        for again in (False, True):
            about = Facts(target="btrfs", runs=2, again=again)
            tell(Event("given_up", "2 runs of btrfs: no mkfs", about))
            for _ in range(2):
                tell(Event("failed", "abc-r0000-a1: no mkfs", facts))
        tell(Event("failed", "def-r0000-a1: EIO", replace(facts, begun=True)))
    lines = printed(on)
    assert [line for line in lines if "no mkfs" in line] == ["given up: 2 runs of btrfs: no mkfs"]
    assert [line for line in lines if "EIO" in line] == ["failed: def-r0000-a1: EIO"]


def test_a_run_becomes_valid_doubtful_or_invalid_once() -> None:
    """An invalid one is not doubtful too, whatever else was found; each audit counts runs."""
    tally = Tally()
    warned, bad = (Finding(name, 1, name[:7], "") for name in ("warning-a", "invalid-b"))  # type: ignore[arg-type]
    for status, found in (("ok", ()), ("ok", (warned, warned)), ("ok", (warned, bad, bad))):
        tally = tally.plus(status, found)
    assert tally.says == "2 valid, 1 of them doubtful (warning-a), 1 invalid (invalid-b)"
    tally = tally.plus("timeout", (bad,)).plus("failed", ())
    assert tally.counts == "2 valid, 1 of them doubtful, 1 invalid, 2 failed"
    assert (tally.runs, tally.timeout, tally.invalid_by) == (5, 1, {"invalid-b": 1})
    many = Tally(valid=1, invalid=9, invalid_by={"e": 1, "d": 2, "c": 3, "b": 2, "a": 1})
    assert many.says == "1 valid, 9 invalid (c, b, d and 2 more)"


@pytest.mark.parametrize("mode", ["live", "quiet"])
def test_what_became_of_the_runs_is_shown_while_it_runs(mode: Mode) -> None:
    on = console()
    tally = Tally(valid=96, invalid=48, invalid_by={"read-served-by-cache": 48})
    with listener(mode, 5, on, Forecast({})) as tell:
        tell(Event("finished", "x", Facts(run="r", status="ok", findings=(), tally=tally)))
        tell(Event("invalid", "read-served-by-cache (b, read): why; what to do: this", Facts()))
        tell(Event("attach", "b001: attach b", Facts(target="b", runs=2, tally=tally)))
    lines = printed(on)
    assert "invalid: read-served-by-cache (b, read): why; what to do: this" in lines
    shown = {
        "live": "96 valid, 48 invalid",
        "quiet": f"attach: b001: attach b; {tally.says}; about 0 s left",
    }
    assert tally.says == "96 valid, 48 invalid (read-served-by-cache)"
    assert any(shown[mode] in line for line in lines)


def test_json_has_of_an_event_what_concerns_it_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with listener("json", 5, console(), Forecast({})) as tell:
        tell(Event("skipped", "x", Facts(target="btrfs", runs=2, attachments=0), time=1.5))
        tell(Event("finished", "y", Facts(run="r", status="ok", findings=()), time=2.5))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        '{"time": 1.5, "event": "skipped", "text": "x", "target": "btrfs", "runs": 2, '
        '"attachments": 0}',
        '{"time": 2.5, "event": "finished", "text": "y", "run": "r", "status": "ok", '
        '"findings": []}',
    ]


def test_the_list_at_the_end_has_ten_lines_at_most_and_counts_all() -> None:
    on = console()
    many = [(f"run{i}", "failed", "no mkfs") for i in range(7)]
    others = [(f"other{i}", "timeout", f"reason {i}") for i in range(20)]
    say_failures(on, [*others, *many, *many])  # a row for each of two phases
    lines = printed(on)
    assert len(lines) == MOST_REASONS + 1 == 10
    assert lines[0] == "failed 7 runs (run0, ...): no mkfs"
    assert lines[1] == "timeout other0: reason 0"
    assert lines[-1].startswith("... and 12 more failed runs for 12 other reasons")


def test_reasons_of_several_lines_and_with_control_characters_stay_one_line() -> None:
    on = console()
    say_failures(on, [("run", "failed", "first\nsecond \x1b[31m")])
    (line,) = printed(on)
    assert line.startswith("failed run: first second ")
    assert "\x1b" not in line


def test_what_runs_into_a_file_is_told_as_it_happens(tmp_path: Path) -> None:
    """A bar is for terminals; into a file every attachment is a line at once."""
    target = tmp_path / "target"
    target.mkdir()
    campaign = tmp_path / "one.yaml"
    campaign.write_text(
        f"campaign: one\ntargets:\n  here: {{backend: directory, options: {{path: {target}}}}}\n"
        "workloads: {io: {workload: pattern, options: {bytes_per_process: 1MiB}}}\n"
        "repetitions: 2\n"
    )
    done = fsmatrix("run", campaign, "-o", tmp_path / "out", "--no-report")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("attach here") == 2
    assert "2 runs: 2 valid" in done.stdout
    missing = fsmatrix("show", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr
