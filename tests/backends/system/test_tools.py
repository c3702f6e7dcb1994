"""Other people's programs: which of them root does not run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.errors import NoAnswer, ToolError
from fsmatrix.backends.system import tools, trusted
from tests.waiting import PATIENCE, until

NOBODY = 65534
SAYS = "root does not run {program}: {place} {reason}; mend that, or vouch for its folder: "
SAYS += "FSMATRIX_PATH={folder}"


def program(folder: Path, mode: int = 0o755) -> Path:
    """A tool in a folder of its own."""
    folder.mkdir()
    path = folder / "mkfs.trial"
    path.write_text("#!/bin/sh\necho made\n")
    path.chmod(mode)
    return path


def on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def refused(path: Path, place: Path, reason: str) -> None:
    """It is neither found nor run, and the sentence names path and remedy."""
    said = SAYS.format(program=path, place=place, reason=reason, folder=path.parent)
    assert tools.find(path.name) is None
    assert tools.refusal(path.name) == said
    with pytest.raises(ToolError) as raised:
        tools.run([path.name])
    assert str(raised.value) == said


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_root_runs_nothing_from_a_folder_that_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = program(tmp_path / "bin")
    on_path(monkeypatch, path.parent)
    assert tools.run([path.name]).stdout == "made\n"
    os.chown(path.parent, 0, 100)  # a group of others: its number is no user's
    path.parent.chmod(mode)
    refused(path, path.parent, f"can be written to by others (mode {mode:o})")
    assert str(path.parent) not in tools.path().split(os.pathsep)


@pytest.mark.root
@pytest.mark.parametrize("above", [True, False])
def test_root_runs_nothing_below_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: bool
) -> None:
    path = program(tmp_path / "bin")
    theirs = tmp_path if above else path
    on_path(monkeypatch, path.parent)
    os.chown(theirs, NOBODY, NOBODY)
    try:
        refused(path, theirs, "belongs to nobody, who could replace it or what is in it")
        assert (str(path.parent) in tools.path().split(os.pathsep)) is not above
        monkeypatch.setenv("SUDO_UID", str(NOBODY))  # who is root anyway
        assert tools.run([path.name]).stdout == "made\n"
    finally:
        os.chown(theirs, 0, 0)


@pytest.mark.root
def test_links_are_followed_and_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a program that others may write, and through a folder in which they may rename."""
    path = program(tmp_path / "elsewhere", 0o757)
    (tmp_path / "open").mkdir()
    (tmp_path / "open/way").symlink_to(path)
    folder = tmp_path / "bin"
    folder.mkdir()
    link = folder / path.name
    link.symlink_to("../open/way")
    on_path(monkeypatch, folder)
    refused(link, path, "can be written to by others (mode 757)")
    path.chmod(0o755)
    assert tools.run([path.name]).stdout == "made\n"
    (tmp_path / "open").chmod(0o777)
    refused(link, tmp_path / "open", "can be written to by others (mode 777)")
    link.unlink()
    link.symlink_to(link.name)
    assert tools.find(path.name) is None


@pytest.mark.root
def test_the_first_on_path_counts_and_what_the_user_vouches_for_comes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = program(tmp_path / "good"), program(tmp_path / "bad")
    bad.parent.chmod(0o777)
    on_path(monkeypatch, good.parent)
    on_path(monkeypatch, bad.parent)
    assert tools.find(bad.name) is None  # not quietly another one than PATH says
    monkeypatch.setenv(tools.VOUCHED, f"{tmp_path / 'none'}:{good.parent}")
    assert tools.find(bad.name) == str(good)
    monkeypatch.setenv(tools.VOUCHED, str(tmp_path))
    assert tools.find(bad.name) == str(bad)
    assert tools.find(str(bad)) == str(bad)
    assert tools.path().split(os.pathsep)[:2] == [str(tmp_path), str(good.parent)]


@pytest.mark.root
def test_what_the_python_that_runs_us_could_change_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A venv of another user: he is root wherever root runs it."""
    folder = tmp_path / "venv/bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    tool = folder / "mpirun"
    tool.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.1'\n")
    tool.chmod(0o755)
    for each in (tmp_path / "venv", folder, tool):
        os.chown(each, NOBODY, NOBODY)
    assert tools.find(str(tool)) is None
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    assert tools.find(str(tool)) == str(tool)
    folder.chmod(0o777)  # what may be exchanged is the Python itself
    assert tools.find(str(tool)) == str(tool)


@pytest.mark.parametrize("target", ["self", "no/such"])
def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "self").symlink_to(target)
    with pytest.raises(OSError, match=str(tmp_path)):
        trusted.distrust_way(tmp_path / "self")


def test_a_signal_to_our_group_is_not_the_tool_s(tmp_path: Path) -> None:
    """A Ctrl-C of the terminal reaches every process of the group; the tool answers."""
    code = (
        "import signal\n"
        "from fsmatrix.backends.system import tools\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "ran = tools.run(['sh', '-c', 'echo asked > asked; sleep 1; echo answered'], 60, False)\n"
        "print(ran.returncode, ran.stdout)\n"
    )
    begun = tmp_path / "begun"
    code = code.replace("echo asked > asked", f"touch {begun}")
    argv = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as asker:
        until(begun.exists)
        os.killpg(asker.pid, signal.SIGINT)
        out, _ = asker.communicate(timeout=PATIENCE)
    assert out.split() == ["0", "answered"]


def test_what_a_tool_that_is_too_late_has_started_ends_with_it(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"
    with pytest.raises(NoAnswer, match="did not end within 1 s"):
        tools.run(["sh", "-c", script], deadline=1.0)
    pid = int(child.read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())
