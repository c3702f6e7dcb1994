"""What backends stand on: the hooks of their base, deadlines, markers, numbered folders."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from types import FunctionType

import pytest

from fsmatrix.backends import clusters
from fsmatrix.backends.access import DfsAccess, PathAccess, expect
from fsmatrix.backends.ceph.bindings.capi import CephError, harmless
from fsmatrix.backends.contract import BUILTIN, Backend, NodeSide, load
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal, new_folder
from fsmatrix.backends.journal.tree import marker_of, tag_in
from fsmatrix.backends.system.tools import Overdue, within


def test_a_call_in_time_gives_its_result_or_its_own_error() -> None:
    assert within(60, lambda: None) is None
    with pytest.raises(KeyError, match="why"):
        within(60, lambda: {}["why"])


def test_a_call_that_hangs_is_left_in_its_thread() -> None:
    ended = threading.Event()
    with pytest.raises(Overdue):
        within(0.05, ended.wait, "hangs")
    (left,) = [thread for thread in threading.enumerate() if thread.name == "hangs"]
    assert left.daemon
    ended.set()
    left.join(60)
    assert not left.is_alive()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b'{"tag": 3}', b'{"tag": ""}', b'{"made_by": "x"}']
)
def test_what_is_no_marker_of_ours_has_no_tag(data: bytes) -> None:
    assert tag_in(data) is None


def test_a_marker_tells_its_tag() -> None:
    assert tag_in(marker_of("a b-é")) == "a b-é"


def test_a_present_folder_is_never_taken(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    (tmp_path / "mnt").mkdir()
    (tmp_path / "mnt-2").symlink_to("nowhere")
    made = new_folder(tmp_path, "mnt", journal, "folder")
    assert made == tmp_path / "mnt-3"
    assert [entry.facts["path"] for entry in journal.pending("folder")] == [str(made)]


def test_a_folder_that_cannot_be_made_leaves_nothing_in_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(BackendError, match="/gone/mnt cannot be made: No such file"):
        new_folder(tmp_path / "gone", "mnt", journal, "folder")
    assert journal.pending() == []


def test_only_the_named_errors_are_harmless() -> None:
    with harmless(errno.ENOENT, errno.EEXIST):
        raise CephError("look", errno.EEXIST)
    with pytest.raises(CephError, match="look"), harmless(errno.ENOENT):
        raise CephError("look", errno.EIO)


def test_an_access_of_another_kind() -> None:
    access = PathAccess("directory", "here", {}, "/x")
    assert expect(access, PathAccess) is access
    with pytest.raises(TypeError, match="a DFS access is needed here, not PathAccess"):
        expect(access, DfsAccess)
    with pytest.raises(TypeError, match="a DFS access is needed here, not one of type 'path'"):
        DfsAccess.from_json(access.to_json())


MOST_HOOKS = 25  # that a backend may override


def hooks() -> dict[str, list[str]]:
    """What a backend may override -> the classes of the built-in ones that do so themselves.

    What a base of all clusters does is done by each kind of cluster.
    """
    kinds = {kind for name in BUILTIN for kind in load(name).__mro__} - {*Backend.__mro__}
    said = {
        kind: [each.__name__ for each in kinds if kind in each.__bases__]
        if kind.__module__.startswith(clusters.__name__)
        else [kind.__name__]
        for kind in kinds
    }
    methods = {**vars(NodeSide), **vars(Backend)}.items()
    return {
        name: sorted({each for kind in kinds if name in vars(kind) for each in said[kind]})
        for name, value in methods
        if isinstance(value, FunctionType | classmethod | property)
        and not (name.startswith("_") or getattr(value, "__final__", False))
    }


def test_the_contract_of_backends_is_small_and_each_hook_is_of_several() -> None:
    found = hooks()
    listed = "\n".join(f"{name}: {', '.join(found[name])}" for name in found)
    assert len(found) <= MOST_HOOKS, listed
    of_one = {name for name in found if len(found[name]) < 2} - Backend.__abstractmethods__
    assert of_one == set(), f"move these into the one that needs them, of\n{listed}"
