"""Network file systems and quotas, from texts: these are not on every test machine.

The mountinfo and mountstats lines are made up after proc(5), the clients' manuals and
public bug reports; the quota listing after quota(1) of quota-tools 4.06.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.local import underneath
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import Mount, parse_mountinfo
from fsmatrix.backends.system.tools import Quota, parse_quota

MOUNTINFO = r"""
21 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
60 21 0:50 / /lustre/scratch rw,flock shared:30 - lustre 10.1.1.1@o2ib:/scratch rw,flock
61 21 0:51 / /gpfs/work rw,relatime shared:31 - gpfs work rw,mtime,nfssync
62 21 0:52 / /mnt/beegfs rw,relatime - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf
63 21 0:53 / /home rw,relatime shared:33 master:4 - nfs4 nas:/home rw,vers=4.2,rsize=1048576
64 21 0:54 /vol /mnt/a\040b\011c rw - xfs /dev/sd\134x rw
65 21 0:55 / /none rw - tmpfs  rw
not a line
""".strip("\n")

MOUNTSTATS = """\
device /dev/sda2 mounted on / with fstype ext4
device nas:/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tbytes:\t1024 2048 0 0 1024 2048 1 1
device proc mounted on /proc with fstype proc
"""

QUOTA = """\
Disk quotas for user somebody (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
/home             3072   10240   20480       0       1     100     200       0
/data/with blank  30720*  10240   20480  1700000000     250*    100     200  1700000000
/scratch          5000       0       0       0       7       0       0       0
/hard             5000       0    6000       0       7       0      10       0
"""


def mounts() -> dict[str, Mount]:
    return {mount.point: mount for mount in parse_mountinfo(MOUNTINFO)}


def test_mountinfo_fields() -> None:
    found = mounts()
    assert len(found) == 7
    assert found["/home"].source == "nas:/home"
    assert found["/home"].super_options == "rw,vers=4.2,rsize=1048576"
    assert found["/mnt/a b\tc"].source == "/dev/sd\\x"
    assert found["/mnt/a b\tc"].root == "/vol"
    assert found["/none"].source == ""
    assert not found["/home"].read_only


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("/lustre/scratch", "lustre"),
        ("/gpfs/work", "gpfs"),
        ("/mnt/beegfs", "beegfs"),
        ("/home", "nfs"),
        ("/", None),
    ],
)
def test_recognised_by_type(point: str, name: str | None) -> None:
    client = underneath.recognise(mounts()[point].fstype)
    assert (client.name if client else None) == name


def test_recognised_by_magic_number() -> None:
    found = underneath.recognise("something", 0x0BD00BD0)
    assert found is not None
    assert found.name == "lustre"
    assert underneath.recognise("ext4", 0xEF53) is None
    assert underneath.recognise_at("/proc", parse_mountinfo(MOUNTINFO)[0]) is None


def test_tools_are_asked_and_their_failures_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "lfs", 'test "$1" = df && { echo broken >&2; exit 3; }; echo "args: $*"')
    script(tmp_path / "mmlsattr", "sleep 60")
    script(tmp_path / "mmlsfs", 'echo "fs: $1"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(underneath, "DEADLINE", 0.5)
    lustre, gpfs, beegfs = underneath.CLIENTS[:3]

    facts = underneath.client_facts(lustre, "/lustre/scratch/x", mounts()["/lustre/scratch"])
    assert facts["network_filesystem"] == "lustre"
    assert facts["striping"] == "args: getstripe -d /lustre/scratch/x"
    assert "mountstats" not in facts  # NFS's
    assert "failed (3): broken" in facts["targets"]["error"]
    facts = underneath.client_facts(gpfs, "/gpfs/work/x", mounts()["/gpfs/work"])
    assert "did not end within 0.5 s" in facts["attributes"]["error"]
    assert facts["filesystem_settings"] == "fs: work"
    facts = underneath.client_facts(beegfs, "/mnt/beegfs/x", mounts()["/mnt/beegfs"])
    assert facts["striping"] == {"error": "beegfs-ctl is not installed"}


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_mountstats_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mountstats"
    file.write_text(MOUNTSTATS)
    monkeypatch.setattr(underneath, "MOUNTSTATS", file)
    section = underneath.mountstats_of("/home")
    assert isinstance(section, str)
    assert section.splitlines()[0].endswith("statvers=1.1")
    assert "bytes:\t1024 2048" in section
    assert "proc" not in section
    assert "error" in underneath.mountstats_of("/nowhere")


def test_quota_listing() -> None:
    found = parse_quota(QUOTA)
    assert found["/home"] == Quota((10240 - 3072) * 1024, 99)
    assert found["/data/with blank"] == Quota(0, 0)
    assert found["/scratch"] == Quota(None, None)
    assert found["/hard"] == Quota(1000 * 1024, 3)
    assert parse_quota("Disk quotas for user root (uid 0): none\n") == {}


def test_lower_of_quota_and_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsmatrix.backends.local import provenance

    free = provenance.space(tmp_path)
    assert free.source == "statfs"
    monkeypatch.setattr(provenance.tools, "user_quota", lambda *_: Quota(4096, None))
    limited = provenance.space(tmp_path)
    assert limited.bytes == 4096
    assert (limited.inodes is None) == (free.inodes is None)
    assert limited.source == "statfs and user quota"


# -- programs --------------------------------------------------------------------------------
def test_missing_program() -> None:
    with pytest.raises(ToolError, match="no-such-tool is not installed"):
        tools.run(["no-such-tool"])


def test_deadline_ends_the_program(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(ToolError, match="did not end within 2 s and was killed"):
        tools.run(["sh", "-c", 'echo $$ > "$0"; exec sleep 60', str(pid)], deadline=2)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_failure_is_told_in_one_line() -> None:
    with pytest.raises(ToolError, match=r"failed \(4\): first second"):
        tools.run(["sh", "-c", "echo first >&2; echo second >&2; exit 4"])
    assert tools.run(["sh", "-c", "exit 4"], check=False).returncode == 4


def test_nothing_is_read_by_a_shell(tmp_path: Path) -> None:
    ran = tools.run(["echo", f"$(touch {tmp_path}/x)", ";", "`id`"])
    assert ran.stdout.strip() == f"$(touch {tmp_path}/x) ; `id`"
    assert not (tmp_path / "x").exists()
