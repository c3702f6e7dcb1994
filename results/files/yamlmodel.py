"""YAML files that come with fsmatrix, read as pydantic models."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fsmatrix.results.files.safefile import ResultError

Model = TypeVar("Model", bound=BaseModel)


def load(path: Path, model: type[Model], refusal: str) -> Model:
    """The model that a file holds; ResultError of `refusal` and the reason if it holds none."""
    try:
        text = path.read_text(encoding="utf-8")
        return model.model_validate(YAML(typ="safe", pure=True).load(text))
    except (OSError, YAMLError, ValidationError) as error:
        raise ResultError(path, f"{refusal}: {error}") from error
