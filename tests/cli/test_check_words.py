"""What `fsmatrix check` says of an engine: kinds of what it can do, not all of its options."""

from __future__ import annotations

from fsmatrix.cli.campaigns.check import _features


def test_options_of_a_program_are_not_listed_letter_by_letter() -> None:
    letters = {f"option:{letter}" for letter in "abcdefghijklm"}
    assert _features(frozenset({*letters, "api:POSIX", "api:DFS", "plain"})) == "; api DFS, POSIX"
    assert _features(frozenset(letters)) == ""
