"""One trace on RADOS, libcephfs, a mounted CephFS and a directory: what each can play of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.backends.player.ops import Kind
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from fsmatrix.results.evidence.replay import Replayed, replayed
from fsmatrix.results.files.store import Store
from tests.suite.replay_workload import Recorder, program, trace
from tests.suite.running import fsmatrix

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ceph"),
]
CAMPAIGN = """
campaign: replay-ceph
targets:
  rados: {{backend: rados, options: {{conf: {conf}, pool: {pool}}}}}
  libcephfs: {{backend: libcephfs, options: {{conf: {conf}}}}}
  fuse: {{backend: cephfs-fuse, options: {{conf: {conf}}}}}
  here: {{backend: directory, options: {{path: {folder}}}}}
workloads:
  app: {{workload: replay, options: {{trace: {trace}}}}}
repetitions: 1
order: {{attachments: 1}}
cache: cold
settle: {{timeout: 2s}}
limits: {{time_per_run: 120s}}
"""
NO_KIND = "the driver has no such operation"


def any_names(to: Recorder) -> None:
    """The program, and a file whose name is not UTF-8: it is played, and removed again."""
    program(to)
    to.do(Kind.CREATE, b"latin-\xe9\n")
    to.do(Kind.WRITE, b"latin-\xe9\n", 10)
    to.do(Kind.CLOSE, b"latin-\xe9\n")


def test_each_door_plays_what_it_can(bed: CephTestbed, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    path = trace(tmp_path / "t.h5", any_names)
    file, out = tmp_path / "c.yaml", tmp_path / "out"
    text = CAMPAIGN.format(
        conf=bed.conf, pool=bed.pools["rados"], folder=tmp_path / "here", trace=path
    )
    file.write_text(text)
    done = fsmatrix("run", file, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    store = Store.open(out)
    records = {r.coordinates["target"]: r for r in map(store.read, store.ids())}
    seen: dict[str, Replayed] = {}
    for name, record in records.items():
        facts = replayed(record.phases[0].facts)
        assert facts is not None
        seen[name] = facts
    for name in ("libcephfs", "fuse", "here"):
        assert (seen[name].agreed, seen[name].fidelity) == (19, 1.0), seen[name].document()
    rados = seen["rados"]
    skipped = {kind: of.skipped for kind, of in rados.kinds.items() if of.skipped}
    assert skipped == {
        "mkdir": {NO_KIND: 2},
        "rename": {NO_KIND: 1},
        "readdir": {NO_KIND: 1},
    }
    # what was renamed is not there, and the driver says so
    assert (rados.played, rados.agreed) == (15, 14)
    assert rados.errors_otherwise == {"ENOENT": 1}
    (finding,) = [f for f in records["rados"].findings if f.audit == "replay-fidelity"]
    assert f"2 x mkdir skipped ({NO_KIND})" in finding.message
