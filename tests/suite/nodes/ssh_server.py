"""A real sshd on ports of its own, as five nodes that are easy or hard to read."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsmatrix.backends.system import tools
from tests.waiting import until

KINDS = ("plain", "banner", "bare", "closed", "silent")
CONFIG = """
ListenAddress 127.0.0.1
HostKey {place}/host
AuthorizedKeysFile {place}/mine.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
{ports}
# it greets as a profile would, before it does what it is told
Match LocalPort {banner}
    Banner {place}/greeting
    ForceCommand cat {place}/greeting; eval "$SSH_ORIGINAL_COMMAND"
# no Python there, and its clock is an hour ahead
Match LocalPort {bare}
    SetEnv PATH={place}/bare
# it would ask for a password
Match LocalPort {closed}
    PubkeyAuthentication no
"""
CLIENT = """
Host {name}
    HostName 127.0.0.1
    Port {port}
"""
ALL = """
Host *
    IdentityFile {place}/mine
    IdentitiesOnly yes
    UserKnownHostsFile /dev/null
    StrictHostKeyChecking no
"""


def free_port() -> int:
    with socket.socket() as attempt:
        attempt.bind(("127.0.0.1", 0))
        return int(attempt.getsockname()[1])


@contextmanager
def nodes(place: Path) -> Iterator[Path]:
    """The folder of a program `ssh` that knows a node of each of KINDS by its name."""
    sshd = tools.find("sshd")
    if sshd is None:
        pytest.skip(tools.lacking("sshd"))
    for key in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", place / key], check=True)
    (place / "greeting").write_text("Welcome to this node!\n@ its rules: be kind\n.\n@ 1 2 3\n.\n")
    _bare(place / "bare")
    with socket.socket() as silent:  # somebody listens there and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        ports = {kind: free_port() for kind in KINDS} | {"silent": silent.getsockname()[1]}
        listening = "\n".join(f"Port {port}" for kind, port in ports.items() if kind != "silent")
        (place / "sshd_config").write_text(
            CONFIG.format(place=place, **ports | {"ports": listening})
        )
        config = "".join(CLIENT.format(name=kind, port=port) for kind, port in ports.items())
        (place / "config").write_text(config + ALL.format(place=place))
        Path("/run/sshd").mkdir(exist_ok=True)  # it wants that to be there
        with (place / "log").open("wb") as log:
            server = subprocess.Popen([sshd, "-D", "-e", "-f", place / "sshd_config"], stderr=log)
        try:
            until(lambda: (place / "log").read_bytes().count(b"listening") == len(ports) - 1)
            yield _client(place)
        finally:
            server.terminate()
            server.wait()


def _bare(folder: Path) -> None:
    folder.mkdir()
    for name in ("sh", "cat", "grep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    (folder / "date").write_text(f'#!/bin/sh\nexec {shutil.which("date")} -d "+1 hour" "$@"\n')
    (folder / "date").chmod(0o755)


def _client(place: Path) -> Path:
    """A folder with an `ssh` that reads this configuration alone."""
    folder = place / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {tools.find("ssh")} -F {place}/config "$@"\n')
    (folder / "ssh").chmod(0o755)
    return folder
