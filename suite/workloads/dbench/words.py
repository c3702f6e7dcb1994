"""Further arguments of dbench: which are handed on, and why others are not."""

from __future__ import annotations

from fsmatrix.backends.allowed import NUMBER, Form, Words, plain

# What the suite says itself, or what makes a number that is none.
REFUSED = {
    "--fake-io": "it counts bytes that nobody moves",
    "--run-once": "dbench then ends before its time limit",
    "--machine-readable": "the suite reads the ordinary output",
    "--clients-per-process": "the number of clients comes from the geometry",
    "--directory": "the suite says where dbench works",
    "--loadfile": "use the option loadfile",
    "--timelimit": "use the option runtime",
    "--warmup": "use the option warm_up",
    "--backend": "the suite measures file systems",
    "--sync": "use the option sync",
    "--sync-dir": "use the option sync_directories",
    "--fsync": "use the option fsync",
    "-D": "the suite says where dbench works",
    "-c": "use the option loadfile",
    "-t": "use the option runtime",
    "-B": "the suite measures file systems",
    "-s": "use the option sync",
    "-S": "use the option sync_directories",
    "-F": "use the option fsync",
}

_RATE = Form("a rate", r"\d{1,9}(\.\d{1,9})?")
WORDS = Words(
    "dbench",
    {
        **plain(None, "--stat-check --one-byte-write-fix --per-client-results --no-resolve"),
        **plain(None, "-x --xattr --skip-cleanup"),
        **plain(_RATE, "-R --target-rate"),
        **plain(NUMBER, "--trunc-io"),
    },
)
