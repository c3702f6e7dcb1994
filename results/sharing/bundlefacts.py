"""What an archive of results says about them: counts, versions, how to run them again."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import jinja2
import numpy as np

from fsmatrix.results.evidence import values
from fsmatrix.results.evidence.values import Json, JsonObject, inside
from fsmatrix.results.files.campaign.campaignread import text

MACHINE = ("fsmatrix", "python", "system", "kernel", "cpu")
STATES = ("ok", "failed", "timeout")


@dataclass(frozen=True)
class Facts:
    """Of the runs in a campaign file."""

    runs: Mapping[str, int]  # total, ok, failed, timeout, invalid
    engines: Mapping[str, list[str]]  # engine -> its versions
    measured_with: Mapping[str, list[str]]  # what -> its different versions


def facts_of(path: Path) -> Facts:
    """Read from a campaign file that was just made."""
    with h5py.File(path, "r") as file:
        ids, first = np.unique(file["run_id"][...], return_index=True)
        status = file["status"][...][first]
        invalid = set(file["run_id"][...][file["worst_finding"][...] == b"invalid"].tolist())
        runs = {state: int((status == state.encode()).sum()) for state in STATES}
        pairs = np.unique(
            np.stack([file["engine"][...].astype("S"), file["engine_version"][...].astype("S")]),
            axis=1,
        )
        engines: dict[str, list[str]] = {}
        for engine, version in pairs.T.tolist():
            engines.setdefault(text(engine), []).append(text(version))
        environments = [
            json.loads(text(environment)) for environment in file["environment_json"][...].tolist()
        ]
    return Facts(
        {"total": len(ids), **runs, "invalid": len(invalid)}, engines, _measured(environments)
    )


def _measured(environments: list[dict[str, Json]]) -> dict[str, list[str]]:
    versions_of: dict[str, set[str]] = {}
    for environment in environments:
        for name, version in _versions(environment):
            versions_of.setdefault(name, set()).add(str(version))
    return {name: sorted(versions) for name, versions in sorted(versions_of.items())}


def _versions(environment: JsonObject) -> Iterator[tuple[str, Json]]:
    machine = inside(environment, "machine")
    yield from ((name, machine[name]) for name in MACHINE if name in machine)
    yield from inside(machine, "libraries").items()
    if "mpi" in environment:
        yield "mpi", environment["mpi"]
    launcher = inside(environment, "launcher")
    if "version" in launcher:
        yield str(launcher.get("name", "launcher")), launcher["version"]


def bundled_with() -> dict[str, str]:
    """Versions of fsmatrix, Python and the packages that fsmatrix needs, on this machine."""
    wanted = importlib.metadata.requires("fsmatrix") or []
    names = sorted(
        re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in wanted if "extra" not in need
    )
    return {
        "fsmatrix": importlib.metadata.version("fsmatrix"),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in names},
    }


def check_plan(plan: Any) -> None:
    """ValueError, KeyError or TypeError if a campaign.json is not as the conductor writes it."""
    if not isinstance(plan, dict) or not isinstance(plan["source"], dict):
        raise ValueError("it is no mapping")
    texts = [plan["source"]["text"], plan["source"]["file"]]
    texts += [plan.get("campaign", ""), plan.get("description", "")]
    request = plan.get("request", {})
    if not isinstance(request, dict) or not isinstance(plan.get("settings", []), list):
        raise ValueError("request or settings is not what it should be")
    texts += [*request.get("sets", []), *request.get("only", [])]
    for row in plan.get("settings", []):
        texts += [row["origin"], row["key"]]
    if not all(isinstance(text, str) for text in texts) or not isinstance(plan["seed"], int):
        raise ValueError("something else stands where a text or a number should")


def source_text(plan: JsonObject) -> str:
    """The campaign as its author wrote it."""
    return values.text(inside(plan, "source"), "text")


def command(plan: JsonObject, folder: str) -> str:
    """The command that makes the same plan again from campaign.yaml, on any machine.

    Beside `folder`, since no store may be inside another.  `plan`: campaign.json.  Its shard is
    left out: the whole campaign is run.
    """
    request = {"sets": (), "only": (), **inside(plan, "request")}
    words = ["fsmatrix", "run", f"{folder}/campaign.yaml", "--seed", str(plan["seed"])]
    for setting in [*_of_the_site(plan), *values.texts(request, "sets")]:
        words += ["--set", setting]
    for selection in values.texts(request, "only"):
        words += ["--only", selection]
    return shlex.join([*words, "-o", "again"])


def _of_the_site(plan: JsonObject) -> Iterator[str]:
    """Settings that neither the campaign nor the command line made: the site's and the user's."""
    own = f"{values.text(inside(plan, 'source'), 'file')}:"
    settings = plan.get("settings")
    for row in map(inside, settings if isinstance(settings, list) else ()):
        origin, key = values.text(row, "origin"), values.text(row, "key")
        elsewhere = re.search(r":\d+$", origin) and not origin.startswith((own, "--set", "varied"))
        if elsewhere and not key.startswith("site."):
            yield f"{key}={json.dumps(row['value'])}"


def readme(**facts: Any) -> str:
    """Text of the archive's README.md, which tells what is in it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return re.sub(r"\n{3,}", "\n\n", environment.get_template("bundle.md.j2").render(facts))
