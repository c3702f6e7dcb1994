"""fio over RADOS on a real cluster: its objects have their run in their names, and go with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from fsmatrix.results.files.store import Store
from tests.ceph_beds import objects
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ceph"),
]
CAMPAIGN = """
campaign: fio-rados
targets:
  rados: {{backend: rados, options: {{conf: {conf}, pool: {pool}}}}}
workloads:
  fio: {{workload: fio, options: {{size: 4MiB, bs: 64KiB, iodepth: 4, {more}}}}}
factors: {{rw: [write, randread]}}
repetitions: 2
settle: {{timeout: 2s}}
limits: {{time_per_run: {limit}}}
"""


def run(bed: CephTestbed, folder: Path, more: str = "", limit: str = "120s") -> tuple[int, Store]:
    file, out = folder / "c.yaml", folder / "out"
    file.write_text(CAMPAIGN.format(conf=bed.conf, pool=bed.pools["rados"], more=more, limit=limit))
    argv = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "run", str(file), "-o", str(out)]
    done = subprocess.run(
        [*argv, "--quiet"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, Store.open(out)


@pytest.fixture
def foreign(bed: CephTestbed) -> Iterator[list[tuple[str, str]]]:
    """Somebody else's object in the pool, as `objects` shows it."""
    with bed.cluster() as cluster, cluster.ioctx(bed.pools["rados"]) as pool:
        pool.write_full("somebody.else", b"data")
        yield [("somebody.else", "")]
        pool.remove("somebody.else")


def test_objects_of_programs_go_with_their_run(
    bed: CephTestbed, foreign: list[tuple[str, str]], tmp_path: Path
) -> None:
    status, store = run(bed, tmp_path)
    records = [store.read(run_id) for run_id in store.ids()]
    assert status == 0, [record.error for record in records]
    assert len(records) == 4
    for record in records:
        assert record.phases[0].bytes.sum() == 4 << 20
        names = [word for word in record.argv[-1] if word.startswith("--filename_format=")]
        assert f".{record.case_id}-r000{record.repetition}-a1." in names[0]
    assert objects(bed) == foreign


def test_objects_of_a_run_that_was_ended_go_too(
    bed: CephTestbed, foreign: list[tuple[str, str]], tmp_path: Path
) -> None:
    """fio is ended at the run's deadline, long before it has written all."""
    status, store = run(bed, tmp_path, "rate: 16KiB", "6s")
    assert status == 1
    assert {store.read(run_id).status for run_id in store.ids()} == {"timeout"}
    assert objects(bed) == foreign
