"""What IOR and mdtest share: the I/O backends of IOR (aiori) and how they are told of a target."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from fsmatrix.backends.access import Access, CephfsAccess, DfsAccess, PathAccess, RadosAccess
from fsmatrix.results.units import Duration, PositiveSize
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.base import WorkloadOptions

CEPH_CONF = "/etc/ceph/ceph.conf"  # what Ceph's libraries read; IOR wants it named
LONGEST_STONEWALL = 10**6  # s


class AioriOptions(WorkloadOptions):
    """Options that IOR and mdtest have in common."""

    stonewall: Duration = Field(0.0, description="whole seconds until no new work; 0: none")
    direct: bool = Field(False, description="O_DIRECT; the cache state bypass means it too")
    dfs_oclass: str = Field("", description="--dfs.oclass, object class of files")
    dfs_dir_oclass: str = Field("", description="--dfs.dir_oclass, object class of directories")
    dfs_chunk_size: PositiveSize | None = Field(None, description="--dfs.chunk_size of files")
    bind_to: Literal["none", "core", "socket", "numa"] = Field(
        "none", description="the launcher's binding of each process"
    )
    extra_arguments: tuple[str, ...] = Field(
        (), description="handed on at the end: those in SECURITY.md"
    )

    @field_validator("stonewall")
    @classmethod
    def _whole_seconds(cls, value: float) -> float:
        if value != int(value) or value > LONGEST_STONEWALL:
            raise ValueError(f"stonewall: whole seconds up to {LONGEST_STONEWALL}, not {value:g}")
        return value

    @property
    def dfs(self) -> bool:
        """Whether something is asked for that only DFS has."""
        return bool(self.dfs_oclass or self.dfs_dir_oclass or self.dfs_chunk_size)


def unlike_api(options: AioriOptions, api: str) -> str:
    """Why these options and that API (or auto) do not go together (empty: they do)."""
    if options.direct and api not in ("auto", "POSIX"):
        return f"direct: {api} knows no O_DIRECT"
    if options.dfs and api not in ("auto", "DFS"):
        return "dfs_oclass, dfs_dir_oclass and dfs_chunk_size need api: DFS"
    return ""


def target_arguments(access: Access, options: AioriOptions, engine: Engine) -> list[str]:
    """Words that name the container, pool or file system; none for a path."""
    if isinstance(access, DfsAccess):
        # releases of IOR call the server group "group"; builds of DAOS's own may say "sys"
        group = "sys" if "option:dfs.sys" in engine.features else "group"
        given = {
            "pool": access.pool,
            "cont": access.container,
            group: access.system,
            "oclass": options.dfs_oclass,
            "dir_oclass": options.dfs_dir_oclass,
            "chunk_size": options.dfs_chunk_size,
        }
        return [f"--dfs.{name}={value}" for name, value in given.items() if value]
    if isinstance(access, RadosAccess):
        conf = access.conf or CEPH_CONF
        given = {"user": access.user, "conf": conf, "pool": access.pool}
        return [f"--rados.{name}={value}" for name, value in given.items()]
    if isinstance(access, CephfsAccess):
        # the prefix is taken off the names; "/" leaves paths from the root of the mount
        given = {"user": access.user, "conf": access.conf or CEPH_CONF, "prefix": "/"}
        return [f"--cephfs.{name}={value}" for name, value in given.items()]
    return []


def status_file(access: Access) -> str:
    """Where the programs note how far a stonewall let them come: never on DFS or RADOS."""
    return "{path}/stonewall" if isinstance(access, PathAccess) else "{beside}"


def place(access: Access, name: str) -> str:
    """Where a file or directory of that name is, as the programs are told it."""
    if isinstance(access, DfsAccess):
        return f"{access.prefix.rstrip('/')}/{{run}}/{name}"
    if isinstance(access, RadosAccess):
        return f"{access.prefix}.{{run}}.{name}"
    if isinstance(access, CephfsAccess):
        return f"{access.path.rstrip('/')}/{{run}}/{name}"
    return f"{{path}}/{name}"
