"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

from parallel_envs import ParallelTextEnv
from tests.engines import ENGINES, make

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("repeatable")

# Ray reads these when it is imported. Without a token it would write one to the home folder.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def pytest_configure(config: pytest.Config) -> None:
    """The suite plays real games: say so at once where they are missing."""
    from parallel_envs.alfworld.tasks import data_folder

    if not (data_folder() / "json_2.1.1" / "valid_unseen").is_dir():
        raise pytest.UsageError(
            f"the tests need the ALFWorld games, and {data_folder()} has none; "
            "get them with alfworld-download, or set ALFWORLD_DATA"
        )
    os.environ.setdefault("ALFWORLD_DATA", str(data_folder()))


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    return str(request.param)


@pytest.fixture
def env(engine: str) -> ParallelTextEnv:
    """An environment of three replicas of each engine in turn."""
    made = make(engine, n=3)
    yield made
    made.close()


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[Any]:
    """A Ray cluster in this machine, of two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    # A node that is gone is noticed soon.
    health = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": health}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()
