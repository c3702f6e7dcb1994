"""DAOS by its own libraries: a POSIX container by libdfs, or containers without a file system.

The first is for the player and for programs that speak DFS, the others for programs that bring a
layout of their own (ROOT).  What such a program wrote only it could remove again.  So each run has
containers of its own: `make_run` makes the first, with the properties of the options; the program
may make more whose labels begin with that one's and a dot; `remove_run` destroys them all.

Cache states.  libdfs keeps no data in the client: see `daos_backend.NOTHING_CACHED`.

Counters.  Over TCP the bytes pass this kernel's network interfaces and are counted there.
RDMA (verbs, cxi) and engines on this very machine pass them by: there are no counters then.
"""

from __future__ import annotations

from typing import cast

from fsmatrix.backends.access import Access, DaosAccess, DfsAccess, expect
from fsmatrix.backends.contract import ProvisionContext, RunPlace
from fsmatrix.backends.daos import containers, daos_backend, libraries, tools
from fsmatrix.backends.daos.bindings import Folders
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.daos_options import OPTION_OF, DaosDfsOptions, DaosObjectsOptions
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, texts


class DaosDfs(daos_backend.DaosBackend):
    """A container of the suite's own in a pool, or a directory of its own in one that is given."""

    name = "daos-dfs"
    Options = DaosDfsOptions
    access_type = DfsAccess
    cache_states = daos_backend.NOTHING_CACHED
    driver = "dfs"

    def refusal(self) -> str:
        """As of every backend on DAOS; or libdfs does not load beside MPI."""
        try:
            library = self._library
        except BackendError as error:
            return str(error)
        return super().refusal() or libraries.mpi_clash(library)

    @property
    def _library(self) -> str:
        return libraries.library_folder(cast(DaosDfsOptions, self.options).library)

    def engine_refusal(self, level: Level, engine: str, program: str = "") -> str:
        """fio makes its files where a container that is given has no place of ours."""
        del level, program
        if engine == "fio" and cast(DaosDfsOptions, self.options).container:
            return (
                "fio's dfs engine works in the root of a container only, and in one that is "
                "given (options.container) the suite works in its own directory"
            )
        return ""

    def _attach(self, place: Place, details: JsonObject, context: ProvisionContext) -> DfsAccess:
        library = self._library
        return DfsAccess(
            backend=self.name,
            target=context.target,
            details=details,
            pool=place.pool,
            container=place.container,
            system=place.client.system,
            prefix="/" if place.own else containers.make_tree(place, library, context),
            library=library,
        )

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Remove the directory in a container that is given; else as of every backend on DAOS."""
        dfs, place = expect(access, DfsAccess), Place.of(access.details)
        if not place.own:
            containers.remove_tree(place, dfs.library, dfs.prefix, context)
        super()._detach(access, context)

    def finish(self, context: ProvisionContext) -> None:
        """Remove what a failed provision or release of this process left."""
        if self._chosen.container:
            containers.finish_tree(context, self._library)
        super().finish(context)

    def describe(self, access: Access) -> dict[str, Json]:
        """As of every backend on DAOS."""
        return {"filesystem": "dfs", **super().describe(access)}

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very container that the conductor chose."""
        del journal
        dfs = expect(access, DfsAccess)
        if reason := libraries.library_folder_refusal(dfs.library):
            raise BackendError(reason)
        daos_backend.require_seen(dfs)

    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """What the player's driver `dfs` gets: lines key=value."""
        dfs = expect(access, DfsAccess)
        values = {
            **{"pool": dfs.pool, "container": dfs.container, "system": dfs.system},
            **{"library": dfs.library, "path": _run_path(dfs, name)},
        }
        return RunPlace(("\n".join(f"{key}={value}" for key, value in values.items() if value),))

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """Make the run's directory; harmless if another node did."""
        del programs
        dfs = expect(access, DfsAccess)
        _folders(dfs).make(_run_path(dfs, name))

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Remove it with all in it."""
        dfs = expect(access, DfsAccess)
        _folders(dfs).remove(_run_path(dfs, name))


def _folders(dfs: DfsAccess) -> Folders:
    return Folders(dfs.pool, dfs.container, dfs.system, dfs.library)


def _run_path(dfs: DfsAccess, name: str) -> str:
    return f"{dfs.prefix.rstrip('/')}/{name}"


class DaosObjects(daos_backend.DaosBackend):
    """Containers of the suite's own in a pool, of the type that ROOT's RNTuple has."""

    name = "daos-objects"
    Options = DaosObjectsOptions
    access_type = DaosAccess
    cache_states = daos_backend.NOTHING_CACHED
    driver = "daos"  # which the player does not have
    layout = "ROOT"

    def provision(self, level: Level, context: ProvisionContext) -> Access:
        """As of every backend on DAOS; the level's properties are those of the runs' containers."""
        own = {factor: value for factor, value in level.items() if factor in OPTION_OF}
        rest = {factor: value for factor, value in level.items() if factor not in OPTION_OF}
        at_level = type(self)(self._chosen.at(own))
        return super(DaosObjects, at_level).provision(rest, context)

    def _attach(self, place: Place, details: JsonObject, context: ProvisionContext) -> DaosAccess:
        chosen = cast(DaosObjectsOptions, self.options)
        return DaosAccess(
            backend=self.name,
            target=context.target,
            details={**details, "creation": chosen.creation},
            pool=place.pool,
            container=place.container,
            system=place.client.system,
            oclass=chosen.oclass,
        )

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Destroy what runs left, and the container of the attachment."""
        place = Place.of(access.details)
        containers.destroy_of_run(place.client, place.pool, place.container)
        super()._detach(access, context)

    def describe(self, access: Access) -> dict[str, Json]:
        """As of every backend on DAOS; the object class is what programs are told."""
        return {"object_class": expect(access, DaosAccess).oclass, **super().describe(access)}

    # -- node leaders ------------------------------------------------------------------
    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Look whether this node reaches the very container that the conductor made."""
        del journal
        daos_backend.require_seen(expect(access, DaosAccess))

    @classmethod
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """The run's container as ROOT is told it: daos://pool/label."""
        return RunPlace((expect(access, DaosAccess).run_root(name),))

    @classmethod
    def make_run(cls, access: Access, name: str, programs: bool = False) -> None:
        """Make the run's container; harmless if another node did."""
        del programs
        daos, place = expect(access, DaosAccess), Place.of(access.details)
        label = daos.of_run(daos.container, name)
        if not tools.is_name(label):
            raise BackendError(
                f"{label} is no label that DAOS takes: give the target a shorter name"
            )
        try:
            place.client.create(
                place.pool, label, *texts(daos.details, "creation"), layout=cls.layout
            )
        except tools.DaosError as error:
            if error.status != tools.EXIST:
                raise

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """Destroy the run's containers, also while another node does."""
        place = Place.of(expect(access, DaosAccess).details)
        containers.destroy_of_run(place.client, place.pool, place.container, name)
