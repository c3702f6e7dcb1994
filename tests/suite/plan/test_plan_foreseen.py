"""What an audit would find in every run is refused by `plan`: with file, line, value and cure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsmatrix.backends.contract import BACKENDS
from fsmatrix.backends.player import player
from fsmatrix.results.formats.fio.fio_options import FEWEST_OBJECTS
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.plan.plan import Installation, Request, build_plan
from fsmatrix.suite.workloads.fio_options import sections
from tests.suite.running import fsmatrix

CAMPAIGN = """\
campaign: foreseen
targets:
  bed: {{backend: rados, testbed: {{osds_per_node: 1, pg_num: 16}}}}
workloads:
  io:
    workload: fio
    options:
      rw: write
      bs: 4KiB
      size: 64MiB
      {option}
repetitions: 1
"""


def refused(option: str, body: str = "", here: bool = False) -> str:
    text = CAMPAIGN.format(option=option) + body
    with pytest.raises(CampaignError) as caught:
        build_plan(
            Source(text, "c.yaml"), Request(), installation=Installation(root=True), here=here
        )
    return str(caught.value)


def test_few_rados_objects_are_refused_where_they_are_said() -> None:
    said = refused("nrfiles: 16")
    assert "c.yaml:11: workloads.io.options.nrfiles: nrfiles: 16 objects" in said
    assert f"rados-phantom); on RADOS give {FEWEST_OBJECTS} or more" in said
    for enough in ("nrfiles: 64", "iodepth: 4"):
        text = CAMPAIGN.format(option=enough)
        assert build_plan(
            Source(text), Request(), installation=Installation(root=True), here=False
        ).cases
    levels = refused("iodepth: 1", "factors: {nrfiles: [64, 32]}\n")
    assert "c.yaml:13: factors.nrfiles: nrfiles: 32 objects" in levels


def test_objects_that_are_too_large_are_refused_without_asking_fio() -> None:
    said = refused("nrfiles: 64".replace("64", "64\n      bytes_total: 64GiB")).split("\n")
    assert any("exactly one of them" in line for line in said)
    text = CAMPAIGN.format(option="nrfiles: 64").replace("size: 64MiB", "size: 64GiB")
    with pytest.raises(CampaignError, match="objects of 1GiB: RADOS refuses those above"):
        build_plan(Source(text), Request(), installation=Installation(root=True), here=False)


@pytest.mark.parametrize(("ramp", "fits"), [("1s", True), ("2s", False), ("3s", False)])
def test_a_ramp_must_be_shorter_than_the_time(ramp: str, fits: bool) -> None:
    option = f"runtime: 2s\n      ramp_time: {ramp}"
    text = CAMPAIGN.format(option=option)
    job = f"[a]\nrw=read\nsize=1m\nruntime=2\nramp_time={ramp}\ntime_based=1\n"
    if fits:
        assert build_plan(
            Source(text), Request(), installation=Installation(root=True), here=False
        ).cases
        assert sections(job)
        return
    assert "c.yaml:12: workloads.io.options.ramp_time: ramp_time is" in refused(option)
    with pytest.raises(ValueError, match="window-in-ramp"):
        sections(job)


def test_a_driver_of_the_c_player_is_refused_where_it_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(player, "_native", None)
    text = CAMPAIGN.format(option="").split("workloads:")[0] + (
        "workloads:\n  io: {workload: pattern, options: {bytes_per_process: 1MiB}}\n"
    )
    monkeypatch.setattr("fsmatrix.suite.cases.resolve.TargetMember.refusal", lambda _self: "")
    with pytest.raises(CampaignError, match=r"driver rados needs the C player.*C compiler"):
        build_plan(Source(text), Request(), installation=Installation(root=True), here=True)
    assert build_plan(
        Source(text), Request(), installation=Installation(root=True), here=False
    ).cases


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_a_directory_in_memory_is_refused_unless_it_is_a_reference() -> None:
    place = f"/dev/shm/fsmatrix-test-foreseen-{os.getpid()}"
    Path(place).mkdir()
    text = (
        "campaign: memory\ntargets:\n"
        f"  here: {{backend: directory, options: {{path: {place}}}}}\n"
        "workloads:\n  io: {workload: pattern, options: {bytes_per_process: 1MiB}}\n"
    )
    try:
        with pytest.raises(CampaignError) as caught:
            build_plan(Source(text, "c.yaml"), Request())
        assert "c.yaml:3: targets.here: not available here: its files would lie in memory" in str(
            caught.value
        )
        sets = Request(sets=("targets.here.reference=true",))
        assert build_plan(Source(text), sets).cases
        usable = text.replace("backend: directory", "backend: directory, when: usable")
        with pytest.raises(CampaignError, match=r"no target is left on this machine.*in memory"):
            build_plan(Source(usable), Request())
    finally:
        Path(place).rmdir()


FORESEEN = {"rados-phantom", "window-in-ramp", "memory-reference"}
# an audit that may say invalid -> what only a run shows
SHOWN_BY_A_RUN = {
    "read-served-by-cache": "counters",
    "faster-than-device": "rates",
    "faster-than-network": "rates",
    "capacity-not-found": "latencies",
    "faster-than-emulated": "rates",
    "clock-uncertainty": "clocks",
    "simultaneous-runs": "times of outputs",
    "fewer-ranks": "the launcher",
    "errors-ignored": "operations",
    "storage-unhealthy": "health",
    "dropped-ios": "outputs",
    "engine-contradicts-itself": "outputs",
    "declared-invalid": "outputs",
    "reorder-shifts-nothing": "counters",
    "interception-missed": "outputs",
    "replay-fidelity": "operations",
    "lhcb-histogram": "operations",
    "idle-workers": "operations",
}


def test_every_audit_that_may_say_invalid_was_thought_of() -> None:
    """A new one is either refused by `plan`, with a test here, or needs what only a run shows."""
    text = (Path(__file__).parents[3] / "docs" / "audits.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    invalid = {row[1].strip(" `") for row in rows if "invalid" in row[3]}
    assert invalid == FORESEEN | SHOWN_BY_A_RUN.keys()
    assert not FORESEEN & SHOWN_BY_A_RUN.keys()


NODES = """\
campaign: nodes
targets:
  here: {backend: directory, options: {path: "PATH"}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 1MiB}}
