"""Targets on a test bed: planned anywhere, brought up for real where Ceph is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.testbed.ceph import missing
from fsmatrix.results.store import Store
from fsmatrix.suite.plan import Plan, Request, build_plan
from fsmatrix.suite.problems import CampaignError
from fsmatrix.suite.settings import Source

CAMPAIGN = """
campaign: beds
seed: 3
targets:
  bed: {{backend: {backend}, testbed: {{{bed}}}, options: {{{options}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 4MiB, chunk: 64KiB, verify: true}}}}
factors:
  storage_nodes: {nodes}
  pattern: [seq-write, rand-read]
repetitions: 1
order: {{attachments: 1}}
limits: {{time_per_run: 60s}}
"""


def text(
    backend: str = "rados",
    bed: str = "osds_per_node: 1, pg_num: 16",
    options: str = "",
    nodes: str = "[1, 2]",
) -> str:
    return CAMPAIGN.format(backend=backend, bed=bed, options=options, nodes=nodes)


def planned(campaign: str) -> Plan:
    return build_plan(Source(campaign), Request(), here=False, root=True)


def test_levels_of_a_bed_are_whole_plots_and_emulated() -> None:
    made = planned(text())
    assert [dict(plot.level) for plot in made.plots()] in (
        [{"storage_nodes": 1}, {"storage_nodes": 2}],
        [{"storage_nodes": 2}, {"storage_nodes": 1}],
    )
    assert {case.realised["storage_nodes"] for case in made.cases} == {"emulated"}
    assert {case.coordinates["storage_nodes"] for case in made.cases} == {1, 2}


@pytest.mark.parametrize(
    ("campaign", "says"),
    [
        (text(bed="redundancy: size=3"), "needs 3 hosts, and there are 1"),
        (text(bed="colour: red"), "colour"),
        (text(bed="nodes: 0"), "nodes"),
        (text(options="pool: mine"), "options.pool comes from the test bed"),
        (text(backend="tmpfs"), "tmpfs has no test bed"),
        (text(nodes="[many]"), "no test bed has"),
    ],
)
def test_a_bed_that_cannot_be_is_refused_by_plan(campaign: str, says: str) -> None:
    with pytest.raises(CampaignError) as caught:
        planned(campaign)
    assert says in str(caught.value)


@pytest.mark.root
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_campaign_brings_its_beds_up_and_takes_them_down(tmp_path: Path) -> None:
    (tmp_path / "beds.yaml").write_text(text())
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fsmatrix.suite.cli.main", "run", str(tmp_path / "beds.yaml"),
         "-o", str(out), "--quiet"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(out)
    records = [store.read(run_id) for run_id in store.ids()]
    assert len(records) == 4
    for record in records:
        assert record.status == "ok", record.error
        assert record.engine.startswith("player")
        assert record.environment["realised"]["storage_nodes"] == "emulated"
        assert record.phases[0].bytes.sum() == 4 << 20
        assert "health" in record.evidence
    assert {record.coordinates["storage_nodes"] for record in records} == {1, 2}
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(out) not in listed.stdout
    assert not list(out.glob("state/*/bed-*/**/*"))
