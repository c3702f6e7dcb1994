"""The LHCb analysis on RNTuple: its histogram, whether it is the same everywhere, and its rates.

Reads the column `lhcb` of a campaign (docs/results.md).  Rates are medians over attachments: of the
columns uncompressed, and of what was stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.factors import Key, several
from fsmatrix.analysis.data.load import Rows, rows
from fsmatrix.analysis.data.metric_cells import study
from fsmatrix.analysis.questions.curves import described
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import Level, brief
from fsmatrix.results.evidence.stored import Json, StoredError, read
from fsmatrix.results.evidence.workloads import HIGH, LOW, Analysed, Selection
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMN = "lhcb"
B_MASS = 5279.34  # MeV (PDG)
MOST_DRAWN = 4
# column -> what it is of a phase
MEASURES = {
    "bandwidth": "uncompressed, B/s",
    "stored_bandwidth": "stored, B/s",
    "compression_ratio": "uncompressed / stored",
    "initialisation": "initialisation, s",
}


@dataclass(frozen=True)
class Found:
    """One histogram: of which data and engine, and the runs in which it was found."""

    data: str
    engine: str
    selection: Selection
    runs: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Rates:
    """One combination of levels: medians over attachments, by column of MEASURES."""

    key: Key
    medians: Mapping[str, Median]


@dataclass(frozen=True)
class Lhcb:
    """The histograms that differ, each once, and the rates of all combinations."""

    found: tuple[Found, ...]  # the most frequent first, of each data
    rates: tuple[Rates, ...]

    @property
    def says(self) -> list[str]:
        """Whether there is one histogram; how engines differ; what compression saves."""
        sentences: list[str] = []
        for data in dict.fromkeys(group.data for group in self.found):
            of_data = [group for group in self.found if group.data == data]
            sentences += _agreement(data, of_data)
        return [*sentences, *self._compressed()]

    def _compressed(self) -> Iterator[str]:
        for rates in self.rates:
            ratio, bare = (rates.medians.get(n) for n in ("compression_ratio", "bandwidth"))
            stored = rates.medians.get("stored_bandwidth")
            if ratio and bare and stored:
                yield (
                    f"{described(rates.key) or 'all'}: {brief(bare.median / 1e6)} MB/s of columns, "
                    f"{brief(stored.median / 1e6)} MB/s stored (ratio {ratio.median:.2f})."
                )

    def table(self) -> pd.DataFrame:
        """One row per combination."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **dict(rates.key),
                    **{MEASURES[name]: m.median for name, m in rates.medians.items()},
                }
                for rates in self.rates
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """Histograms with their counts by bin, and rates."""
        data: dict[str, Json] = plain(
            {
                "range_mev": [LOW, HIGH],
                "found": [
                    {**plain(group), "selection": group.selection.document()}
                    for group in self.found
                ],
                "rates": [{"levels": dict(r.key), "medians": r.medians} for r in self.rates],
                "says": self.says,
            }
        )
        return data

    def figure(self) -> Figure:
        """The histograms of the mass, one panel each."""
        from fsmatrix.analysis.draw import drawing

        shown = self.found[:MOST_DRAWN]
        more = len(self.found) - len(shown)
        notes = ["Events that pass the cuts; the line is the mass of the B, 5279.34 MeV (PDG)."]
        figure, axes = drawing.frame(
            len(shown),
            1,
            title="Mass of three kaons",
            notes=[*notes, *([f"{more} more histograms are in the data."] if more else [])],
            width=6.5,
            height=2.8,
        )
        for index, (group, (ax,)) in enumerate(zip(shown, axes, strict=True)):
            counts = np.array(group.selection.counts)
            edges = np.linspace(LOW, HIGH, counts.size + 1)
            ax.stairs(counts, edges, fill=True, color=drawing.colour(index))
            ax.axvline(B_MASS, color="0.4", linewidth=0.8, linestyle=":")
            ax.set_xlim(LOW, HIGH)
            ax.set_xlabel("mass under the kaon hypothesis, MeV", fontsize=8)
            ax.set_ylabel(f"events / {(HIGH - LOW) / counts.size:.2g} MeV", fontsize=8)
            ax.set_title(f"{group.engine}, {group.data}: {plural(group.runs, 'run')}", fontsize=8)
        return figure


