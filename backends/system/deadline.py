"""Calls that may hang, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Overdue(Exception):
    """A call has not returned in its time; its thread still waits inside it."""


def within(seconds: float, call: Callable[[], T], name: str | None = None) -> T:
    """The result of `call`; Overdue after `seconds` (0 or less: at once, unless it has ended).

    `name`: of its thread.  What an overdue call uses must not be freed.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(call())
        except BaseException as error:  # noqa: BLE001  raised again by the caller
            failure.append(error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if failure:
        raise failure[0]
    if not result:
        raise Overdue
    return result[0]
