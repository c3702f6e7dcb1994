"""The tables of published studies (results/published), as Datasets like those of a campaign.

Each table is a CSV file and a YAML file of the same name that says what it is.  A row of the
CSV becomes one run for each reading: one attachment, status ok, one value per cell, so that
no interval and no verdict comes from it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pandas as pd
import xarray as xr
from pydantic import BaseModel, ConfigDict

import fsmatrix.results
from fsmatrix.analysis.data.reading import read_whole
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files import hdf, safefile
from fsmatrix.results.files.campaignfile import NUMBERS, TEXTS, CampaignWriter, Entry
from fsmatrix.results.files.run_rows import Row, worst
from fsmatrix.results.files.schema import to_json
from fsmatrix.results.record import Finding, Severity, canonical_json, digest

FOLDER = Path(fsmatrix.results.__file__).parent / "published"
COLUMN = re.compile(r"\{([A-Za-z0-9_]+)\}")
NAN = float("nan")
Cell = str | int | float | None
Cells = Mapping[str, Cell]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TableSource(_Model):
    """Where a table was printed."""

    paper: str
    where: str
    year: int | None = None


class Value(_Model):
    """A metric: a column of the CSV times `scale` is in SI units."""

    column: str
    scale: float = 1.0
    unit: str = ""  # of a metric that campaigns do not have
    meaning: str = ""


class Reading(_Model):
    """What one row of the CSV says about one phase."""

    phase: str
    metrics: dict[str, Value]


class Doubt(_Model):
    """A finding about the rows whose columns have these values."""

    where: dict[str, Cell]
    audit: str
    severity: Severity
    message: str
    advice: str = ""
    phase: str = ""


class Description(_Model):
    """The YAML file beside a table.  Texts may name columns of the CSV: `{column}`."""

    title: str
    source: TableSource
    kind: Literal["measurements", "notes"]
    value: str  # what one value is: a mean, a median, of how many
    repetitions: int | None = None  # None: not said
    remarks: tuple[str, ...] = ()
    workload: str = ""
    engine: str = ""
    engine_version: str = ""
    target: str = ""
    codes: dict[str, dict[str, str]] = {}  # column -> value -> word in a text
    factors: dict[str, str] = {}
    apart: tuple[str, ...] = ()  # factors that are not of the work: of the target, or of time
    block: str = ""  # column
    remark: str = ""  # column of notes on single values
    readings: tuple[Reading, ...] = ()
    findings: tuple[Doubt, ...] = ()


def names() -> list[str]:
    """Names of all tables, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def describe(name: str) -> Description:
    """What a table is.  ValueError for an unknown name, ResultError for a faulty description."""
    if name not in names():
        raise ValueError(f"no published table {name!r}: there are {', '.join(names())}")
    return safefile.load(FOLDER / f"{name}.yaml", Description, "does not describe a table")


def published_table(name: str) -> pd.DataFrame:
    """A table as it was printed; `attrs` has title, source and value.  Errors as `describe`."""
    description = describe(name)
    frame = pd.read_csv(FOLDER / f"{name}.csv", keep_default_na=False, na_values=[""])
    frame.attrs |= _provenance(name, description)
    return frame


def published(name: str) -> xr.Dataset:
    """A table of measurements as a Dataset like that of a campaign (docs/results.md).

    Metrics in SI units; attributes `title`, `source`, `where`, `value`, `repetitions` say what
    the values are.  ValueError for an unknown table or one that holds no measurements
    (`published_table` gives that), ResultError for a faulty description.
    """
    description = describe(name)
    if description.kind == "notes":
        raise ValueError(f"{name} holds no measurements: `published_table` gives it as it is")
    frame = published_table(name)
    cells = [
        {str(column): _cell(value) for column, value in row.items()}
        for row in frame.to_dict("records")
    ]
    ds = _campaign(name, description, cells)
    imported = json.dumps({"imported": True})  # no run of ours: no block can be added
    return ds.assign(_extra(description, cells)).assign_attrs(frame.attrs, campaign=imported)


def _campaign(name: str, description: Description, cells: Sequence[Cells]) -> xr.Dataset:
    """Written and read back as a campaign file, in memory: the same variables and types."""
    image = io.BytesIO()
    with h5py.File(image, "w", libver=hdf.LIBVER) as file:
        writer = CampaignWriter(file)
        for number, row in enumerate(cells):
            writer.put(_entry(name, number, description, row))
        writer.finish(to_json({"name": description.title, "published": name}), [])
    return read_whole(image)


