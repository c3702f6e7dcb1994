"""A bounded wait until a pool has done what earlier runs left it to do.

Quiet: no rebuild, and free space that grows no more.  The space of what was removed or overwritten
comes back when the engines aggregate, half a minute late: where less than half of what was
free at attachment is left, the next run may need it, and the wait is so long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fsmatrix.backends.base import Settled
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.state import facts, health
from fsmatrix.backends.errors import BackendError

PAUSE = 0.5  # seconds between two looks
LATE = 40.0  # seconds without growth after which no more space is expected: 35 were seen
SCARCE = 0.5  # share of what was free at attachment


def settle(details: Mapping[str, Any], timeout: float) -> Settled:
    """Wait at most about `timeout` seconds, and for one answer of the tool."""
    place, began = Place.of(details), time.monotonic()
    least, grown = None, began  # free space that was seen last, and when it had grown
    while True:
        try:
            pool = place.client.pool_query(place.pool)
        except BackendError as error:
            return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
        now, free = time.monotonic(), facts.free(pool).bytes
        growing = least is not None and free is not None and free > least
        grown = now if growing else grown
        scarce = is_scarce(free, details["free"])
        rebuilding = health.rebuilding(pool)
        quiet = not rebuilding and not growing and now - grown >= (LATE if scarce else 0.0)
        state = {
            "rebuild": pool.rebuild.state if pool.rebuild else "not known",
            "free": {tier.media_type: tier.free for tier in pool.tiers},
            "free_grows": growing,
            "space_is_scarce": scarce,
        }
        # two looks tell whether it grows
        if (quiet and least is not None) or now - began + PAUSE >= timeout:
            return Settled(quiet, now - began, state)
        least = free
        time.sleep(PAUSE)


def is_scarce(free: int | None, at_attachment: int | None) -> bool:
    """Whether what is free now may be too little for a run; False where it is not told."""
    return free is not None and at_attachment is not None and free < SCARCE * at_attachment
