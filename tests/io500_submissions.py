"""Directories of IO500 submissions, written by the tests: the two forms of a summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from fsmatrix.results.formats.io500_text import BANDWIDTHS, PHASES, RATES

DATA = Path(__file__).parent / "data" / "io500"
SECONDS = 300.0


def values(factor: float = 1.0, **changed: float) -> dict[str, float]:
    """Twelve values, each its own, times `factor`; `changed` by names with underscores."""
    made = {name: factor * (3.0 + place) for place, name in enumerate(PHASES)}
    return made | {name.replace("_", "-"): value for name, value in changed.items()}


def scores(of: Mapping[str, float]) -> tuple[float, float, float]:
    """By IO500's definition, written down once more: bandwidth, metadata, total."""
    means = [
        math.prod(of[name] for name in names) ** (1 / len(names)) for names in (BANDWIDTHS, RATES)
    ]
    return means[0], means[1], math.sqrt(means[0] * means[1])


def summary(
    of: Mapping[str, float], printed: tuple[float, float, float] | None = None, mark: str = ""
) -> str:
    """As IO500 prints it today; `mark`: " [INVALID]" behind the score."""
    lines = ["IO500 version io500-isc24_v1 (standard)"]
    for name, value in of.items():
        unit = "GiB/s" if name.startswith("ior") else "kIOPS"
        lines.append(f"[RESULT] {name:>20} {value:15.6f} {unit} : time {SECONDS:.3f} seconds")
    bandwidth, rate, total = printed or scores(of)
    lines.append(
        f"[SCORE ] Bandwidth {bandwidth:.6f} GiB/s : IOPS {rate:.6f} kiops"
        f" : TOTAL {total:.6f}{mark}"
    )
    return "\n".join(lines) + "\n"


def old_summary(
    of: Mapping[str, float], printed: tuple[float, float, float] | None = None, unit: str = "GB/s"
) -> str:
    """As the script of 2018 to 2020 printed it: three decimals, scores with six digits."""
    lines = []
    for number, (name, value) in enumerate(of.items(), 1):
        kind, shown = ("BW", unit) if name.startswith("ior") else ("IOPS", "kiops")
        lines.append(
            f"[RESULT] {kind:<4} phase {number} {name.replace('-', '_'):>22} {value:20.3f} {shown}"
            f" : time {SECONDS:6.2f} seconds"
        )
    bandwidth, rate, total = printed or scores(of)
    lines.append(
        f"[SCORE] Bandwidth {bandwidth:.6g} {unit} : IOPS {rate:.6g} kiops : TOTAL {total:.6g}"
    )
    return "\n".join(lines) + "\n"


def form(**told: object) -> str:
    """The form of a submission as lines: `client_nodes=10`, ..."""
    return "".join(f'io500_info_{name}="{value}"\n' for name, value in told.items())


def submission(root: Path, place: str, text: str, nodes: int | None = 10, **told: object) -> Path:
    """Write a summary at root/place/results, and the form beside it; the results' directory."""
    folder = root / place / "results"
    folder.mkdir(parents=True)
    (folder / "result_summary.txt").write_text(text)
    if nodes is not None:
        told["client_nodes"] = nodes
    (root / place / "system-information.txt").write_text(form(**told))
    return folder


def with_outputs(root: Path, place: str, note: str = "") -> Path:
    """The real run of tests/data/io500, as if it had been valid, with IOR's and mdtest's outputs.

    It has one client node.  `note` makes it another text.
    """
    folder = root / place / "results"
    folder.mkdir(parents=True)
    for path in DATA.glob("*.txt"):
        if path.name.startswith(("ior-", "mdtest-")):
            (folder / path.name).write_text(path.read_text())
    text = (DATA / "result_summary.txt").read_text().replace(" [INVALID]", "")
    (folder / "result_summary.txt").write_text(text + note)
    return folder
