"""Launchers inside real allocations: sessions, programs beside them, and what goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.record import Geometry
from fsmatrix.slurm.slurm import allocation, counts
from fsmatrix.slurm.testbed import SlurmTestbed, SlurmTestbedOptions, down, missing, up
from fsmatrix.suite.launchers import mpirun
from fsmatrix.suite.launchers.launcher import Allocation, LauncherError, Probe, find_library
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.launchers.srun import OUTSIDE, Srun, plugins
from tests import asking
from tests.asking import OPEN_MPI_4
from tests.waiting import PATIENCE

HELLO = Path(__file__).with_name("hello_session.py")
OFFERS = ("pmix", "none", "cray_shasta", "pmi2", "pmix_v4")
OPEN_MPI, MPICH = "/opt/lib/libmpi.so.40", "/opt/lib/libmpi.so.12"
SRUN = Srun(
    Probe(True, "/opt/srun", "22.05.8", library=OPEN_MPI, offers=OFFERS),
    ("a1", "a3", "b7"),
    cpus=(8, 8, 4),
)


# Pure: command lines, Slurm's notations


def test_the_command_of_srun() -> None:
    assert SRUN.command(["ior", "-t 1m"], Geometry(2, 4), {"A": 'b, "c"'}) == [
        "/opt/srun", "--overlap", "--export=ALL", "--kill-on-bad-exit=1", "--nodes=2",
        "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=2", "--distribution=block:block",
        "--cpu-bind=none", "--nodelist=a1,a3", "--mpi=pmix", "env", 'A=b, "c"', "ior", "-t 1m",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("geometry", "share", "over"),
    [
        (Geometry(2, 8), 1, False),
        (Geometry(2, 9), 1, True),
        (Geometry(3, 8), 1, True),
        (Geometry(2, 4, 2), 2, False),
        (Geometry(2, 4, 3), 3, True),
        (Geometry(2, 1), 8, False),
        (Geometry(3, 1), 4, False),
        (Geometry(2, 3), 2, False),
    ],
)
def test_a_step_gets_the_cpus_of_its_nodes_and_asks_by_name_for_more_processes(
    geometry: Geometry, share: int, over: bool
) -> None:
    command = SRUN.command(["x"], geometry, {})
    assert ("--overcommit" in command) is over
    assert f"--cpus-per-task={share}" in command


@pytest.mark.parametrize(
    ("of_mpi", "offers", "pmi"),
    [
        (OPEN_MPI, OFFERS, "pmix"),
        (OPEN_MPI, ("none", "pmi2", "pmix_v3", "pmix_v4"), "pmix_v4"),
        (OPEN_MPI, ("none", "pmi2"), ""),
        (MPICH, OFFERS, "pmi2"),
        (MPICH, ("none", "pmix_v2"), "pmix_v2"),
        ("/opt/cray/pe/lib/libmpi.so.12", OFFERS, "cray_shasta"),
        ("", OFFERS, "pmix"),
        ("", (), ""),
    ],
)
def test_the_pmi_fits_the_library(of_mpi: str, offers: tuple[str, ...], pmi: str) -> None:
    found = replace(SRUN.probe_result, library=of_mpi, offers=offers)
    words = [
        w for w in replace(SRUN, probe_result=found).command(["x"], Geometry(), {}) if "mpi" in w
    ]
    assert words == ([f"--mpi={pmi}"] if pmi else [])


def test_options_of_the_campaign_win() -> None:
    told = replace(SRUN, options=("--mpi=pmi2", "--mem=0"))
    command = told.command(["x"], Geometry(), {})
    assert [word for word in command if word.startswith("--mpi")] == ["--mpi=pmi2"]
    assert "--mpi=pmi2" in told.cure
    assert "pmix_v4" in told.cure


def test_what_srun_cannot_do_is_refused() -> None:
    with pytest.raises(LauncherError, match=r"4 client nodes are asked for.*has 3.*allocation"):
        SRUN.command(["x"], Geometry(4, 1), {})
    with pytest.raises(LauncherError, match="emulated_nodes"):
        replace(SRUN, emulated=True).command(["x"], Geometry(1, 1), {})


@pytest.mark.parametrize(
    "text",
    [
        "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
        "specific pmix plugin versions available: pmix_v3,pmix_v4\n",
        "srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix\nsrun: pmix_v3\n"
        "srun: pmix_v4\n",
    ],
    ids=["22.05", "20.11"],
)
def test_pmi_plugins_are_read(text: str) -> None:
    assert plugins(text) == ("none", "pmi2", "pmix", "pmix_v3", "pmix_v4")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("4", (4,)), ("4(x2),8", (4, 4, 8)), ("", ()), ("2(x3),1(x2)", (2, 2, 2, 1, 1)), ("?", ())],
)
def test_numbers_per_node(text: str, numbers: tuple[int, ...]) -> None:
    assert counts(text) == numbers


def test_cpus_of_some_hosts() -> None:
    given = Allocation(("a", "b"), (4, 8))
    assert (given.of(("b",)), given.of(("a", "b")), given.of(("c",))) == ((8,), (4, 8), ())
    assert Allocation(("a", "b")).of(("a",)) == ()


def test_outside_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    assert allocation(os.environ) is None
    found = Srun.probe()
    assert not found.ok
    assert found.reason == OUTSIDE or "srun" in found.reason
    assert "SLURM_OVERLAP" not in Mpirun(Probe(True)).environment()


def test_an_srun_without_a_configuration_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "srun"
    said = "res_nsearch error: Unknown host\nsrun: error: config: no\nsrun: fatal: no source\n"
    tool.write_text(f"#!/bin/sh\nprintf '{said}Bye.\n' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = Srun.probe()
    assert not found.ok
    assert found.reason == f"{tool} does not answer as srun, it says: srun: fatal: no source"
    tool.unlink()
    assert Srun.probe().reason == "no srun on PATH"


def test_an_allocation_that_cannot_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2"}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LauncherError, match=r"node\[1-2.*scontrol.*give launcher.hosts"):
        allocation(job)
    tool = tmp_path / "scontrol"
    tool.write_text("#!/bin/sh\necho 'Invalid hostlist' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(LauncherError, match="Invalid hostlist"):
        allocation(job)


@pytest.mark.parametrize(
    ("path", "family"),
    [
        (OPEN_MPI, mpirun.OPEN_MPI),
        (MPICH, mpirun.MPICH),
        ("", ""),
        ("/usr/lib/libmpich.so.12", mpirun.MPICH),
        ("/opt/lib/libmpi.so", mpirun.OPEN_MPI),
    ],
)
def test_families_of_libraries(path: str, family: str) -> None:
    assert mpirun.family(path) == family


def test_a_library_of_the_right_name_needs_no_link(tmp_path: Path) -> None:
    """Its own folder is on every node; the scratch folder is on one."""
    env = mpirun.environment(MPICH, str(tmp_path))
    assert env["LD_LIBRARY_PATH"].split(":")[0] == "/opt/lib"
    mpirun.prepare(MPICH, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    other = "/usr/lib/libmpich.so.12"
    assert mpirun.environment(other, str(tmp_path))["LD_LIBRARY_PATH"].startswith(str(tmp_path))
    mpirun.prepare(other, str(tmp_path))
    assert str((tmp_path / mpirun.MPICH_NAME).readlink()) == other


# Real allocations


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmTestbed]:
    """A bed of four nodes with four CPUs each."""
    if os.geteuid() == 0 and (reason := missing()):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("slurm") / "bed"
    yield up(SlurmTestbedOptions(nodes=4), directory)
    down(directory)


Hello = Callable[..., dict[str, Any]]


@pytest.fixture
def hello(bed: SlurmTestbed, tmp_path: Path) -> Hello:
    """Runs hello_session.py as a batch job; what it told."""

    def run(
        asked: dict[str, Any],
        sbatch: tuple[str, ...] = ("--nodes=2", "--ntasks-per-node=2"),
        prefix: str = "",
    ) -> dict[str, Any]:
        (tmp_path / "asked.json").write_text(json.dumps({"geometry": [2, 2], **asked}))
        out, script = tmp_path / "out", tmp_path / "job.sh"
        program = f"{prefix} {sys.executable} -P {HELLO} {tmp_path}/asked.json"
        script.write_text(f"#!/bin/sh\nexec {program}\n")
        words = ("sbatch", "--parsable", f"--output={out}", f"--error={out}.err", *sbatch)
        job = bed.run(*words, str(script)).stdout.strip()
        deadline = time.monotonic() + PATIENCE
        while not re.search(
            "JobState=(COMPLETED|FAILED|CANCELLED)",  # not COMPLETING: its nodes are not free yet
            bed.run("scontrol", "show", "job", job).stdout,
        ):
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(0.1)
        text = out.read_text()
        assert text, Path(f"{out}.err").read_text()
        told: dict[str, Any] = json.loads(text.splitlines()[-1])
        return told

    return run


def assert_whole(told: dict[str, Any], hosts: tuple[str, ...], per_node: int) -> None:
    """Ranks node after node, with all CPUs, and the same program once for each of them."""
    assert "error" not in told, told["error"]
    assert [rank["host"] for rank in told["ranks"]] == [h for h in hosts for _ in range(per_node)]
    assert [rank["node_rank"] for rank in told["ranks"]] == [*range(per_node)] * len(hosts)
    everything = sorted(os.sched_getaffinity(0))
    assert [rank["cpus"] for rank in told["ranks"]] == [everything] * len(told["ranks"])
    assert told["status"] == 0, told["errors"]
    assert told["beside"] == [f'{host} a,b "c"' for host in hosts for _ in range(per_node)]


def open_mpi_4() -> dict[str, Any]:
    """The distribution's Open MPI."""
    program = OPEN_MPI_4
    if reason := asking.why_not("open mpi 4"):
        pytest.skip(reason)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = (said.stdout + said.stderr).splitlines()[0].split()[-1]
    return {"program": str(program), "version": version, "libraries": ["libmpi.so.40"]}


