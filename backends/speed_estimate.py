"""What planning guesses of a storage system's speed, until its first runs have been measured.

The guesses are of one machine with 2 CPUs (docs/campaign.md names the command); a plan that is
right within a factor of two is all that they are for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpeedEstimate:
    """Seconds, and rates of all clients together."""

    attach: float = 1.5  # provide, mount, unmount and release it once
    run: float = 0.25  # of a run beside its work: directories, caches, settling, removal
    bandwidth: float = 300e6  # bytes/s
    files: float = 2_000.0  # files/s
