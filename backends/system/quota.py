"""The user's quota on a file system, as the `quota` program tells it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools

_BLOCK = 1024  # bytes; the unit of the program's blocks
_NO_LIMIT = 2**63  # more than any file system holds: -1 as an unsigned number


@dataclass(frozen=True)
class Quota:
    """What is left of a quota; None: not limited."""

    bytes: int | None
    inodes: int | None


def user_quota(mount_point: str) -> Quota | None:
    """What is left of this user's quota at `mount_point`; None if there is none or no tool.

    Root is not held to quotas.
    """
    if os.geteuid() == 0 or tools.find("quota") is None:
        return None
    argv = ["quota", "--no-wrap", "--raw-grace", "--show-mntpoint", "--hide-device"]
    try:
        ran = tools.run(argv, check=False)  # exit status 1: over quota
    except ToolError:
        return None
    return parse_quota(ran.stdout).get(mount_point)


def parse_quota(text: str) -> dict[str, Quota]:
    """By mount point, from `quota --no-wrap --raw-grace --show-mntpoint --hide-device`.

    Columns after the mount point: blocks, soft, hard, grace, files, soft, hard, grace; a `*`
    marks what is over its soft limit.  The lower limit that is not 0 counts: over the soft
    one writes stop when the grace time ends.
    """
    quotas = {}
    for line in text.splitlines():
        fields = line.rsplit(maxsplit=8)
        if len(fields) != 9:
            continue
        point, *columns = fields
        try:
            numbers = [int(column.rstrip("*")) for column in columns]
        except ValueError:
            continue
        size, soft, hard, _, files, files_soft, files_hard, _ = numbers
        quotas[point.strip()] = Quota(
            _left(size, soft, hard, _BLOCK), _left(files, files_soft, files_hard, 1)
        )
    return quotas


def _left(used: int, soft: int, hard: int, unit: int) -> int | None:
    limits = [limit for limit in (soft, hard) if 0 < limit < _NO_LIMIT]
    return max(0, min(limits) - used) * unit if limits else None
