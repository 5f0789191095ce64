"""Records of episodes: complete, kept through JSON, and confirmed by replay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gymnasium.wrappers import RecordEpisodeStatistics
from hypothesis import given
from hypothesis import strategies as st

from parallel_envs import ParallelTextEnv
from parallel_envs.diversity import checkpoint_coverage, state_coverage
from parallel_envs.episode import SCHEMA, Episode, ReplayError, replay, text_hash
from parallel_envs.testing import joint_actions
from parallel_envs.toy import ToyGame, ToyTasks
from tests.engines import SMALL, make


def play(env: ParallelTextEnv, seed: int = 0) -> Episode:
    """Play to the end with a mixture of admissible, idle and odd actions."""
    _, info = env.reset(options={"task_id": SMALL[env.task_set.engine]})
    turn = 0
    while "record" not in info:
        joint = tuple(
            ("", "odd thing", a[(5 * turn + seed + i) % len(a)])[(turn + i + seed) % 3]
            for i, a in enumerate(info["admissible_actions"])
        )
        *_, info = env.step(joint)
        turn += 1
    return info["record"]


@st.composite
def toy_episodes(draw: st.DrawFn) -> Episode:
    env = ParallelTextEnv(
        ToyTasks(), n=draw(st.integers(1, 4)), max_turns=draw(st.integers(1, 8)), stop="all_ended"
    )
    _, info = env.reset(seed=draw(st.integers(0, 50)))
    while "record" not in info:
        *_, info = env.step(draw(joint_actions(info)))
    return info["record"]


def test_a_record_is_confirmed_by_replay_and_survives_json(engine: str) -> None:
    env = make(engine, n=3, max_turns=6)
    episode = play(env)
    again = Episode.from_json(json.loads(json.dumps(episode.to_json())))
    assert again == episode
    fresh = make(engine, n=3, max_turns=6)
    assert replay(again, fresh) == episode
    assert episode.versions == env.task_set.versions
    assert episode.truncated
    env.close()
    fresh.close()


@given(toy_episodes())
def test_records_agree_with_what_the_environment_paid(episode: Episode) -> None:
    assert Episode.from_json(json.loads(json.dumps(episode.to_json()))) == episode
    assert sum(turn.reward for turn in episode.turns) == pytest.approx(episode.best_score)
    assert episode.won == (episode.best_score == 1)
    assert episode.steps == sum(len(episode.actions_of(i)) for i in range(episode.n))
    for replica in range(episode.n):
        assert len(episode.visits_of(replica)) == len(episode.actions_of(replica)) + 1


@given(st.data(), st.integers(1, 3), st.integers(0, 50))
def test_coverage_of_a_running_episode_is_that_of_its_record(
    data: st.DataObject, n: int, seed: int
) -> None:
    env = ParallelTextEnv(ToyTasks(), n=n, max_turns=6, stop="all_ended")
    _, info = env.reset(seed=seed)
    while True:
        record = env.record()
        assert info["state_coverage"] == state_coverage(record)
        assert info["checkpoint_coverage"] == checkpoint_coverage(record)
        if "record" in info:
            break
        *_, info = env.step(data.draw(joint_actions(info)))
    assert record.checkpoints == tuple(c for c in ToyGame.checkpoints if c != "place: hall")


@given(toy_episodes(), st.data())
def test_a_tampered_record_is_found_out(episode: Episode, data: st.DataObject) -> None:
    env = ParallelTextEnv(ToyTasks(), episode.n, max_turns=episode.max_turns, stop="all_ended")
    assert replay(episode, env) == episode
    number = data.draw(st.integers(0, len(episode.turns) - 1))
    turn = episode.turns[number]
    fields = {
        "scores": tuple(1 - score / 2 for score in turn.scores),
        "won": tuple(not won for won in turn.won),
        "reward": turn.reward + 0.5,
        "state_keys": ("forged", *turn.state_keys[1:]),
        "observations": (*turn.observations[:-1], text_hash("forged")),
        "admissible": tuple(not flag for flag in turn.admissible),
        "checkpoints": ((99,), *turn.checkpoints[1:]),
        "raw_scores": tuple(score + 1 for score in turn.raw_scores),
        "engine_done": tuple(not flag for flag in turn.engine_done),
    }
    name = data.draw(st.sampled_from(sorted(fields)))
    forged = replace(turn, **{name: fields[name]})
    turns = (*episode.turns[:number], forged, *episode.turns[number + 1 :])
    with pytest.raises(ReplayError, match=f"turn {number + 1}: {name} is"):
        replay(replace(episode, turns=turns), env)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 2}, "n is 2 in the record and 3 here"),
        ({"versions": {"toy": "0"}}, "versions is"),
        ({"stop": "all_ended"}, "stop is"),
        ({"max_turns": 9}, "max_turns is"),
        ({"split": "test"}, "split is"),
        ({"start_key": "x"}, "the whole: start_key is 'x'"),
        ({"truncated": False, "terminated": True}, "the whole: terminated is True"),
    ],
)
def test_another_protocol_is_not_replayed(change: dict[str, Any], message: str) -> None:
    episode = play(make("toy", n=3, max_turns=4))
    with pytest.raises(ReplayError, match=message):
        replay(replace(episode, **change), make("toy", n=3, max_turns=4))


def test_a_record_that_goes_on_after_the_end_is_found_out() -> None:
    episode = play(make("toy", n=3, max_turns=4))
    longer = replace(episode, turns=(*episode.turns, episode.turns[-1]))
    with pytest.raises(ReplayError, match="ended before turn 5"):
        replay(longer, make("toy", n=3, max_turns=4))


def test_records_of_another_schema_are_refused() -> None:
    data = play(make("toy", n=1, max_turns=2)).to_json()
    with pytest.raises(ValueError, match=f"schema {SCHEMA}, not 7"):
        Episode.from_json({**data, "schema": 7})


def test_an_unfinished_episode_can_be_recorded_and_forked() -> None:
    env = make("toy", n=2)
    env.reset(options={"task_id": SMALL["toy"]})
    env.step(("go east", ""))
    twin = env.fork()
    env.step(("look", "look"))
    assert (len(env.record().turns), len(twin.record().turns)) == (2, 1)
    assert not env.record().truncated
    assert replay(twin.record(), make("toy", n=2)) == twin.record()


def test_gymnasiums_statistics_find_their_place() -> None:
    """They write ``info["episode"]``, which is why the record has another name."""
    env = RecordEpisodeStatistics(make("toy", n=1, max_turns=1))
    env.reset(seed=0)
    *_, info = env.step(("look",))
    assert info["episode"]["l"] == 1
    assert info["record"].max_turns == 1
