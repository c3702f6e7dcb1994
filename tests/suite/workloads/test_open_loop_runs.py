"""Open loops as whole campaigns: what is stored, found, collected and shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.results.evidence.workloads import open_loop
from fsmatrix.results.files.store import Store
from tests.suite.running import fsmatrix

CAMPAIGN = """
campaign: rates
targets:
  here: {{backend: directory, options: {{path: {folder}}}}}
workloads:
  data:
    workload: pattern
    options: {{pattern: rand-mixed, chunk: 4KiB, bytes_per_process: 4MiB, fixed: time,
              seconds: 1s, arrivals: poisson}}
  names:
    workload: metadata
    options: {{phases: [create, remove], files_per_process: 300}}
factors:
  rate: [400, 8000000]
  processes_per_node: [{processes}]
  threads: [2]
repetitions: 1
cache: warm
settle: {{timeout: 1s}}
order: {{attachments: 1}}
limits: {{time_per_run: 60s}}
"""


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.needs("mpirun"))])
def test_a_campaign_with_a_rate_that_is_too_much(tmp_path: Path, processes: int) -> None:
    (tmp_path / "target").mkdir()
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN.format(folder=tmp_path / "target", processes=processes))
    out = tmp_path / "out"
    done = fsmatrix("run", file, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    store = Store.open(out)
    for record in (store.read(run_id) for run_id in store.ids()):
        rate = record.coordinates["rate"]
        for phase in record.phases:
            loop = open_loop(phase.facts)
            assert loop is not None
            assert loop.rate == rate
            assert loop.offered == pytest.approx(rate, rel=0.25 if rate == 400 else 0.01)
            played = sum(
                int(latency.counts.sum())
                for kind, latency in phase.latency.items()
                if kind.endswith("/service")
            )
            assert played == int(phase.operations.sum())
            if rate == 400 or phase.name != "mixed":
                # of names the amount is fixed, and all are due before the end
                assert (played, loop.unplayed) == (loop.due, 0)
            found = {one.audit for one in record.findings if one.phase == phase.name}
            assert ("saturated" in found) == loop.saturated
            assert loop.saturated or rate == 400  # a busy machine may not follow the lower one
    assert fsmatrix("collect", out).returncode == 0
    collected = open_campaign(out / "campaign.h5")
    fast = collected["rate"].values > 400
    assert set(collected["phase"].values[fast]) == {"mixed", "create", "remove"}
    assert np.isnan(collected["latency_p50"].values[fast]).all()
    assert (collected["achieved_rate"] < 0.99 * collected["offered_rate"]).values[fast].all()
    assert (collected["service_p50"].values[fast] > 0).all()
    shown = fsmatrix("show", out, "--metric", "latency_p50")
    assert shown.returncode == 0, shown.stderr
    assert "saturated" in shown.stdout
