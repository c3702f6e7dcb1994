"""The storage's health: looked at while a step runs, and asked when no operation completes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable

from fsmatrix.backends.contract import Watch
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.evidence import HealthEvent
from fsmatrix.suite.session.client import StorageStalled

SHOWN = 3  # sentences in a reason
HEALTH_SECONDS = 30.0  # for an answer about the health
WATCH_SECONDS = 3.0  # between two looks at the storage's health while a step runs
FIRST_LOOK, LAST_LOOK = 2.0, 12.0  # seconds at most before and after the step
ASKED_AGAIN = 60.0  # seconds at most between two questions of a step that stands still


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
        self.events: list[HealthEvent] = []
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
        said = self._asked.look()
        now = time.time()
        self.events += [
            HealthEvent(time=now, says=text) for text in new_ones(said, self._sentences)
        ]
        self._sentences = united([*self._sentences, *said])
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


class Asked:
    """One look, in a thread that is left behind if it hangs."""

    def __init__(self, look: Callable[[], list[str]]) -> None:
        self._look = look
        self._sentences: list[str] = []
        self._ended: float | None = None
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._ask, name="health", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._sentences = self._look()
        except (BackendError, OSError) as error:
            self._sentences = [str(error)]
        self._ended = time.monotonic()

    def answer(self, patience: float, wait: bool = False) -> tuple[list[str], float] | None:
        """What was said and how many seconds ago; None while it is waited for.

        After `patience` seconds without an answer it says so, as of now.
        """
        if wait:
            self._thread.join(patience)
        now = time.monotonic()
        if self._ended is not None:
            return self._sentences, now - self._ended
        if wait or now - self._began >= patience:
            return [f"the storage's health is not known: no answer within {patience:g} s"], 0.0
        return None

    @property
    def hangs(self) -> bool:
        """Whether there is no answer yet."""
        return self._ended is None


def asked_once(look: Callable[[], list[str]], patience: float) -> list[str]:
    """What a look says; that it has no answer within `patience` seconds, if so."""
    answer = Asked(look).answer(patience, wait=True)
    assert answer is not None
    return answer[0]


class StallWatch:
    """Asks the storage for its health while no operation of a step completes.

    If it does not answer, or says what it did not say before and after as long again still no
    operation has completed (it may have gone over to other servers), the step is ended.  If it
    says that all is well, it is asked again after as long as nothing had completed then: of some
    programs no operation can be seen, and questions cost time.
    """

    def __init__(
        self,
        idle: Callable[[], float],
        seconds: float,
        ask: Callable[[], list[str]],
        known: Iterable[str],
    ) -> None:
        """`idle`: seconds since an operation completed; `known`: sentences of before the step."""
        self._idle = idle
        self._seconds = seconds
        self._ask = ask
        self._known = [*known]
        self._asked: Asked | None = None
        self._from = seconds  # idle seconds from which on it is asked

    def look(self) -> None:
        """To be called again and again; StorageStalled if the step must end."""
        idle = self._idle()
        if idle < self._seconds:
            self._asked, self._from = None, self._seconds
            return
        if self._asked is None and idle < self._from:
            return
        if self._asked is None:
            self._asked = Asked(self._ask)
        answer = self._asked.answer(HEALTH_SECONDS)
        if answer is None:
            return
        sentences, ago = answer
        said = new_ones(sentences, self._known)
        if said and (self._asked.hangs or ago >= self._seconds):
            raise StorageStalled(
                f"no operation was seen to complete for {idle:.0f} s, and the storage said: "
                f"{'; '.join(said[:SHOWN])}",
                self._known,
            )
        if ago >= self._seconds:
            self._asked, self._from = None, min(2 * idle, idle + ASKED_AGAIN)


class Ends:
    """Asked while a program of the conductor runs: whether to end it, and why."""

    def __init__(self, at_once: Callable[[], bool], stall: StallWatch | None) -> None:
        self._at_once, self._stall = at_once, stall
        self.stalled: StorageStalled | None = None

    def __call__(self) -> bool:
        if self._stall is not None and self.stalled is None:
            try:
                self._stall.look()
            except StorageStalled as problem:
                self.stalled = problem
        return self.stalled is not None or self._at_once()


def new_ones(sentences: Iterable[str], known: Iterable[str]) -> list[str]:
    """Those that do not only differ in numbers from what was said before."""
    before = {_unnumbered(text) for text in known}
    return [text for text in sentences if _unnumbered(text) not in before]


def united(sentences: Iterable[str]) -> list[str]:
    """Of sentences that differ in numbers only (how much is left to recover), the last."""
    return list({_unnumbered(text): text for text in sentences}.values())


def _unnumbered(text: str) -> str:
    return re.sub(r"(?<![\w.])\d+(\.\d+)?(?!\w)", "#", text)  # not in a name such as osd.0
