"""Levels of the factors of a cluster that exists, and the backends that have them.

Each has a pool of its own.  It is made on hosts that are drawn, after the user's consent, and
removed again; nothing that exists is changed.  Or the user names a prepared pool for each level;
then nothing is made.  The backend works in the level's pool as if the options had named it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from fsmatrix.backends.access import Access
from fsmatrix.backends.contract import Backend, ProvisionContext, choose_hosts
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import PREFIX
from fsmatrix.results.evidence.stored import Json, JsonObject, Level, inside, positive, text
from fsmatrix.results.evidence.target import Placement


@dataclass(frozen=True)
class ClusterLevels(ABC):
    """How a target's levels are made.  Subclasses: how one kind of cluster makes a pool."""

    entry: ClassVar[str]  # kind of a pool's journal entry; its `path` is the pool's name
    hosts: ClassVar[str] = "hosts"  # what is drawn, in messages

    options: Any  # storage_nodes, consent, pools, prepared(level); a subclass says its class

    # -- what a subclass says ------------------------------------------------------------
    @abstractmethod
    def _prepared_refusal(self, level: Level) -> str:
        """Why no prepared pool can be the level's (empty: one can)."""

    @abstractmethod
    def _making_refusal(self, level: Level) -> str:
        """Why no pool can be made for it (empty: one can)."""

    @abstractmethod
    def _agreed_to(self) -> str:
        """What consent is to: a sentence that begins after "for each level"."""

    @abstractmethod
    def _commands(self, level: Level, block_seed: str, name: str) -> list[str]:
        """What making and removing it would tell the cluster."""

    def _placement(self, pool: str) -> Placement:
        """Where a prepared pool lies, as far as that can be asked."""
        del pool
        return Placement()

    @abstractmethod
    def _make(self, level: Level, name: str, context: ProvisionContext) -> dict[str, Json]:
        """Make the pool, journalled first; its facts, with `placement` and what `remove` reads."""

    @classmethod
    @abstractmethod
    def remove(cls, facts: JsonObject) -> bool:
        """Remove what such facts, or a journal entry, tell of; False if there was nothing.

        BackendError, with nothing done, if it is not what was made.
        """

    # -- before anything is made ---------------------------------------------------------
    @final
    def refusal(self, level: Level) -> str:
        """Why this level cannot be (empty: it can)."""
        nodes = level.get("storage_nodes", 1)
        if positive(nodes) is None:
            return f"storage_nodes={nodes}: a level is a number of {self.hosts}, 1 or more"
        try:
            if self.options.pools:
                return self._prepared_refusal(level)
            return self._making_refusal(level)
        except BackendError as error:
            return str(error)

    @final
    def required_consent(self) -> str:
        """What the user must agree to before anything is made (empty: nothing, or agreed)."""
        if self.options.pools or self.options.consent:
            return ""
        return (
            f"for each level {self._agreed_to()}. `fsmatrix run --dry-run` prints every command; "
            "options.levels.consent: true agrees"
        )

    @final
    def commands(self, level: Level, block_seed: str) -> list[str]:
        """What making and removing it would tell the cluster, as one would type it."""
        return [] if self.options.pools else self._commands(level, block_seed, f"{PREFIX}dry-run")

    def _number(self, level: Level, there: Collection[object]) -> int:
        """How many of the hosts it takes."""
        given = positive(level.get("storage_nodes"))
        return given or self.options.storage_nodes or max(1, len(there))

    def _drawn(self, level: Level, names: Collection[str], block_seed: str) -> list[str]:
        """Which of them."""
        return choose_hosts(names, self._number(level, names), block_seed)

    # -- made and removed ----------------------------------------------------------------
    @final
    def make(self, level: Level, context: ProvisionContext) -> dict[str, Json]:
        """Make it, journalled; its facts: pool, made, placement...  BackendError if impossible."""
        if reason := self.refusal(level) or self.required_consent():
            raise BackendError(reason)
        prepared = self.options.prepared(level)
        if prepared is not None:
            lies = self._placement(prepared.pool)
            return {"pool": prepared.pool, "made": False, "placement": lies.document()}
        name = context.new_name()
        return {**self._make(level, name, context), "pool": name, "made": True}

    @final
    @classmethod
    def release(cls, made: JsonObject, context: ProvisionContext) -> None:
        """Remove a level that `make` made; a prepared pool stays."""
        if made["made"]:
            cls.remove(made)
            context.journal.end_all(cls.entry, path=made["pool"])


class ClusterBackend(Backend):
    """A backend on a cluster, with levels if the options say how they are made."""

    levels_type: ClassVar[type[ClusterLevels]]

    @property
    @abstractmethod
    def _levels(self) -> ClusterLevels | None:
        """As the options say; None: it makes none."""

    def _detach(self, access: Access, context: ProvisionContext) -> None:
        """Remove what was made for the attachment, but for its level."""
        del access, context

    def required_consent(self) -> str:
        """To what is made in the cluster."""
        return self._levels.required_consent() if self._levels else ""

    def commands(self, level: Level, block_seed: str) -> list[str]:
        """The commands of a cluster's administrator that make and remove the level's pool."""
        return self._levels.commands(level, block_seed) if self._levels else []

    def _at(
        self, level: Level, context: ProvisionContext, attach: Callable[[str], Access]
    ) -> Access:
        """`attach` in the pool of the level, which is made before; "": there are no levels.

        What was made is removed if that fails; what cannot be then stays in the journal.
        """
        levels = self._levels
        if levels is None:
            return attach("")
        made = levels.make(level, context)
        try:
            access = attach(text(made, "pool"))
        except BaseException:
            with suppress(BackendError):
                self.finish(context)
            raise
        return replace(access, details={**access.details, "level": made})

    @staticmethod
    def level_facts(access: Access) -> dict[str, Json]:
        """For `describe`: what was made for the level, hosts and placement among it."""
        return {"level": access.details["level"]} if "level" in access.details else {}

    def release(self, access: Access, context: ProvisionContext) -> None:
        """Remove what was made for the attachment, then its level."""
        self._detach(access, context)
        if "level" in access.details:
            self.levels_type.release(inside(access.details, "level"), context)

    def finish(self, context: ProvisionContext) -> None:
        """Remove what a failed provision or release of this process left."""
        context.journal.undo_own(self.levels_type.entry, context.target, self.levels_type.remove)