def mpich() -> str:
    """The distribution's MPICH."""
    found = find_library("/usr/bin/mpiexec.hydra", ("libmpi.so.12", "libmpich.so.12"))
    if not found:
        pytest.skip("no MPICH: install mpich (Debian, Ubuntu)")
    return found


TWO = ("node1", "node2")


@pytest.mark.root
def test_srun_with_open_mpi(hello: Hello) -> None:
    told = hello({"name": "srun"})
    assert_whole(told, TWO, 2)
    assert "Open MPI v5" in told["mpi"]


@pytest.mark.root
def test_srun_with_mpich(hello: Hello) -> None:
    told = hello({"name": "srun", "library": mpich()})
    assert_whole(told, TWO, 2)
    assert "MPICH" in told["mpi"]


@pytest.mark.root
def test_mpirun_of_open_mpi_5(hello: Hello) -> None:
    told = hello({"name": "mpirun"})
    assert_whole(told, TWO, 2)
    assert "Open MPI v5" in told["mpi"]


@pytest.mark.root
def test_mpirun_of_open_mpi_4(hello: Hello) -> None:
    four = open_mpi_4()
    told = hello({"name": "mpirun", **four})
    assert_whole(told, TWO, 2)
    assert f"Open MPI v{four['version']}" in told["mpi"]


