"""CephFS at a path, by ceph-fuse or the kernel's client: mounted by the suite, or found mounted.

Mounted by the suite: the conductor makes a directory `fsmatrix-<tag>` in the file system through
libcephfs, and each kernel mounts that very directory, so that nothing else of the file system is
even reachable.  Found mounted (option `path`): the directory is made through the mount, which stays
as it is; the cluster is asked only if it can be reached as the options say.
"""

from __future__ import annotations

import os
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.ceph import ceph_state, deployment, facts, trees
from fsmatrix.backends.ceph.bindings import capi, cephfs
from fsmatrix.backends.ceph.bindings.librados import Cluster, Login
from fsmatrix.backends.ceph.ceph_backend import CephBackend, pool_space
from fsmatrix.backends.ceph.ceph_options import (
    LAYOUT,
    CephfsOptions,
    FuseOptions,
    KernelOptions,
    MountedOptions,
)
from fsmatrix.backends.ceph.ceph_state import Watch
from fsmatrix.backends.ceph.mounts import (
    FUSE,
    FUSE_PROGRAM,
    KERNEL,
    KERNEL_PROGRAM,
    MOUNT_DEADLINE,
    Mounted,
    evict_session,
    fuse_argv,
    is_ours,
    kernel_argv,
    start_fuse,
)
from fsmatrix.backends.ceph.trees import Tree
from fsmatrix.backends.clusters.client_mounts import ClientMount, place_of, require_marker
from fsmatrix.backends.contract import (
    Availability,
    CacheMethod,
    Evidence,
    ProvisionContext,
    Space,
)
from fsmatrix.backends.errors import BackendError, ToolError, value_or_error
from fsmatrix.backends.journal import journal
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import own_mounts, provenance
from fsmatrix.backends.local.directory import place_refusal
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import Mount, mount_of, mounts
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.results.evidence.stored import Json, JsonObject, inside, mapping, text
from fsmatrix.results.evidence.target import Deployment

# What the backends on CephFS share: they work in a directory of the suite's own (see own).


