"""Notes of sessions: only processes and folders that prove to be this store's are ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.proof import environment_proof, identity
from fsmatrix.results.process import boot_id, start_of
from fsmatrix.suite.session import orphaned_sessions
from fsmatrix.suite.session.orphaned_sessions import SCRATCH, Scratch, end_leftovers

NAME = f"{SCRATCH}0123456789abcdef"


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "out/journal"
    folder.mkdir(parents=True, mode=0o755)
    return folder


@pytest.fixture
def sleeper(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process."""
    with subprocess.Popen(["sleep", "600"], env=getattr(request, "param", None)) as process:
        yield process
        process.kill()


def note(journals: Path, **changes: Any) -> Path:
    facts = {
        "boot_id": boot_id(),
        "host": os.uname().nodename,
        "store": identity(journals).store,
        "home": str(journals),
        "conductor": [2**22 - 1, 1],
        "processes": [],
        "scratch": [],
    } | changes
    path = journals / "session-host-1.json"
    path.write_text(json.dumps(facts))
    return path


def process_of(started: subprocess.Popen[bytes]) -> list[int]:
    return [started.pid, start_of(started.pid)]


def test_foreign_process_is_not_killed(journals: Path, sleeper: subprocess.Popen[bytes]) -> None:
    note(journals, processes=[process_of(sleeper)])
    (said,) = end_leftovers(journals)
    assert said.startswith("left alone: ")
    assert sleeper.poll() is None


def test_own_process_is_killed(journals: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env=identity(journals).environment) as ours:
        path = note(journals, processes=[process_of(ours)])
        assert end_leftovers(journals) == [
            f"ended process {ours.pid} of a session that was left behind"
        ]
    assert not path.exists()


def test_what_a_process_of_the_session_started_ends_with_it(
    journals: Path, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """Also where it shows no environment, as PostgreSQL's do that overwrite theirs with titles."""
    environment = os.environ | environment_proof(identity(journals).store, NAME)
    script = "env -i sleep 600 & echo $!; wait"
    with subprocess.Popen(
        ["sh", "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdout is not None
        child = int(ours.stdout.readline())
        note(journals, scratch=[str(tmp_path / NAME)])
        said = end_leftovers(journals)
    assert sorted(said) == sorted(
        f"ended process {pid} of a session that was left behind" for pid in (ours.pid, child)
    )
    assert not start_of(child)
    assert sleeper.poll() is None


def test_copied_note_kills_nothing(journals: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env=identity(journals).environment) as ours:
        note(journals, processes=[process_of(ours)])
        copy = shutil.copytree(journals.parent, journals.parent.with_name("out2"))
        with pytest.raises(BackendError, match="moved or copied"):
            end_leftovers(copy / "journal")
        assert ours.poll() is None
        ours.kill()


def test_foreign_folders_stay(journals: Path, tmp_path: Path) -> None:
    """By name, by marker of another store, behind a link: all of them are left alone."""
    plain, full, other = tmp_path / "plain", tmp_path / NAME, tmp_path / "b" / NAME
    for folder in (plain, full, other):
        folder.mkdir(parents=True)
        (folder / "file").write_text("keep")
    tree.write_marker(other, NAME, "0" * 32)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / NAME).symlink_to(other)
    places = [plain, full, other, tmp_path / "c" / NAME, Path("relative") / NAME]
    path = note(journals, scratch=[str(place) for place in places])
    said = end_leftovers(journals)
    assert len(said) == len(places)
    assert all(line.startswith("left alone: ") for line in said)
    assert all((folder / "file").read_text() == "keep" for folder in (plain, full, other))
    assert path.exists()


@pytest.mark.parametrize("step", ["noted", "made", "marked", "used"])
def test_folders_of_a_killed_conductor_go_whenever_it_was_killed(
    journals: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    monkeypatch.setattr(orphaned_sessions.tempfile, "gettempdir", lambda: str(tmp_path))
    scratch = Scratch.drawn(journals)
    if step == "made":
        scratch.folders[0].mkdir()
    elif step != "noted":
        scratch.make()
    if step == "used":
        (scratch.folders[0] / "ompi.1/deep").mkdir(parents=True)
        (scratch.folders[-1] / "segment").write_bytes(b"x" * 4096)
    (path,) = journals.glob("session-*.json")
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"conductor": [2**22 - 1, 1]}))
    assert end_leftovers(journals) == []
    assert not any(folder.exists() for folder in scratch.folders)
    assert list(journals.glob("session-*")) == []


def test_after_a_reboot_folders_go_and_pids_mean_nothing(
    journals: Path, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    folder = tmp_path.resolve() / NAME
    scratch = Scratch((folder,), identity(journals))
    scratch.make()
    note(journals, boot_id="before", processes=[process_of(sleeper)], scratch=[str(folder)])
    assert end_leftovers(journals) == []
    assert not folder.exists()
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        ({"host": 3}, "note.host is 3, not of type str"),
        ({"processes": [[1, "x"]]}, "note.processes[0][1] is 'x', not of type int"),
        ({"processes": [[1]]}, "note.processes or note.conductor is not pid and start time"),
        ({"more": 1}, "note.more is unknown"),
    ],
)
def test_a_spoiled_note_is_named_by_its_key(
    journals: Path, spoiled: dict[str, Any], reason: str
) -> None:
    path = note(journals, **spoiled)
    assert end_leftovers(journals) == [f"left alone: {path}: {reason}"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
FIELDS = ("boot_id", "host", "home", "conductor", "processes", "scratch", "more")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES) | st.binary(max_size=30))
def test_malformed_notes_are_said(
    tmp_path_factory: pytest.TempPathFactory, spoiled: dict[str, Any] | bytes
) -> None:
    journals = tmp_path_factory.mktemp("notes")
    path = journals / "session-host-1.json"
    if isinstance(spoiled, bytes):
        path.write_bytes(spoiled)
    else:
        note(journals, **spoiled)
    said = end_leftovers(journals)
    assert all(line.startswith("left alone: ") for line in said)
    assert path.exists() or not said  # what was left alone stays noted
    if isinstance(spoiled, bytes) or "more" in spoiled:  # no JSON, or one field too many
        assert str(path) in said[0]
