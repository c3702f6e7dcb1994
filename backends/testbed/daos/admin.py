"""What dmg, the administrator's tool, is asked on a bed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsmatrix.backends.daos import tool
from fsmatrix.backends.errors import BackendError

DEADLINE = 120.0  # seconds for each call; engines that poll on the same cores make it slow


@dataclass(frozen=True)
class Admin:
    """dmg with the configuration file of a bed."""

    conf: Path

    def ask(self, *words: str, deadline: float = DEADLINE) -> Any:
        """The response to `dmg words...`; ToolError as `tool.ask`."""
        return tool.ask(["dmg", "--json", f"--config-path={self.conf}", *words], deadline)

    def format(self, address: str) -> None:
        """Format the storage of the server at an address; BackendError if it cannot."""
        response = self.ask("storage", "format", f"--host-list={address}")
        failed = (response or {}).get("host_errors") or {}
        if failed:
            raise BackendError(f"the storage of {address} cannot be formatted: {failed}")

    def members(self, deadline: float = DEADLINE) -> dict[int, dict[str, Any]]:
        """Rank -> what is known of it: `state` ("joined"...), `addr`, `fault_domain`..."""
        response = self.ask("system", "query", deadline=deadline) or {}
        return {int(member["rank"]): member for member in response.get("members") or ()}

    def make_pool(self, label: str, size: int) -> dict[str, Any]:
        """A pool with that many bytes of memory on each rank; what dmg says of it."""
        made = self.ask("pool", "create", f"--scm-size={size}B", "--nvme-size=0", label)
        if not isinstance(made, dict):
            raise BackendError(f"pool {label}: dmg says nothing of what it made: {made!r}")
        return made