class CephfsBackend(CephBackend):
    """Base of libcephfs, cephfs-fuse and cephfs-kernel."""

    pool_option = "data_pool"
    testbed: ClassVar[str] = "ceph"
    testbed_options: ClassVar[Mapping[str, str]] = {"conf": "conf", "filesystem": "filesystem"}

    @property
    def _chosen(self) -> CephfsOptions:
        return cast(CephfsOptions, self.options)

    def unfit(self, cluster: Cluster, pool: str) -> str:
        """It is no data pool of the file system."""
        return trees.unfit(cluster, self._chosen.filesystem, pool)

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Remove the directory and nothing else."""
        trees.release(Tree.of(access.details), context)

    def finish(self, context: ProvisionContext) -> None:
        """Remove what a failed provision or release of this process left."""
        trees.finish(context)
        super().finish(context)

    def space(self, access: Access | None = None) -> Space:
        """What the data pool that new files get may still take; of prepared ones the least."""
        options = self._chosen
        if access is None and options.levels is not None and options.levels.pools:
            return pool_space(options.login, options.levels.named)
        level = inside(access.details, "level") if access else {}
        pool = str(level.get("pool", options.data_pool))
        try:
            if not pool:
                with options.login.connect() as cluster:
                    pool = facts.filesystem_of(cluster, options.filesystem).data_pools[0]
        except BackendError as error:
            return Space(None, None, f"unknown: {error}")
        return pool_space(options.login, [pool])


def library_refusal() -> str:
    """Why libcephfs or librados cannot be used (empty: they can)."""
    try:
        cephfs.load()
    except BackendError as error:
        return str(error)
    return capi.available(capi.RADOS)


def cluster_details(login: Login) -> dict[str, Json]:
    """What node-side methods need to know of the cluster."""
    with login.connect() as cluster:
        return {"fsid": cluster.fsid, "osd_addresses": facts.addresses(cluster)}


def ceph_facts(login: Login, filesystem: str) -> dict[str, Json]:
    """Facts of the cluster with the pools of a file system, or why there are none."""
    try:
        with login.connect() as cluster:
            found = facts.filesystem_of(cluster, filesystem)
            tested = [found.metadata_pool, *found.data_pools]
            return facts.cluster_facts(cluster, tested, found.name)
    except BackendError as error:
        return {"error": str(error)}


def require_seen(tree: Tree, host: str) -> None:
    """BackendError if this node does not see the very tree that `host` made."""
    if tree.found_tag() != tree.tag:
        raise BackendError(
            f"{tree.path}, made on host {host}, is not seen in CephFS {tree.filesystem} on "
            f"{socket.gethostname()}: is it the same cluster?"
        )


# CephFS at a path, as node leaders see it: mounted, revived, made cold, watched, unmounted.
#
# Cold: mounted by the suite, it is unmounted and mounted again, and nothing of data or metadata is
# left in the client; otherwise the kernel's pages are dropped, and what ceph-fuse keeps is unknown
# unless its object cache is off.  OSDs and MDSs: see ceph_state.py.


FILE_SYSTEM = "file system"


class Attached(ClientMount, CephfsBackend):
    """The node-side half of cephfs-fuse and cephfs-kernel."""

    entry = "cephfs-mount"
    fstype: ClassVar[str]  # of a mount that the suite makes

    # -- what a subclass says ------------------------------------------------------------
    @classmethod
    @abstractmethod
    def mount_refusal(cls) -> str:
        """Why this kernel cannot mount it (empty: it can)."""

    @classmethod
    @abstractmethod
    def keeps_data(cls, details: JsonObject) -> bool:
        """Whether the client may keep data that are in no page of the kernel."""

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount the directory; one whose client has died is taken down first."""
        details = access.details
        if "tree" in details:
            return require_marker(Path(text(details, "tree")), details, FILE_SYSTEM)
        if cls.answers(details):
            return None
        try:
            cls.begin(details, journal)
        except ToolError as error:
            require_seen(
                Tree.of(details), text(details, "host")
            )  # says more, where that is the reason
            raise BackendError(f"{socket.gethostname()}: {error}") from error
        return require_marker(Path(text(details, "point")), details, FILE_SYSTEM)

    @classmethod
    def identity(cls, details: JsonObject) -> dict[str, Json]:
        """All of `mounted`."""
        return cls.mounted(details).document()

    @classmethod
    def mounted(cls, details: JsonObject) -> Mounted:
        """What a mount of ours is known by."""
        own = Tree.of(details)
        return Mounted(
            path=text(details, "point"),
            filesystem=own.filesystem,
            fstype=cls.fstype,
            source=str(details.get("source", "")),
            root=own.path,
            conf=own.login.conf,
            user=own.login.user,
            keyring=own.login.keyring,
        )

    @classmethod
    def is_ours(cls, mount: Mount, details: JsonObject) -> bool:
        """By type, source and root."""
        return is_ours(mount, cls.mounted(details))

    @classmethod
    def unclean(cls, details: JsonObject) -> None:
        """Its session is ended at the MDSs."""
        evict_session(cls.mounted(details))

    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Make a cache state: see the module."""
        root = Path(path_of(access))
        if state != "cold":
            return page_cache.bring(root, files, state)
        if "tree" not in access.details and method != "fadvise":
            return cls.remounted(access, files)
        return cls.dropped(access, files, method)

    @classmethod
    def while_unmounted(cls, details: JsonObject) -> dict[str, Json]:
        """The servers' caches, as the options say."""
        return cls._servers(details)

    @classmethod
    def dropped(cls, access: Access, files: Sequence[str], method: CacheMethod) -> Evidence:
        """The kernel's pages only; state unknown where the client may keep more."""
        evidence = page_cache.cold(Path(path_of(access)), files, method)
        kept = cls.keeps_data(access.details)
        client_facts = {"client_cache": "unknown" if kept else "none beside the kernel's"}
        if kept:
            client_facts["metadata_caches"] = "kept"
        servers = cls._servers(access.details)
        state = "unknown" if kept else evidence.state
        return Evidence(state, evidence.method, {**evidence.facts, **client_facts, **servers})

    @classmethod
    def _servers(cls, details: JsonObject) -> dict[str, Json]:
        if not cls.knows_cluster(details):
            return {"server_caches": "unknown"}
        drop = bool(details["drop_server_caches"])
        return ceph_state.server_caches(Login.of(details), drop, text(details, "filesystem"))

    @classmethod
    def counters(cls, access: Access) -> dict[str, float]:
        """Those of the network; all of its bytes where the OSDs' addresses are not known."""
        if not access.details["osd_addresses"]:
            return provenance.network_counters()
        return super().counters(access)

    @classmethod
    def knows_cluster(cls, details: JsonObject) -> bool:
        """Of a mount that is found only if the options say how it is reached."""
        return bool(details["fsid"])

    @classmethod
    def ailment(cls, details: JsonObject) -> str:
        """As of every mount with a client; or it has become read-only."""
        path = Path(place_of(details))
        if not (ailment := super().ailment(details)) and mount_of(path).read_only:
            return f"{path} has become read-only"
        return ailment

    @classmethod
    def watch(cls, access: Access) -> Watch | None:
        """As of every way to a cluster; None if it cannot be reached."""
        return super().watch(access) if cls.knows_cluster(access.details) else None


