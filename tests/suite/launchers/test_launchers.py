"""Launchers: pure command lines against recorded ones, and real programs behind them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers import mpirun
from fsmatrix.suite.launchers.launcher import LauncherError, Probe
from fsmatrix.suite.launchers.local import Local
from fsmatrix.suite.launchers.mpiexec import Mpiexec
from fsmatrix.suite.launchers.mpirun import Mpirun
from tests.suite.running import fsmatrix
from tests.waiting import PATIENCE

FIVE = Mpirun(Probe(True, "/opt/mpirun", "5.0.3"), scratch="/tmp/s")
FOUR = Mpirun(Probe(True, "/opt/mpirun", "4.1.4"), scratch="/tmp/s")
HYDRA = Mpiexec(Probe(True, "/opt/mpiexec", "4.0.2"), scratch="/tmp/s")


def test_open_mpi_5() -> None:
    command = FIVE.command(["ior", "-t 1m"], Geometry(1, 4), {"A": "b c"})
    assert command == [
        "/opt/mpirun",
        "-n",
        "4",
        "--bind-to",
        "none",
        "--map-by",
        "ppr:4:node:OVERSUBSCRIBE",
        "-x",
        "A=b c",
        "ior",
        "-t 1m",
    ]


def test_open_mpi_4_on_emulated_nodes() -> None:
    nodes = replace(FOUR, hosts=("n1", "n2", "n3"), emulated=True)
    assert nodes.command(["x"], Geometry(2, 3), {}) == [
        "/opt/mpirun", "-n", "6", "--bind-to", "none", "--oversubscribe", "--map-by",
        "ppr:3:node", "--host", "n1:3,n2:3", "--mca", "plm_rsh_agent", "/tmp/s/agent",
        "--mca", "orte_do_not_resolve", "1", "x",
    ]  # fmt: skip


def test_hydra() -> None:
    nodes = replace(HYDRA, hosts=("n1", "n2"), emulated=True, options=("-prepend-rank",))
    assert nodes.command(["x"], Geometry(2, 2), {"A": "b"}) == [
        "/opt/mpiexec", "-n", "4", "-bind-to", "none", "-ppn", "2", "-hosts", "n1,n2",
        "-launcher", "ssh", "-launcher-exec", "/tmp/s/agent", "-genv", "A", "b",
        "-prepend-rank", "x",
    ]  # fmt: skip


def test_too_few_hosts_are_an_error_that_names_the_cure() -> None:
    with pytest.raises(LauncherError, match="emulated_nodes"):
        FIVE.command(["x"], Geometry(2, 1), {})
    with pytest.raises(LauncherError, match="one process"):
        Local(Local.probe()).command(["x"], Geometry(1, 2), {})


def test_waiting_ranks_yield() -> None:
    assert FIVE.environment()["OMPI_MCA_mpi_yield_when_idle"] == "1"


# -- emulated nodes ------------------------------------------------------------------------------
WITHOUT_RIGHTS = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all"]


@pytest.mark.parametrize(
    "user", [[], pytest.param(WITHOUT_RIGHTS, marks=pytest.mark.root)], ids=["we", "container"]
)
def test_the_agent_can_do_what_it_does_not_refuse(user: list[str]) -> None:
    """Also root without CAP_SYS_ADMIN, whom most containers know: in a user namespace."""
    python = [*user, sys.executable, "-P"]
    ask = "from fsmatrix.suite.launchers import mpirun; print(mpirun.refusal())"
    refusal = _said([*python, "-c", ask])
    told = _said([*python, "-m", "fsmatrix.suite.launchers.mpirun", "-x", "one", "hostname"])
    if refusal:  # a container that forbids user namespaces as well
        assert "UTS namespace" in refusal
        assert told == ""
    else:
        assert told == "one"


def _said(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout.strip()


def test_where_no_nodes_can_be_emulated_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\necho unshare: not permitted >&2\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert mpirun.refusal().endswith("which needs a UTS namespace: unshare: not permitted")
    campaign = tmp_path / "nodes.yaml"
    campaign.write_text(
        f"campaign: nodes\ntargets: {{here: {{backend: directory, options: {{path: {tmp_path}}}}}}}"
        "\nworkloads: {io: {workload: pattern, options: {bytes_per_process: 1MiB}}}\n"
        "geometry: {nodes: 2}\nlauncher: {emulated_nodes: 2}\nrepetitions: 1\n"
    )
    done = fsmatrix("run", campaign, "-o", tmp_path / "out", "--quiet")
    assert done.returncode == 2
    assert "launcher.emulated_nodes: client nodes cannot be emulated here" in done.stderr
    assert "not permitted" in done.stderr
