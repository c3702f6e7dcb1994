"""Only the optional C extension; everything else is in setup.cfg."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fsmatrix.backends._player",
            sources=["fsmatrix/backends/native/module.c"],
            extra_compile_args=["-O3", "-std=gnu11", "-Wall", "-Wextra", "-pthread"],
            extra_link_args=["-pthread"],
            libraries=["dl"],
            optional=True,
        )
    ]
)
