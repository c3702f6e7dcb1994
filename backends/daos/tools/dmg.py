"""The `dmg` tool: what an administrator of a DAOS system may ask and make.

Its errors all have status -1025; the number of the control plane's fault is in the text only
("code = 606 description = ...").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fsmatrix.backends.daos.tools import tool
from fsmatrix.backends.daos.tools.answers import Member, Members, NewPool, Pool
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools

TOOL = "dmg"
MISSING = (
    f"no `{TOOL}` tool on PATH: making pools needs an administrator's (package daos-admin), or "
    "prepared pools (levels.pools)"
)
TAKEN = 609  # a pool of that label exists
# faults of the control plane -> what the user can do
FAULTS = {
    604: "the pool is too small: raise levels.size_per_node",
    606: "there is no such rank, or it has not joined",
    609: "a pool of that label exists",
}
# it asks no agent, and gives -1025 for whatever its text says
_MEANINGS = {status: told for status, told in tool.MEANINGS.items() if status != tool.MISC}
_FAULT = re.compile(r"\bcode = (\d+)")
T = TypeVar("T")


def fault_of(error: Exception) -> int:
    """Number of the control plane's fault in an error's text; 0: none."""
    match = _FAULT.search(str(error))
    return int(match[1]) if match else 0


@dataclass(frozen=True)
class Control:
    """Whose configuration dmg reads (empty: its own), and seconds for each call."""

    config: str = ""
    deadline: float = tool.DEADLINE

    def members(self) -> list[Member]:
        """All engines of the system."""
        return self._read(Members, "system", "query").members

    def pool(self, label: str) -> Pool | None:
        """A pool by label or UUID; None if there is none."""
        try:
            return self._read(Pool, "pool", "query", label)
        except tool.DaosError as error:
            if error.status == tool.NONEXIST or _unknown(error):
                return None
            raise

    def create(self, label: str, ranks: Sequence[int], size: int) -> NewPool:
        """Make a pool of `size` bytes in all on these ranks."""
        return self._read(NewPool, *creation(label, ranks, size))

    def destroy(self, pool: str) -> None:
        """Destroy a pool with all that is in it, and what holds it open."""
        self.ask(*destruction(pool))

    def ask(self, *words: str) -> Any:
        """The response to `dmg words...`; errors as of `tool.ask`."""
        return tool.ask(self._argv(words), self.deadline, _MEANINGS)

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        if tools.find(TOOL) is None:
            raise ToolError(tools.refusal(TOOL) or MISSING)
        config = [f"--config-path={self.config}"] if self.config else []
        return [TOOL, "--json", *config, *words]

    def _read(self, kind: type[T], *words: str) -> T:
        try:
            return tool.read(kind, self._argv(words), self.deadline, _MEANINGS)
        except tool.DaosError as error:
            if meaning := FAULTS.get(fault_of(error)):
                raise tool.DaosError(f"{error}: {meaning}", error.status) from error
            raise


def creation(label: str, ranks: Sequence[int], size: int) -> tuple[str, ...]:
    """Words of dmg that make a pool."""
    chosen = ",".join(map(str, ranks))
    return ("pool", "create", label, f"--ranks={chosen}", f"--size={size}B")


def destruction(pool: str) -> tuple[str, ...]:
    """Words of dmg that destroy a pool."""
    return ("pool", "destroy", pool, "--recursive", "--force")


def _unknown(error: tool.DaosError) -> bool:
    return "unable to find pool" in str(error)
