"""packaging/install: a package manager that another program uses is waited for.

The script is a copy, with one row of packages and its policy-rc.d in the test's folder, and `sleep`
is a double that says that it was called: no time passes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLEEPS = 24  # of 5 s: 2 minutes
TOOLS = ("sh", "dirname", "grep", "sed", "head", "cat", "rm", "chmod", "mktemp")

# What each manager says when its lock is held, and its status (from their sources); then what it
# says of a package that it does not have.
LOCKED = {
    "apt-get": (
        100,
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process {pid} (python)\n"
        "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another "
        "process using it?",
    ),
    "dnf": (200, "RPMDB already locked by {pid}\n  The application with PID {pid} is: python"),
    "zypper": (
        7,
        "System management is locked by the application with pid {pid} (python).\n"
        "Close this application before trying again.",
    ),
}
DNF5 = (
    1,
    "Transaction failed: Failed to obtain rpm transaction lock. "
    "Another transaction is in progress.",
)
ABSENT = {
    "apt-get": (100, "E: Unable to locate package tiny"),
    "dnf": (1, "Error: Unable to find a match: tiny"),
    "zypper": (104, "Package 'tiny' not found."),
}


def heed_signals() -> None:
    """A shell cannot trap what its parent ignores, as `nohup` and `&` do."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Machine:
    """A folder with the script, and a PATH with doubles of `sleep`, `id` and what is named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shelf = folder / "bin"
        self.calls = folder / "calls"
        self.policy = folder / "policy-rc.d"
        self.script = folder / "packaging/install"
        for made in (self.shelf, self.script.parent, folder / "backends/system"):
            made.mkdir(parents=True)
        text = (ROOT / "packaging/install").read_text(encoding="utf-8")
        assert text.count("policy=/usr/sbin/policy-rc.d\n") == 1
        self.script.write_text(text.replace("/usr/sbin/policy-rc.d", str(self.policy)), "utf-8")
        row = "\t".join(("tiny", "demo,test", "tiny", "tiny", "tiny"))
        (folder / "backends/system/packages.tsv").write_text(f"{row}\n", encoding="utf-8")
        for name in TOOLS:
            (self.shelf / name).symlink_to(shutil.which(name) or name)
        self.double("id", "echo 0")
        self.double("dpkg-query", "exit 1")
        self.double("rpm", "exit 1")
        self.sleeps("")

    def double(self, name: str, body: str) -> None:
        path = self.shelf / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{body}\n', encoding="utf-8")
        path.chmod(0o755)

    def sleeps(self, then: str) -> None:
        """`then`: what happens in the third sleep."""
        third = f'[ "$(grep -c ^sleep {self.calls})" != 3 ] || {{ {then or ":"}; }}'
        services = f"[ ! -e {self.policy} ] || echo barred >> {self.calls}"
        self.double("sleep", f"{services}\n{third}")

    def install(self, group: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(self.script), group],
            env={"PATH": str(self.shelf), "TMPDIR": str(self.folder), **more},
            capture_output=True, text=True, check=False, preexec_fn=heed_signals,
        )  # fmt: skip

    def called(self, name: str) -> int:
        lines = self.calls.read_text(encoding="utf-8").splitlines()
        return sum(line.partition(" ")[0] == name for line in lines)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if not (ROOT / "packaging/install").exists():
        pytest.skip("no checkout")
    made = Machine(tmp_path)
    yield made
    assert not made.policy.exists()
    assert not list(tmp_path.glob("tmp.*"))  # of mktemp


def fails(status: int, words: str) -> str:
    return f"cat >&2 <<'END'\n{words.format(pid=os.getpid())}\nEND\nexit {status}"


def while_busy(machine: Machine, name: str, locked: tuple[int, str], then: str) -> Path:
    """A double of the manager that is locked as long as the path is there."""
    lock = machine.folder / "busy"
    lock.touch()
    machine.double(name, f"if [ -e {lock} ]; then\n{fails(*locked)}\nfi\n{then}")
    return lock


def comm() -> str:
    return Path("/proc/self/comm").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("name", LOCKED)
def test_a_busy_manager_is_waited_for_with_one_line(machine: Machine, name: str) -> None:
    """With doubles of the managers."""
    lock = while_busy(machine, name, LOCKED[name], "echo done")
    machine.sleeps(f"rm {lock}")
    ran = machine.install("test")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "system packages to install: tiny",
        f"{name} is busy: waiting up to 2 minutes for process {os.getpid()} ({comm()})",
        "system packages: installed",
    ]
    assert machine.called("sleep") == 3
    assert machine.called("barred") == 0  # the services of the program that is waited for


def test_dnf_5_names_nobody(machine: Machine) -> None:
    """With a double."""
    lock = while_busy(machine, "dnf", DNF5, "exit 0")
    machine.sleeps(f"rm {lock}")
    ran = machine.install("test")
    assert ran.returncode == 0, ran.stderr
    assert "dnf is busy: waiting up to 2 minutes for another program\n" in ran.stdout


def test_messages_are_looked_for_in_their_own_language(machine: Machine) -> None:
    """With a double that speaks German to those who want it."""
    german = fails(100, "E: Sperre /var/lib/dpkg/lock-frontend konnte nicht erlangt werden.")
    english = f'[ "$LANGUAGE" = en ] || {{\n{german}\n}}'
    lock = while_busy(machine, "apt-get", LOCKED["apt-get"], "")
    double = machine.shelf / "apt-get"
    double.write_text(double.read_text("utf-8").replace("\n", f"\n{english}\n", 1), "utf-8")
    machine.sleeps(f"rm {lock}")
    ran = machine.install("test", LANG="de_DE.UTF-8", LANGUAGE="de")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(("group", "status"), [("demo", 0), ("test", 2)])
@pytest.mark.parametrize("name", LOCKED)
def test_a_manager_that_stays_busy_is_given_up(
    machine: Machine, name: str, group: str, status: int
) -> None:
    """With doubles of the managers."""
    while_busy(machine, name, LOCKED[name], "")
    ran = machine.install(group)
    assert ran.returncode == status
    assert ran.stdout.count("is busy") == 1
    assert LOCKED[name][1].splitlines()[0].format(pid=os.getpid()) in ran.stderr
    assert f"{name} is still busy after 2 minutes: run this again later\n" in ran.stderr
    assert ("going on with what is there" in ran.stderr) == (group == "demo")
    assert machine.called("sleep") == SLEEPS
    assert machine.called(name) == SLEEPS + 1


def test_the_two_minutes_are_those_of_all_calls(machine: Machine) -> None:
    """With a double: three sleeps for `apt-get update`, the rest for `apt-get install`."""
    lists = machine.folder / "lists"
    lists.touch()
    busy = fails(*LOCKED["apt-get"])
    update = f'[ "$1" != update ] || [ -e {lists} ] || exit 0'
    machine.double("apt-get", f"{update}\n{busy}")
    machine.sleeps(f"rm {lists}")
    ran = machine.install("test")
    assert ran.returncode == 2
    assert ran.stdout.count("is busy") == 1
    assert machine.called("sleep") == SLEEPS


@pytest.mark.parametrize(("group", "status", "installs"), [("demo", 0, 2), ("test", 2, 1)])
@pytest.mark.parametrize("name", ABSENT)
def test_a_real_failure_is_told_and_not_waited_for(
    machine: Machine, name: str, group: str, status: int, installs: int
) -> None:
    """With doubles of the managers; the demo tries the packages one by one."""
    machine.double(name, f'[ "$1" != update ] || exit 0\n{fails(*ABSENT[name])}')
    ran = machine.install(group)
    assert ran.returncode == status
    assert ran.stderr.count(ABSENT[name][1]) == installs
    assert "busy" not in ran.stdout + ran.stderr
    assert machine.called("sleep") == 0


def test_warnings_of_a_success_are_shown(machine: Machine) -> None:
    machine.double("apt-get", "echo 'W: a repository is old, Could not get lock' >&2")
    ran = machine.install("test")
    assert (ran.returncode, machine.called("sleep")) == (0, 0)
    assert ran.stderr.count("W: a repository is old") == 2


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_a_signal_leaves_no_policy(machine: Machine, name: str) -> None:
    """With a double, during whose call the script gets the signal."""
    seen = machine.folder / "seen"
    machine.double("apt-get", f"cat {machine.policy} > {seen}\nkill -{name} $PPID")
    assert machine.install("demo").returncode > 128
    assert "exit 101" in seen.read_text(encoding="utf-8")
    assert machine.called("apt-get") == 1


# --- the real apt-get, in a root of its own -----------------------------------------------------


def root_of_apt(folder: Path) -> dict[str, str]:
    """Directories, a repository with the package `tiny`, and the environment that leads there."""
    for made in ("lists/partial", "archives/partial", "etc/apt.conf.d", "repository", "log"):
        (folder / made).mkdir(parents=True)
    (folder / "dpkg").mkdir()
    (folder / "dpkg/status").touch()
    package = folder / "repository/tiny.deb"
    package.write_bytes(b"no package: dpkg is a double")
    entry = {
        "Package": "tiny",
        "Version": "1",
        "Architecture": "all",
        "Maintainer": "nobody",
        "Filename": "./tiny.deb",
        "Size": str(package.stat().st_size),
        "SHA256": hashlib.sha256(package.read_bytes()).hexdigest(),
    }
    text = "".join(f"{key}: {value}\n" for key, value in entry.items())
    (folder / "repository/Packages").write_text(text, encoding="utf-8")
    (folder / "etc/sources.list").write_text(
        f"deb [trusted=yes] file:{folder}/repository ./\n", encoding="utf-8"
    )
    config = {
        "Dir::Etc": folder / "etc",
        "Dir::State": folder,
        "Dir::State::status": folder / "dpkg/status",
        "Dir::Cache": folder,
        "Dir::Log": folder / "log",
        "Dir::Bin::dpkg": "/bin/true",
        "APT::Sandbox::User": "root",
        "DPkg::Lock::Timeout": "60",
    }
    (folder / "apt.conf").write_text(
        "".join(f'{key} "{value}";\n' for key, value in config.items()), encoding="utf-8"
    )
    return {"APT_CONFIG": str(folder / "apt.conf")}


@contextmanager
def held(lock: Path) -> Iterator[int]:
    """Another process holds the lock until it is killed; its id."""
    code = (
        "import fcntl, signal, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def apt(machine: Machine) -> dict[str, str]:
    if (program := shutil.which("apt-get")) is None:
        pytest.skip("apt-get is missing: no Debian or Ubuntu")
    (machine.shelf / "apt-get").symlink_to(program)
    return root_of_apt(machine.folder / "apt")


@pytest.mark.parametrize("lock", ["lists/lock", "dpkg/lock-frontend", "dpkg/lock", "archives/lock"])
def test_the_real_apt_get_is_waited_for(machine: Machine, apt: dict[str, str], lock: str) -> None:
    """Whichever of its locks is held; its package is "installed" by a double of dpkg."""
    with held(machine.folder / "apt" / lock) as pid:
        machine.sleeps(f"kill {pid}")
        ran = machine.install("test", **apt)
    assert ran.returncode == 0, ran.stderr
    waits = [line for line in ran.stdout.splitlines() if "is busy" in line]
    assert len(waits) == 1
    assert waits[0].startswith(f"apt-get is busy: waiting up to 2 minutes for process {pid} (")
    assert machine.called("sleep") >= 3


def test_the_real_apt_get_is_given_up(machine: Machine, apt: dict[str, str]) -> None:
    with held(machine.folder / "apt/dpkg/lock-frontend"):
        ran = machine.install("test", **apt)
    assert ran.returncode == 2
    assert "apt-get is still busy after 2 minutes: run this again later\n" in ran.stderr
    assert machine.called("sleep") == SLEEPS


@pytest.mark.parametrize("broken", ["Packages", "tiny.deb"])
def test_what_the_real_apt_get_cannot_have_is_told(
    machine: Machine, apt: dict[str, str], broken: str
) -> None:
    """Without its list there is no such package; without its file it cannot be fetched."""
    (machine.folder / "apt/repository" / broken).unlink()
    ran = machine.install("test", **apt)
    assert ran.returncode == 2
    assert "E: " in ran.stderr
    assert "busy" not in ran.stdout + ran.stderr
    assert machine.called("sleep") == 0
