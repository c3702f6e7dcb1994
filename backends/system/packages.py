"""Which command brings a program that is missing, in the words of this machine's distribution."""

from __future__ import annotations

import functools
from importlib import resources

from fsmatrix.backends.system import tools

MANAGERS = ("apt-get", "dnf", "zypper")  # columns of packages.tsv, in its order
NONE = "-"


def missing(program: str) -> str:
    """As `lacking`, if the program is not there (empty: it is)."""
    return "" if tools.find(program) else lacking(program)


def lacking(name: str) -> str:
    """In words that a thing is missing: "mkfs.xfs is missing: apt-get install xfsprogs".

    Or, of a program that is there, why root does not run it.
    """
    if reason := tools.refusal(name):
        return reason
    cure = install(name)
    return f"{name} is missing: {cure}" if cure else f"{name} is missing"


def install(*names: str) -> str:
    """The command that installs what these names need; empty where it is not known.

    On a machine without a known package manager the packages are named as Debian has them.
    """
    manager = next((name for name in MANAGERS if tools.find(name)), "")
    column = MANAGERS.index(manager) if manager else 0
    wanted = [word for name in names for word in _table().get(name, {}).get(column, ())]
    packages = " ".join(dict.fromkeys(wanted))
    if not packages:
        return ""
    return f"{manager} install {packages}" if manager else f"package {packages}"


@functools.cache
def _table() -> dict[str, dict[int, tuple[str, ...]]]:
    """Name -> column of its manager -> packages."""
    text = resources.files("fsmatrix.backends.system").joinpath("packages.tsv").read_text("utf-8")
    table: dict[str, dict[int, tuple[str, ...]]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, *columns = line.split("\t")
        table[name] = {
            index: tuple(cell.split()) for index, cell in enumerate(columns) if cell != NONE
        }
    return table
