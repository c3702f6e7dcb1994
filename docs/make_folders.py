"""Writes the drawing of folders and imports in architecture.md: `python docs/make_folders.py`.

Also what tests/house/test_imports.py asks: which module imports which, and where that goes in
a circle, between files and between what stands side by side in one folder.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("architecture.md")
PACKAGES = ("results", "backends", "traces", "suite", "analysis", "slurm", "cli")
BLOCK = re.compile(r"(<!-- generated: folders -->\n).*?(?=<!-- end -->)", re.DOTALL)
Graph = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    """Every module and package, by its name below `fsmatrix.`."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {_name(path): path for path in paths}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, top_only: bool = False) -> set[str]:
    """Full names of what a file imports (with `top_only`, outside functions)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def graph() -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports, in functions and for type checking too."""
    path_of = modules()
    edges: dict[str, set[str]] = {}
    for module, path in path_of.items():
        ours = {name.removeprefix("fsmatrix.") for name in imports(path)}
        whole = {name if name in path_of else name.rpartition(".")[0] for name in ours}
        edges[module] = {name for name in whole if name in path_of and name != module}
    return edges


def siblings(folder: str, edges: Graph) -> dict[str, set[str]]:
    """The imports among what stands directly in a folder ("": at the top): files and folders."""
    between: dict[str, set[str]] = {}
    for module, used in edges.items():
        if child := _child(folder, module):
            others = {_child(folder, name) for name in used} - {child, None}
            between.setdefault(child, set()).update(name for name in others if name)
    return between


def _child(folder: str, module: str) -> str | None:
    inside = module.removeprefix(f"{folder}.") if folder else module
    return None if folder and inside == module else inside.split(".")[0]


def circle(edges: Graph) -> list[str]:
    """One circle of imports as the names along it; empty if there is none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def drawing() -> str:
    """A line for each folder: modules in it, what it is for, and what beside it it imports."""
    path_of, edges = modules(), graph()
    rows = [
        "| folder | modules | what it is for | imports, of what stands beside it |",
        "|---|---|---|---|",
    ]
    for folder in _folders(path_of):
        parent, _, name = folder.rpartition(".")
        beside = siblings(parent, edges)[name]
        inside = [module for module in path_of if module.rpartition(".")[0] == folder]
        count = sum(path_of[module].name != "__init__.py" for module in inside)
        purpose = (ast.get_docstring(ast.parse(path_of[folder].read_text())) or "").split("\n")[0]
        place = "&nbsp;" * 4 * folder.count(".") + f"`{name}/`"
        used = ", ".join(f"`{other}`" for other in sorted(beside))
        rows.append(f"| {place} | {count} | {purpose} | {used} |")
    return "\n".join(rows)


def _folders(path_of: Mapping[str, Path]) -> Iterator[str]:
    tops = {name: place for place, name in enumerate(PACKAGES)}
    every = [name for name, path in path_of.items() if path.name == "__init__.py"]
    yield from sorted(every, key=lambda name: (tops[name.split(".")[0]], name))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))  # also under -P
    from pages import main

    raise SystemExit(main(__doc__, PAGE, BLOCK, lambda _: drawing()))
