"""A store is acted on by its owner alone, and only while nobody else can write it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsmatrix.results.files import safefile
from fsmatrix.results.files.lock import ShardLock
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.suite.plan.plan import Request
from fsmatrix.suite.run.execute import stored_plan
from tests.suite.running import fsmatrix

CAMPAIGN = """
campaign: mine
seed: 7
targets: {here: {backend: directory, options: {path: %s}}}
workloads: {io: {workload: pattern, options: {bytes_per_process: 1MiB, chunk: 64KiB}}}
factors: {pattern: [seq-write]}
repetitions: 1
order: {attachments: 1}
"""
SOMEBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that ran, made under the umask of a shared group."""
    base = tmp_path_factory.mktemp("made")
    (base / "target").mkdir()
    (base / "mine.yaml").write_text(CAMPAIGN % (base / "target"))
    before = os.umask(0)
    try:
        done = fsmatrix("run", base / "mine.yaml", "-o", base / "out", "--quiet", "--no-report")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    yield base / "out"


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A store to be spoilt.  It is finished: its journal names nothing."""
    place = tmp_path / "out"
    shutil.copytree(made, place, symlinks=True)
    (place / "slurm").mkdir(0o755)
    for name in ("submission.json", "submitted.jsonl"):
        safefile.create_note(place / "slurm" / name, b"")
    return place


def test_what_we_make_passes_whatever_the_umask_is(made: Path) -> None:
    assert list(safefile.trust_flaws(made)) == []
    before = os.umask(0)
    try:
        with ShardLock(made):
            assert list(safefile.trust_flaws(made)) == []
    finally:
        os.umask(before)
    again = fsmatrix("run", "-o", made, "--resume", "--quiet", "--no-report")
    assert again.returncode == 0, again.stderr


def _widen(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def _give_away(path: Path) -> None:
    os.chown(path, SOMEBODY, SOMEBODY)


def _link(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.real"))
    path.symlink_to(f"{path.name}.real")


def _queue(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.mkfifo(path)


SPOILED = [
    *((name, _widen) for name in ("", "journal", "state", "runs", "locks", "campaign.json")),
    *((f"slurm{name}", _widen) for name in ("", "/submission.json", "/submitted.jsonl")),
    *((name, _link) for name in ("journal", "state", "runs", "store.json")),
    *((name, _queue) for name in ("journal", "campaign.json")),
    pytest.param("", _give_away, marks=needs_root),
    pytest.param("journal", _give_away, marks=needs_root),
    pytest.param("campaign.json", _give_away, marks=needs_root),
    pytest.param("slurm", _give_away, marks=needs_root),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILED)
def test_what_others_can_write_is_refused_and_can_be_read(
    out: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    path = out / name
    if name in ("locks", "state"):
        path.mkdir(exist_ok=True)
    spoil(path)
    before = sorted(out.rglob("*"))
    for act in (lambda: Store.create(out, exist_ok=True), lambda: stored_plan(out, Request())):
        with pytest.raises(safefile.NotTrusted, match=re.escape(str(path))):
            act()
    assert sorted(out.rglob("*")) == before
    if name == "store.json":  # what a link leads to is not even read
        with pytest.raises(ResultError, match="symbolic link"):
            Store.open(out)
    elif spoil is not _queue:
        assert Store.open(out).ids()


@pytest.mark.parametrize(("name", "spoil"), [("", _widen), ("journal", _link)])
def test_commands_that_act_end_with_status_2(
    out: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    spoil(out / name)
    refused = fsmatrix("run", "-o", out, "--resume")
    assert refused.returncode == 2, refused.stderr
    assert str(out / name) in refused.stderr.replace("\n", "")
    assert "Traceback" not in refused.stderr
    shown = fsmatrix("show", out)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(
    "spoil", [_widen, _link, _queue, pytest.param(_give_away, marks=needs_root)]
)
@pytest.mark.parametrize("folder", ["journal", "locks"])
def test_notes_of_others_are_refused(out: Path, folder: str, spoil: Callable[[Path], None]) -> None:
    (out / folder).mkdir(exist_ok=True)
    note = out / folder / ("host.jsonl" if folder == "journal" else "shard-1-of-1.json")
    note.write_text("{}")
    spoil(note)
    with pytest.raises(safefile.NotTrusted, match=re.escape(str(note))):
        Store.create(out, exist_ok=True)


@needs_root
def test_root_does_not_resume_the_store_of_somebody_else(out: Path) -> None:
    for path in (out, *out.rglob("*")):
        _give_away(path)
    refused = fsmatrix("run", "-o", out, "--resume")
    assert refused.returncode == 2
    assert f"belongs to user {SOMEBODY}" in refused.stderr.replace("\n", " ")
    assert fsmatrix("show", out).returncode == 0


def test_a_link_to_a_store_is_no_store(out: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(out)
    refused = fsmatrix("run", "-o", tmp_path / "link", "--resume")
    assert refused.returncode == 2
    assert "symbolic link" in refused.stderr


def test_new_stores_under_any_umask(tmp_path: Path) -> None:
    code = (
        "import os, sys; from fsmatrix.results.files.store import Store\n"
        "os.umask(int(sys.argv[2])); Store.create(sys.argv[1])"
    )
    for number, mask in enumerate((0o000, 0o002, 0o022, 0o077)):
        place = tmp_path / str(number)
        argv = [sys.executable, "-P", "-c", code, str(place), str(mask)]
        subprocess.run(argv, check=True)
        assert list(safefile.trust_flaws(place)) == []
        assert Store.create(place, exist_ok=True).ids() == []


def test_a_folder_that_others_can_write_becomes_no_store(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours").chmod(0o775)
    with pytest.raises(safefile.NotTrusted, match="chmod go-w"):
        Store.create(tmp_path / "ours")
    assert list((tmp_path / "ours").iterdir()) == []
