"""JSON and levels are read by small functions that trust nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fsmatrix.results.evidence.stored import (
    inside,
    mapping,
    objects,
    positive,
    text,
    texts,
    whole,
    wholes,
)
from fsmatrix.results.evidence.target import of_environment, pools


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1), (7, 7), (0, None), (-1, None), (True, None), (1.0, None), ("3", None), (None, None)],
)
def test_a_positive_number_is_whole(value: Any, number: int | None) -> None:
    assert positive(value) == number


def test_what_is_inside_is_an_object_or_empty() -> None:
    value = {"a": {"b": {"c": 1}, "d": 5}}
    assert inside(value, "a", "b") == {"c": 1}
    assert inside(value, "a", "d") == inside(value, "x", "y") == inside(3, "a") == {}
    assert inside(value) is value


def test_text_is_text() -> None:
    assert text({"a": "b"}, "a") == "b"
    assert texts({"a": ["b", "c"]}, "a") == ("b", "c")
    with pytest.raises(TypeError, match="a is 5, not text"):
        text({"a": 5}, "a")
    with pytest.raises(TypeError, match="not a list of texts"):
        texts({"a": ["b", 1]}, "a")
    with pytest.raises(TypeError, match="not a list of texts"):
        texts({"a": "bc"}, "a")
    with pytest.raises(KeyError):
        text({}, "a")


def test_numbers_and_objects_are_such() -> None:
    assert mapping({"a": {"b": 1}}, "a") == {"b": 1}
    with pytest.raises(TypeError, match="a is 5, not an object"):
        mapping({"a": 5}, "a")
    assert whole({"a": -3}, "a") == -3
    assert wholes({"a": [1, 2]}, "a") == (1, 2)
    assert objects({"a": [{"b": 1}]}, "a") == ({"b": 1},)
    for value in (True, "3", 3.0, None):
        with pytest.raises(TypeError, match="not a whole number"):
            whole({"a": value}, "a")
        with pytest.raises(TypeError, match="not a list of whole numbers"):
            wholes({"a": [1, value]}, "a")
        with pytest.raises(TypeError, match="not a list of objects"):
            objects({"a": [{}, value]}, "a")


@pytest.mark.parametrize(
    "target",
    ["imported", {"level": "x"}, {"emulated": {"adapter_limits": 3}}, {"device_numbers": ["a"]}],
)
def test_of_nonsense_nothing_is_known(target: Any) -> None:
    known = of_environment({"target": target})
    assert (known.level, known.emulated, known.device_numbers) == (None, None, None)


def test_a_pool_that_did_not_tell_is_left_out() -> None:
    told = {"a": {"metadata": True}, "b": "no answer", "c": {"placement": {"hosts": ["x"]}}}
    known = dict(pools({"target": {"ceph": {"pools": told}}}))
    assert known.keys() == {"a", "c"}
    assert known["a"].metadata
    assert known["c"].placement is not None
    assert known["c"].placement.hosts == ("x",)
