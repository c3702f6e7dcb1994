"""What would decide a campaign's open cells: more blocks, and the command that adds them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.columns import coded
from fsmatrix.analysis.data.load import campaign_json, campaigns_json
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.testing import looks, tests
from fsmatrix.results.evidence.values import Json, JsonObject
from fsmatrix.results.files.store import MARKER
from fsmatrix.results.units import plural

MOST = 10_000  # repetitions that a campaign may have
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
        return looks.level(alpha, len(self.looks))

    def next_level(self, alpha: float) -> float:
        """The share of alpha after blocks were added."""
        return looks.level(alpha, len(self.looks) + 1) if self.looks else alpha

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
        looks=looks.spending([math.ceil(n / block) for n in turns]),
        planned=planned,
        block=block,
        store=str(store) if there else "",
        queued=there and store is not None and (store / "slurm").is_dir(),
        imported=plan.get("imported") is True,
    )


def record_of(ds: xr.Dataset) -> Record:
    """Of one campaign; of several that which was looked at most often, and no store."""
    several = campaigns_json(ds)
    if several:
        every = [recorded(plan) for plan in several]
        return max(every, key=lambda record: len(record.looks))
    return replace(recorded(campaign_json(ds), ds.encoding.get("source")), there=_blocks(ds))


def _blocks(ds: xr.Dataset) -> int:
    pairs = np.unique(np.stack([coded(ds[name].values)[1] for name in ("target", "block")]), axis=1)
    return int(np.bincount(pairs[0]).min()) if pairs.size else 0


def _count(value: object) -> int:
    """A number of repetitions; 0 for what is none."""
    return value if isinstance(value, int) and 0 < value <= MOST else 0


@dataclass(frozen=True)
class Extension:
    """How many blocks would decide cells that are not decided yet.

    `have`: blocks of the cell that has the fewest; `needed`: for each cell that more blocks
    would decide, how many in all, as far as ratio and spread stay as they are; `cells`: all
    that are not decided; `fewest_blocks`: with fewer nothing is decided.
    """

    record: Record
    have: int
    needed: tuple[int, ...]
    cells: int
    fewest_blocks: int

    @property
    def target(self) -> int:
        """Blocks in all that may decide half of the cells; 0: there is no such number."""
        if not self.needed or self.record.imported:
            return 0
        half = float(np.quantile(self.needed, 0.5, method="lower"))
        return max(math.ceil(half), self.fewest_blocks, self.have + 1)

    @property
    def repetitions(self) -> int:
        """Of the campaign, for so many blocks that count; 0 without a target."""
        lost = max(self.record.there - self.have, 0)
        return (self.target + lost) * self.record.block if self.target else 0

    @property
    def command(self) -> str:
        """What adds them; "" where the results directory is not known."""
        repetitions = self.repetitions
        if not self.record.store or not 0 < repetitions <= MOST:
            return ""
        return self.record.resume(
            shlex.quote(self.record.store),
            repetitions if repetitions > self.record.planned else None,
        )

    @property
    def says(self) -> str:
        """The advice in a sentence or two; "" where no number of blocks is known to help."""
        if not self.target:
            return ""
        repetitions = self.repetitions
        how = self.command or (
            f"resume the campaign with --set repetitions={repetitions}"
            if self.record.planned
            else f"{self.target} blocks of each in all"
        )
        enough = sum(n <= self.target for n in self.needed)
        what = f"may decide {enough} of the {plural(self.cells, 'cell')} that are not proven yet"
        if self.cells == 1:
            what = "may decide the cell that is not proven yet"
        rest = [n for n in self.needed if n > self.target]
        more = f"; all of them would take {max(rest)} in all" if rest else ""
        more = more if len(self.needed) == self.cells else more.replace("all of them", "others")
        return f"Add {plural(self.target - self.have, 'block')}: {how} ({what}{more})."

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
    record: Record, have: Sequence[int], needed: Sequence[int | None], alpha: float, family: int
) -> Extension:
    """The advice for cells that are not decided.

    `have`, `needed`: blocks of each cell that are there, and in all; None: not known, or too many.
    `family`: tests among which Holm shares alpha.
    """
    fewest = max(SMALLEST, tests.fewest(family, record.next_level(alpha)))
    counts = tuple(max(n, fewest) for n in needed if n)
    return Extension(record, min(have, default=0), counts, len(have), fewest)
