"""Ids: the same case has the same id on every machine and in every Python."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.results.record import Case, Geometry, canonical_json, digest

PLAIN = Case("xfs", "pattern", {"chunk_size": 4096, "direction": "read"}, Geometry(1, 2))
RICH = Case(
    "ceph-é",
    "ior",
    {"transfer": 1048576, "api": "POSIX", "flags": ["-e", "-C"], "ratio": 0.3},
    Geometry(4, 8, 2),
    cache="warm",
    device_state="filled",
    level={"storage_nodes": 5},
)
# released ids: a change of one of them would orphan every stored run
RECORDED = [
    (PLAIN, "20c999e10d925856", "7f01ae5e3c186f3f"),
    (RICH, "8ddf5cddffe08845", "b4bf5a273a8d42fe"),
    (Case("a", "metadata"), "c8032781965ce7f4", "09779618111fda65"),
]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(st.text(), json_values, max_size=4)
cases = st.builds(
    Case,
    target=st.text(),
    workload=st.text(),
    options=mappings,
    geometry=st.builds(Geometry, *[st.integers(1, 4096)] * 3),
    cache=st.sampled_from(["cold", "warm", "bypass"]),
    device_state=st.sampled_from(["as_found", "fresh"]),
    level=mappings,
)


@pytest.mark.parametrize(("case", "case_id", "work_id"), RECORDED)
def test_recorded_ids(case, case_id, work_id):
    assert (case.case_id, case.work_id) == (case_id, work_id)


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_same_id_in_another_process(seed):
    program = (
        "import json, sys; from fsmatrix.results.record import Case\n"
        "print(json.dumps([[c.case_id, c.work_id] for c in "
        "map(Case.from_canonical, json.load(sys.stdin))]))"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=json.dumps([case.canonical for case, _, _ in RECORDED]),
        env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout) == [[c.case_id, c.work_id] for c, _, _ in RECORDED]


@given(mappings)
def test_order_of_keys_is_irrelevant(options):
    backwards = dict(reversed(options.items()))
    assert Case("a", "w", options).case_id == Case("a", "w", backwards).case_id


@given(st.integers(-(2**53), 2**53))
def test_whole_floats_are_integers(number):
    assert digest({"x": number}) == digest({"x": float(number)})


def test_numbers_that_differ_have_other_ids():
    assert digest({"x": 1}) != digest({"x": 1.5})
    assert digest({"x": 1}) != digest({"x": "1"})
    assert digest({"x": 1}) != digest({"x": True})


def test_defaults_leave_no_trace():
    bare = Case("a", "w")
    spelled = Case("a", "w", {}, Geometry(1, 1, 1), "cold", "as_found", {})
    assert bare.canonical == spelled.canonical == '{"target":"a","workload":"w"}'


def test_work_id_leaves_out_the_target():
    one, other = Case("a", "w", {"x": 1}), Case("b", "w", {"x": 1}, level={"nodes": 3})
    assert one.work_id == other.work_id
    assert one.case_id != other.case_id


@pytest.mark.parametrize(
    "change",
    [{"cache": "warm"}, {"geometry": Geometry(1, 2)}, {"options": {"x": 2}}, {"workload": "v"}],
)
def test_work_changes_both_ids(change):
    case = Case(**{"target": "a", "workload": "w", **change})
    assert case.case_id != Case("a", "w").case_id
    assert case.work_id != Case("a", "w").work_id


@given(cases)
def test_from_canonical_gives_the_case_back(case):
    again = Case.from_canonical(case.canonical)
    assert again.canonical == case.canonical
    assert (again.case_id, again.work_id) == (case.case_id, case.work_id)
    assert again == case  # True == 1 and 1.0 == 1 in Python


@pytest.mark.parametrize("text", ["[]", "{}", '{"target":"a"}', "1", '"x"'])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match="not the canonical JSON of a case"):
        Case.from_canonical(text)


def test_nan_has_no_canonical_form():
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})
