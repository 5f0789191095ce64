"""The splits of ScienceWorld, as written down here and as the engine has them."""

from __future__ import annotations

import re
import sys

import pytest

from parallel_envs import DependencyError, UnknownTaskError
from parallel_envs.scienceworld.server import JavaServer
from parallel_envs.scienceworld.tasks import HELD_OUT, SPLITS, VARIATIONS, ScienceWorldTasks
from tests.engines import make


@pytest.mark.parametrize(
    ("split", "count"),
    [
        ("train", 3592),
        ("dev", 1796),
        ("test", 1819),
        ("L0", 1661),
        ("L1", 1684),
        ("L2", 549),
        ("L0-train", 3322),
        ("L1-train", 3322),
        ("L2-train", 2242),
    ],
)
def test_counts(split: str, count: int) -> None:
    tasks = ScienceWorldTasks(split).tasks
    assert len(tasks) == len({task.id for task in tasks}) == count
    assert [(t.type, int(t.id.split("/")[1])) for t in tasks] == sorted(
        (t.type, int(t.id.split("/")[1])) for t in tasks
    )


def ids(split: str) -> set[str]:
    return {task.id for task in ScienceWorldTasks(split).tasks}


def test_what_is_tested_is_never_trained_on() -> None:
    official = [ids(split) for split in ("train", "dev", "test")]
    assert sum(map(len, official)) == len(set().union(*official)) == 7207
    assert not ids("L0") & ids("L0-train")
    assert not ids("L1") & ids("L1-train")
    assert ids("L2") <= ids("L1")
    assert not {id.split("/")[0] for id in ids("L2")} & {id.split("/")[0] for id in ids("L2-train")}
    assert {id.split("/")[0] for id in ids("L2")} == HELD_OUT
    assert len(HELD_OUT) == 10
    for split in ("L0", "L1", "L2", "L0-train", "L1-train", "L2-train"):
        assert not any(id.startswith("use-thermometer") for id in ids(split))


def test_the_engine_has_these_variations() -> None:
    server = JavaServer.acquire()
    java = server.jvm.scienceworld.runtime.pythonapi.PythonInterface()
    assert sorted(java.getTaskNames()) == sorted(VARIATIONS)
    for name, (train, dev, test) in VARIATIONS.items():
        java.load(name, 0, "", False)
        sets = (java.getVariationsTrain(), java.getVariationsDev(), java.getVariationsTest())
        assert [list(s) for s in sets] == [
            list(range(train)),
            list(range(train, train + dev)),
            list(range(train + dev, train + dev + test)),
        ]
        assert java.getTaskMaxVariations(name) == train + dev + test
    server.release()


@pytest.mark.parametrize("task", ["boil/30", "boil/-1", "boil/0", "boil", "boyl/21", "boil/021"])
def test_a_variation_that_is_not_of_the_split_is_unknown(task: str) -> None:
    env = make("scienceworld", n=1, tasks=["boil"])
    with pytest.raises(UnknownTaskError, match="boil/2"):
        env.reset(options={"task_id": task})
    env.close()


def test_splits_need_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JavaServer, "acquire", lambda: pytest.fail("Java was asked for"))
    env = make("scienceworld", n=1)
    assert env.task_set.versions == {"scienceworld": "1.2.3"}
    assert set(SPLITS) >= {"train", "dev", "test", "L0", "L1", "L2"}
    env.close()


def test_a_missing_engine_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "parallel_envs.scienceworld.game", None)
    tasks = ScienceWorldTasks("L1")
    with pytest.raises(DependencyError, match=re.escape("parallel-text-envs[scienceworld]")):
        tasks.open(tasks.tasks[0], 1)