class CephfsMounted(Attached):
    """Base of cephfs-fuse and cephfs-kernel."""

    fstypes: ClassVar[frozenset[str]]  # of a mount that is found

    @property
    def _chosen(self) -> MountedOptions:
        return cast(MountedOptions, self.options)

    @classmethod
    @abstractmethod
    def mount_refusal(cls) -> str:
        """Why this kernel cannot mount it (empty: it can)."""

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """What the client that mounts says of its version."""

    @abstractmethod
    def settings(self, context: ProvisionContext) -> dict[str, Json]:
        """What `argv` needs of the options; into the access's details."""

    # -- conductor ---------------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """It can be mounted, or one is mounted already."""
        reason = cls.mount_refusal() or library_refusal()
        if reason and any(mount.fstype in cls.fstypes for mount in mounts()):
            return Availability(True, f"found mounted only ({reason})")
        return Availability(False, reason=reason) if reason else Availability(True, cls.version())

    def refusal(self) -> str:
        """Why these options cannot work here."""
        path = self._chosen.path
        if path:
            where = Path(path)
            return place_refusal(where) or shared_refusal(where) or self._other_mount(where)
        return self.mount_refusal() or library_refusal() or trees.refusal(self._chosen)

    def _other_mount(self, path: Path) -> str:
        mount = mount_of(path)
        if mount.fstype in self.fstypes:
            return f"{mount.point} is mounted read-only" if mount.read_only else ""
        kinds = " or ".join(sorted(self.fstypes))
        return f"{path} is {mount.fstype}, mounted at {mount.point}, not {kinds}"

    def _attach(self, context: ProvisionContext) -> PathAccess:
        """Make the directory, with its layout."""
        reason = self.refusal()
        if reason:
            raise BackendError(reason)
        shared: JsonObject = {
            **self._chosen.login.facts,
            "drop_server_caches": self._chosen.drop_server_caches,
            "host": socket.gethostname(),
        }
        attach = self._in_found if self._chosen.path else self._mounted
        return attach(context, shared)

    def _mounted(self, context: ProvisionContext, shared: JsonObject) -> PathAccess:
        context.state.mkdir(parents=True, exist_ok=True)
        own_tree = trees.make(self._chosen, context)
        point = own_mounts.new_point(context.state, context.journal)
        details = {
            **shared,
            **own_tree.facts,
            **cluster_details(own_tree.login),
            "point": str(point),
            **self.settings(context),
        }
        return PathAccess(self.name, context.target, details, str(point / journal.DATA))

    def _in_found(self, context: ProvisionContext, shared: JsonObject) -> PathAccess:
        parent = Path(self._chosen.path).resolve()
        folder = journal.make_tree(parent, context.tag, context.journal)
        data = folder / journal.DATA
        details = {**shared, "tree": str(folder), "tag": context.tag}
        details |= {"filesystem": self._chosen.filesystem, "fsid": "", "osd_addresses": []}
        try:
            for name, value in self._chosen.layout.items():
                os.setxattr(data, name, value.encode())
        except OSError as error:
            journal.release_tree(folder, context.tag, context.journal)
            raise BackendError(
                f"layout {self._chosen.layout} of {data} cannot be set: {error.strerror}; the "
                "user needs the MDS capability `p`, and the pool must be a data pool"
            ) from error
        cluster = value_or_error(lambda: cluster_details(self._chosen.login))
        details |= {"cluster_error": cluster["error"]} if "error" in cluster else cluster
        return PathAccess(
            self.name, context.target, {**details, **self.settings(context)}, str(data)
        )

    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of mount, layout and cluster; what cannot be told is recorded as such."""
        details, path = access.details, path_of(access)
        described: dict[str, Json] = {"managed": "point" in details, "mount_command": []}
        if described["managed"]:
            described["mount_command"] = self.argv(details)
            described["layout"] = value_or_error(Tree.of(details).layout)
        else:
            described["layout"] = _layout_of(path)
        if details["fsid"]:
            described["ceph"] = ceph_facts(Login.of(details), text(details, "filesystem"))
        else:
            described["ceph"] = {"error": details["cluster_error"]}
        return provenance.filesystem_facts(path) | described | self.level_facts(access)

    def space(self, access: Access | None = None) -> Space:
        """What the data pool may still take; of a found mount, what statfs says."""
        if self._chosen.path:
            return provenance.space(path_of(access) if access else self._chosen.path)
        return super().space(access)


def _layout_of(path: str) -> str:
    """Of a directory at a mount: its own, or that it has none of its own."""
    try:
        return os.getxattr(path, LAYOUT).decode(errors="replace")
    except OSError as error:
        return f"inherited ({error.strerror})"


class CephfsFuse(CephfsMounted):
    """One ceph-fuse for each kernel; it writes no log and has no admin socket."""

    name = "cephfs-fuse"
    Options = FuseOptions
    fstype = FUSE
    fstypes = frozenset({FUSE, "fuse.ceph"})

    @classmethod
    def mount_refusal(cls) -> str:
        """No root, no ceph-fuse, or no /dev/fuse."""
        program = tools.missing(FUSE_PROGRAM)
        reasons = (own_mounts.root_refusal(), program, own_mounts.device_refusal())
        return "; ".join(reason for reason in reasons if reason)

    @classmethod
    def version(cls) -> str:
        """What ceph-fuse says of its version."""
        return tools.version(FUSE_PROGRAM, "--version")

    def settings(self, context: ProvisionContext) -> dict[str, Json]:
        """The client's options, and a name for the mount."""
        options = cast(FuseOptions, self.options)
        return {"client": options.client, "source": f"fsmatrix-{context.tag}"}

    def client_deployment(self) -> Deployment:
        """The kernel's pages serve reads; writes go to the object cache of ceph-fuse."""
        options = cast(FuseOptions, self.options)
        if options.path:
            return deployment.found()
        return deployment.client_of(options.client, options.object_size, deployment.PAGES)

    @classmethod
    def argv(cls, details: JsonObject) -> list[str]:
        """In the foreground: its pid is known from the beginning."""
        own, client = Tree.of(details), mapping(details, "client")
        point, source = text(details, "point"), text(details, "source")
        options = {name: text(client, name) for name in client}
        return fuse_argv(own.login, own.filesystem, own.path, point, source, options)

    @classmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """Start it, and wait until it is mounted."""
        start_fuse(argv, point)

    @classmethod
    def keeps_data(cls, details: JsonObject) -> bool:
        """Yes, unless the suite has turned its object cache off."""
        return "tree" in details or mapping(details, "client").get("client_oc") != "false"


