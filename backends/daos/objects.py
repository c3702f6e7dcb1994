"""DAOS without a file system: containers for programs that bring a layout of their own (ROOT).

What such a program wrote only it could remove again.  So each run has containers of its own:
`make_run` makes the first, with the properties of the options; the program may make more whose
labels begin with that one's and a dot; `remove_run` destroys them all.
"""

from __future__ import annotations

from typing import cast

from fsmatrix.backends.access import Access, DaosAccess, expect
from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.daos import containers, daos_backend, tools
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.options import OPTION_OF, DaosObjectsOptions
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, texts


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

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Destroy what runs left, and the container of the attachment."""
        place = Place.of(access.details)
        containers.destroy_of_run(place.client, place.pool, place.container)
        super().release(access, context)

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
    def run_root(cls, access: Access, name: str) -> str:
        """The run's container as ROOT is told it: daos://pool/label."""
        daos = expect(access, DaosAccess)
        return daos.run_root(name)

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
