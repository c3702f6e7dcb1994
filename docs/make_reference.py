"""Writes the tables of docs/campaign.md from the models; `--check` only says if they differ.

A field's meaning is its description, else the comment behind it in the source, else in EXTRA.
"""

import ast
import inspect
import io
import json
import re
import sys
import tokenize
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fsmatrix.backends.ceph.ceph_options import LevelOptions, PreparedPool
from fsmatrix.backends.contract import BACKENDS
from fsmatrix.backends.daos.levels import DaosLevelOptions, DaosPreparedPool
from fsmatrix.backends.local.cleaner import CleanerOptions
from fsmatrix.backends.local.devices.bare_device import EmulatedDevice
from fsmatrix.backends.local.devices.emulated import EmulatedOptions, Rates
from fsmatrix.backends.testbed.ceph_bed_options import CephTestbedOptions
from fsmatrix.backends.testbed.daos_bringup import DaosTestbedOptions
from fsmatrix.results import units
from fsmatrix.suite.campaign import campaign, site
from fsmatrix.suite.registry import WORKLOADS

PAGE = Path(__file__).with_name("campaign.md")
BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
PLAIN = {str: "text", int: "integer", float: "number", bool: "boolean", Any: "value"}
WRITTEN = {"size": units.format_size, "duration": "{:g}s".format}
BOUNDS = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
EXTRA = {  # where the source has no comment
    "LocalOptions.mkfs_options": "options of mkfs for this one file system: those in SECURITY.md",
    "LocalOptions.mount_options": "options of the file system, with commas; see SECURITY.md",
    "LocalOptions.direct_io": "`required`: a loop device without direct I/O is refused",
    "PatternOptions.pattern": "order and kind of the operations",
    "PatternOptions.bytes_per_process": "data of each process",
    "PatternOptions.layout": "a file for each process, or one for all: in segments, or strided",
    "PatternOptions.fixed": "what ends the timed phase: all data done, or `seconds` over",
    "PatternOptions.random": "random order: every block once, or drawn anew each time",
    "MetadataOptions.files_per_process": "files of each process",
    "MetadataOptions.dirs_per_process": "directories of each process, beside the tree",
}


def hyphened(name: str) -> str:
    """QuietHours -> quiet-hours; LimitsSection -> limits"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.removesuffix("Section")).lower()


NAMED = {
    name: value
    for module in (units, campaign, site)
    for name, value in vars(module).items()
    if not name.startswith("_")
}
SECTIONS: dict[str, type[BaseModel]] = {
    hyphened(name): value
    for name, value in NAMED.items()
    if isinstance(value, type) and issubclass(value, campaign.Section) and hyphened(name)
}
SECTIONS |= {
    hyphened(model.__name__): model
    for model in (
        *(LevelOptions, PreparedPool, CephTestbedOptions),
        *(EmulatedOptions, Rates, EmulatedDevice, CleanerOptions),
        *(DaosLevelOptions, DaosPreparedPool, DaosTestbedOptions),
    )
}
VALIDATED = [  # the validator of PositiveSize, "positive size"
    (get_args(value)[1], hyphened(name).replace("-", " "))
    for name, value in NAMED.items()
    if get_origin(value) is Annotated
]


def words(annotation: Any, metadata: Any = ()) -> str:
    """A type in words, with its bounds."""
    parts = [p for m in metadata for p in (m.metadata if isinstance(m, FieldInfo) else [m])]
    for validator, text in VALIDATED:
        if validator in parts:
            return text
    limits = {key: getattr(part, key) for part in parts for key in BOUNDS if hasattr(part, key)}
    bounds = "".join(f" {BOUNDS[key]} {limits[key]:.16g}" for key in BOUNDS if key in limits)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return words(inner[0], inner[1:])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of: {words(inner[0])}"
    if origin is dict:
        return f"mapping of {words(inner[0])} to: {words(inner[1])}"
    if inner:
        return " or ".join(words(part) for part in inner if part is not type(None))
    if annotation in PLAIN:
        return PLAIN[annotation] + bounds
    if not issubclass(annotation, BaseModel):
        return "text"  # read by a validator of its own
    return "[{0}](#{0})".format(hyphened(annotation.__name__))


def shown(field: FieldInfo, kind: str) -> str:
    """A default as it is written in YAML."""
    value = field.default
    if field.is_required():
        return "required"
    if value is None or isinstance(value, BaseModel) or value == "":
        return "-"
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{WRITTEN.get(kind.split()[-1], json.dumps)(value)}`".replace('"', "")


def comments(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the comment at the end of its last line, also of a model that it comes from."""
    own = model.__mro__[: model.__mro__.index(BaseModel)]
    return {name: text for kind in reversed(own) for name, text in _own_comments(kind).items()}


def _own_comments(model: type) -> dict[str, str]:
    text = inspect.getsource(model)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comment_of = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): comment_of.get(node.end_lineno or 0, "") for node in nodes}


def table(model: type[BaseModel]) -> str:
    """A model's fields as Markdown; SystemExit if one has no meaning, or two."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    beside, shared = comments(model), campaign.Defaults.model_fields
    for name, field in model.model_fields.items():
        if model is campaign.Campaign and name in shared:
            continue
        extra = [EXTRA.get(f"{kind.__name__}.{name}") for kind in model.__mro__]
        meanings = [field.description or beside.get(name), *extra]
        if sum(map(bool, meanings)) != 1:
            raise SystemExit(f"{model.__name__}.{name} has no meaning, or one more in EXTRA")
        meaning = next(filter(None, meanings)).replace("|", "\\|").replace("*", "\\*")
        kind = words(field.annotation, field.metadata)
        rows.append(f"| `{field.alias or name}` | {kind} | {shown(field, kind)} | {meaning} |")
    return "\n".join(rows)


def generated(name: str) -> str:
    """The text between two markers: a section, a workload's or a backend's options."""
    if name in SECTIONS:
        return table(SECTIONS[name])
    return table((WORKLOADS if name in WORKLOADS.builtin else BACKENDS).load(name).Options)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))  # also under -P
    from pages import main

    raise SystemExit(main(__doc__, PAGE, BLOCK, lambda match: generated(match[2])))
