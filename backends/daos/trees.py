"""Directories of the suite's own in containers that are given: journalled, made and removed.

Called `/fsmatrix-<tag>-<target>-<8 random digits>`: the name alone proves whose it is.
"""

from __future__ import annotations

from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.daos.bindings import Folders
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.tools import tool
from fsmatrix.backends.daos.tools.client import Client
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import JsonObject

ENTRY = "daos-tree"  # kind of journal entry


def make(place: Place, library: str, context: ProvisionContext) -> str:
    """Make one; its path in the container.  After a failure its journal entry stays."""
    name = context.new_name()
    path = f"{place.pool}/{place.container}/{name}"
    facts = {"name": name, "path": path, **place.details}
    context.journal.begin(ENTRY, target=context.target, **facts)
    _folders(place, library).make(f"/{name}")
    return f"/{name}"


def remove(place: Place, library: str, prefix: str, context: ProvisionContext) -> None:
    """Remove it with all in it; harmless if it is gone."""
    name = prefix.strip("/")
    remove_recorded({"name": name, **place.details}, library)
    context.journal.end_all(ENTRY, name=name, container=place.container)


def finish(context: ProvisionContext, library: str) -> None:
    """Remove what a failed `make` or `remove` of this process left."""
    for entry in context.journal.pending(ENTRY, target=context.target):
        if entry.is_own:
            remove_recorded(entry.facts, library)
            context.journal.end(entry)


def remove_recorded(facts: JsonObject, library: str = "") -> bool:
    """Remove the directory that a journal entry tells of; False if its container is gone.

    BackendError, with nothing done, if another container is called so than the recorded one.
    Which library is loaded, no journal says.
    """
    name, system = str(facts["name"]), str(facts["system"])
    pool, container = str(facts["pool"]), str(facts["container"])
    words = [word for word in (pool, container, system) if word]
    if not tool.is_own(name) or not all(map(tool.is_name, words)):
        raise BackendError(
            f"{name!r} in {words}: not a record that the suite writes: nothing was destroyed"
        )
    client = Client(system, tool.recorded_deadline(facts))
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
