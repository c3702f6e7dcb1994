"""What the CERN report says of its numbers, held against these numbers (results/published).

Arithmetic on what is printed: nothing here says how much of a difference is noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from fsmatrix.analysis.data.load import PUBLISHED, open_campaign
from fsmatrix.analysis.data.publications import published_table
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.studies.claims import files as claims_files
from fsmatrix.analysis.studies.claims import words
from fsmatrix.analysis.studies.claims.claims import claims

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["agrees", "contradicted", "not in its numbers"]
TABLE = "cern-lhcb-rntuple"
STILL = "second-trial-"  # the claims that Cascade Lake still wins, one for each table
RNTUPLE = ["operation", "compression", "page_size_bytes", "object_class"]
LARGE = 4_194_304  # bytes
ALMOST = 0.9  # share of cells that "almost always" needs, at least: ours
MINIMAL = 0.1  # difference that is still "minimal": ours


@dataclass(frozen=True)
class Statement:
    """A statement of the report, whether its numbers bear it out, and how that is seen."""

    id: str
    place: str
    text: str
    kind: Kind
    shown: str


@dataclass(frozen=True)
class Report:
    """All statements."""

    statements: tuple[Statement, ...]

    def of(self, kind: Kind) -> tuple[Statement, ...]:
        """Those of one kind."""
        return tuple(s for s in self.statements if s.kind == kind)

    @property
    def says(self) -> list[str]:
        """How many, then each."""
        n = Counter[str](s.kind for s in self.statements)
        first = (
            f"{len(self.statements)} statements of the report: its own numbers bear out "
            f"{n['agrees']} and contradict {n['contradicted']}; of {n['not in its numbers']} it "
            "prints no numbers. One value per cell: noise is not known."
        )
        order: tuple[Kind, ...] = ("contradicted", "agrees", "not in its numbers")
        return [
            first,
            *(f"{s.kind} ({s.place}): {s.text}. {s.shown}." for k in order for s in self.of(k)),
        ]

    def table(self) -> pd.DataFrame:
        """One row per statement."""
        return pd.DataFrame([vars(s) for s in self.statements])

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        data: dict[str, Any] = plain({"statements": self.statements, "says": self.says})
        return data

    def figure(self) -> Figure:
        """Ratio of the two installations in both trials: what most statements are about."""
        from fsmatrix.analysis.draw import drawing

        wide = ratios()
        figure, axes = drawing.frame(
            1,
            4,
            title="RNTuple: Cascade Lake over Ice Lake, cell by cell",
            width=2.4,
            notes=[
                "Above 1: Cascade Lake has more bandwidth. One value per cell: no interval. "
                "The report suspects another user's load in trial 1."
            ],
        )
        groups = [(o, c) for o in ("write", "read") for c in ("none", "zstd")]
        for ax, (operation, compression) in zip(axes[0], groups, strict=True):
            part = wide.xs((operation, compression), level=("operation", "compression"))
            for i, (trial, kind) in enumerate(
                [(t, k) for t in (1, 2) for k in ("OC_SX", "RP_XSF")]
            ):
                y = part.xs(kind, level="object_class")[trial]
                ax.plot(
                    range(len(y)),
                    y,
                    marker=drawing.MARKERS[i],
                    color=drawing.colour(i),
                    markerfacecolor="white",
                    label=f"{kind}, trial {trial}",
                )
            ax.axhline(1.0, color="black", linewidth=0.8)
            ax.set_yscale("log")
            ax.set_yticks([0.8, 1, 1.25, 1.6, 2, 2.5], ["0.8", "1", "1.25", "1.6", "2", "2.5"])
            ax.set_yticks([], minor=True)
            ax.set_ylim(0.74, 2.6)
            ax.set_xticks(range(4), ["64 KiB", "512 KiB", "1 MiB", "4 MiB"], rotation=45)
            ax.set_title(f"{operation}, {compression}", fontsize=8)
        axes[0][0].set_ylabel("ratio of bandwidths", fontsize=8)
        drawing.legend(figure, axes)
        return figure


def ratios() -> pd.DataFrame:
    """Cascade Lake over Ice Lake; columns: the trial of Ice Lake (1, 2)."""
    frame = published_table(TABLE).set_index(RNTUPLE)
    value = frame["bandwidth_gb_per_s"]
    cascade = value[frame["cluster"] == "cascade-lake"]
    ice = frame["cluster"] == "ice-lake"
    found = {t: cascade / value[ice & (frame["trial"] == t)] for t in (1, 2)}
    return pd.DataFrame(found).sort_index()


def report() -> Report:
    """Every statement of the report that its own numbers can confirm or contradict."""
    return Report((*_rntuple(), *_still_wins(), *_second_trial(), *_ior(), *_fio()))


def _is(good: bool) -> Kind:
    return "agrees" if good else "contradicted"


def _rntuple() -> list[Statement]:
    one = ratios()[1]
    plain_writes = one.loc["write", "none"]
    wins = int((plain_writes > 1).sum())
    large = plain_writes.loc[LARGE]
    rest = one.drop(index=("write", "none"))
    frame = published_table(TABLE)
    rows = frame[
        (frame["operation"] == "write") & (frame["compression"] == "none") & (frame["trial"] == 1)
    ]
    values = rows["bandwidth_gb_per_s"]
    small = {k: float(v) for k, v in plain_writes.loc[65536].items()}
    exception = ", ".join("/".join(map(str, key)) for key in rest[rest < 1].index)
    return [
        Statement(
            "6-of-8",
            "section 5",
            "uncompressed writes: Cascade Lake wins 6 times out of 8",
            _is(wins == 6),
            f"tables 3(a) and 4(a): {wins} of {plain_writes.size}",
        ),
        Statement(
            "ice-wins-4m",
            "section 5",
            "page size 4194304: Ice Lake wins with both object classes",
            _is(bool((large < 1).all())),
            f"tables 3(a) and 4(a): Cascade Lake over Ice Lake is {_list(large)}",
        ),
        Statement(
            "6-of-8-and-both-at-4m",
            "section 5",
            "6 of 8 for Cascade Lake, and Ice Lake with OC_SX at 65536 and both at 4194304",
            _is(plain_writes.size - 3 >= 6),
            "in its own text: three cells of 8 for Ice Lake leave 5 for Cascade Lake",
        ),
        Statement(
            "65536",
            "section 5",
            "page size 65536: Ice Lake wins with OC_SX, loses slightly with RP_XSF",
            _is(small["OC_SX"] < 1 < small["RP_XSF"] < 1 + MINIMAL),
            f"Cascade Lake over Ice Lake is {_list(plain_writes.loc[65536])}",
        ),
        Statement(
            "2-to-3.3",
            "section 5",
            "uncompressed writes lie between 2 and 3.3 GB/s",
            _is(values.min() >= 2 and values.max() <= 3.3),
            f"{values.min():.2f} to {values.max():.2f} GB/s",
        ),
        Statement(
            "almost-always",
            "section 5",
            "in the rest of the tables Cascade Lake almost always wins",
            _is(float((rest > 1).mean()) >= ALMOST),
            f"{int((rest > 1).sum())} of {rest.size}; not {exception}",
        ),
    ]


def _still_wins() -> list[Statement]:
    """ "Still outperforms" is a word about four tables: each is a claim of `fsmatrix claims`."""
    file = claims_files.load("cern")
    four = tuple(claim for claim in file.claims if claim.id.startswith(STILL))
    judged = claims(open_campaign(f"{PUBLISHED}{TABLE}"), file.model_copy(update={"claims": four}))
    return [
        Statement(
            one.claim.id,
            one.claim.place,
            one.claim.says,
            _is(bool(one.apparent)),
            f"{words.bare(one).rstrip('.')}: `fsmatrix claims cern {PUBLISHED}{TABLE} "
            f"--claim {one.claim.id}`",
        )
        for one in judged.judged
    ]


def _second_trial() -> list[Statement]:
    both = ratios()
    frame = published_table(TABLE)
    ice = frame[frame["cluster"] == "ice-lake"].set_index([*RNTUPLE, "trial"])
    change = ice["bandwidth_gb_per_s"].unstack("trial").sort_index()
    gain = change[2] / change[1]
    worse = gain[gain < 1]
    far = [float(np.median(np.abs(np.log(both[t])))) for t in (1, 2)]
    lower = gain.groupby(level="operation").median()
    cascade = frame[(frame["cluster"] == "cascade-lake") & (frame["operation"] == "read")]
    return [
        Statement(
            "smaller-difference",
            "section 5",
            "in trial 2 the difference is much smaller",
            _is(far[1] < far[0] / 2),
            f"median difference {np.expm1(far[0]):.0%} in trial 1, "
            f"{np.expm1(far[1]):.0%} in trial 2",
        ),
        Statement(
            "better-results",
            "section 5",
            "trial 2 yielded better results",
            _is(worse.empty),
            f"{worse.size} of {gain.size} cells are worse: "
            + ", ".join(f"{'/'.join(map(str, k))} {v:.2f} times" for k, v in worse.items()),
        ),
        Statement(
            "reads-deteriorated-table-3",
            "section 5",
            "that reads deteriorated on Ice Lake is evident by tables 3(c) and 3(d)",
            "contradicted",
            f"table 3 is Cascade Lake's ({len(cascade)} of its cells are reads); the "
            f"reads that trial 2 raised (median {lower['read']:.2f} times, writes "
            f"{lower['write']:.2f}) stand in tables 4(c) and 4(d)",
        ),
        Statement(
            "load-on-the-pool",
            "section 5",
            "another user's load may have stressed the whole system in trial 1",
            "not in its numbers",
            "the load was not measured; "
            "uncompressed reads in trial 2 over trial 1 by object class: "
            + "; ".join(
                f"{c} {_list(gain.loc['read', 'none'].xs(c, level='object_class'))}"
                for c in ("OC_SX", "RP_XSF")
            )
            + ": not all cells were slowed alike",
        ),
    ]


def _ior() -> list[Statement]:
    peaks = published_table("cern-ior-dfs-peaks").set_index(["operation", "cluster"])
    mb = peaks["bandwidth_mb_per_s"].unstack("cluster")
    share = mb["cascade-lake"] / mb["ice-lake"] - 1
    gap = mb["cascade-lake"] - mb["ice-lake"]
    tasks = list(range(1, 25, 4))
    clients = sorted(set(peaks["clients"]))
    return [
        Statement(
            "ior-cascade-wins",
            "section 2.2.3",
            "with the revised command Cascade Lake has the higher peaks",
            _is(bool((share > 0).all())),
            f"write {share['write']:+.0%}, read {share['read']:+.0%}",
        ),
        Statement(
            "ior-minimal",
            "section 2.2.3",
            "the difference is minimal, a few hundred MB/s, for both operations",
            _is(bool((share < MINIMAL).all())),
            f"write {gap['write']:.0f} MB/s ({share['write']:.0%}), read "
            f"{gap['read']:.0f} MB/s ({share['read']:.0%})",
        ),
        Statement(
            "ior-conclusion",
            "sections 2.2.3 and 6.1",
            "no firm conclusion without more "
            "investigation, and: the conclusion that we have to make is Cascade Lake",
            "contradicted",
            "the two sections of the text; no further measurement is between them",
        ),
        Statement(
            "ior-tasks",
            "section 2.2",
            "tasks go from 1 to 24 in increments of 4; performance falls after 8 tasks",
            _is(8 in tasks and 24 in tasks),
            f"1 in increments of 4 is {', '.join(map(str, tasks))}: neither 8 nor 24",
        ),
        Statement(
            "ior-transfer-size",
            "section 2.2",
            "the transfer size was 4 Kilobytes",
            "contradicted",
            "the command that it prints has -t 4m",
        ),
        Statement(
            "ior-no-cache",
            "section 2.2.1",
            "the page cache is ruled out, since each process reads data of its neighbouring node",
            _is(clients != [1]),
            f"each installation has {clients[0]} client node (section 1.1.1): the "
            "neighbour is on the same node, with the same page cache",
        ),
        Statement(
            "dfs-over-dfuse",
            "section 2.2.3",
            "DFUSE is significantly worse than DFS with the revised command",
            "not in its numbers",
            "the panels of figure 4 are all DFS, and no bandwidth of DFUSE is printed",
        ),
    ]


def _fio() -> list[Statement]:
    frame = published_table("cern-cephfs-fio")
    kb = frame.set_index(["operation", "access", "workers"])["bandwidth_kb_per_s"]
    growth = kb.unstack("workers")
    more = growth[5] / growth[1]
    access = kb.unstack("access")
    ordered = access["sequential"] / access["random"]
    above = int((kb >= 1000).sum())
    least = str(more.idxmin()[1]) + " " + str(more.idxmin()[0])
    return [
        Statement(
            "more-workers",
            "section 4",
            "the more workers, the higher the bandwidth",
            _is(bool((more > 1).all())),
            f"5 workers over 1: {_pairs(more)}; {least} fell "
            f"from {growth.loc[more.idxmin(), 1]} to {growth.loc[more.idxmin(), 5]} KB/s",
        ),
        Statement(
            "sequential-over-random",
            "section 4",
            "sequential performs better than random",
            _is(bool((ordered > 1).all())),
            f"sequential over random: {_pairs(ordered)}",
        ),
        Statement(
            "kilobytes",
            "section 4",
            "the scale is Kilobytes per second rather than Megabytes",
            _is(above == 0),
            f"{above} of {kb.size} values are 1 MB/s or more, "
            f"the largest {kb.max() / 1000:.1f} MB/s",
        ),
    ]


def _list(values: pd.Series[float]) -> str:
    return ", ".join(f"{value:.3f} ({key})" for key, value in values.items())


def _pairs(values: pd.Series[float]) -> str:
    items: Mapping[Any, float] = dict(values.items())
    return ", ".join(f"{' '.join(map(str, key))} {value:.2f}" for key, value in items.items())
