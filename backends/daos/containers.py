"""Containers: the suite's own, made and destroyed; or one that is given, and directories in it.

An own container is called `fsmatrix-<tag>-<target>-<8 random digits>`, and so is an own directory:
several shards of a campaign may use one pool, and the name alone proves whose it is, also when a
crash left the journal without the UUID.  Where a container holds no files, each run gets containers
of its own that are called `<label>.<run>...`: they go with it, whoever made them.  Nothing else in
the pool is touched, and what is made is journalled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from fsmatrix.backends.access import DaosAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import tools
from fsmatrix.backends.daos.bindings import Folders
from fsmatrix.backends.daos.tools import Client, Container
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.stored import JsonObject

ENTRY = "daos-container"  # kind of journal entry
POSIX = "POSIX"  # layout of a container that holds files
TREE_ENTRY = "daos-tree"  # kind of journal entry


@dataclass(frozen=True)
class Place:
    """A container of a pool, and who asks about it: what node-side methods need."""

    client: Client
    pool: str
    container: str
    uuid: str
    own: bool = True  # made by the suite

    @classmethod
    def of(cls, details: JsonObject) -> Self:
        """Of an access's details."""
        pool, container, uuid = (str(details[name]) for name in ("pool", "container", "uuid"))
        return cls(Client.of(details), pool, container, uuid, bool(details["own"]))

    @property
    def details(self) -> dict[str, str | float]:
        """What `of` reads."""
        named = {"pool": self.pool, "container": self.container, "uuid": self.uuid}
        return {**named, "own": self.own, **self.client.details}

    def within(self, seconds: float) -> Place:
        """The same, with at most that many seconds for a call."""
        return replace(self, client=self.client.within(seconds))

    def query(self) -> Container | None:
        """The container; None if it is not there."""
        return self.client.container_query(self.pool, self.container)

    def gone(self) -> str:
        """Why the container is not the one that was chosen or made (empty: it is)."""
        container = self.query()
        if container is None:
            return f"container {self.container} is not in pool {self.pool}"
        if container.container_uuid != self.uuid:
            return f"container {self.container} of pool {self.pool} is not the one that was made"
        return ""


def given(client: Client, pool: str, label: str) -> Place:
    """A container that exists; BackendError if it does not, or is not for files."""
    container = client.container_query(pool, label)
    if container is None:
        raise BackendError(
            f"container {label} is not in pool {pool}: it is never made automatically"
        )
    _require(container, label, POSIX)
    return Place(client, pool, label, container.container_uuid, own=False)


def make(
    client: Client,
    pool: str,
    creation: Sequence[str],
    context: ProvisionContext,
    layout: str = POSIX,
) -> Place:
    """Make a container and look whether it is there; `creation` as of DaosOptions.

    After a failure its journal entry stays, since the servers may have made it all the same:
    `finish`, or the next --resume, takes it down.
    """
    label = context.new_name()
    taken = f"container {label} of pool {pool} exists and is not the suite's: left alone"
    if client.container_query(pool, label) is not None:
        raise BackendError(taken)
    named = {"pool": pool, "label": label, "path": f"{pool}/{label}", "layout": layout}
    facts: JsonObject = {**named, **client.details}
    entry = context.journal.begin(ENTRY, target=context.target, **facts)
    try:
        container = client.create(pool, label, *creation, layout=layout)
    except tools.DaosError as error:
        if error.status != tools.EXIST:
            raise
        context.journal.end(entry)
        raise BackendError(taken) from error
    context.journal.confirm(entry, uuid=container.container_uuid)
    existing = client.container_query(pool, label)
    if existing is None or existing.container_uuid != container.container_uuid:
        raise BackendError(f"container {label} of pool {pool} was made, but is not there")
    _require(existing, label, layout)
    return Place(client, pool, label, container.container_uuid)


def _require(container: Container, label: str, layout: str) -> None:
    if container.container_type != layout:
        raise BackendError(f"container {label} is of type {container.container_type}, not {layout}")


def release(place: Place, context: ProvisionContext) -> None:
    """Destroy the container if the suite made it; BackendError if another one is called so."""
    if place.own:
        destroy(place.client, place.pool, place.container, place.uuid)
        context.journal.end_all(ENTRY, pool=place.pool, label=place.container)


def finish(context: ProvisionContext) -> None:
    """Destroy what a failed `make` or `release` of this process left."""
    context.journal.undo_own(ENTRY, context.target, destroy_recorded)


