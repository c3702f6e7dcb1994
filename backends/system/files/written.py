"""Paths as people write them: ~ and variables, replaced where the path is used, on that machine."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from string import Template

from fsmatrix.backends.errors import BackendError

_BEGIN = re.compile(r"(~|\$\w+|\$\{\w+\})(?:/(.*))?", re.DOTALL | re.ASCII)
ALLOWED = "absolute, or begin with ~ or a variable such as $HOME or $SCRATCH"


def wrong(path: str) -> str:
    """Why a text is no such path (empty: it is one).  No variable is looked up."""
    if "\0" in path:
        return f"path {path!r} must not contain a NUL character"
    if not path.startswith(("/", "$")) and not _BEGIN.fullmatch(path):
        return f"path {path!r} must be {ALLOWED}"
    if not Template(path).is_valid():
        return f"path {path!r} has a $ that begins no variable: write $$ for the sign itself"
    return ""


def expand(path: str, follow: bool = True) -> Path:
    """The path that is meant here.

    `follow`: without the links in what ~ or a first variable stands for; with them it tells who
    could lead it elsewhere.  BackendError if it is no such path, a variable is not set here, or
    what comes out is not absolute.  TMPDIR is /tmp where it is not set.
    """
    if reason := wrong(path):
        raise BackendError(reason)
    match = _BEGIN.fullmatch(path)
    if match is None:
        return _absolute(_replaced(path, path), path)
    begin = "$HOME" if match[1] == "~" else match[1]
    _absolute(_replaced(begin + path[len(match[1]) :], path), path)  # the whole, for its error
    base = Path(_replaced(begin, path))
    return (base.resolve() if follow else base) / _replaced(match[2] or "", path).lstrip("/")


def place_of(file: str) -> Path:
    """As `expand`, of a file that may not be there: its folder without links."""
    place = expand(file)
    return place.parent.resolve() / place.name


def _absolute(text: str, path: str) -> Path:
    if not text.startswith("/"):
        raise BackendError(f"{path}: {text!r} on {socket.gethostname()} is not an absolute path")
    return Path(text)


def _replaced(text: str, path: str) -> str:
    names = Template(text).get_identifiers()
    values = {name: os.environ.get(name) or _default(name) for name in names}
    for name, value in values.items():
        if not value:
            raise BackendError(f"{path}: ${name} is not set on {socket.gethostname()}")
    return Template(text).substitute(values)


def _default(name: str) -> str:
    if name == "HOME":
        try:
            return str(Path.home())
        except RuntimeError:
            return ""
    return "/tmp" if name == "TMPDIR" else ""
