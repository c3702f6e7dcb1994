"""Only the optional C extension; everything else is in setup.cfg."""

from setuptools import Extension, setup

NATIVE = "fsmatrix/backends/native"
SOURCES = ("module", "facts", "bare", "player", "lane", "posix", "null")
HEADERS = ("clock", "content", "driver", "player", "python", "transfer")

setup(
    ext_modules=[
        Extension(
            "fsmatrix.backends._player",
            sources=[f"{NATIVE}/{name}.c" for name in SOURCES],
            depends=[f"{NATIVE}/fsm_{name}.h" for name in HEADERS],
            extra_compile_args=["-O3", "-std=gnu11", "-Wall", "-Wextra", "-pthread"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
