"""A bounded wait until a pool has done what earlier runs left it to do.

Quiet: no rebuild, and free space that grows no more.  The space of what was removed or overwritten
comes back when the engines aggregate, half a minute late: where less than half of what was
free at attachment is left, the next run may need it, and the wait is so long.  What an attachment
leaves comes back in the next one: before anything is attached the wait is for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fsmatrix.backends.base import Settled
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.state import facts, health
from fsmatrix.backends.daos.tools.answers import Pool
from fsmatrix.backends.daos.tools.client import Client
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import JsonObject

PAUSE = 0.5  # seconds between two looks
LATE = 40.0  # seconds without growth after which no more space is expected: 35 were seen
LONGEST = 120.0  # seconds before an attachment, however it grows
SCARCE = 0.5  # share of what was free at attachment
_most: dict[str, int] = {}  # UUID of a pool -> bytes free in it, the most that this process saw


def returned(client: Client, label: str, progress: Callable[[str], None]) -> Pool:
    """A pool, once the space of what this process destroyed in it has come back, or no more does.

    BackendError as of `Client.pool_query`.
    """
    pool, began = client.pool_query(label), time.monotonic()
    free, grown = facts.free(pool).bytes, began
    most = _most[pool.uuid] = max(_most.get(pool.uuid, 0), free or 0)
    if is_scarce(free, most):
        progress(
            f"pool {label}: waiting for space that comes back, {free} of {most} bytes are free"
        )
    while is_scarce(free, most) and (now := time.monotonic()) - began < LONGEST:
        if now - grown >= LATE:
            break
        time.sleep(PAUSE)
        pool, before = client.pool_query(label), free
        free = facts.free(pool).bytes
        if before is not None and free is not None and free > before:
            grown = time.monotonic()
    return pool


def settle(details: JsonObject, timeout: float) -> Settled:
    """Wait at most about `timeout` seconds, and for one answer of the tool."""
    place, began = Place.of(details), time.monotonic()
    at_attachment = facts.AtAttachment.of(details).free
    least, grown = None, began  # free space that was seen last, and when it had grown
    while True:
        try:
            pool = place.client.pool_query(place.pool)
        except BackendError as error:
            return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
        now, free = time.monotonic(), facts.free(pool).bytes
        growing = least is not None and free is not None and free > least
        grown = now if growing else grown
        scarce = is_scarce(free, at_attachment)
        rebuilding = health.rebuilding(pool)
        quiet = not rebuilding and not growing and now - grown >= (LATE if scarce else 0.0)
        state: JsonObject = {
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
