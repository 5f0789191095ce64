"""Fixtures shared by all tests."""

from __future__ import annotations

import os

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
