"""uproot, which reads and writes RNTuple in pure Python: its version."""

from fsmatrix.suite.engines.python import kind

KIND = kind("uproot", "uproot", "pip install uproot awkward cramjam xxhash")
