"""Settings in layers: defaults < site < user < campaign < --set.  Every value knows its origin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fsmatrix.results.evidence.stored import JsonObject, Stored
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.registry import did_you_mean
from fsmatrix.suite.campaign.campaign import Campaign
from fsmatrix.suite.campaign.check import refused_paths, validate
from fsmatrix.suite.campaign.site import (
    SiteFile,
    load_site,
    load_user,
    site_path,
    site_presets,
    user_path,
)
from fsmatrix.suite.campaign.yamlio import (
    CampaignError,
    KeyPath,
    Origin,
    Problem,
    Tree,
    flatten,
    load,
    parse,
    parse_value,
    refuse,
)


@dataclass(frozen=True)
class Source(Stored):
    """A campaign's text and the name under which problems report it."""

    text: str
    file: str = "campaign.yaml"


@dataclass(frozen=True)
class Settings:
    """The campaign as all layers together say it."""

    campaign: Campaign
    tree: Tree  # merged, as written; its origins say which layer won
    site: SiteFile

    def origin(self, *path: str | int) -> Origin:
        """Where this value, or the nearest part around it, was said."""
        return self.tree.origin(path)

    def explain(self) -> list[tuple[str, Any, str]]:
        """(key path, value, origin) of every setting; the site's own ones under `site.`."""
        rows = [
            (".".join(map(str, path)), value, str(self._exact(path)))
            for path, value in flatten(self.campaign.model_dump(mode="json"))
        ]
        for path, value in flatten(self.site.tree.data or {}):
            if path and path[0] != "defaults":
                name = ".".join(map(str, ("site", *path)))
                rows.append((name, value, str(self.site.tree.origin(path))))
        return rows

    @property
    def bytes_limit(self) -> int | None:
        """Bytes that all runs together may write: the campaign's limit and the site's cap."""
        limits = (self.campaign.limits.bytes_written, self.site.site.caps.bytes)
        return min((limit for limit in limits if limit is not None), default=None)

    def _exact(self, path: KeyPath) -> Origin:
        return self.tree.origins.get(path, Origin())


