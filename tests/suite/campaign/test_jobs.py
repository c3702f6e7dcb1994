"""Ready campaigns of the studies: their cases are those of the papers, their commands too."""

from __future__ import annotations

import csv
from collections import Counter
from importlib import resources
from typing import Any

import pytest

from fsmatrix.backends.access import DfsAccess, PathAccess
from fsmatrix.results import published
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.plan.as_json import fairness_of
from fsmatrix.suite.plan.plan import Plan, Request, build_plan
from fsmatrix.suite.workloads.workload import Argv

STUDIES = {
    "ceph-vs-daos": 110,
    "cern-daos": 15,
    "cern-dbench": 14,
    "cern-fio": 8,
    "cern-ior-initial": 147,
    "cern-lhcb": 32,
    "cern-ior-revised": 24,
    "flash-device": 8,
    "page-cache": 72,
    "ssd-adapters": 8,
    "ssd-adapters-emulated": 8,
    "ssd-cluster": 240,
    "ssd-cluster-emulated": 240,
    "ssd-cluster-full": 384,
    "ssd-cluster-network": 3,
}
GIB = 1 << 30


def planned(name: str, *sets: str) -> Plan:
    return build_plan(name, Request(sets=sets, seed=1), here=False)


def words(case: Planned, access: PathAccess | DfsAccess, engine: Engine) -> list[list[str]]:
    """The command lines of a case's steps."""
    assert case.work is not None
    steps = case.work.steps(case.case, access, engine)
    return [list(step.what.argv) for step in steps if isinstance(step.what, Argv)]


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_can_be_planned_anywhere(name: str) -> None:
    made = planned(name)
    assert len(made.cases) == STUDIES[name]
    assert made.settings.campaign.campaign == name


def test_flash_device_is_the_table_of_the_study() -> None:
    """Its cells are the published ones, and its devices are nobody's: it runs nowhere as it is."""
    cells = {
        (reading["device"], f"{short}-{reading['operation']}", int(reading["block_bytes"]))
        for reading in csv.DictReader(
            resources.files("fsmatrix.results.published")
            .joinpath("flash-raw-device-response.csv")
            .read_text()
            .splitlines()
        )
        for short in [{"sequential": "seq", "random": "rand"}[reading["access"]]]
    }
    made = planned("flash-device")
    assert cells == {
        (case.case.target, case.coordinates["pattern"], case.coordinates["chunk"])
        for case in made.cases
    }
    refused = r"YOUR-HARD-DISK cannot be opened|needs root|no CAP_SYS_ADMIN"
    with pytest.raises(CampaignError, match=refused):
        build_plan("flash-device", here=True)


def test_no_ready_campaign_is_forgotten_here() -> None:
    here = {
        path.name.removesuffix(".yaml")
        for path in resources.files("fsmatrix.jobs").iterdir()
        if path.name.endswith(".yaml")
    }
    assert here == {
        *STUDIES,
        *("quickstart", "ceph-quickstart", "ceph-vs-daos-quickstart", "smoke", "io500", "limit"),
        *("replay-example", "flash-oltp", "oltp-quickstart"),
    }


def test_smoke_waits_little_for_a_busy_machine() -> None:
    """Its head says 20 seconds: where every run waits in vain, these are less than a minute."""
    made = planned("smoke")
    campaign = made.settings.campaign
    at_once = 3  # image file systems, or directories and memory where there are none
    ((_, cases),) = Counter(case.case.target for case in made.cases).most_common(1)
    waits = at_once * cases * campaign.repetitions * campaign.settle.timeout
    assert waits <= 40


def test_cern_initial_is_one_command_as_the_report_has_it() -> None:
    """-a POSIX -b 16m -t 4m -F -C -i 10, tasks 1, 4, 8 ... 24."""
    made = planned("cern-ior-initial")
    tasks = {case.case.geometry.processes for case in made.cases}
    assert tasks == {1, 4, 8, 12, 16, 20, 24}
    blocks = {case.coordinates["block_size"] for case in made.cases}
    assert blocks == {(16 << 20) << i for i in range(7)}
    case = next(c for c in made.cases if (c.case.target, c.case.cache) == ("dfuse", "warm"))
    (argv,) = words(
        case, PathAccess("directory", "dfuse", path="/mnt/dfuse/x"), Engine("ior", "4.0.0", "ior")
    )
    assert {"-F", "-C", "-w", "-r"} <= set(argv)
    assert (option(argv, "-a"), option(argv, "-t"), option(argv, "-i")) == (
        "POSIX",
        str(4 << 20),
        "10",
    )
    case = next(c for c in made.cases if c.case.target == "dfs")
    (argv,) = words(
        case,
        DfsAccess("daos-dfs", "dfs", pool="bench", container="mine"),
        Engine("ior", "4.0.0", "ior"),
    )
    assert option(argv, "-a") == "DFS"
    assert "--dfs.pool=bench" in argv


