"""ROOT with RNTuple, of PyPI or of the site: version, and whether it was built with DAOS."""

from fsmatrix.suite.engines.python import kind

KIND = kind(
    "root",
    "ROOT",
    "install fsmatrix[hep] (pip install --pre root), or load the site's ROOT",
    frozenset({"daos", "imt"}),
)
