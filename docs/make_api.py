"""Writes the API reference as HTML, from the docstrings: `python docs/make_api.py DIRECTORY`."""

import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import pdoc

PACKAGES = tuple(
    f"fsmatrix.{name}" for name in ("analysis", "results", "backends", "suite", "slurm", "cli")
)
NOT_TO_IMPORT = ("__main__", "_player")  # a program; C


def modules(packages: tuple[str, ...] = PACKAGES) -> list[str]:
    """The packages and all modules in them, by name: pdoc itself leaves out what is lazy."""
    names = list(packages)
    for name in packages:
        inside = pkgutil.walk_packages(import_module(name).__path__, f"{name}.")
        names += [module.name for module in inside if not module.name.endswith(NOT_TO_IMPORT)]
    return names


def write(directory: Path, packages: tuple[str, ...] = PACKAGES) -> None:
    """One page a module, and an index."""
    pdoc.render.configure(docformat="markdown", show_source=False)
    pdoc.pdoc(*modules(packages), output_directory=directory)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
