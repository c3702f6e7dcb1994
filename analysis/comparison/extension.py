"""What would decide a campaign's open cells: more blocks, and the command that adds them."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.columns import coded, combined
from fsmatrix.analysis.data.load import campaign_json, campaigns_json
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.testing import signflips, tests
from fsmatrix.analysis.stats.words import IMPORTED
from fsmatrix.results.evidence.stored import Json, JsonObject
from fsmatrix.results.files.store import MARKER
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    pass


MOST = 10_000  # repetitions that a campaign may have
FOLD = 4  # more blocks than so many times those that are there are no advice
MOST_NAMED = 2  # things that are named as likely to be proven; more are counted
ORDINAL = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True)
class Record:
    """What a campaign's record says of its blocks.

    `looks`: numbers of blocks that were planned in turn, so far as a verdict was possible;
    none without a record.  `store`: its results directory as it was named, "" if not known.
    """

    looks: tuple[int, ...] = ()
    planned: int = 0  # repetitions
    block: int = 1  # repetitions that share one attachment
    store: str = ""
    queued: bool = False  # by `fsmatrix submit`
    imported: bool = False  # no blocks can be added to what others have run
    there: int = 0  # blocks in which every target has a run, whether it counts or not

    def level(self, alpha: float) -> float:
        """The share of alpha that is tested at in this look."""
        return signflips.look_level(alpha, len(self.looks))

    def next_level(self, alpha: float) -> float:
        """The share of alpha after blocks were added."""
        return signflips.look_level(alpha, len(self.looks) + 1) if self.looks else alpha

    def resume(self, place: str, repetitions: int | None = None) -> str:
        """The command that goes on with it, to so many repetitions; `place`: quoted for a shell."""
        verb = "submit" if self.queued else "run"
        command = f"fsmatrix {verb} -o {place} --resume"
        return command if repetitions is None else f"{command} --set repetitions={repetitions}"

    def says(self, alpha: float) -> str:
        """How sure a verdict must be in this look, and why; "" without a record."""
        if not self.looks:
            return ""
        number = len(self.looks)
        which = ORDINAL[number - 1] if number <= len(ORDINAL) else f"{number}th"
        before = " and ".join(map(str, self.looks[:-1]))
        after = f", after {before} blocks" if before else ""
        stays = "; verdicts of earlier looks stand" if before else ""
        return (
            f"This is the {which} look at this campaign{after}: it is tested at "
            f"{100 * self.level(alpha):.2g} %, so that blocks may be added and all looks together "
            f"err with a probability of at most {100 * alpha:.3g} %{stays}."
        )


def recorded(plan: JsonObject, source: object = None) -> Record:
    """Of what a campaign says of itself (`load.campaign_json`); `source`: its file, if known."""
    planned = _count(plan.get("repetitions"))
    history = plan.get("looks")
    turns = [_count(n) for n in history] if isinstance(history, list) else [planned]
    block = _count(plan.get("block")) or 1
    store = Path(source).parent if isinstance(source, str) and source else None
    there = store is not None and (store / MARKER).is_file()
    return Record(
        looks=signflips.spending_looks([math.ceil(n / block) for n in turns]),
        planned=planned,
        block=block,
        store=str(store) if there else "",
        queued=there and store is not None and (store / "slurm").is_dir(),
        imported=plan.get("imported") is True,
    )


def record_of(ds: xr.Dataset) -> Record:
    """Of one campaign; of several that which was looked at most often, and no store.

    Imported if one of them is: more blocks of the others prove nothing of it.
    """
    several = campaigns_json(ds)
    if several:
        every = [recorded(plan) for plan in several]
        most = max(every, key=lambda record: len(record.looks))
        return replace(most, imported=any(record.imported for record in every))
    return replace(recorded(campaign_json(ds), ds.encoding.get("source")), there=_blocks(ds))


def _blocks(ds: xr.Dataset) -> int:
    target, block = (coded(ds[name].values)[1] for name in ("target", "block"))
    pairs = combined([target, block], target.size)[0]
    return int(np.bincount(target[pairs]).min()) if pairs.size else 0


def _count(value: object) -> int:
    """A number of repetitions; 0 for what is none."""
    return value if isinstance(value, int) and 0 < value <= MOST else 0


@dataclass(frozen=True)
class Extension:
    """How many blocks would decide cells that are not decided yet.

    `have`: blocks of the open cell that has the most; `needed`: for each open cell with a lead
    that is likely, how many in all are likely to prove it (`repetitions.CHANCE`); `cells`: all
    that are open; `fewest_blocks`: with fewer nothing is decided in the next look; `too_few`: nor
    was in this one.
    """

    record: Record
    have: int
    needed: tuple[int, ...]
    cells: int
    fewest_blocks: int
    too_few: bool = False
    named: tuple[str, ...] = ()  # of each in `needed`, what it proves: "xfs over ext4 for writes"

    @property
    def unfinished(self) -> bool:
        """Whether blocks that are planned are not there."""
        planned = self.record.planned // self.record.block
        return bool(self.cells) and max(self.have, self.record.there) < planned

    @property
    def target(self) -> int:
        """Blocks in all that are worth it; 0: there is no such number.

        `reach`, if it at most doubles what is there, or is likely to prove half of what is open.
        """
        little = self.reach <= 2 * self.have
        worth = self.too_few or little or 2 * self.proven >= self.cells
        return self.reach if worth else 0

    @property
    def proven(self) -> int:
        """Open cells that `reach` blocks are likely to prove."""
        return sum(n <= self.reach for n in self.needed)

    @property
    def reach(self) -> int:
        """Blocks in all that are likely to prove something; 0: there is no such number.

        The fewest that prove anything; then what half of the cells take that FOLD times as many
        would be likely to prove.
        """
        if not self.cells or self.record.imported:
            return 0
        if self.too_few:
            return self.fewest_blocks
        near = [n for n in self.needed if n <= FOLD * self.have]
        half = float(np.quantile(near, 0.5, method="lower")) if near else 0
        return max(math.ceil(half), self.fewest_blocks, self.have + 1) if near else 0

    @property
    def repetitions(self) -> int:
        """Of the campaign, for so many blocks that count; 0 without a target."""
        lost = max(self.record.there - self.have, 0)
        return (self.target + lost) * self.record.block if self.target else 0

    def resume(self, place: str) -> str:
        """The command that adds them; `place`: quoted for a shell.  "" if there is none."""
        repetitions = self.repetitions
        if not self.record.planned or not 0 < repetitions <= MOST:
            return ""
        more = repetitions > self.record.planned and not self.unfinished
        return self.record.resume(place, repetitions if more else None)

    @property
    def command(self) -> str:
        """The same; "" where the results directory is not known."""
        return self.resume(shlex.quote(self.record.store)) if self.record.store else ""

    @property
    def advice(self) -> str:
        """What to do, without a full stop; "" where nothing is open; of an import why nothing."""
        if not self.cells:
            return ""
        if self.record.imported:
            return IMPORTED
        if self.unfinished:
            return "Finish the campaign first"
        cells = plural(self.cells, "open comparison")
        if not self.target and self.reach:
            return (
                f"More blocks are hardly worth it: {self.reach} in all would be likely to prove "
                f"{self.proven} of the {cells}{self._proves}"
            )
        if not self.target:
            return (
                f"More blocks are not worth it: {FOLD * self.have} would not be likely to prove "
                f"{'the' if self.cells == 1 else 'any of the'} {cells.removeprefix('1 ')}"
            )
        start = f"Add {plural(self.target - self.have, 'block')} ({self.target} in all), "
        if self.too_few:
            return f"{start}the fewest that can prove anything"
        what = "the open comparison" if self.cells == 1 else f"{self.proven} of the {cells}"
        what += self._proves
        far = self.cells - sum(n <= FOLD * self.have for n in self.needed)
        rest = f"; {far} would take more than {FOLD * self.have}" if far else ""
        return f"{start}likely to prove {what}{rest}"

    @property
    def _proves(self) -> str:
        """What the advised blocks are likely to prove, in brackets; "" if nothing is named."""
        near = [name for n, name in zip(self.needed, self.named, strict=False) if n <= self.reach]
        counts = Counter(near).most_common(MOST_NAMED)
        shown = "; ".join(f"{n} cells of " * (n > 1) + name for name, n in counts)
        more = len(set(near)) - len(counts)
        return f" ({shown}{f'; and {more} more' if more else ''})" if shown else ""

    @property
    def says(self) -> str:
        """The advice with its command; "" where nothing is open."""
        how = self.command if self.target else ""
        return f"{self.advice}{f': {how}' if how else '.'}" if self.advice else ""

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        data: dict[str, Json] = plain(
            {
                "have": self.have,
                "blocks": self.target,
                "command": self.command,
                "says": self.says,
                "undecided": self.cells,
            }
        )
        return data


def extension(
    record: Record,
    have: Sequence[int],
    needed: Sequence[int | None],
    alpha: float,
    family: int,
    names: Sequence[str] = (),
) -> Extension:
    """The advice for cells that are not decided.

    `have`, `needed`: blocks of each cell that are there, and in all; None: not known, or too many.
    `family`: tests among which Holm shares alpha.  `names`: who would be proven where, of each.
    """
    now, fewest = (
        max(SMALLEST, tests.fewest(family, level))
        for level in (record.level(alpha), record.next_level(alpha))
    )
    counts = tuple(max(n, fewest) for n in needed if n)
    most = max(have, default=0)
    named = tuple(name for n, name in zip(needed, names, strict=False) if n)
    return Extension(record, most, counts, len(have), fewest, most < now, named)
