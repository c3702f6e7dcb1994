"""Configuration files of daos_server, daos_agent and dmg: the names of DAOS 2.4 to 2.6."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

from fsmatrix.backends.testbed.daos.options import GIB, DaosTestbedOptions
from fsmatrix.backends.testbed.network import Network
from fsmatrix.results.evidence.values import Json, JsonObject

SYSTEM = "daos_server"  # the only name that DAOS supports
PROVIDER = "ofi+tcp"
CONTROL_PORT, ENGINE_PORT = 10001, 31316
NODE_LINK = "eth0"  # of a node, in its own network namespace
# A node's own tmpfs, which nobody else sees; the paths of sockets in it are short.
NODE_SOCKETS = "/dev/shm"
_NO_NUMA = 0  # nodes on one machine are not spread over its NUMA nodes
# Nobody but this machine reaches the servers: they listen in namespaces of the bed's own.
_INSECURE = {"allow_insecure": True}


def text(facts: JsonObject) -> str:
    """A configuration as YAML."""
    stream = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style, yaml.width = False, 4096  # columns; paths are not folded
    yaml.dump(dict(facts), stream)
    return stream.getvalue()


def access_point(network: Network) -> str:
    """The first node holds the management service."""
    return f"{network.nodes[0]}:{CONTROL_PORT}"


def server(
    options: DaosTestbedOptions,
    network: Network,
    *,
    folder: Path,
    core: int,
    huge_pages: bool,
    environment: Mapping[str, str],
) -> dict[str, Json]:
    """daos_server.yml of a node.

    `folder`: of its logs and of the point where its storage is mounted; `core`: the first one that
    its engine uses; `huge_pages`: the kernel uses transparent ones, which daos_server refuses
    unless told otherwise; `environment`: variables of the engine.
    """
    engine: JsonObject = {
        "targets": options.targets_per_node,
        "nr_xs_helpers": 0,
        "first_core": core,
        "fabric_iface": NODE_LINK,
        "fabric_iface_port": ENGINE_PORT,
        "log_mask": "ERR",
        "log_file": str(folder / "engine.log"),
        "env_vars": [f"{name}={value}" for name, value in environment.items()],
        "storage": [
            {
                "class": "ram",
                "scm_mount": str(storage(folder)),
                "scm_size": options.memory // GIB,
                "scm_hugepages_disabled": True,
            }
        ],
    }
    return {
        "name": SYSTEM,
        "access_points": [access_point(network)],
        "port": CONTROL_PORT,
        "transport_config": _INSECURE,
        "provider": PROVIDER,
        "socket_dir": NODE_SOCKETS,
        "disable_hugepages": True,
        **({"allow_thp": True} if huge_pages else {}),
        "system_ram_reserved": 1,
        "control_log_mask": "INFO",
        "control_log_file": str(folder / "server.log"),
        "engines": [engine],
    }


def storage(folder: Path) -> Path:
    """Where a node's server mounts the storage of its engine, in a mount namespace of its own."""
    return folder / "scm"


def agent(network: Network, sockets: Path, log: Path) -> dict[str, Json]:
    """daos_agent.yml; clients reach the nodes by the bridge."""
    device = {"iface": network.bridge, "domain": network.bridge}
    return {
        "name": SYSTEM,
        "access_points": [access_point(network)],
        "port": CONTROL_PORT,
        "transport_config": _INSECURE,
        "runtime_dir": str(sockets),
        "log_file": str(log),
        "fabric_ifaces": [{"numa_node": _NO_NUMA, "devices": [device]}],
    }


def control(addresses: Sequence[str]) -> dict[str, Json]:
    """daos_control.yml, which dmg reads."""
    return {
        "name": SYSTEM,
        "port": CONTROL_PORT,
        "hostlist": [f"{address}:{CONTROL_PORT}" for address in addresses],
        "transport_config": _INSECURE,
    }


def engine_environment(proof: Mapping[str, str]) -> dict[str, str]:
    """Variables of an engine on a small machine, and the proof of whose it is."""
    return {"DAOS_MD_CAP": "128", "DAOS_TARGET_OVERSUBSCRIBE": "1", **proof}
