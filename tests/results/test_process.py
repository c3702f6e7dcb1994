"""One process for sure: a pid that is used again, another boot, a zombie are not it."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace

from fsmatrix.results.process import Process, boot_id, start_of


def test_a_process_is_itself_and_no_other() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        process = Process.of(child.pid)
        assert process is not None
        assert process.boot_id == boot_id()
        assert process.runs
        assert not replace(process, start=process.start + 1).runs
        assert not replace(process, boot_id="another").runs
        with replace(process, start=process.start + 1).held() as other:
            assert other is None
        with process.held() as handle:
            assert handle is not None
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_of(child.pid) == 0, "a zombie is gone"
        assert not process.runs
    assert Process.of(child.pid) is None
    with process.held() as handle:
        assert handle is None
