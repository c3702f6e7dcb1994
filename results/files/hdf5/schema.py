"""The schema's version, its errors, and how text and JSON are stored.  See docs/results.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.files.safefile import ResultError

SCHEMA_VERSION = 1
RUN_FORMAT = "fsmatrix run"
CAMPAIGN_FORMAT = "fsmatrix campaign"
STORE_FORMAT = "fsmatrix store"

ESCAPE = "json:"


class NewerSchemaError(ResultError):
    """Made by a newer fsmatrix than this one."""

    def __init__(self, path: Path | str, schema: int) -> None:
        super().__init__(
            path,
            f"made by a newer fsmatrix (schema {schema}, this one reads up to {SCHEMA_VERSION})",
        )
        self.schema = schema


class ForeignFileError(ResultError):
    """A file of somebody else's: not HDF5, or HDF5 with other contents."""


class DamagedFileError(ResultError):
    """A file of ours that is truncated or damaged."""


class InvalidRecordError(ResultError):
    """What is to be stored, or was, is no record: contradicting shapes, values of wrong types."""


def to_json(value: Any) -> str:
    """ASCII JSON; numpy values and what is `Stored` become plain.  TypeError for anything else.

    NaN and infinities are written as Python's json does (NaN, Infinity).
    """
    return json.dumps(value, separators=(",", ":"), default=_plain)


def from_json(text: str) -> Any:
    """Inverse of `to_json`; ValueError for other text."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Stored):
        return value.document()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON-able: {value!r:.80}")


def encode_text(text: str) -> str:
    """Text as HDF5 can hold it: with NUL or lone surrogates as `json:"..."`."""
    if text.startswith(ESCAPE) or "\0" in text or not _encodable(text):
        return ESCAPE + json.dumps(text)
    return text


def decode_text(text: str) -> str:
    """Inverse of `encode_text`."""
    if text.startswith(ESCAPE):
        return str(from_json(text[len(ESCAPE) :]))
    return text


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