factors:
  nodes: [1, 3]
repetitions: 1
"""


@pytest.mark.needs("mpirun")
def test_too_few_nodes_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    campaign = tmp_path / "nodes.yaml"
    campaign.write_text(NODES.replace("PATH", str(tmp_path / "data")))
    done = fsmatrix("run", campaign, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert f"{campaign}:7: factors.nodes: 3 client nodes are asked for" in done.stderr
    assert not (tmp_path / "out").exists()
    planned = fsmatrix("plan", campaign)
    words = " ".join(planned.stdout.split())
    assert planned.returncode == 0
    assert "run would be refused here, submit would not: 3 client" in words
    assert "would be refused" not in fsmatrix("plan", campaign, "--elsewhere").stdout
    assert "would be refused" not in fsmatrix("plan", campaign, "--only", "nodes=1").stdout


@pytest.mark.root
@pytest.mark.needs("mpirun")
def test_what_other_users_could_do_as_root_is_said(tmp_path: Path) -> None:
    """Several nodes need the network: whoever is in it reaches the launcher."""
    (tmp_path / "data").mkdir()
    campaign = tmp_path / "nodes.yaml"
    campaign.write_text(
        NODES.replace("PATH", str(tmp_path / "data")).replace("3]", "2]")
        + "launcher: {name: mpirun, hosts: [one, two]}\n"
    )
    said = "while root runs this, other users who reach the ports of mpirun can run programs as"
    noted = " ".join(fsmatrix("plan", campaign).stdout.split())
    assert f"{said} root (mpirun needs the network here): see SECURITY.md" in noted
    assert said not in " ".join(fsmatrix("plan", campaign, "--elsewhere").stdout.split())


@pytest.mark.parametrize(
    ("backend", "options", "speaks"),
    [
        ("directory", {"path": "/tmp"}, False),
        ("cephfs-fuse", {}, False),  # a daemon does
        ("rados", {"pool": "p"}, True),
        ("daos-dfuse", {"pool": "p"}, False),
        ("daos-dfuse", {"pool": "p", "interception": "ioil"}, True),
    ],
)
def test_which_programs_speak_to_servers(
    backend: str, options: dict[str, str], speaks: bool
) -> None:
    kind = BACKENDS.load(backend)
    assert kind(kind.Options.model_validate(options)).foreseen().programs_speak is speaks
    assert kind.network is (backend != "directory")


PATTERN = """\
campaign: foreseen
cache: {cache}
targets:
  bed: {target}
workloads:
  io:
    workload: pattern
    options: {{chunk: 4KiB, io: {io}, iodepth: {depth}}}
repetitions: 1
"""
MOUNT = "{{backend: daos-dfuse, options: {{pool: p, interception: {}}}}}"


@pytest.mark.parametrize(
    ("target", "io", "depth", "said"),
    [
        (
            "{backend: rados, options: {pool: p}}",
            "uring",
            8,
            "io: uring works on paths and devices",
        ),
        (
            "{backend: rados, options: {pool: p}}",
            "uring-or-posix",
            8,
            "by driver rados: use io: au",
        ),
        (MOUNT.format("ioil"), "uring", 8, "not by the library that target bed puts before it"),
        (
            MOUNT.format("none"),
            "auto",
            2,
            "2 operations in flight; driver posix of target bed does",
        ),
        (MOUNT.format("none"), "uring", 1024, ""),
        (MOUNT.format("none"), "uring-sqpoll", 1, ""),
        ("{backend: rados, options: {pool: p}}", "auto", 8, ""),
    ],
)
def test_where_io_uring_can_be(target: str, io: str, depth: int, said: str) -> None:
    text = PATTERN.format(target=target, io=io, depth=depth, cache="cold")
    source, root = Source(text, "c.yaml"), Installation(root=True)
    if not said:
        assert build_plan(source, Request(), installation=root, here=False).cases
        return
    with pytest.raises(CampaignError) as caught:
        build_plan(source, Request(), installation=root, here=False)
    assert said in str(caught.value)
    assert "io.options.io: io: " in str(caught.value) or io == "auto"


def test_a_machine_without_io_uring_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(player, "engine_name", lambda: "player-c")
    monkeypatch.setattr(
        player, "driver_refusal", lambda *about: asked.append(about) or "it is forbidden"
    )
    target = f"{{backend: directory, options: {{path: {tmp_path}}}}}"
    text = PATTERN.format(target=target, io="uring", depth=8, cache="[cold, warm]")
    text = text.replace("cache: [cold, warm]\n", "") + "factors: {cache: [cold, warm]}\n"
    with pytest.raises(CampaignError) as caught:
        build_plan(Source(text, "c.yaml"), Request(), installation=Installation(root=True))
    assert "io: it is forbidden; io: uring-or-posix would do without it" in str(caught.value)
    assert asked == [("uring", 8)]
    text = text.replace("io: uring,", "io: uring-or-posix,")
    assert build_plan(Source(text), Request(), installation=Installation(root=True)).cases
    assert len(asked) == 1
