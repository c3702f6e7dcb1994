"""Only the optional C extension; everything else is in setup.cfg."""

from setuptools import Extension, setup

NATIVE = "fsmatrix/backends/player/native"
SOURCES = (
    *("module", "chunk", "facts", "bare", "player", "lane", "flight", "workers", "root"),
    *("posix", "uring", "ring", "libc", "folders", "null", "rados", "radosconnect", "radosfile"),
    *("ceph", "cephfs", "cephfsconnect", "cephfsnonblocking"),
    *("dfs", "dfsattach", "dfsconnect", "dfserrors", "dfsfolders", "dfsnames"),
)
HEADERS = (
    *(
        "ceph",
        "cephfs",
        "clock",
        "content",
        "dfs",
        "driver",
        "folders",
        "lane",
        "parents",
        "player",
        "python",
    ),
    *("queue", "rados", "ring", "root", "transfer", "workers"),
)

setup(
    ext_modules=[
        Extension(
            "fsmatrix.backends.player._player",
            sources=[f"{NATIVE}/{name}.c" for name in SOURCES],
            depends=[f"{NATIVE}/fsm_{name}.h" for name in HEADERS],
            extra_compile_args=["-O3", "-std=gnu11", "-Wall", "-Wextra", "-pthread"],
            extra_link_args=["-pthread"],
            libraries=["dl"],
            optional=True,
        )
    ]
)
