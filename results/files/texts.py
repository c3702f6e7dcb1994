"""Original texts of engines' outputs, kept compressed in run files and campaign files.

In a run file the texts stand one after the other in one array of bytes.  In a campaign file
each different text stands once; a group of their own keeps them away from readers that
want numbers.  See docs/results.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import h5py
import numpy as np

from fsmatrix.results.files import phases
from fsmatrix.results.files.hdf import NO_VARIABLE, Group, Source
from fsmatrix.results.files.schema import Appender, Table, decode_text

GROUP = "texts"
CHUNK = 1 << 16  # bytes of one compressed piece
WAITING = 1 << 20  # bytes that are kept before they are written
LEVEL = 4  # of deflate
NAME = {"long_name": "name of an output of the run"}
SIZE = {"units": "B", "long_name": "length of the text"}
BYTES = {"units": "1", "long_name": "the texts in UTF-8, one after the other"}


def encoded(text: str) -> bytes:
    """UTF-8; lone surrogates too, so that every str comes back."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """Inverse of `encoded`."""
    return data.decode("utf-8", "surrogatepass")


# -- run file ----------------------------------------------------------------------------
def write_run_texts(group: Group, texts: Mapping[str, str]) -> None:
    """The texts of one run (at least one) into a group of their own."""
    parts = [encoded(text) for text in texts.values()]
    data = np.frombuffer(b"".join(parts) or b"\0", dtype=np.uint8)  # no empty dimension
    group.dimension("text", len(parts))
    group.dimension("byte", len(data))
    group.variable("text_name", phases.texts(list(texts)), ["text"], NAME)
    group.variable("text_size", phases.integers([len(part) for part in parts]), ["text"], SIZE)
    group.variable("text_bytes", data, ["byte"], BYTES)


def read_run_texts(group: Source) -> dict[str, str]:
    """Inverse of `write_run_texts`."""
    data, texts, first = group.array("text_bytes").tobytes(), {}, 0
    sizes = group.array("text_size").tolist()
    if min(sizes, default=0) < 0 or sum(sizes) > len(data):
        raise ValueError("texts that are longer than their bytes")
    for name, size in zip(phases.strings(group, "text_name"), sizes, strict=True):
        texts[name] = decoded(data[first : first + size])
        first += size
    return texts


# -- campaign file -----------------------------------------------------------------------
class CampaignTexts:
    """Texts of many runs, streamed into a campaign file.  Without any, nothing is made."""

    def __init__(self, file: h5py.File) -> None:
        self._file = file
        self._open: _Columns | None = None

    def add(self, row: int, texts: Mapping[str, str]) -> None:
        """The texts of the run whose first row is `row`."""
        if texts and self._open is None:
            self._open = _Columns(self._file.create_group(GROUP))
        for name, text in texts.items():
            assert self._open is not None
            self._open.add(row, name, encoded(text))

    def finish(self) -> None:
        """Write what waits; attach the dimensions."""
        if self._open is not None:
            self._open.finish()


class _Columns:
    """The variables of the group."""

    def __init__(self, group: h5py.Group) -> None:
        self.group = group
        unit = {"units": "1"}
        text = h5py.string_dtype()
        self.run = Appender(group, "output_run", "i8", unit | {"long_name": "first row of its run"})
        self.name = Appender(group, "output_name", text, NAME)
        self.index = Appender(group, "output_text", "i8", unit | {"long_name": "row of the text"})
        self.first = Appender(group, "text_first", "i8", unit | {"long_name": "its first byte"})
        self.size = Appender(group, "text_size", "i8", SIZE)
        self.digest = Table(group, "text_sha256", {"long_name": "SHA-256 of the text in UTF-8"})
        self.data = group.create_dataset(
            "text_bytes",
            shape=(0,),
            maxshape=(None,),
            dtype=np.uint8,
            chunks=(CHUNK,),
            compression=LEVEL,
        )
        self.data.attrs.update(BYTES)
        self._texts = 0
        self._length = 0
        self._waiting: list[bytes] = []
        self._waiting_size = 0

    def add(self, row: int, name: str, text: bytes) -> None:
        """One text of one run; its bytes are stored if they are new."""
        digest = hashlib.sha256(text).hexdigest()
        index = self.digest.code(digest, digest)
        self.run.append(row)
        self.name.append(phases.texts([name])[0])
        self.index.append(index)
        if index < self._texts:
            return
        self._texts += 1
        self.first.append(self._length)
        self.size.append(len(text))
        self._length += len(text)
        self._waiting.append(text)
        self._waiting_size += len(text)
        if self._waiting_size >= WAITING:
            self._flush()

    def _flush(self) -> None:
        data = np.frombuffer(b"".join(self._waiting), dtype=np.uint8)
        self._waiting.clear()
        self._waiting_size = 0
        first = self.data.shape[0]
        self.data.resize((first + len(data),))
        self.data[first:] = data

    def finish(self) -> None:
        self._flush()
        outputs = (self.run, self.name, self.index)
        texts = (self.first, self.size, self.digest.column)
        for column in (*outputs, *texts):
            column.flush()
        attach(self.group, "output", [column.dataset for column in outputs])
        attach(self.group, "text", [column.dataset for column in texts])
        attach(self.group, "byte", [self.data])


def attach(group: h5py.Group, dimension: str, variables: Sequence[h5py.Dataset]) -> None:
    """A dimension without values, of the length of its variables.

    Of a fixed size: of an unlimited one h5netcdf asks every variable, each time.
    """
    size = variables[0].shape[0]
    scale = group.create_dataset(dimension, shape=(size,), dtype=">f4")
    h5py.h5ds.set_scale(scale.id, (NO_VARIABLE % size).encode())
    for variable in variables:
        h5py.h5ds.attach_scale(variable.id, scale.id, 0)


class TextReader:
    """The texts of an open campaign file.  KeyError for what is not there."""

    def __init__(self, file: h5py.File) -> None:
        self._group = file.get(GROUP)
        self._outputs: dict[int, list[tuple[str, int]]] = {}
        if self._group is None:
            return
        self._first, self._size = self._group["text_first"][...], self._group["text_size"][...]
        names = [decode_text(name) for name in self._group["output_name"].asstr()[...].tolist()]
        runs, indexes = self._group["output_run"][...], self._group["output_text"][...]
        for run, name, index in zip(runs.tolist(), names, indexes.tolist(), strict=True):
            self._outputs.setdefault(run, []).append((name, index))

    def of_row(self, row: int) -> dict[str, str]:
        """Texts by name of the run whose first row is `row`; empty if it has none."""
        return {name: self._text(index) for name, index in self._outputs.get(row, ())}

    def _text(self, index: int) -> str:
        assert self._group is not None
        first, size = int(self._first[index]), int(self._size[index])
        return decoded(self._group["text_bytes"][first : first + size].tobytes())
