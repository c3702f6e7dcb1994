"""What the loader does with a program: whether libraries can be put before its own."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

_MAGIC = b"\x7fELF"
_INTERPRETER = 3  # PT_INTERP of a program header
_DYNAMIC = 3  # ET_DYN of the header
_LIMIT = 1 << 20  # bytes of the program headers


def preload_refusal(program: str) -> str:
    """Why LD_PRELOAD has no effect on a program (empty: it has, or the file is a script).

    Statically linked: an ELF file without PT_INTERP.  With other rights than the caller's
    (setuid, setgid, capabilities): the loader leaves out what is not its own (ld.so(8)).
    """
    path = Path(program)
    try:
        facts = path.stat()
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                return ""
            file.seek(0)
            kinds = _segments(file.read(64), file.fileno())
    except (OSError, struct.error) as error:
        return f"{program} cannot be looked at: {error}"
    if _INTERPRETER not in kinds:
        return f"{program} is statically linked"
    if facts.st_mode & (stat.S_ISUID | stat.S_ISGID) or _capable(program):
        return f"{program} runs with other rights than its caller's"
    return ""


def is_shared_library(path: Path) -> bool:
    """Whether a file is one, for any machine (ET_DYN)."""
    try:
        with path.open("rb") as file:
            header = file.read(18)
        return (
            header[:4] == _MAGIC
            and struct.unpack_from(_order(header) + "H", header, 16)[0] == _DYNAMIC
        )
    except OSError:
        return False


def _order(header: bytes) -> str:
    return "<" if header[5] == 1 else ">"


def _segments(header: bytes, descriptor: int) -> set[int]:
    """Types of the program headers of an ELF file (elf(5))."""
    wide, order = header[4] == 2, _order(header)
    offset = struct.unpack_from(f"{order}{'Q' if wide else 'I'}", header, 32 if wide else 28)[0]
    size, count = struct.unpack_from(f"{order}HH", header, 54 if wide else 42)
    if size * count > _LIMIT:
        raise struct.error(f"{size * count} bytes of program headers")
    table = os.pread(descriptor, size * count, offset)
    return {struct.unpack_from(f"{order}I", table, size * i)[0] for i in range(count)}


def _capable(program: str) -> bool:
    """Whether the file gives capabilities."""
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False
