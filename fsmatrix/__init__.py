"""fsmatrix: a multi-backend MPI benchmark suite that compares file systems."""

__version__ = "0.1.0"
