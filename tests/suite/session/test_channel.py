"""The channel of a session is between processes of one user."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.suite.session import wire

OTHER = 65533  # nobody's number
AS_ANOTHER = """
import os, socket, sys
os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
channel = socket.socket(socket.AF_UNIX)
if sys.argv[1] == "listen":
    channel.bind(sys.argv[2]); channel.listen()
else:
    channel.connect(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""


def another(what: str, address: Path) -> subprocess.Popen[bytes]:
    """A process of another user's at one end, until its standard input closes."""
    argv = [sys.executable, "-c", AS_ANOTHER, what, str(address)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.setuid
def test_a_rank_takes_no_commands_from_another_user(tmp_path: Path) -> None:
    """Who could rename the session's folder put his own in its place."""
    folder = tmp_path / "session"
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    for above in tmp_path.parents[:3]:  # pytest's own, closed to others
        above.chmod(above.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    with another("listen", folder / "channel") as process:
        with pytest.raises(PermissionError, match=f"is held by user {OTHER}"):
            wire.connect(folder / "channel")
        process.communicate()


@pytest.mark.setuid
def test_a_conductor_hears_no_rank_of_another_user(tmp_path: Path) -> None:
    for above in tmp_path.parents[:3]:
        above.chmod(above.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    with wire.listener(tmp_path / "channel") as listening:
        (tmp_path / "channel").chmod(0o777)
        with another("connect", tmp_path / "channel") as process:
            with pytest.raises(PermissionError, match=f"is held by user {OTHER}"):
                wire.accepted(listening)
            process.communicate()


def test_both_ends_of_one_user_are_connected(tmp_path: Path) -> None:
    with (
        wire.listener(tmp_path / "channel") as listening,
        wire.connect(tmp_path / "channel") as one,
        wire.accepted(listening) as other,
    ):
        one.sendall(b"x")
        assert other.recv(1, socket.MSG_WAITALL) == b"x"