def test_cern_initial_with_a_cold_cache_reads_apart_from_writing() -> None:
    made = planned("cern-ior-initial")
    case = next(c for c in made.cases if (c.case.target, c.case.cache) == ("dfuse", "cold"))
    lines = words(case, PathAccess("directory", "dfuse", path="/x"), Engine("ior", "4.0.0"))
    assert ["-w" in line for line in lines] == [True, False] * 10


def test_cern_revised_is_one_shared_file_over_dfs_bound_to_sockets() -> None:
    """--bind-to socket, -a DFS -r -w -t 1MB -b NG -i 5, pool, group, container."""
    made = planned("cern-ior-revised")
    case = made.cases[0]
    access = DfsAccess("daos-dfs", "dfs", pool="bench", container="mine", system="daos_server")
    (argv,) = words(case, access, Engine("ior", "4.0.0", "ior"))
    assert {"-r", "-w", "--dfs.pool=bench", "--dfs.cont=mine", "--dfs.group=daos_server"} <= set(
        argv
    )
    assert "-F" not in argv
    assert (option(argv, "-t"), option(argv, "-i")) == ("1000000", "5")
    assert case.work is not None
    (step,) = case.work.steps(case.case, access, Engine("ior", "4.0.0"))
    assert isinstance(step.what, Argv)
    assert step.what.binding == "socket"


def test_cern_daos_is_figure_4_by_both_doors() -> None:
    """-r -w -t 1MB -b NG -i 5 on one shared file, 1 to 16 tasks; DFUSE with and without caches."""
    made = planned("cern-daos")
    assert {case.case.geometry.processes for case in made.cases} == {1, 2, 4, 8, 16}
    by_target = {
        "dfs": DfsAccess("daos-dfs", "dfs", pool="bench", container="mine"),
        "dfuse": PathAccess("daos-dfuse", "dfuse", path="/x"),
    }
    apis, levels = {"dfs": "DFS", "dfuse": "POSIX"}, set()
    for case in made.cases:
        target = case.case.target
        levels.add((target, case.case.level.get("caching", "")))
        lines = words(case, by_target[target], Engine("ior", "4.0.0", "ior"))
        for argv in lines:
            assert option(argv, "-a") == apis[target]
            assert (option(argv, "-t"), option(argv, "-b")) == (str(10**6), str(10**9))
            assert not {"-F", "-C", "-z"} & set(argv)
        assert sum("-w" in argv for argv in lines) == (1 if target == "dfs" else 5)
    assert levels == {("dfs", ""), ("dfuse", "disabled"), ("dfuse", "site")}


@pytest.mark.parametrize("name", ["ceph-vs-daos", "ceph-vs-daos-quickstart"])
def test_ceph_and_daos_do_the_same_work_by_both_doors(name: str) -> None:
    """Each work is that of all four targets: same bytes, same processes, same cache state."""
    made = planned(name)
    targets: dict[str, set[str]] = {}
    for case in made.cases:
        targets.setdefault(case.case.work_id, set()).add(case.case.target)
    everybody = {member.name for member in made.members.targets}
    assert len(everybody) == 4
    assert set(map(frozenset, targets.values())) == {frozenset(everybody)}
    drivers = {member.backend.driver for member in made.members.targets}
    assert drivers == {"cephfs", "dfs", "posix"}
    caching = {case.case.level["caching"] for case in made.cases if "caching" in case.case.level}
    assert caching == {"site", "disabled"}
    fair = fairness_of(made)
    assert fair is not None
    equal = {fact.name for fact in fair.of("equal")}
    assert {"redundancy", "clients"} <= equal | {fact.name for fact in fair.of("unknown")}
    assert {fact.name for fact in fair.of("unequal")} == {
        "durability",
        "data_cache",
        "metadata_cache",
    }


