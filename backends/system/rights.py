"""What this process may do, by the kernel's own account."""

from __future__ import annotations

from pathlib import Path

_CAP_SYS_ADMIN = 21


def has_sys_admin() -> bool:
    """CAP_SYS_ADMIN: mounts and namespaces.  A container's root may lack it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return True  # a kernel that does not tell
