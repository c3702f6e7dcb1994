"""A seccomp filter of the calling process that forbids system calls, as containers' filters do.

As a program: `python -m tests.backends.forbidding ENOSYS 425 -- COMMAND...`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

SETUP, ENTER, REGISTER = 425, 426, 427  # of io_uring
_NO_NEW_PRIVILEGES, _SECCOMP = 38, 317  # prctl; number of the call on x86-64
_CALL, _FILTER, _TO_ALL_THREADS = 277, 1, 1  # seccomp on arm64; operation; flag
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # of BPF


class _Step(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step))]


def forbid(error: int, *calls: int) -> None:
    """From now on these calls give `error`, in all threads and in children; for good."""
    steps = [_Step(_LOAD, 0, 0, 0)]
    for call in calls:
        steps += [_Step(_EQUAL, 0, 1, call), _Step(_RETURN, 0, 0, _ERRNO | error)]
    steps.append(_Step(_RETURN, 0, 0, _ALLOW))
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    number = _CALL if os.uname().machine == "aarch64" else _SECCOMP
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        number, _FILTER, _TO_ALL_THREADS, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "no seccomp filter can be set")


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    end = words.index("--")
    forbid(getattr(errno, name), *map(int, words[:end]))
    os.execvp(words[end + 1], words[end + 1 :])
