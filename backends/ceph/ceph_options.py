"""Typed options that the Ceph backends share, those of the factors of a cluster among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fsmatrix.backends.allowed import NUMBER, SIZE, one_of, plain
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.contract import BackendOptions
from fsmatrix.backends.local.own_mounts import check_mount_options, mount_keys
from fsmatrix.results.evidence.stored import Level
from fsmatrix.results.evidence.target import Redundancy, parse_redundancy
from fsmatrix.results.units import PositiveSize

LEVEL_FACTORS = frozenset({"storage_nodes", "interface"})
LEVEL_NAME = r"^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"
_OF_MAKING = ("redundancy", "root", "device_class", "classes", "pg_num", "consent")
LAYOUT = "ceph.dir.layout"
STRIPE_GRAIN = 65536  # bytes: CEPH_MIN_STRIPE_UNIT
_FILE = re.compile(r"|(/|~/)[^\0\n,]*")
_USER = r"^[A-Za-z0-9_][A-Za-z0-9._@-]*$"
_POOL = r"^$|^[A-Za-z0-9_.][A-Za-z0-9_.-]*$"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VALUE = re.compile(r"[^\0\n\r]*")
# who is spoken to, as whom, and where things are written: options of their own, or not the user's
_RESERVED = re.compile(
    r"key|keyfile|keyring|.*_secret|.*_password|mon_host|mon_addr|mon_initial_members|fsid|name|"
    r"cluster|conf|public_.*|cluster_.*|client_fs|client_mds_namespace|client_mountpoint|"
    r"log_.*|.*_log_file|admin_socket|pid_file|run_dir|crash_dir|setuser|setgroup|.*_path|"
    r".*_(dir|file)|client_trace"
)
# What concerns the client's own work.  Not plugin_dir (loads code), mon_dns_srv_name, host...
_CLIENTS = re.compile(r"(client|fuse|ms|objecter|rados)_.*")
Values = Mapping[str, bool | int | float | str]


class PreparedPool(BaseModel):
    """A pool that the user made for a level."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: str = Field(pattern=LEVEL_NAME, description="its name")
    storage_nodes: int | None = Field(None, ge=1, description="hosts that it lies on")
    interface: str | None = Field(None, description="level of interface that it is for")

    def fits(self, level: Level) -> bool:
        """Whether it is the pool of this level."""
        return all(
            str(getattr(self, name)).lower() == str(value).lower() for name, value in level.items()
        )


