"""The storage's health, looked at again and again while a step runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.node_side import Watch

WATCH_SECONDS = 3.0  # between two looks at the storage's health while a step runs
FIRST_LOOK, LAST_LOOK = 2.0, 12.0  # seconds at most before and after the step


class HealthWatch:
    """Looks in a thread of its own: when it is made, every WATCH_SECONDS, and at `stop`."""

    def __init__(self, asked: Watch) -> None:
        """`asked` is used by this thread only.

        Returns after the first look, or after FIRST_LOOK seconds if it hangs.
        """
        self._asked = asked
        self._begun, self._over = threading.Event(), threading.Event()
        self._sentences: list[str] = []
        self._failure: Exception | None = None
        self.looks = 0
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()
        self._begun.wait(FIRST_LOOK)

    def _run(self) -> None:
        try:
            self._look()
            self._begun.set()
            while not self._over.wait(WATCH_SECONDS):
                self._look()
            self._look()
        except Exception as error:  # noqa: BLE001  raised again by `stop`
            self._failure = error
        finally:
            self._begun.set()
            self._asked.close()

    def _look(self) -> None:
        self._sentences = united([*self._sentences, *self._asked.look()])
        self.looks += 1

    def stop(self, patience: float) -> list[str]:
        """Look once more and end; the sentences of all looks.

        What has no answer within `patience` seconds is said; the thread is left behind and ends
        with the call that hangs.
        """
        self._over.set()
        self._thread.join(patience)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive():
            late = f"the storage's health is not known: no answer within {patience:g} s"
            return [*self._sentences, late]
        return self._sentences


def asked_once(look: Callable[[], list[str]], patience: float) -> list[str]:
    """One look, in a thread that is left behind if it has no answer within `patience` seconds."""
    sentences: list[str] = []

    def ask() -> None:
        try:
            sentences.extend(look())
        except (BackendError, OSError) as error:
            sentences.append(str(error))

    thread = threading.Thread(target=ask, name="health", daemon=True)
    thread.start()
    thread.join(patience)
    if thread.is_alive():
        return [f"the storage's health is not known: no answer within {patience:g} s"]
    return sentences


def united(sentences: Iterable[str]) -> list[str]:
    """Of sentences that differ in numbers only (how much is left to recover), the last."""
    number = r"(?<![\w.])\d+(\.\d+)?(?!\w)"  # not a part of a name such as osd.0
    return list({re.sub(number, "#", text): text for text in sentences}.values())