class CephfsKernel(CephfsMounted):
    """Its cache is the kernel's page cache and nothing else."""

    name = "cephfs-kernel"
    Options = KernelOptions
    fstype = KERNEL
    fstypes = frozenset({KERNEL})

    @classmethod
    def mount_refusal(cls) -> str:
        """No root, no ceph in the kernel, or no mount.ceph."""
        reasons = (
            own_mounts.root_refusal(),
            own_mounts.kernel_refusal(KERNEL),
            tools.missing(KERNEL_PROGRAM),
        )
        return "; ".join(reason for reason in reasons if reason)

    @classmethod
    def version(cls) -> str:
        """The kernel is the client."""
        return f"kernel {os.uname().release}"

    def settings(self, context: ProvisionContext) -> dict[str, Json]:
        """The options of mount(8) for this attachment."""
        del context
        return {"mount_options": cast(KernelOptions, self.options).mount_options}

    def client_deployment(self) -> Deployment:
        """All that it keeps are pages of the kernel; msgr2 only where the mount asks for it."""
        options = cast(KernelOptions, self.options)
        if options.path:
            return deployment.found(deployment.PAGES)
        return deployment.kernel_client(options.mount_options, options.object_size)

    @classmethod
    def argv(cls, details: JsonObject) -> list[str]:
        """mount.ceph finds the monitors and the key as ceph.conf says."""
        own, options = Tree.of(details), text(details, "mount_options")
        login, point = Login.of(details), text(details, "point")
        return kernel_argv(login, own.filesystem, own.path, point, options)

    @classmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """Mount by mount.ceph; ToolError with its words if that fails."""
        del point
        tools.run(argv, deadline=MOUNT_DEADLINE)

    @classmethod
    def client_of(cls, argv: Sequence[str]) -> Sequence[str]:
        """Empty: the kernel serves the mount, no process."""
        del argv
        return ()

    @classmethod
    def keeps_data(cls, details: JsonObject) -> bool:
        """Never: all data that it keeps are pages of the kernel."""
        del details
        return False
