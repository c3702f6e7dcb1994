"""Printed commands of the ceph tool, carried out as they were typed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import Any

from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests.waiting import PATIENCE


def in_a_shell(lines: list[str], bed: CephTestbed) -> None:
    """Type them as they were printed."""
    key = {"CEPH_ARGS": f"--keyring {bed.keyring}"} if bed.keyring else {}
    done = subprocess.run(["sh", "-e", "-c", "\n".join(lines)], capture_output=True, text=True,
                          env={**os.environ, "CEPH_CONF": bed.conf, **key}, timeout=PATIENCE,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def as_the_tool_sends(parser: Any, lines: list[str], bed: CephTestbed) -> None:
    """What the ceph tool makes of them, sent over one connection: a start of it takes 0.25 s."""
    with bed.cluster() as cluster:
        told = json.dumps(cluster.mon("get_command_descriptions"))
        known = parser.parse_json_funcsigs(told, "cli")
        for line in lines:
            tool, *words = shlex.split(line)
            near = {key: one for key, one in known.items() if _begins(parser, one["sig"], words)}
            command = parser.validate_command(near, words)  # among all of them it takes 0.1 s
            assert (tool, bool(command)) == ("ceph", True), line
            cluster.mon(command.pop("prefix"), **command)


def _begins(parser: Any, signature: list[Any], words: list[str]) -> bool:
    """Whether the signature's fixed words are those that the line begins with."""
    fixed = [one.instance.prefix for one in signature if one.t is parser.CephPrefix]
    return fixed == words[: len(fixed)]
