"""Kinds of journal entries, ours and another package's: no other code is led to."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fsmatrix.backends.journal import journal
from fsmatrix.backends.journal.proof import KINDS, Facts, Kind, NotProvenOurs, OwnershipScope, Stage
from tests.backends.journal.stores import TAG, Store, left
from tests.waiting import PATIENCE


@pytest.mark.parametrize(
    "kind",
    ["os:system", "fsmatrix.backends.journal.proof:TREE", "fsmatrix.backends.journal.proof",
     "TREE", "Tree", "tree ", "", "../tree", "__class__"],
)  # fmt: skip
def test_a_kind_leads_to_no_code_outside_the_registry(
    store: Store, theirs: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_import(name: str) -> None:
        raise AssertionError(f"{name} was imported")

    monkeypatch.setattr(importlib, "import_module", no_import)
    store.forge(kind, path=str(theirs), tag=TAG)
    what = f"{kind} {theirs}".strip()
    assert store.undo() == [f"left alone: {what}: this version does not know how to undo it"]
    assert (theirs / "file").read_text() == "keep"


def of_bucket(facts: Facts, ground: OwnershipScope) -> None:
    if facts["store"] != ground.identity.store:
        raise NotProvenOurs(f"{facts['path']} is not of this results directory")


def undo_bucket(facts: Facts, same_boot: bool) -> str:
    del same_boot
    Path(facts["path"]).rmdir()
    return f"removed bucket {facts['path']}"


def broken(facts: Facts, ground: OwnershipScope) -> None:
    raise AssertionError(f"{facts} {ground}: a built-in kind was replaced")


BUCKET = Kind(Stage.TREE, of_bucket, undo_bucket)
NO_TREE = Kind(Stage.TREE, broken, undo_bucket)
NO_KIND = "text"


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that brings kinds, one of them under a name of ours."""
    places = {"bucket": "BUCKET", "tree": "NO_TREE", "text": "NO_KIND", "gone": "GONE"}
    entries = [EntryPoint(name, f"{__name__}:{what}", KINDS.group) for name, what in places.items()]
    monkeypatch.setattr("fsmatrix.results.registry.entry_points", lambda group: entries)


@pytest.mark.usefixtures("acme")
def test_a_kind_of_another_package_is_proved_and_undone(store: Store, theirs: Path) -> None:
    bucket = theirs / "bucket"
    bucket.mkdir()
    store.forge("bucket", path=str(bucket), store="another")
    assert left(store.undo())
    assert bucket.is_dir()
    store.journal.path.unlink()
    store.forge("bucket", path=str(bucket), store=store.journal.identity.store)
    assert store.undo() == [f"removed bucket {bucket}"]
    assert not bucket.exists()


@pytest.mark.usefixtures("acme")
def test_another_package_replaces_no_kind_of_ours(store: Store, theirs: Path) -> None:
    store.forge("tree", path=str(journal.make_tree(theirs, TAG, store.journal)), tag=TAG)
    assert store.undo() == [f"removed directory {theirs}/fsmatrix-{TAG}"]


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("kind", ["text", "gone"])
def test_a_kind_that_is_none_is_left_alone_with_its_reason(
    store: Store, theirs: Path, kind: str
) -> None:
    store.forge(kind, path=str(theirs))
    (line,) = store.undo()
    assert line.startswith(f"left alone: {kind} {theirs}: the kind {kind!r} ")
    assert store.journal.pending(kind) != []


def test_a_journal_is_undone_by_a_process_that_imported_no_backend(tmp_path: Path) -> None:
    """Kinds of Ceph and DAOS are found by name alone, and by their own sentences refused."""
    (tmp_path / "out").mkdir(mode=0o755)
    store = Store((tmp_path / "out").resolve())
    for kind in ("cephfs-tree", "rados-space", "ceph-level", "daos-container"):
        store.forge(kind, name="home", prefix="home", label="home")
    code = (
        "import sys; from pathlib import Path; from fsmatrix.backends.journal import journal\n"
        "assert not [n for n in sys.modules if '.ceph' in n or '.daos' in n]\n"
        "print(*journal.undo_pending(Path(sys.argv[1])), sep='\\n')"
    )
    command = [sys.executable, "-P", "-c", code, str(store.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    why = "left alone: home home home is no name that the suite gives: not removed"
    assert done.stdout.splitlines() == [why] * 4, done.stderr