class LevelOptions(BaseModel):
    """How a level of the cluster factors is made: by CRUSH, or by pools that are there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redundancy: str = Field(
        "", description="of the pools: size=3 or ec=4+2; the same at all levels"
    )
    failure_domain: Literal["osd", "host"] = Field(
        "host", description="what two copies of the same data never share"
    )
    root: str = Field("default", pattern=LEVEL_NAME, description="CRUSH bucket to draw hosts from")
    storage_nodes: int | None = Field(
        None, ge=1, description="hosts, where that is no factor; default: all"
    )
    device_class: str = Field(
        "",
        pattern=LEVEL_NAME.replace("^", "^$|^", 1),
        description="class, where interface is no factor",
    )
    classes: dict[str, str] = Field(
        {}, description="level of interface -> device class; default: the level in small letters"
    )
    pg_num: int | None = Field(
        None, ge=1, le=65536, description="default: 100 per OSD and copy, rounded up to 2^n"
    )
    consent: bool = Field(
        False, description="yes, make CRUSH roots, rules and pools in this cluster (run --dry-run)"
    )
    pools: tuple[PreparedPool, ...] = Field(
        (), description="take these pools instead of making any: one for each level"
    )

    @field_validator("redundancy")
    @classmethod
    def _known_redundancy(cls, value: str) -> str:
        if value:
            parse_redundancy(value)
        return value

    @model_validator(mode="after")
    def _one_way(self) -> LevelOptions:
        if not self.pools:
            if not self.redundancy:
                raise ValueError("give redundancy (size=3, ec=4+2), or name pools")
            return self
        beside = [name for name in _OF_MAKING if name in self.model_fields_set]
        if beside:
            raise ValueError(f"leave out {', '.join(beside)}: the named pools have their own")
        return self

    @property
    def copies(self) -> Redundancy:
        """The redundancy as numbers of copies or chunks."""
        return parse_redundancy(self.redundancy)

    @property
    def named(self) -> list[str]:
        """Names of the prepared pools."""
        return [prepared.pool for prepared in self.pools]

    def class_of(self, level: Level) -> str:
        """Device class of a level; empty: all OSDs."""
        if "interface" not in level:
            return self.device_class
        wanted = str(level["interface"])
        return self.classes.get(wanted, wanted.lower())

    def prepared(self, level: Level) -> PreparedPool | None:
        """The pool that was named for a level."""
        fitting = [pool for pool in self.pools if pool.fits(level)]
        return fitting[0] if len(fitting) == 1 else None


class CephOptions(BackendOptions):
    """Who speaks to which cluster, and how."""

    conf: str = Field("", description="ceph.conf; default: CEPH_CONF, /etc/ceph/ceph.conf")
    user: str = Field("admin", pattern=_USER, description='Ceph user, without "client."')
    keyring: str = Field("", description="file with that user's key; default: as ceph.conf says")
    drop_server_caches: bool = Field(
        False,
        description="cold also empties the caches of all OSDs and MDSs: never where others work",
    )

    levels: LevelOptions | None = Field(
        None, description="how levels of storage_nodes and interface are made"
    )

    @field_validator("conf", "keyring")
    @classmethod
    def _file(cls, value: str) -> str:
        if not _FILE.fullmatch(value):
            raise ValueError(f"must be an absolute path without commas, not {value!r}")
        return value

    @property
    def login(self) -> Login:
        """What is needed to connect."""
        return Login.expanded(self.conf, self.user, self.keyring)


class ClientOptions(CephOptions):
    """Options of a Ceph client in user space."""

    client_options: dict[str, bool | int | float | str] = Field(
        {}, description="options of the Ceph client, by their names in Ceph"
    )

    @field_validator("client_options")
    @classmethod
    def _client_options(cls, value: Values) -> Values:
        for name, setting in value.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a Ceph option (client_oc_size)")
            if _RESERVED.fullmatch(name):
                raise ValueError(
                    f"{name} cannot be given here: it has an option of its own or none"
                )
            if not _CLIENTS.fullmatch(name):
                raise ValueError(f"{name}: allowed are client_, fuse_, ms_, objecter_, rados_")
            if not _VALUE.fullmatch(str(setting)):
                raise ValueError(f"{name}: a value is one line of text")
        return value

    @property
    def client(self) -> dict[str, str]:
        """Options for every Ceph client of the measurement: name -> text as Ceph reads it."""
        return {name: as_text(value) for name, value in self.client_options.items()}


class RadosOptions(ClientOptions):
    """Options of a RADOS pool, which exists."""

    pool: str = Field("", pattern=_POOL, description="the pool, which exists; not with levels")
    object_size: PositiveSize = Field(4 << 20, description="files are cut into objects of that")

    @model_validator(mode="after")
    def _one_pool(self) -> RadosOptions:
        if bool(self.pool) == (self.levels is not None):
            raise ValueError("give either pool or levels")
        return self


class CephfsOptions(CephOptions):
    """Options of a CephFS; a layout that is not given is the file system's default."""

    filesystem: str = Field("", pattern=_POOL, description="its name; default: the only one")
    directory: str = Field(
        "/", description="directory of the file system in which the suite makes its own"
    )
    data_pool: str = Field("", pattern=_POOL, description="layout: data pool of the file system")
    stripe_unit: PositiveSize | None = Field(None, description="layout")
    stripe_count: int | None = Field(None, ge=1, le=4096, description="layout")
    object_size: PositiveSize | None = Field(None, description="layout")

    @field_validator("directory")
    @classmethod
    def _directory(cls, value: str) -> str:
        parts = value.split("/")
        if not value.startswith("/") or {".", "..", ".snap"} & set(parts) or "\0" in value:
            raise ValueError(f"must be an absolute path inside the file system, not {value!r}")
        if any(character in value for character in ",\n\r"):
            raise ValueError(f"must be one line without commas, not {value!r}")
        return "/" + "/".join(part for part in parts if part)

    @model_validator(mode="after")
    def _possible_layout(self) -> CephfsOptions:
        unit, size = self.stripe_unit, self.object_size
        if unit is not None and unit % STRIPE_GRAIN:
            raise ValueError(f"stripe_unit must be a multiple of {STRIPE_GRAIN} bytes")
        if size is not None and size % (unit or STRIPE_GRAIN):
            raise ValueError("object_size must be a multiple of stripe_unit (default 64 KiB grain)")
        return self

    @model_validator(mode="after")
    def _one_data_pool(self) -> CephfsOptions:
        if self.data_pool and self.levels is not None:
            raise ValueError("data_pool: each of levels has a pool of its own")
        return self

    @property
    def layout(self) -> dict[str, str]:
        """Extended attributes of a directory: name -> value; empty: nothing is set.

        The pool has one of its own: Ceph 16 reads no hyphens in what ceph.dir.layout says.
        """
        names = ("stripe_unit", "stripe_count", "object_size")
        given = {name: getattr(self, name) for name in names}
        shape = " ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        wanted = {LAYOUT: shape, f"{LAYOUT}.pool": self.data_pool}
        return {name: value for name, value in wanted.items() if value}


