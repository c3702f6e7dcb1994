"""The arguments of a call as strace prints them: names, numbers, flags, vectors, structures."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsmatrix.traces.capture.stamps import Malformed, OtherFormError
from fsmatrix.traces.capture.text import PLACE, shortened

AT_FDCWD = -100
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("|$)|(?<=[0-9D])' + PLACE + rb"|[{}\[\](),]", re.DOTALL)
_STATED = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"|(?<![\w.])(\d{1,9}|AT_FDCWD)<((?:/|\\x2f)[^<>]*)(?:<[^<>]*>)?>'
    rb"(?!\(deleted)",
    re.DOTALL,
)
_SIGN = re.compile(rb'["{\[(<]')
_TEXT = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(\.\.\.)?', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_NUMBER = re.compile(rb"-?\d{1,20}")
_DESCRIPTOR = re.compile(rb"(-?\d{1,10}|AT_FDCWD)(?:" + PLACE + rb")?(?: /\*.*\*/)?")
_LENGTH = re.compile(rb"iov_len=(\d{1,20})")
_SIZE = re.compile(rb"\bstx?_size=(\d{1,20})")
_MODE = re.compile(rb"\bstx?_mode=(S_IF[A-Z]+)")


def split(arguments: bytes) -> list[bytes]:
    """The arguments, in order.  Malformed for a string that does not end."""
    if not _SIGN.search(arguments):
        return [part.strip() for part in arguments.split(b",")]
    parts, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(arguments):
        sign = token[0]
        if sign == b"," and depth == 0:
            parts.append(arguments[begin : token.start()].strip())
            begin = token.end()
        elif sign in (b"{", b"[", b"("):
            depth += 1
        elif sign in (b"}", b"]", b")"):
            depth -= 1
        elif token[1] == b"":
            raise Malformed(f"a string does not end: {shortened(arguments)}")
    parts.append(arguments[begin:].strip())
    return parts


def at(parts: list[bytes], index: int) -> bytes:
    """One of the arguments.  Malformed if there are fewer."""
    if index >= len(parts):
        raise Malformed(f"{len(parts)} arguments where {index + 1} are needed")
    return parts[index]


def number(text: bytes) -> int:
    """A decimal number of 64 bits."""
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"{shortened(text)} where a number is needed")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 64:
        raise Malformed(f"{value} where a number of 64 bits is needed")
    return value


def offset(text: bytes) -> int:
    """A number of bytes of a file, below 2^63."""
    value = number(text)
    if value >= 1 << 63:
        raise Malformed(f"an offset of {value}: 2^63 or more")
    return value


def descriptor(text: bytes) -> int:
    """A file descriptor, or AT_FDCWD."""
    match = _DESCRIPTOR.fullmatch(text)
    if match is None:
        raise Malformed(f"{shortened(text)} where a file descriptor is needed")
    return AT_FDCWD if match[1] == b"AT_FDCWD" else int(match[1])


def name(text: bytes) -> bytes | None:
    """A path; None if strace could not read it."""
    match = _TEXT.fullmatch(text)
    if match is None:
        if text.startswith(b'"'):
            raise Malformed(f"{shortened(text)} where a path is needed")
        return None
    if match[2]:
        raise Malformed(f"a path was cut off: {shortened(text)}")
    path = plain(match[1])
    if b"\0" in path:
        raise Malformed(f"a path with a NUL byte: {shortened(text)}")
    return path


def plain(text: bytes) -> bytes:
    """A path without the escapes of strace."""
    return _ESCAPE.sub(_byte, text) if b"\\" in text else text


def stated(arguments: bytes) -> Iterator[tuple[int, bytes]]:
    """Descriptors, or AT_FDCWD, and the absolute paths that strace -y writes behind them."""
    for match in _STATED.finditer(arguments):
        path = plain(match[2] or b"")
        if path and b"\0" not in path and not path.endswith(b" (deleted)"):
            yield AT_FDCWD if match[1] == b"AT_FDCWD" else int(match[1]), path


def _byte(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    if code[:1] == b"x" and len(code) > 1:
        return bytes((int(code[1:], 16),))
    if code[:1] in b"01234567":
        return bytes((int(code, 8) & 0xFF,))
    return _PLAIN.get(code, code)


def flags(text: bytes) -> frozenset[bytes]:
    """O_RDWR|O_CREAT.  OtherFormError for numbers, whose meaning is the machine's."""
    words = text.partition(b"/* ")[2].partition(b" */")[0] or text
    if words.startswith(b"0x"):
        raise OtherFormError(f"the number {shortened(words)} for flags: trace without -X raw")
    return frozenset(words.split(b"|"))


def vector(text: bytes) -> int:
    """Bytes of an I/O vector, as many of its parts as strace wrote down."""
    bare = re.sub(rb'"(?:[^"\\]++|\\.)*+"', b"", text, flags=re.DOTALL)
    return sum(int(length) for length in _LENGTH.findall(bare))


def first_of(text: bytes) -> bytes | None:
    """The number in "[4096]" or "[4096] => [8192]"; None for NULL."""
    if not text.startswith(b"["):
        return None
    return text[1:].partition(b"]")[0]


def facts(arguments: bytes) -> tuple[int | None, bytes]:
    """Size and type ("S_IFREG") that a stat call gave; None and b"" where it gave none."""
    answer = arguments[arguments.rfind(b'"') + 1 :]  # a name may look like an answer
    mode, size = _MODE.search(answer), _SIZE.search(answer)
    return (int(size[1]) if size else None), (mode[1] if mode else b"")
