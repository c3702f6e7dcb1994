"""Scripts that people write themselves, and the other batch system of the docs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.slurm.scheduler import BatchJob, Scheduler
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.campaign.yamlio import Tree
from fsmatrix.suite.plan.plan import Installation, Request, build_plan
from tests.suite import acme

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "slurm" / "examples"
SCRIPTS = {  # what each needs from its user, and what Slurm tells it
    "one-node": {},
    "cephfs-8x16": {
        "CEPHFS": "/mnt/a b'c",
        "SLURM_JOB_NUM_NODES": "8",
        "SLURM_NTASKS_PER_NODE": "16",
    },
    "daos-dfs-dfuse": {
        "DAOS_POOL": "tank",
        "DFUSE": "/mnt/dfuse/me",
        "SLURM_JOB_NUM_NODES": "4",
        "SLURM_NTASKS_PER_NODE": "8",
    },
    "array": {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "2"},
}


def run(name: str, folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The script with a stub of fsmatrix that prints what it was told."""
    stub = folder / "fsmatrix"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    return subprocess.run(
        ["bash", EXAMPLES / f"{name}.sh", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": f"{folder}:{os.environ['PATH']}", **env},
        check=False,
    )


def test_every_script_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.sh")} == SCRIPTS.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_starts_what_it_says(name: str, tmp_path: Path) -> None:
    words = ["mine.yaml", "mine-out"] if name == "array" else []
    done = run(name, tmp_path, *words, **SCRIPTS[name])
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0] == "run"
    assert {"--resume", "--requeue", "--quiet"} <= set(told)
    text = (EXAMPLES / f"{name}.sh").read_text()
    for option in ("--signal=B:USR1@", "--requeue", "--open-mode=append", "--exclusive"):
        assert f"#SBATCH {option}" in text
    if (EXAMPLES / f"{name}.yaml").exists():
        sets = tuple(told[i + 1] for i, word in enumerate(told) if word == "--set")
        plan = build_plan(
            EXAMPLES / told[1],
            Request(sets),
            installation=Installation(site=SiteFile(), user=Tree(), environ={}),
            here=False,
        )
        geometries = {each.case.geometry for each in plan.cases}
        asked = re.findall(r"--(?:nodes|ntasks-per-node)=(\d+)", text)
        assert {(str(g.nodes), str(g.processes_per_node)) for g in geometries} == {tuple(asked)}
        paths = [str(target.options) for target in plan.members.targets]
        for variable in ("CEPHFS", "DFUSE", "DAOS_POOL"):
            if variable in SCRIPTS[name]:
                assert any(SCRIPTS[name][variable].split("'")[0] in path for path in paths)


@pytest.mark.parametrize("name", ["cephfs-8x16", "daos-dfs-dfuse", "array"])
def test_what_a_script_needs_is_asked_for(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)
    assert done.returncode != 0
    assert "say where" in done.stderr or "say which" in done.stderr or "name a" in done.stderr


def pbs() -> type[Scheduler]:
    """The class in CONTRIBUTING."""
    code = acme.blocks()["acme/pbs.py"]
    space: dict[str, Any] = {"__name__": "pbs"}
    exec(compile(code, str(acme.PAGE), "exec"), space)  # our own text
    scheduler: type[Scheduler] = space["Pbs"]
    return scheduler


def test_the_scheduler_of_the_docs_is_one() -> None:
    job = BatchJob(
        name="fsmatrix-ceph-and-a-long-name",
        token="fsmatrix:0:s1",
        about=("x",),
        command=("fsmatrix", "run", "-o", "a b$(c)"),
        directory=Path("/home/me/it's"),
        log="s1-%j.log",
        seconds=600,
        nodes=2,
        tasks_per_node=4,
        cpus_per_task=2,
        modules=("openmpi/5 x",),
        environment={"A": "1 2"},
    )
    text = pbs()().script(job)
    assert "#PBS -l select=2:ncpus=8:mpiprocs=4" in text
    assert "#PBS -l walltime=600" in text
    lines = text.splitlines()
    assert shlex.split(lines[-1]) == ["exec", "fsmatrix", "run", "-o", "a b$(c)"]
    assert shlex.split(lines[-2]) == ["cd", "/home/me/it's"]
    assert shlex.split(lines[-3]) == ["export", "A=1 2"]
    assert shlex.split(lines[-4]) == ["module", "load", "openmpi/5 x"]
