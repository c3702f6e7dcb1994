"""What a user asks for beside the campaign itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """What the user asked for beside the campaign itself."""

    sets: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)  # k of n
    seed: int | None = None  # wins over the campaign's; a resumed campaign gives the stored one
    blocks: range | None = None  # only these blocks
    targets: tuple[str, ...] = ()  # those that take part since the campaign began
    left_out: tuple[tuple[str, str], ...] = ()  # (target, reason) of those that do not
    skip_unusable: bool = False  # leave out targets that this machine cannot have

    @property
    def is_whole(self) -> bool:
        """Whether this is the campaign and not a part of it."""
        return self.only == () and self.shard == (1, 1) and self.blocks is None
