"""Files that tools wrote on storage nodes, compressed or not, and the time zones of their times."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from fsmatrix.results.files import safefile
from fsmatrix.results.formats.nodes.node_series import Text
from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.suite.campaign.yamlio import Origin, refuse

PIECE = 1 << 20  # bytes read at once
GZIP = b"\x1f\x8b"
GZIP_BITS = 31  # of zlib: with gzip's head
OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


class NodeFile(Text):
    """A file, compressed or not."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), self._read)
        self.path = path

    def _read(self) -> Iterator[bytes]:
        try:
            with os.fdopen(safefile.descriptor(self.path, follow=True), "rb") as file:
                packed = file.read(len(GZIP)) == GZIP
                file.seek(0)
                pieces = iter(lambda: file.read(PIECE), b"")
                yield from self._inflated(pieces) if packed else pieces
        except zlib.error as error:
            raise ParseError(self.name, 0, f"damaged gzip data: {error}") from None
        except safefile.UnusableFileError as error:
            raise ParseError(self.name, 0, error.reason) from None
        except OSError as error:
            raise ParseError(self.name, 0, f"cannot be read: {error.strerror}") from None

    def _inflated(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """All members of a gzip file; one that ends too early is `cut`."""
        inflater = zlib.decompressobj(GZIP_BITS)
        for piece in pieces:
            while piece:
                if inflater.eof:
                    inflater = zlib.decompressobj(GZIP_BITS)
                yield inflater.decompress(piece, PIECE)
                piece = inflater.unconsumed_tail or inflater.unused_data
        if not inflater.eof:
            self.cut = True
            yield inflater.flush()


def zone_of(text: str) -> tzinfo:
    """Of "Europe/Berlin", "UTC" or "+02:00"; CampaignError for anything else."""
    if text.upper() in ("UTC", "Z"):
        return UTC
    if match := OFFSET.fullmatch(text):
        ahead = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if ahead < timedelta(hours=24):
            return timezone(-ahead if match[1] == "-" else ahead)
    try:
        return ZoneInfo(text)
    except (LookupError, ValueError, OSError):
        reason = "is no time zone: UTC, +02:00, or a name as Europe/Berlin"
        raise refuse(Origin(f"--zone {text}"), "", reason) from None


def here() -> str:
    """This machine's zone, as it is shown."""
    return datetime.now().astimezone().strftime("%Z (%z)")
