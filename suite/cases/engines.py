"""The engines of one campaign: found and probed once each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from fsmatrix.backends.player import base, player
from fsmatrix.results.files.safefile import write_whole
from fsmatrix.suite.engines.base import Engine, EngineError, EngineKind
from fsmatrix.suite.registry import ENGINES, Lookup

PLAYER = "player"
VERSIONS = "engines.json"  # in a results directory: engine -> version that it was begun with


class Engines:
    """Gives the engine behind a name."""

    def __init__(self, paths: Mapping[str, str], lookup: Lookup = ENGINES) -> None:
        """`paths`: engine -> program that the campaign or the site names for it."""
        self._paths = paths
        self._lookup = lookup
        self._found: dict[str, Engine | EngineError] = {}

    def get(self, name: str) -> Engine:
        """The engine; EngineError with the reason and the cure if it cannot be used here."""
        if name not in self._found:
            try:
                self._found[name] = self._probe(name)
            except EngineError as error:
                self._found[name] = error
        engine = self._found[name]
        if isinstance(engine, EngineError):
            raise engine
        return engine

    def reason(self, name: str) -> str:
        """Why it cannot be used here; empty if it can."""
        try:
            self.get(name)
        except EngineError as error:
            return str(error)
        return ""

    def usable(self, name: str) -> bool:
        """Whether it can be used here."""
        return not self.reason(name)

    def _probe(self, name: str) -> Engine:
        if name == PLAYER:
            return Engine(player.engine_name(), base.VERSION)
        if name not in self._lookup.names():
            return Engine(name, "")  # of another package's workload: nothing is known about it
        return kind_of(name, self._lookup).probe(self._paths.get(name, ""))


def kind_of(name: str, lookup: Lookup = ENGINES) -> EngineKind:
    """What is to be known about an external engine."""
    return cast("EngineKind", lookup.load(name))


def first_version(folder: Path, engine: Engine) -> str:
    """The version of this engine that the first run in a results directory used."""
    path = folder / VERSIONS
    try:
        versions = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except ValueError:  # torn by a crash: the runs themselves have the versions
        versions = {}
    if engine.name not in versions:
        versions[engine.name] = engine.version
        write_whole(path, json.dumps(versions).encode())
    return str(versions[engine.name])
