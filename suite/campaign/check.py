"""Pydantic's complaints as problems: file and line, key path, value, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fsmatrix.results.registry import did_you_mean
from fsmatrix.suite.campaign.yamlio import KeyPath, Problem, Tree, shown

M = TypeVar("M", bound=BaseModel)
MAPPING = "must be a mapping with keys"
PLAIN = {  # pydantic's kind of error -> what is allowed, in YAML's words
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": MAPPING,
    "mapping_type": MAPPING,
    "model_type": MAPPING,
    "model_attributes_type": MAPPING,
    "string_type": "must be text; put a number or a word such as yes in quotes",
}


def validate(
    model: type[M], data: Any, tree: Tree, prefix: KeyPath = ()
) -> tuple[M | None, list[Problem]]:
    """The model's instance, or the problems of `data`, which stands at `prefix` in `tree`."""
    if not isinstance(data, Mapping):
        what = "nothing" if data is None else shown(data)
        allowed = ", ".join(sorted(model.model_fields))
        return None, [tree.problem(prefix, f"must be a mapping with keys, is {what}; {allowed}")]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        return None, [problem_of(model, detail, tree, prefix) for detail in details]


def refused_paths(model: type[BaseModel], data: Any, tree: Tree) -> Iterator[tuple[KeyPath, bool]]:
    """Paths of the values that the model refuses, and whether their key is unknown."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = _known(detail["loc"], tree, ())
            if path:
                yield path, detail["type"] == "extra_forbidden"


def problem_of(
    model: type[BaseModel], detail: ErrorDetails, tree: Tree, prefix: KeyPath
) -> Problem:
    """One of pydantic's error details as a problem."""
    path = (*prefix, *_known(detail["loc"], tree, prefix))
    kind = detail["type"]
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        hint = did_you_mean(key, _keys(model, detail["loc"][:-1]))
        return tree.problem(path, f"unknown key {key!r}{hint}")
    if kind == "missing":
        parent = (*prefix, *detail["loc"][:-1])
        return tree.problem(parent, f"the key {str(detail['loc'][-1])!r} is missing")
    return tree.problem(path, describe(detail))


def describe(detail: ErrorDetails) -> str:
    """The value and what is allowed instead."""
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if detail["type"] in ("value_error", "assertion_error"):
        return message
    message = _in_plain_words(detail) or message
    return f"{shown(detail['input'])}: {message[:1].lower()}{message[1:]}"


def _in_plain_words(detail: ErrorDetails) -> str:
    """What is allowed, where pydantic names Python's types or a pattern; else empty."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in PLAIN:
        return PLAIN[kind]
    if kind == "missing":  # an item of a list whose length is fixed; keys are named elsewhere
        return "has too few items"
    if kind in ("too_short", "too_long"):
        bound = "min_length" if kind == "too_short" else "max_length"
        least_or_most = "at least" if kind == "too_short" else "at most"
        number = context[bound]
        return f"must have {least_or_most} {number} item{'' if number == 1 else 's'}"
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        if pattern.startswith("^[a-z"):
            return "must be lower-case letters, digits, '-' and perhaps '_'"
        return f"must have the form {pattern}"
    return ""


def _known(loc: Iterable[str | int], tree: Tree, prefix: KeyPath) -> KeyPath:
    """The parts of pydantic's location that are keys of the file (not names of types)."""
    path: KeyPath = ()
    for part in loc:
        if not tree.has((*prefix, *path, part)):
            break
        path = (*path, part)
    return path


def _keys(model: type[BaseModel], loc: Iterable[str | int]) -> list[str]:
    """Keys allowed in the sub-model at `loc`."""
    for part in loc:
        field = model.model_fields.get(str(part))
        inner = _models(field.annotation) if field is not None else []
        if inner:
            model = inner[0]
    return list(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
