"""Lines of dbench's loadfiles: `[TIME] VERB PARAMETER... STATUS`, names in double quotes.

`WriteX HANDLE OFFSET SIZE RETURNED STATUS`, `NTCreateX "NAME" OPTIONS DISPOSITION HANDLE
STATUS`, `Unlink "NAME" ATTRIBUTES STATUS`, `Rename "OLD" "NEW" STATUS` (dbench 4.0).
"""

from __future__ import annotations

from typing import NamedTuple

OK = frozenset({"NT_STATUS_OK", "0x00000000", "0x0", "SUCCESS"})
CREATING = 2  # disposition FILE_CREATE
TRUNCATING = frozenset({4, 5})  # dispositions FILE_OVERWRITE and FILE_OVERWRITE_IF
DIRECTORY = 1  # create option FILE_DIRECTORY_FILE


class Directive(NamedTuple):
    """One line of a loadfile."""

    time: str  # seconds after the start as written; empty: the line has none
    verb: str
    parameters: tuple[str, ...]  # names without their quotes
    status: str

    @property
    def ok(self) -> bool:
        """Whether the operation went well when the loadfile was made."""
        return self.status in OK


def directive(line: str) -> Directive | None:
    """What a line says; None for one that has no verb and status."""
    if '"' in line:
        words: list[str] = []
        for index, part in enumerate(line.split('"')):
            words.extend([part] if index % 2 else part.split())
    else:
        words = line.split()
    time = words.pop(0) if words and words[0][:1].isdigit() else ""
    if len(words) < 2:
        return None
    return Directive(time, words[0], tuple(words[1:-1]), words[-1])


def integer(word: str) -> int:
    """As strtol reads it, 0 for what is no number."""
    try:
        return int(word, 0)
    except ValueError:
        return 0
