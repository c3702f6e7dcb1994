"""Help of all commands: panels, and first lines that stand whole in a terminal of 80 columns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from fsmatrix.cli.app import RARER, app

PROGRAM: Any = typer.main.get_command(app)
PANELS = ("Plan and run", "Cluster", "Results", "Questions")
MOST_LINES = 45


def commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command and group with the words that call it."""
    for name, command in group.commands.items():
        yield f"{path}{name}", command
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")


EVERY = dict(commands(PROGRAM))


@pytest.mark.parametrize("name", EVERY)
def test_the_first_line_is_whole_and_short(name: str) -> None:
    first, _, rest = EVERY[name].help.partition("\n")
    assert first.endswith("."), name
    assert len(first) < 80, name
    assert not rest.partition("\n")[0].strip(), f"{name}: the first paragraph is one line"


@pytest.mark.parametrize("name", PROGRAM.commands)
def test_every_command_stands_in_a_panel(name: str) -> None:
    assert PROGRAM.commands[name].rich_help_panel in PANELS


def test_every_panel_is_used() -> None:
    assert {command.rich_help_panel for command in PROGRAM.commands.values()} == {*PANELS}


def test_the_first_screen_fits_and_each_command_has_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["--help"]).stdout.splitlines()
    assert len(lines) <= MOST_LINES
    shown = {name for name, command in PROGRAM.commands.items() if not command.hidden}
    assert shown == {
        line.split()[1] for line in lines if line.startswith("│ ") and "--" not in line
    }


def test_rarer_questions_are_asked_by_either_name() -> None:
    assert set(PROGRAM.commands["ask"].commands) == set(RARER)
    assert all(PROGRAM.commands[name].hidden for name in RARER)
    for name in RARER:
        both = [CliRunner().invoke(app, [*words, name, "--help"]) for words in ((), ("ask",))]
        assert [one.exit_code for one in both] == [0, 0]
        assert both[1].stdout.replace(f"ask {name}", name).split() == both[0].stdout.split()


def test_help_loads_little() -> None:
    """What it takes to say what there is: no numbers, no campaigns, no plans."""
    program = (
        "import sys; sys.argv = ['fsmatrix', '--help']\n"
        "from fsmatrix.cli.main import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False
    )
    loaded = done.stderr.split()
    assert done.returncode == 0
    assert "lessons" in done.stdout
    assert not {"numpy", "h5py", "xarray", "pandas", "scipy", "matplotlib"} & {*loaded}
    own = [name for name in loaded if name.startswith("fsmatrix")]
    assert len(own) < 90, own
