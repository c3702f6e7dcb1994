"""Nodes read over ssh: a real sshd, and nodes that hang, refuse, chatter, or lack Python."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.suite.nodes.counters import rates
from fsmatrix.suite.nodes.node_watch import ANSWER_WITHIN, PATIENCE, Asked, NodeWatch, Unwatched
from fsmatrix.suite.nodes.ssh import COMMAND, SshSource, argv
from tests.suite.nodes.ssh_server import nodes
from tests.waiting import until

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with nodes(tmp_path_factory.mktemp("sshd")) as folder:
        yield folder


@pytest.fixture(autouse=True)
def found(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(client), prepend=os.pathsep)
    monkeypatch.setenv("FSMATRIX_PATH", str(client))


def commands_there() -> list[str]:
    """Readers on this machine, as processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(b"import sys,time;w=sys.stdout") for word in words):
            found.append(folder.name)
    return found


def machine_ticks() -> float:
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(map(float, words[1:9])) / os.sysconf("SC_CLK_TCK")


def test_two_looks_say_what_the_node_did_between_them() -> None:
    before = len(commands_there())
    source = SshSource.open(Asked(0.5, ("plain",)))
    try:
        at = time.time()
        outer = machine_ticks()
        source.look(at)
        until(lambda: bool(source._readers[0].looks))
        inner, deadline = machine_ticks(), time.process_time() + 0.3
        while time.process_time() < deadline:
            pass
        least = machine_ticks() - inner
        source.look(at + 1)
        seen = source.taken(at, at + 1)["plain"]
        most = machine_ticks() - outer
    finally:
        source.close()
    first, second = seen.looks
    assert (first.at, second.at) == (at, at + 1)
    moved = second.counters["cpu:all"] - first.counters["cpu:all"]
    assert least - 0.1 <= moved <= most + 0.1  # ticks of several modes
    values = rates(first, second)
    shares = [values[f"cpu_{mode}"] for mode in ("user", "system", "iowait", "idle")]
    assert 0.9 < sum(shares) < 1.001  # the rest was taken by a hypervisor
    assert 0 < values["cpu_core_max"] <= 1
    assert 0 < values["memory_used"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert abs(seen.watched.offset) <= seen.watched.uncertainty + 1e-3
    assert seen.watched.why_not is None
    until(lambda: len(commands_there()) == before)


def test_a_bad_node_costs_only_its_own_series() -> None:
    """Beside one another: nobody waits longer than for the worst of them."""
    names = ("plain", "banner", "bare", "closed", "silent")
    source = SshSource.open(Asked(0.5, names))
    try:
        for number in range(3):
            source.look(float(number))
            time.sleep(0.3)
        seen = source.taken(0.0, 2.0)
    finally:
        source.close()
    assert {name: len(node.looks) for name, node in seen.items()} == {
        "plain": 3, "banner": 3, "bare": 3, "closed": 0, "silent": 0,
    }  # fmt: skip
    why_not = {name: node.watched.why_not for name, node in seen.items()}
    assert why_not["plain"] is why_not["banner"] is why_not["bare"] is None
    assert "Permission denied" in (why_not["closed"] or "")
    assert why_not["silent"] == f"no answer within {ANSWER_WITHIN:g} s" or "timed out" in (
        why_not["silent"] or ""
    )
    bare = seen["bare"]
    assert abs(bare.watched.offset - 3600) <= bare.watched.uncertainty + 0.1
    assert [look.at for look in bare.looks] == [0.0, 1.0, 2.0]  # its clock dates nothing
    assert rates(*bare.looks[:2])["cpu_idle"] >= 0


@pytest.mark.parametrize("name", ["-oProxyCommand=touch x", "a b", "a;b", "$(x)", "", "a\n", "é"])
def test_what_is_no_host_name_reaches_no_command(name: str) -> None:
    with pytest.raises(Unwatched, match="is not the name of a host"):
        argv(name)


def test_every_shell_passes_the_command_on() -> None:
    """It holds nothing that a login shell, whichever it is, would change between the quotes."""
    inner = COMMAND.removeprefix("exec sh -c '").removesuffix("'")
    assert not set("'\n!") & set(inner)


def test_a_node_that_dies_in_a_run_says_so_and_the_run_goes_on(client: Path) -> None:
    watch = NodeWatch(Asked(0.2, ("plain",)), {"ssh": SshSource})
    try:
        before = commands_there()
        with watch.step():
            time.sleep(0.5)
            for pid in before:
                os.kill(int(pid), 9)
            time.sleep(0.5)
        monitor, watched = watch.taken()
        assert monitor is not None
        assert monitor.hosts == ("plain",)
        assert "its connection ended" in (watched["plain"].why_not or "")
        began = time.monotonic()
        with watch.step():
            pass
        assert time.monotonic() - began < 2 * PATIENCE
        nothing, watched = watch.taken()
        assert nothing is None
        assert watched["plain"].why_not
    finally:
        watch.close()


def test_who_is_killed_leaves_nothing_on_a_node() -> None:
    """The command ends with its connection, which ends with whoever held it."""
    before = len(commands_there())
    script = (
        "from fsmatrix.suite.nodes.node_watch import Asked; "
        "from fsmatrix.suite.nodes.ssh import *; "
        "source = SshSource.open(Asked(1.0, ('plain',))); print('open', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"open\n"
    assert len(commands_there()) == before + 1
    holder.kill()
    holder.wait()
    until(lambda: len(commands_there()) == before)
    holder.stdin.close()
    holder.stdout.close()


def test_no_node_at_all_is_said() -> None:
    watch = NodeWatch(Asked(0.2), {"ssh": SshSource})
    with watch.step():
        pass
    monitor, watched = watch.taken()
    assert monitor is None
    assert "name them (monitor.nodes)" in (watched["*"].why_not or "")


@pytest.mark.parametrize(("what", "looks"), [("python", 2000), ("shell", 200)])
def test_the_command_needs_little_of_a_node(what: str, looks: int, client: Path) -> None:
    """CPU seconds of a node in an hour, at a look a second: a hundredth of a core is 36."""
    path = os.environ["PATH"] if what == "python" else str(client.parent / "bare")
    began = min(used(1, path) for _ in range(3))
    an_hour = (min(used(looks + 1, path) for _ in range(3)) - began) / looks * 3600
    print(f"{what}: {an_hour:.2f} CPU seconds in an hour, {began:.3f} to begin")
    assert 0 < an_hour < 36


def used(looks: int, path: str) -> float:
    """CPU seconds of the command, with all that it starts."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={"PATH": path},
    )
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % number for number in range(looks)))
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
