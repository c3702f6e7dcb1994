"""What a command does to the terminal and to who started it: its output, its end by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from fsmatrix.cli import progress
from fsmatrix.results.units import printable
from tests.suite.running import FSMATRIX, fsmatrix
from tests.waiting import PATIENCE

EVIL = "\N{ESCAPE}]0;owned\N{BELL}\N{ESCAPE}[2Jgone\N{RIGHT-TO-LEFT OVERRIDE}\x9b"
CAMPAIGN = """
campaign: loud
description: "wipes: \\e]0;owned\\a\\e[2Jgone \\x9b"
targets:
  here: {backend: directory, options: {path: PLACE}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 1MiB}}
"""


def test_nothing_that_a_terminal_obeys_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = progress.console()
    console.print(EVIL, style="red", markup=False, highlight=False)
    progress.echo(EVIL)
    told = capsys.readouterr().out
    assert "gone" in told
    assert told.startswith("\N{ESCAPE}[31m")  # its own colours stay
    plain = told.replace("\N{ESCAPE}[31m", "").replace("\N{ESCAPE}[0m", "")
    assert all(sign.isprintable() or sign == "\n" for sign in plain)


def test_what_we_print_ourselves_is_kept() -> None:
    text = "1\u202f024 µs\n\tnext"
    assert printable(text) == text


def test_a_campaign_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    campaign = tmp_path / "loud.yaml"
    campaign.write_text(CAMPAIGN.replace("PLACE", str(tmp_path)))
    done = fsmatrix("plan", campaign)
    assert done.returncode == 0, done.stderr
    assert "wipes: " in done.stdout
    assert all(sign.isprintable() or sign == "\n" for sign in done.stdout + done.stderr)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("jobs",), ("jobs", "--json"), ("--version",)])
def test_a_full_disk_is_a_message(words: tuple[str, ...], unbuffered: str) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*FSMATRIX, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
            env=environment,
        )
    assert done.returncode == 2
    assert done.stderr == "error: standard output: No space left on device\n"


def test_a_locale_without_our_signs_is_no_obstacle(tmp_path: Path) -> None:
    campaign = tmp_path / "signs.yaml"
    text = CAMPAIGN.replace("PLACE", str(tmp_path)).replace("wipes:", "µs, naïve")
    campaign.write_text(text, encoding="utf-8")
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*FSMATRIX, "plan", campaign],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=plain,
    )
    assert done.returncode == 0, done.stderr
    assert "\\xb5s, na\\xefve" in done.stdout


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_an_interrupt_while_it_loads_is_silent(tmp_path: Path, module: str) -> None:
    """The module says that it is being loaded, and takes its time."""
    (tmp_path / f"{module}.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [*FSMATRIX, "jobs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130


def test_an_interrupt_while_it_ends_is_silent(tmp_path: Path) -> None:
    """What is registered last runs first at the end: it says so, and takes its time."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, time\n"
        "atexit.register(lambda: (print('here', flush=True), time.sleep(60)))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [*FSMATRIX, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.readline() != b"here\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130
