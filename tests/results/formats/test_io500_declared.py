"""What submissions to IO500 say of themselves: their place, and their form in its three shapes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.results.formats.io500_text import Declared, Place, declared, is_form, place_of


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (
            "Uni/sys/CephFS/2024/submission-7/results/a",
            Place("Uni/sys/CephFS/2024/submission-7", "Uni/sys", "CephFS", 2024),
        ),
        (
            "Uni/a/b/work /  fs2/2019/submission-8",
            Place("Uni/a/b/work /  fs2/2019/submission-8", "Uni/a/b/work ", "fs2", 2019),
        ),
        ("sys/fs/submission-9", Place("sys/fs/submission-9", "sys", "fs", None)),
        ("submission-9/x", Place("submission-9", "submission-9", "", None)),
        ("my/results/today", Place("my/results/today", "my/results/today", "", None)),
        (".", Place(".", ".", "", None)),
    ],
)
def test_a_place_in_the_collection(path: str, place: Place) -> None:
    assert place_of(path) == place


def test_the_form_of_2018_in_the_script() -> None:
    text = (
        "#!/bin/bash\nfunction extra_description {\n"
        "  io500_info_filesystem='Lustre'     # e.g. BeeGFS, DataWarp, GPFS, IME, Lustre\n"
        "  io500_info_filesystem_vendor='xxx'\n  io500_info_num_client_nodes='24'\n"
        "  # io500_info_filesystem_name='not this'\n}\n"
    )
    assert declared([text]) == Declared(("Lustre",), 24)


def test_the_form_of_2019_had_a_name_misspelt() -> None:
    assert declared(["io500_info_filesysem='CephFS'   # e.g. GPFS\n"]).filesystem == ("CephFS",)


def test_the_form_of_2019_that_is_printed() -> None:
    text = 'echo io500_info_filesystem_type=\'"DAOS"\'\necho "io500_info_client_nodes=\\"16\\""\n'
    assert declared([text]) == Declared(("DAOS",), 16)


def test_the_type_is_more_telling_than_name_and_vendor() -> None:
    text = (
        'io500_info_storage_vendor="Acme"\nio500_info_filesystem_name="/scratch"\n'
        'io500_info_filesystem_type="BeeGFS"\nio500_info_filesystem_version="7.1"\n'
    )
    assert declared([text]).filesystem == ("BeeGFS", "/scratch", "7.1", "Acme")


def test_the_form_of_the_site_is_json() -> None:
    tree = {
        "DATA": {
            "type": "Site",
            "att": {"name": "no"},
            "childs": [
                {
                    "type": "IO500",
                    "childs": [{"type": "information", "att": {"number_clientNodes": "10"}}],
                },
                {
                    "type": "StorageSystem",
                    "att": {"name": "fast", "type": "burst buffer", "count": 3},
                },
            ],
        }
    }
    assert declared([json.dumps(tree)]) == Declared(("burst buffer", "fast"), 10)


@pytest.mark.parametrize("nodes", ["", "xxx", "0", "-3", "ten", "1e3", "123456789", "１０"])
def test_a_number_of_nodes_that_is_none_is_not_told(nodes: str) -> None:
    assert declared([f'io500_info_client_nodes="{nodes}"\n']).nodes is None


def test_which_files_hold_forms() -> None:
    names = (
        "system-information.txt",
        "system-information.json",
        "io500.sh",
        "io500.cfg",
        "io-500-summary.2019.01.01-00.00.00.txt",
    )
    assert all(map(is_form, names))
    assert not any(map(is_form, ("result_summary.txt", "config.ini", "find.csv", "sh")))


PIECES = st.sampled_from(
    [
        "io500_info_filesystem=",
        "io500_info_client_nodes=",
        "xxx",
        "",
        " ",
        "7",
        "0",
        "a b",
        "\n",
        '"',
        '{"type": "StorageSystem", "att": {"name": "',
        '"}}',
        "#",
    ]
)


@given(st.lists(st.text() | st.lists(PIECES).map("".join)))
def test_no_text_is_too_odd(texts: list[str]) -> None:
    found = declared(texts)
    assert found.nodes is None or 1 <= found.nodes < 10**8
    assert all(name == name.strip() and name not in ("", "xxx") for name in found.filesystem)
    assert len(set(found.filesystem)) == len(found.filesystem)


def test_json_that_is_nested_too_deep_says_nothing() -> None:
    assert declared(['{"a":' * 100_000]) == Declared()
