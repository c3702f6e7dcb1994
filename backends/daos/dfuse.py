"""DAOS by DFUSE: a container mounted by the suite on every node, or a mount that is there.

Mounted by the suite: a container of its own, mounted in the results' `state` by a dfuse of its
own on each kernel.  Found mounted (option `path`): a directory of the suite's own is made in it,
and the mount stays as it is.

`--disable-caching` alone favours DFS, and dfuse's caches alone favour DFUSE: how a mount caches
and whether a library goes around it are options, or factors, and coordinates of every run.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.contract import NO_LEVEL, Availability, Foreseen, ProvisionContext, Space
from fsmatrix.backends.daos import containers, daos_state, dfuse_mount, libraries
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.dfuse_mount import FACTORS, FOUND, DaosDfuseOptions, DfuseNode
from fsmatrix.backends.errors import BackendError, value_or_error
from fsmatrix.backends.journal import journal
from fsmatrix.backends.local import own_mounts, provenance
from fsmatrix.backends.local.directory import place_refusal
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system.mounts import mounts
from fsmatrix.backends.system.trusted import shared_refusal
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, Scalar, text
from fsmatrix.results.evidence.target import Deployment


class DaosDfuse(DfuseNode):
    """One dfuse for each kernel, or a directory on a DFUSE that somebody else mounted."""

    name = "daos-dfuse"
    Options = DaosDfuseOptions

    @property
    def _chosen(self) -> DaosDfuseOptions:
        return cast(DaosDfuseOptions, self.options)

    # -- whether, and which ------------------------------------------------------------
    @classmethod
    def check(cls) -> Availability:
        """It can be mounted, or one is mounted already."""
        usable, reason = super().check(), dfuse_mount.refusal()
        if usable.ok and not reason:
            return usable
        reason = reason or usable.reason
        if any(dfuse_mount.is_dfuse(mount) for mount in mounts()):
            return Availability(True, f"found mounted only ({reason})")
        return Availability(False, reason=reason, installed=not usable.uninstalled)

    def refusal(self) -> str:
        """Why these options cannot work here."""
        chosen = self._chosen
        try:
            _library(chosen)
        except BackendError as error:
            return str(error)
        if chosen.path:
            return _found_refusal(Path(chosen.path))
        return dfuse_mount.refusal() or super().refusal()

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """Of a container; how the suite mounts it, and the library that goes into programs.

        Attributes of the container are one way to cache: no level varies it.
        """
        chosen, known = self._chosen, super().foreseen(level)
        own = FACTORS - {"caching"} if chosen.cache_attributes else FACTORS
        more = {"caching": chosen.caching_word, "interception": chosen.interception}
        return replace(
            known,
            level_factors=frozenset({"interception"}) if chosen.path else known.level_factors | own,
            attributes={**known.attributes, **more},
            programs_speak=self._interception(level) != libraries.NONE,
        )

    def level_refusal(self, level: Level, bed: Mapping[str, Scalar] | None = None) -> str:
        """No such way to cache or to intercept, or none that goes with the other options."""
        if bed is not None:
            return super().level_refusal(level, bed)
        try:
            chosen = self._chosen.at(level)
            _library(chosen)
        except BackendError as error:
            return str(error)
        return "" if chosen.path else super().level_refusal(level)

    def engine_refusal(self, level: Level, engine: str, program: str = "") -> str:
        """Statically linked programs cannot be intercepted; the player is one of Python."""
        if not program and engine != "player":
            return ""
        return libraries.program_refusal(self._interception(level), program)

    def _interception(self, level: Level) -> str:
        return str(level.get("interception", self._chosen.interception))

    # -- made and removed --------------------------------------------------------------
    def provision(self, level: Level, context: ProvisionContext) -> Access:
        """Make the container, or a directory in what is given."""
        own = {name: value for name, value in level.items() if name in FACTORS}
        rest = {name: value for name, value in level.items() if name not in FACTORS}
        at_level = type(self)(self._chosen.at(own))
        if reason := at_level.refusal():
            raise BackendError(reason)
        if at_level._chosen.path:
            self.refuse_level(rest)
            return at_level._in_found(context)
        return super(DaosDfuse, at_level).provision(rest, context)

    def _attach(self, place: Place, details: JsonObject, context: ProvisionContext) -> PathAccess:
        chosen = self._chosen
        prefix = f"/{journal.DATA}"
        if not place.own:
            prefix = containers.make_tree(place, libraries.library_folder(chosen.library), context)
        elif given := chosen.cache_attributes:
            dfuse_mount.set_on(place, given)
        context.state.mkdir(parents=True, exist_ok=True)
        point = own_mounts.new_point(context.state, context.journal)
        own: dict[str, Json] = {
            "point": str(point),
            "prefix": prefix,
            "flags": chosen.flags,
            "caching": chosen.caching,
            "attributes": dict(chosen.cache_attributes),
        }
        path = f"{point}{prefix}"
        return PathAccess(self.name, context.target, {**details, **own, **_preload(chosen)}, path)

    def _in_found(self, context: ProvisionContext) -> PathAccess:
        """A directory of ours in a mount that stays as it is."""
        parent = Path(self._chosen.path).resolve()
        folder = journal.make_tree(parent, context.tag, context.journal)
        mount = dfuse_mount.found_at(parent)
        details = {
            "tree": str(folder),
            "tag": context.tag,
            "host": socket.gethostname(),
            "found": mount.point if mount else "",
            "caching": FOUND,
            "attributes": {},
            **self._chosen.client.details,
            **self._servers(),
            **_preload(self._chosen),
        }
        return PathAccess(self.name, context.target, details, str(folder / journal.DATA))

    def _servers(self) -> dict[str, Json]:
        """How the system is reached; unknown where its agent does not say."""
        try:
            system = self._chosen.client.system_query()
        except BackendError as error:
            return {"provider": "", "servers": [], "system_error": str(error)}
        return {"provider": system.fabric_provider, "servers": daos_state.servers(system)}

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """As of every mount; nothing is removed from one that is found and does not answer."""
        details, found = access.details, "tree" in access.details
        if found and (trouble := self.trouble(Path(text(details, "tree")))):
            raise BackendError(f"{trouble}: {details['tree']} was not removed")
        super()._detach(access, context)
        if not found and not (place := Place.of(details)).own:
            library = libraries.library_folder(self._chosen.library)
            containers.remove_tree(place, library, text(details, "prefix"), context)

    def finish(self, context: ProvisionContext) -> None:
        """Remove what a failed provision or release of this process left."""
        if self._chosen.container:
            containers.finish_tree(context, libraries.library_folder(self._chosen.library))
        super().finish(context)

    # -- facts -------------------------------------------------------------------------
    def describe(self, access: Access) -> dict[str, Json]:
        """Facts of mount, container and pool; what cannot be told is recorded as such."""
        details, path = access.details, path_of(access)
        described: dict[str, Json] = {
            "managed": "point" in details,
            "dfuse": dfuse_mount.version(),
            "caching": details["caching"],
            **libraries.interception_facts(text(details, "interception"), access.preloaded),
        }
        if trouble := own_mounts.mount_trouble(Path(path), servers=True):
            described["error"] = trouble
        else:
            described = provenance.filesystem_facts(path) | described
        if "tree" in details:
            servers = dfuse_mount.servers_of(text(details, "found"))
            described["mount_command"] = next(iter(servers.values()), [])
            return described
        described["mount_command"] = dfuse_mount.argv(details)
        place = Place.of(details)
        described["cache_attributes"] = value_or_error(lambda: dfuse_mount.of(place))
        return super().describe(access) | described

    def deployment(self, described: JsonObject) -> Deployment:
        """With what the mount keeps, and the library around it."""
        chosen = self._chosen
        caching = described.get("caching", FOUND if chosen.path else chosen.caching)
        if chosen.cache_attributes or described.get("cache_attributes"):
            caching = FOUND  # what they come to only dfuse knows
        kind = described.get("interception", chosen.interception)
        return daos_state.of_mount(super().deployment(described), str(caching), str(kind))

    def space(self, access: Access | None = None) -> Space:
        """Free bytes of the pool; of a found mount, what statfs says."""
        if not self._chosen.path:
            return super().space(access)
        path = Path(path_of(access) if access else self._chosen.path)
        if trouble := own_mounts.mount_trouble(path, servers=True):
            return Space(None, None, f"unknown: {trouble}")
        return provenance.space(path)


def _library(chosen: DaosDfuseOptions) -> str:
    """Path of the library that is put into programs; BackendError if it may not be."""
    if chosen.interception == libraries.NONE:
        return ""
    return libraries.find_interception(chosen.interception, chosen.interception_library)


def _preload(chosen: DaosDfuseOptions) -> dict[str, str]:
    return {"interception": chosen.interception, "preload": _library(chosen)}


def _found_refusal(path: Path) -> str:
    """Why a directory cannot be made in a path; a mount that hangs is not touched."""
    mount = dfuse_mount.found_at(path)
    if mount is None or not dfuse_mount.is_dfuse(mount):
        # a link may lead to one: what is no DFUSE answers
        return place_refusal(path) or f"{path} is {mount.fstype if mount else 'nothing'}, not DFUSE"
    trouble = own_mounts.mount_trouble(path, servers=True)
    if trouble:
        return trouble
    reason = place_refusal(path) or shared_refusal(path)
    return reason or (f"{mount.point} is mounted read-only" if mount.read_only else "")