def _entry(name: str, number: int, description: Description, row: Cells) -> Entry:
    """One row of the CSV as a run with one phase for each reading."""
    target = str(_filled(description.target, row, description))
    factors = {n: _filled(text, row, description) for n, text in description.factors.items()}
    work: dict[str, Json] = {n: v for n, v in factors.items() if n not in description.apart}
    case = {"published": name, "workload": description.workload, "target": target, **factors}
    texts = dict.fromkeys(TEXTS, "") | {
        "run_id": f"{digest(case)}-r{number:04d}-a1",
        "case_id": digest(case),
        "work_id": digest({"workload": description.workload, "options": work}),
        "attachment": f"{name}-row-{number + 1}",
        "status": "ok",
        "engine": description.engine,
        "engine_version": description.engine_version,
    }
    block = row[description.block] if description.block else 0
    numbers: dict[str, float] = {n: 0 if k[0] == "i8" else NAN for n, k in NUMBERS.items()}
    numbers |= {"repetition": number, "attempt": 1, "block": int(block or 0)}
    return Entry(
        rows=[_row(reading, row, description, texts, numbers) for reading in description.readings],
        levels={"target": target, "workload": description.workload, **factors},
        environment=to_json({"published": _provenance(name, description)}),
        case=canonical_json(case),
    )


def _row(
    reading: Reading,
    row: Cells,
    description: Description,
    texts: Mapping[str, str],
    numbers: Mapping[str, float],
) -> Row:
    phase = str(_filled(reading.phase, row, description))
    findings = [_finding(d, phase) for d in description.findings if _concerns(d, row, phase)]
    values = {n: _number(row, value) for n, value in reading.metrics.items() if n in NUMBERS}
    facts = {"phase": phase, "worst_finding": worst(findings)}
    return Row({**numbers, **values}, {**texts, **facts}, None, findings)


def _extra(description: Description, cells: Sequence[Cells]) -> dict[str, xr.Variable]:
    """Metrics that campaigns do not have, and notes on single values."""
    whole = [(row, reading) for row in cells for reading in description.readings]
    metrics = {n: v for r in description.readings for n, v in r.metrics.items() if n not in NUMBERS}
    variables = {
        name: xr.Variable(
            ("run",),
            np.array(
                [_number(row, r.metrics[name]) if name in r.metrics else NAN for row, r in whole]
            ),
            {"units": value.unit, "long_name": value.meaning},
        )
        for name, value in metrics.items()
    }
    if description.remark:
        notes = [str(row[description.remark] or "") for row, _ in whole]
        what = {"long_name": "what the source says about this value"}
        variables["remark"] = xr.Variable(("run",), np.array(notes, dtype=object), what)
    return variables


def _filled(text: str, row: Cells, description: Description) -> Cell:
    """A text with its columns; a column alone keeps its type, an empty one is no level."""
    alone = COLUMN.fullmatch(text)
    if alone and alone[1] not in description.codes:
        return row[alone[1]]
    return COLUMN.sub(lambda match: _word(match[1], row, description), text)


def _word(column: str, row: Cells, description: Description) -> str:
    value = str(row[column])
    return description.codes[column][value] if column in description.codes else value


def _cell(value: Any) -> Cell:
    plain: Cell = value.item() if isinstance(value, np.generic) else value
    return None if plain is None or plain != plain else plain


def _number(row: Cells, value: Value) -> float:
    number = row[value.column]
    return NAN if number is None else float(number) * value.scale


def _concerns(doubt: Doubt, row: Cells, phase: str) -> bool:
    fits = all(row[column] == value for column, value in doubt.where.items())
    return fits and doubt.phase in ("", phase)


def _finding(doubt: Doubt, phase: str) -> Finding:
    return Finding(doubt.audit, 1, doubt.severity, doubt.message, doubt.advice, phase)


def _provenance(name: str, description: Description) -> dict[str, Json]:
    return {
        "published": name,
        "title": description.title,
        "source": description.source.paper,
        "where": description.source.where,
        "year": description.source.year or "not given",
        "value": description.value,
        "repetitions": description.repetitions or "not given",
        "remarks": "; ".join(description.remarks),
    }
