"""The way to a Ray cluster."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from parallel_envs import DependencyError, ParallelEnvsError

try:
    import ray
except ImportError as missing:
    raise DependencyError(
        f"{missing}; install it with: pip install 'parallel-text-envs[ray]'"
    ) from missing

__all__ = ["ClusterError", "connect", "ray", "same_everywhere"]

REACH = 10.0  # seconds that a machine may take to answer


class ClusterError(ParallelEnvsError):
    """There is no Ray cluster where one should be, or it loses every worker."""


def connect(address: str) -> None:
    """Connect this process to a Ray cluster.

    Args:
        address: ``"auto"``, ``"HOST:PORT"``, ``"ray://HOST:PORT"``, or ``"local"`` for a cluster of
            this machine that ends with this process.

    Raises:
        ClusterError: There is none.
    """
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host:  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), REACH).close()
        dashboard = False if address == "local" else None
        ray.init(address, logging_level=logging.ERROR, include_dashboard=dashboard)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"there is no Ray cluster at {address!r} ({error}). Give auto on a machine of the "
            "cluster, HOST:6379, ray://HOST:10001, or local for this machine alone. ray start "
            "--head makes a cluster, ray start --address=HOST:6379 adds a machine to it."
        ) from error


def same_everywhere(model: str) -> str:
    """Return the name of a model so that workers, which start in other folders, find it too.

    Example:
        >>> same_everywhere("owner/name")
        'owner/name'
    """
    return str(Path(model).resolve()) if Path(model).is_dir() else model