@pytest.mark.root
def test_mpiexec_of_mpich(hello: Hello) -> None:
    """On the bed nobody resolves the nodes' names, which hydra wants: it is told an interface."""
    mpich()
    told = hello({"name": "mpiexec", "options": ["-iface", "lo"]})
    assert_whole(told, TWO, 2)
    assert "MPICH" in told["mpi"]


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "sbatch"), [("srun", ("--export=NONE",)), ("mpirun", ())], ids=["srun", "mpirun"]
)
def test_a_list_with_gaps_and_more_processes_than_cpus(
    name: str, sbatch: tuple[str, ...], hello: Hello, bed: SlurmTestbed
) -> None:
    """The first job also exports nothing of the user's environment."""
    asked = ("--nodelist=node[1,3-4]", "--nodes=3", "--ntasks-per-node=1", *sbatch)
    prefix = f"env SLURM_CONF={bed.conf}"
    told = hello({"name": name, "geometry": [3, 2]}, asked, prefix)
    assert_whole(told, ("node1", "node3", "node4"), 2)


@pytest.mark.root
@pytest.mark.parametrize("name", ["srun", "mpirun"])
def test_a_conductor_that_is_itself_a_step_of_another_shape(name: str, hello: Hello) -> None:
    """What srun put into the environment of its step means nothing to the session's."""
    prefix = "srun --overlap --nodes=1 --ntasks=1 --cpu-bind=cores --mpi=pmix --exact"
    sbatch = ("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2", "--hint=nomultithread")
    assert_whole(hello({"name": name}, sbatch, prefix), TWO, 2)


def remove_dead_memory() -> None:
    """What no process has mapped, at two looks: others' ranks may be about to map theirs."""
    dead = unmapped()
    time.sleep(1)
    for path in dead & unmapped():
        path.unlink(missing_ok=True)


def unmapped() -> set[Path]:
    """Shared memory of Open MPI without a process."""
    found = set(Path("/dev/shm").glob("sm_segment.node*"))
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended
            text = maps.read_text()
            found = {path for path in found if f" {path}\n" not in text}
    return found


@pytest.mark.root
def test_a_pmi_that_does_not_fit_is_an_error_that_names_the_cure(
    hello: Hello, tmp_path: Path
) -> None:
    """Four worlds of one rank; Open MPI 5 leaves the folders and the shared memory of those that
    srun kills in MPI_Init.
    """
    told = hello({"name": "srun", "options": ["--mpi=none"]}, prefix=f"env TMPDIR={tmp_path}")
    remove_dead_memory()
    assert "asked for a world of 4 ranks, MPI made one of 1" in told["error"]
    assert "srun used --mpi=none, and this Slurm offers" in told["error"]
    assert "Open MPI needs --mpi=pmix" in told["error"]


@pytest.mark.root
def test_an_mpi_that_does_not_start_without_its_pmi_names_the_cure(hello: Hello) -> None:
    """Open MPI 4 ends in MPI_Init where Open MPI 5 goes on alone."""
    four = find_library(open_mpi_4()["program"], ("libmpi.so.40",))
    told = hello({"name": "srun", "library": four, "options": ["--mpi=none"]})
    assert "if MPI did not start: srun used --mpi=none" in told["error"]


@pytest.mark.root
def test_more_nodes_than_the_allocation_has(hello: Hello) -> None:
    told = hello({"name": "srun", "geometry": [3, 1]})
    assert "3 client nodes are asked for, the launcher 'srun' has 2" in told["error"]