def _agreement(data: str, of_data: Sequence[Found]) -> Iterator[str]:
    first = of_data[0]
    cuts, runs = first.selection, sum(group.runs for group in of_data)
    share = cuts.no_pions / cuts.events if cuts.events else float("nan")
    engines = list(dict.fromkeys(group.engine for group in of_data))
    passed = f"{cuts.no_pions} of {cuts.events} events pass the cuts ({share:.2%})"
    if all(group.selection == first.selection for group in of_data):
        targets = dict.fromkeys(name for group in of_data for name in group.targets)
        yield (
            f"{data}: {passed}; the histogram is the same in all {plural(runs, 'run')} "
            f"({' and '.join(engines)} on {', '.join(targets)})."
        )
        return
    yield f"{data}: {passed} in {first.runs} of {plural(runs, 'run')}; others differ."
    for other in of_data[1:]:
        differing = first.selection.differing(other.selection)
        if differing:
            yield (
                f"{data}: {other.engine} finds at least {plural(differing, 'event')} elsewhere in "
                f"{plural(other.runs, 'run')} (on {', '.join(other.targets)}) than {first.engine}."
            )


def lhcb(ds: xr.Dataset, where: Mapping[str, Level] | None = None) -> Lhcb:
    """The analysis of a campaign's last attempts; ValueError if no run has it."""
    data = rows(ds)
    analysed = [_read(text) for text in data[COLUMN]] if COLUMN in data.columns else []
    if not any(analysed):
        raise ValueError("no run of the workload rntuple in this campaign")
    stored = np.array([run.stored if run else np.nan for run in analysed], np.float64)
    whole = np.array([run.uncompressed if run else np.nan for run in analysed], np.float64)
    ratio = np.divide(whole, stored, out=np.full(whole.size, np.nan), where=stored > 0)
    own = {
        "bandwidth": np.where(np.isfinite(whole), data["bandwidth"], np.nan),
        "stored_bandwidth": data["bandwidth"] / ratio,
        "compression_ratio": ratio,
        "initialisation": np.array([run.initialisation if run else np.nan for run in analysed]),
    }
    with_own = ds.assign({name: (ds["bandwidth"].dims, values) for name, values in own.items()})
    medians: dict[Key, dict[str, Median]] = {}
    for name in MEASURES:
        cells = study(with_own, name, where).valued
        names = several([cell.cell.levels for cell in cells])
        for cell in cells:
            key = tuple((factor, cell.cell.levels[factor]) for factor in names)
            medians.setdefault(key, {})[name] = cell.median
    rates = tuple(Rates(key, of_key) for key, of_key in medians.items())
    return Lhcb(_found(data, analysed), rates)


def _read(text: str) -> Analysed | None:
    try:
        return read(Analysed, json.loads(text), COLUMN) if text else None
    except (ValueError, StoredError, RecursionError):
        return None


def _found(data: Rows, analysed: Sequence[Analysed | None]) -> tuple[Found, ...]:
    """Each different histogram of what was read, with its runs."""
    kept = (data["phase"] == "read") & ~data.failed & data.current
    targets = data.factor("target")
    groups: dict[tuple[str, str, str], list[int]] = {}
    for row in np.flatnonzero(kept).tolist():
        if (seen := analysed[row]) is not None:
            text = json.dumps(seen.found.document())
            name = f"{seen.data}, {seen.found.events} events"
            groups.setdefault((name, str(data["engine"][row]), text), []).append(row)
    histograms = []
    for (name, engine, text), members in groups.items():
        on = tuple(dict.fromkeys(str(targets[row]) for row in members))
        selection = read(Selection, json.loads(text), COLUMN)
        histograms.append(Found(name, engine, selection, len(members), on))
    return tuple(sorted(histograms, key=lambda group: (group.data, -group.runs)))