def resolve(
    source: Path | Source,
    sets: Sequence[str] = (),
    *,
    site: SiteFile | Path | None = None,
    user: Tree | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Read and check all layers; CampaignError with every problem found.

    `site` and `user` are looked up by `environ` where they are not given.
    """
    settings, problems = examine(source, sets, site=site, user=user, environ=environ)
    if settings is None or problems:
        raise CampaignError(problems)
    return settings


def examine(
    source: Path | Source,
    sets: Sequence[str] = (),
    *,
    site: SiteFile | Path | None = None,
    user: Tree | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Settings | None, list[Problem]]:
    """As `resolve`, but with problems the settings may still be given, without the refused
    values, so that more problems can be looked for."""
    if not isinstance(site, SiteFile):
        site = load_site(site if site is not None else site_path(environ))
    user = load_user(user_path(environ)) if user is None else user
    tree = load(source) if isinstance(source, Path) else parse(source.text, source.file)
    if not isinstance(tree.data, dict):
        message = "a campaign is a mapping with keys campaign, targets, workloads, ..."
        if tree.data is None:  # nothing has a line
            file = str(source) if isinstance(source, Path) else source.file
            raise refuse(Origin(file), "", f"is empty; {message}")
        raise CampaignError([tree.problem((), message)])
    merged = Tree({}, {(): tree.origin(())})
    for layer in (site_presets(site), _sub(user, "defaults"), tree):
        merged = merge(merged, _launcher_in_full(layer))
    merged = apply_sets(merged, sets)
    campaign, problems = validate(Campaign, merged.data, merged)
    if campaign is None:
        campaign, _ = validate(Campaign, _without_refused(merged), merged)
    settings = None if campaign is None else Settings(campaign, merged, site)
    return settings, _ordered(problems)


def _without_refused(tree: Tree) -> Any:
    """A copy of the data without the values that the schema refuses.

    Refused factors and exclusions, and all but unknown keys of targets and workloads, stay:
    without them other parts would look wrong that are not.
    """
    copy = _copy(tree, (), tree.data, Tree())
    for path, unknown in refused_paths(Campaign, tree.data, tree):
        if path[0] in ("factors", "exclude") or (
            path[0] in ("targets", "workloads") and not unknown
        ):
            continue
        node = copy
        for part in path[:-1]:
            node = node[part] if isinstance(node, dict) and part in node else {}
        if isinstance(node, dict):
            node.pop(path[-1], None)
    return copy


def merge(lower: Tree, upper: Tree) -> Tree:
    """Mappings are merged key by key; any other value of `upper` replaces the lower one.

    A layer that names another launcher replaces the launcher as a whole: the options of one
    launcher mean nothing to another.
    """
    if not isinstance(upper.data, dict):
        return lower
    result = Tree(None, {})
    result.data = _merge(lower, upper, (), lower.data, upper.data, result)
    return result


def _merge(lower: Tree, upper: Tree, path: KeyPath, low: Any, up: Any, result: Tree) -> Any:
    result.origins[path] = upper.origin(path)
    if not (isinstance(low, dict) and isinstance(up, dict)) or _other_launcher(path, low, up):
        return _copy(upper, path, up, result)
    data = {}
    for key in [*low, *(key for key in up if key not in low)]:
        where = (*path, key)
        if key not in up:
            data[key] = _copy(lower, where, low[key], result)
        elif key not in low:
            data[key] = _copy(upper, where, up[key], result)
        else:
            data[key] = _merge(lower, upper, where, low[key], up[key], result)
    return data


def _other_launcher(path: KeyPath, low: JsonObject, up: JsonObject) -> bool:
    return path == ("launcher",) and "name" in up and up["name"] != low.get("name", "auto")


def _copy(tree: Tree, path: KeyPath, value: Any, result: Tree) -> Any:
    result.origins[path] = tree.origin(path)
    if isinstance(value, dict):
        return {key: _copy(tree, (*path, key), item, result) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(tree, (*path, i), item, result) for i, item in enumerate(value)]
    return value


def apply_sets(tree: Tree, sets: Sequence[str]) -> Tree:
    """`key.path=value` settings, in order; each replaces what stands at its path.

    A word that is no key of a campaign names an option of workloads, where they give it.
    """
    for text in sets:
        source = f"--set {text}" if len(text) <= 80 else f"--set {text[:77]}..."
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            message = "must be key.path=value, for example limits.time_per_run=30s"
            raise refuse(Origin(source), "", message)
        parsed = parse_value(value, source)
        if parts == ["launcher"] and isinstance(parsed.data, str):
            parts = ["launcher", "name"]
        for place in _options(tree, parts) or [parts]:
            tree = _replaced(tree, place, parsed, source)
    return tree


def _options(tree: Tree, parts: Sequence[str]) -> list[list[str]]:
    """Where the campaign gives the workload option that a single word names; else nowhere."""
    if len(parts) != 1 or parts[0] in Campaign.model_fields or not isinstance(tree.data, dict):
        return []
    workloads = tree.data.get("workloads")
    entries = workloads if isinstance(workloads, dict) else {}
    return [
        ["workloads", name, "options", parts[0]]
        for name, entry in entries.items()
        if isinstance(entry, dict)
        and isinstance(entry.get("options"), dict)
        and parts[0] in entry["options"]
    ]


def _replaced(tree: Tree, parts: Sequence[str], value: Tree, source: str) -> Tree:
    result = Tree(None, {})
    result.data = _copy(tree, (), tree.data, result)
    node, path = result.data, tuple[str | int, ...]()
    for depth, part in enumerate(parts):
        key = _key(node, part, ".".join(parts[: depth + 1]), source)
        path = (*path, key)
        if depth + 1 < len(parts):
            if isinstance(node, dict) and node.get(key) is None:
                node[key] = {}
                result.origins[path] = Origin(source)
            node = node[key]
        else:
            for old in [p for p in result.origins if p[: len(path)] == path]:
                del result.origins[old]
            node[key] = value.data
            result.origins.update({(*path, *p): origin for p, origin in value.origins.items()})
            result.origins[path] = Origin(source)
    return result


def _key(node: Any, part: str, where: str, source: str) -> str | int:
    if isinstance(node, dict):
        return part
    if isinstance(node, list):
        if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(node):
            return int(part)
        hint = did_you_mean(part, [str(i) for i in range(min(len(node), 20))])
        raise refuse(Origin(source), where, f"the list has no such item{hint}")
    raise refuse(Origin(source), where, "the key above it holds a value, not a mapping")


def _launcher_in_full(tree: Tree) -> Tree:
    """`launcher: mpirun` written out as `launcher: {name: mpirun}`."""
    if not isinstance(tree.data, dict) or not isinstance(tree.data.get("launcher"), str):
        return tree
    origins = tree.origins | {("launcher", "name"): tree.origin(("launcher",))}
    return Tree(tree.data | {"launcher": {"name": tree.data["launcher"]}}, origins)


def _sub(tree: Tree, key: str) -> Tree:
    """The part of a tree below a key."""
    data = tree.data.get(key) if isinstance(tree.data, dict) else None
    origins = {path[1:]: origin for path, origin in tree.origins.items() if path[:1] == (key,)}
    return Tree(data, origins)


def _ordered(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.file, problem.line))


# Finding a campaign: a file, or the name of a ready one in jobs/.


MAX_BYTES = 16 << 20


def ready() -> dict[str, str]:
    """Names and texts of the ready campaigns."""
    folder = files("fsmatrix.jobs")
    return {
        item.name.removesuffix(".yaml"): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".yaml")
    }


def find(source: str | Path) -> Source:
    """The text of a campaign; CampaignError if there is none of that name."""
    path = Path(source)
    named = isinstance(source, str) and "/" not in source and not source.endswith((".yaml", ".yml"))
    if named and not path.is_file():
        jobs = ready()
        if str(source) in jobs:
            return Source(jobs[str(source)], f"{source}.yaml")
        message = f"neither a file nor a ready campaign{did_you_mean(str(source), jobs)}"
        raise refuse(Origin(str(source)), "", message)
    try:
        return Source(safefile.read_text(path, MAX_BYTES, follow=True), str(path))
    except ResultError as error:
        raise refuse(Origin(str(path)), "", error.reason) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(Origin(str(path)), "", f"cannot be read: {reason}") from error
