"""docs/tutorial.md works: every file on it is saved, every command typed, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix import analysis

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(yaml|sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"[Ss]ave this as\s+`([\w.]+)`")
JUDGES = "--fail-if"  # its status says what was measured, here by chance


def steps() -> Iterator[tuple[str, str]]:
    """(file name, content), ("sh", command) or ("python", program), in the order of the page."""
    text = PAGE.read_text(encoding="utf-8")
    end = 0
    for block in BLOCK.finditer(text):
        kind, content = block.groups()
        if kind == "yaml":
            yield NAMED.findall(text[end : block.start()])[-1], content
        elif kind == "sh":
            yield from (("sh", line) for line in content.splitlines())
        else:
            yield kind, content
        end = block.end()


# a campaign of 128 runs, on a busy machine
pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder where all was typed, and what each command printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder)}
    printed = {}
    for kind, content in steps():
        if kind not in ("sh", "python"):
            (folder / kind).write_text(content, encoding="utf-8")
            continue
        words = ["sh", "-c", content] if kind == "sh" else [sys.executable, "-P", "-c", content]
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        allowed = (0, 1) if JUDGES in content else (0,)
        assert done.returncode in allowed, f"{content}\n{done.stdout}\n{done.stderr}"
        printed[content] = done.stdout
    return folder, printed


def said(printed: dict[str, str], words: str) -> str:
    """What the one command printed that contains these words."""
    (found,) = [text for command, text in printed.items() if words in command]
    return " ".join(found.split())


def test_every_run_is_ok_and_stored(typed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = typed
    for name in ("out", "again"):
        ds = analysis.open(folder / name)
        assert set(ds["status"].values) == {"ok"}
        assert len(set(ds["run_id"].values)) == 64
        assert len(set(ds["attachment"].values)) == 16


def test_commands_say_what_the_page_promises(typed: tuple[Path, dict[str, str]]) -> None:
    _, printed = typed
    plan = said(printed, "fsmatrix plan")
    assert "at least 6 blocks are needed" in plan
    assert "cannot decide" not in plan
    assert "chunk size" in said(printed, "fsmatrix effects")
    assert "p99" in said(printed, "--latency")
    assert "large-is-faster" in said(printed, "claims mine.yaml")
    assert "('pattern', 'chunk', 'target')" in said(printed, "import analysis")
    assert "slower > 50 %" in said(printed, "--baseline")


def test_what_was_drawn_is_there(typed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = typed
    assert (folder / "chunk.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "effects.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "out" / "report.html").read_text(encoding="utf-8")
    for place, ends in (("figures", (".pdf",)), ("tables", (".csv", ".md"))):
        found = {path.suffix for path in (folder / place).iterdir()}
        assert found == set(ends)


def test_nothing_is_left_in_the_directories(typed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = typed
    assert not any((folder / "one").iterdir())
    assert not any((folder / "two").iterdir())