class LibcephfsOptions(CephfsOptions, ClientOptions):
    """Options of a CephFS by libcephfs or FUSE, which share the client's code."""

    client_oc: bool | None = Field(None, description="the client's object cache")
    client_oc_size: PositiveSize | None = Field(None, description="bytes of that cache")
    client_readahead_max_bytes: PositiveSize | None = Field(
        None, description="most that the client reads ahead"
    )

    @property
    def client(self) -> dict[str, str]:
        """As ClientOptions.client, with the typed ones."""
        names = ("client_oc", "client_oc_size", "client_readahead_max_bytes")
        typed = {name: getattr(self, name) for name in names}
        given = {name: as_text(value) for name, value in typed.items() if value is not None}
        return super().client | given


class MountedOptions(CephfsOptions):
    """Options of a CephFS at a path."""

    path: str = Field("", description="a directory of a CephFS that is mounted already: used as is")

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError(f"must be absolute, not {value!r}")
        return value

    @model_validator(mode="after")
    def _of_our_mount(self) -> MountedOptions:
        settings = {"path", *CephOptions.model_fields, *CephfsOptions.model_fields} - {"directory"}
        beside = sorted(self.model_fields_set - settings)
        if self.path and beside:
            raise ValueError(f"{', '.join(beside)}: cannot be set on a mount that is found (path)")
        return self


class FuseOptions(MountedOptions, LibcephfsOptions):
    """Options of a CephFS by ceph-fuse."""


# Of mount.ceph(8), without what says who mounts what (name, secret, secretfile, conf, fs, ip...).
_KERNEL_MOUNT = mount_keys(
    "acl noacl asyncreaddir noasyncreaddir cephx_require_signatures nocephx_require_signatures "
    "cephx_sign_messages nocephx_sign_messages copyfrom nocopyfrom crc nocrc dcache nodcache "
    "dirstat nodirstat fsc nofsc ino32 noino32 noshare share pagecache nopagecache poolperm "
    "nopoolperm quotadf noquotadf rbytes norbytes sparseread nosparseread tcp_nodelay "
    "notcp_nodelay wsync nowsync",
    plain(SIZE, "rsize wsize rasize readdir_max_bytes")
    | plain(NUMBER, "caps_max caps_wanted_delay_min caps_wanted_delay_max mount_timeout")
    | plain(NUMBER, "osdkeepalive osd_idle_ttl osd_request_timeout readdir_max_entries")
    | plain(NUMBER, "write_congestion_kb")
    | {"read_from_replica": one_of("no", "balance", "localize")}
    | {"ms_mode": one_of("legacy", "crc", "secure", "prefer-crc", "prefer-secure")}
    | {"recover_session": one_of("no", "clean")},
)


class KernelOptions(MountedOptions):
    """Options of a CephFS by the kernel's client."""

    mount_options: str = Field(
        "", description="of the kernel's client, comma-separated: rsize, wsize, rasize, caps_max..."
    )

    @field_validator("mount_options")
    @classmethod
    def _mount_options(cls, value: str) -> str:
        names = {option.partition("=")[0] for option in value.split(",")}
        reserved = names & {
            "name",
            "secret",
            "key",
            "conf",
            "fs",
            "mds_namespace",
            "mon_addr",
            "fsid",
        }
        if reserved:
            raise ValueError(f"{', '.join(sorted(reserved))}: has an option of its own, or none")
        return check_mount_options(value, _KERNEL_MOUNT)


def as_text(value: bool | int | float | str) -> str:
    """The value of an option as Ceph writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