def destroy(client: Client, pool: str, label: str, uuid: str = "") -> bool:
    """Destroy the container `label` if its UUID is `uuid` (empty: the label is proof enough).

    False if there is none.  BackendError, with nothing done, if another one is called so.
    What a killed program still holds open is closed by force.
    """
    # the list also tells of one whose data an engine took with it, which no query opens
    container = next((each for each in client.containers(pool) if each.label == label), None)
    if container is None:
        return False
    if uuid and container.uuid != uuid:
        raise BackendError(
            f"container {label} of pool {pool} is another one ({container.uuid}) than "
            f"the suite's ({uuid}): not destroyed"
        )
    words = ("container", "destroy", pool, container.uuid)
    try:
        client.ask(*words)
    except tools.DaosError as error:
        if error.status == tools.NONEXIST:
            return False  # another node did it meanwhile
        if error.status != tools.BUSY:
            raise
        client.ask(*words, "--force")
    return True


def destroy_of_run(client: Client, pool: str, label: str, run: str = "") -> None:
    """Destroy what a run (empty: any run) made beside the suite's own container `label`.

    BackendError, with nothing done, if the suite gives no such label.
    """
    if not tools.is_own(label):
        raise BackendError(f"{label!r} is not one of the suite's containers: nothing was destroyed")
    own = DaosAccess.of_run(label, run)
    for each in client.containers(pool):
        if each.label == own or each.label.startswith(f"{own}." if run else own):
            destroy(client, pool, each.label, each.uuid)


def destroy_recorded(facts: JsonObject) -> bool:
    """As `destroy`, of the container of a journal entry, and of what runs made beside it."""
    pool, label, system = (str(facts[name]) for name in ("pool", "label", "system"))
    for name in (pool, label, system):
        if name and not tools.is_name(name):
            raise BackendError(f"{name!r} is not a name that DAOS gives: nothing was destroyed")
    if not tools.is_own(label):
        raise BackendError(f"{label!r} is not one of the suite's containers: nothing was destroyed")
    client = Client(system, tools.recorded_deadline(facts))
    if facts.get("layout", POSIX) != POSIX:
        destroy_of_run(client, pool, label)
    return destroy(client, pool, label, str(facts.get("uuid", "")))


def make_tree(place: Place, library: str, context: ProvisionContext) -> str:
    """Make one; its path in the container.  After a failure its journal entry stays."""
    name = context.new_name()
    path = f"{place.pool}/{place.container}/{name}"
    facts = {"name": name, "path": path, **place.details}
    context.journal.begin(TREE_ENTRY, target=context.target, **facts)
    _folders(place, library).make(f"/{name}")
    return f"/{name}"


def remove_tree(place: Place, library: str, prefix: str, context: ProvisionContext) -> None:
    """Remove it with all in it; harmless if it is gone."""
    name = prefix.strip("/")
    remove_recorded_tree({"name": name, **place.details}, library)
    context.journal.end_all(TREE_ENTRY, name=name, container=place.container)


def finish_tree(context: ProvisionContext, library: str) -> None:
    """Remove what a failed `make` or `remove` of this process left."""
    context.journal.undo_own(
        TREE_ENTRY, context.target, lambda facts: remove_recorded_tree(facts, library)
    )


def remove_recorded_tree(facts: JsonObject, library: str = "") -> bool:
    """Remove the directory that a journal entry tells of; False if its container is gone.

    BackendError, with nothing done, if another container is called so than the recorded one.
    Which library is loaded, no journal says.
    """
    name, system = str(facts["name"]), str(facts["system"])
    pool, container = str(facts["pool"]), str(facts["container"])
    words = [word for word in (pool, container, system) if word]
    if not tools.is_own(name) or not all(map(tools.is_name, words)):
        raise BackendError(
            f"{name!r} in {words}: not a record that the suite writes: nothing was destroyed"
        )
    client = Client(system, tools.recorded_deadline(facts))
    place = Place(client, pool, container, str(facts["uuid"]), own=False)
    there = place.query()
    if there is None:
        return False
    if there.container_uuid != place.uuid:
        raise BackendError(f"{place.gone()}: nothing was removed from it")
    _folders(place, library).remove(f"/{name}")
    return True


def _folders(place: Place, library: str) -> Folders:
    return Folders(place.pool, place.container, place.client.system, library)