def test_ssd_cluster_is_table_3_with_the_size_that_was_held_out() -> None:
    made = planned("ssd-cluster")
    seen: dict[str, set[Any]] = {}
    for case in made.cases:
        for name in ("storage_nodes", "interface", "rw", "processes_per_node", "bs", "nodes"):
            seen.setdefault(name, set()).add(case.coordinates[name])
    assert seen["storage_nodes"] == {2, 3, 4, 5}
    assert seen["rw"] == {"randread", "read", "randwrite", "write"}
    assert seen["processes_per_node"] == {1, 8, 16}
    assert seen["bs"] == {4096, 131072, 1 << 20, 4 << 20}
    assert seen["nodes"] == {8}
    sata = {
        c.coordinates["storage_nodes"] for c in made.cases if c.coordinates["interface"] == "SATA"
    }
    assert sata == {2}
    assert made.settings.campaign.repetitions == 30
    for case in made.cases:
        assert case.work is not None
        assert case.work.footprint(case.case).space == 32 * GIB


@pytest.mark.parametrize("name", ["ssd-adapters", "ssd-adapters-emulated"])
def test_each_ssd_of_an_adapter_has_a_process(name: str) -> None:
    made = planned(name)
    for case in made.cases:
        assert case.case.geometry.processes == case.coordinates["ssds_per_hba"]
        emulation = {"ssds_per_hba": "emulated"} if name.endswith("emulated") else {}
        assert case.realised == emulation


def test_emulated_adapter_is_the_published_one_at_a_hundredth() -> None:
    data = csv.DictReader((resources.files(published) / "ssd-per-hba.csv").read_text().splitlines())
    options = planned("ssd-adapters-emulated").target("ssds").options.emulated
    alone, eight = data
    for kind in ("read", "write"):
        column = f"{kind}_iops_per_ssd"
        assert getattr(options.device_iops, kind) == int(alone[column]) / 100
        assert getattr(options.adapter_iops, kind) == 8 * int(eight[column]) / 100


def test_emulated_ssd_cluster_is_the_same_table_on_test_beds() -> None:
    """The same works on the same levels as ssd-cluster, for one client, in fixed time."""
    names = ("storage_nodes", "interface", "rw", "processes_per_node", "bs")
    emulated, full = planned("ssd-cluster-emulated"), planned("ssd-cluster")

    def table(made: Plan) -> set[tuple[Any, ...]]:
        return {tuple(case.coordinates[name] for name in names) for case in made.cases}

    assert table(emulated) == table(full)
    for case in emulated.cases:
        drives = {"PCIe": 3, "SATA": 6}[case.coordinates["interface"]]
        assert case.coordinates["osds_per_node"] == drives
        assert case.coordinates["drive_scale"] == 0.1
        assert case.coordinates["redundancy"] == "size=1"
        emulation = dict.fromkeys(("storage_nodes", "interface", "network"), "emulated")
        assert case.realised == emulation
        assert case.work is not None
        assert case.work.footprint(case.case).seconds == 2.0
    bed = emulated.target("ceph").testbed
    assert bed is not None
    assert bed.options.bits_per_second <= 10**9


def test_ssd_cluster_full_crosses_both_factors() -> None:
    levels = {
        (c.coordinates["interface"], c.coordinates["storage_nodes"])
        for c in planned("ssd-cluster-full").cases
    }
    assert levels == {(kind, n) for kind in ("SATA", "PCIe") for n in (2, 3, 4, 5)}


def test_figure_10_is_one_setting_by_chunk_size() -> None:
    made = planned("ssd-cluster-network")
    assert [(c.coordinates["storage_nodes"], c.coordinates["rw"]) for c in made.cases] == [
        (4, "randwrite")
    ] * 3
    assert made.settings.campaign.repetitions == 4


def test_optional_sizes_of_the_ssd_cluster_study() -> None:
    sizes = "[4KiB, 16KiB, 128KiB, 512KiB, 1MiB, 2MiB, 4MiB]"
    assert len(planned("ssd-cluster", f"factors.bs={sizes}").cases) == 5 * 4 * 3 * 7
