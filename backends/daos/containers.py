"""POSIX containers: the suite's own, journalled, made and destroyed; or one that is given.

An own container is called `fsmatrix-<tag>-<target>-<8 random digits>`: several shards of a
campaign may use one pool, and the label alone proves whose it is, also when a crash left the
journal without the UUID.  Nothing else in the pool is touched.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.daos.tools import tool
from fsmatrix.backends.daos.tools.answers import Container
from fsmatrix.backends.daos.tools.client import Client
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.owned_dirs import PREFIX

ENTRY = "daos-container"  # kind of journal entry


@dataclass(frozen=True)
class Place:
    """A container of a pool, and who asks about it: what node-side methods need."""

    client: Client
    pool: str
    container: str
    uuid: str
    own: bool = True  # made by the suite

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self:
        """Of an access's details."""
        pool, container, uuid = (str(details[name]) for name in ("pool", "container", "uuid"))
        return cls(Client.of(details), pool, container, uuid, bool(details["own"]))

    @property
    def details(self) -> dict[str, Any]:
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
        raise BackendError(f"container {label} is not in pool {pool}: it is not made by itself")
    _require_posix(container, label)
    return Place(client, pool, label, container.container_uuid, own=False)


def make(client: Client, pool: str, creation: Sequence[str], context: ProvisionContext) -> Place:
    """Make a container and look whether it is there; `creation` as of DaosOptions.

    After a failure its journal entry stays, since the servers may have made it all the same:
    `finish`, or the next --resume, takes it down.
    """
    label = f"{PREFIX}{context.tag}-{context.target}-{secrets.token_hex(4)}"
    taken = f"container {label} of pool {pool} exists and is not the suite's: left alone"
    if client.container_query(pool, label) is not None:
        raise BackendError(taken)
    facts = {"pool": pool, "label": label, "path": f"{pool}/{label}", **client.details}
    entry = context.journal.begin(ENTRY, target=context.target, **facts)
    try:
        container = client.create(pool, label, *creation)
    except tool.DaosError as error:
        if error.status != tool.EXIST:
            raise
        context.journal.end(entry)
        raise BackendError(taken) from error
    context.journal.confirm(entry, uuid=container.container_uuid)
    existing = client.container_query(pool, label)
    if existing is None or existing.container_uuid != container.container_uuid:
        raise BackendError(f"container {label} of pool {pool} was made, but is not there")
    _require_posix(existing, label)
    return Place(client, pool, label, container.container_uuid)


def _require_posix(container: Container, label: str) -> None:
    if container.container_type != "POSIX":
        raise BackendError(f"container {label} is of type {container.container_type}, not POSIX")


def release(place: Place, context: ProvisionContext) -> None:
    """Destroy the container if the suite made it; BackendError if another one is called so."""
    if place.own:
        destroy(place.client, place.pool, place.container, place.uuid)
        context.journal.end_all(ENTRY, pool=place.pool, label=place.container)


def finish(context: ProvisionContext) -> None:
    """Destroy what a failed `make` or `release` of this process left."""
    for entry in context.journal.pending(ENTRY, target=context.target):
        if entry.is_own:
            destroy_recorded(entry.facts)
            context.journal.end(entry)


def destroy(client: Client, pool: str, label: str, uuid: str = "") -> bool:
    """Destroy the container `label` if its UUID is `uuid` (empty: the label is proof enough).

    False if there is none.  BackendError, with nothing done, if another one is called so.
    What a killed program still holds open is closed by force.
    """
    container = client.container_query(pool, label)
    if container is None:
        return False
    if uuid and container.container_uuid != uuid:
        raise BackendError(
            f"container {label} of pool {pool} is another one ({container.container_uuid}) than "
            f"the suite's ({uuid}): not destroyed"
        )
    words = ("container", "destroy", pool, container.container_uuid)
    try:
        client.ask(*words)
    except tool.DaosError as error:
        if error.status != tool.BUSY:
            raise
        client.ask(*words, "--force")
    return True


def destroy_recorded(facts: Mapping[str, Any]) -> bool:
    """As `destroy`, of the container that a journal entry tells of."""
    pool, label, system = (str(facts[name]) for name in ("pool", "label", "system"))
    for name in (pool, label, system):
        if name and not tool.is_name(name):
            raise BackendError(f"{name!r} is no name that DAOS gives: nothing destroyed")
    client = Client(system, tool.recorded_deadline(facts))
    return destroy(client, pool, label, str(facts.get("uuid", "")))
