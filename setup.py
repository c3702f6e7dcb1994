"""Only the optional C extension; everything else is in setup.cfg."""

from setuptools import Extension, setup

NATIVE = "fsmatrix/backends/native"

setup(
    ext_modules=[
        Extension(
            "fsmatrix.backends._player",
            sources=[
                f"{NATIVE}/{name}.c" for name in ("module", "player", "lane", "posix", "null")
            ],
            depends=[f"{NATIVE}/fsm_{name}.h" for name in ("clock", "content", "driver", "player")],
            extra_compile_args=["-O3", "-std=gnu11", "-Wall", "-Wextra", "-pthread"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
