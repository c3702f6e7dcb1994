"""What people are shown of failures: a reason once, with the number of its runs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.cli.common import MOST_REASONS, say_failures
from fsmatrix.cli.progress import Mode, listener
from fsmatrix.cli.terminal import Terminal
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
    say_failures(on, [*others, *many])
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
    assert "2 runs ok, 0 failed" in done.stdout
    missing = fsmatrix("show", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr
