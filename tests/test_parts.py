"""The small parts: spaces, rendering, choosing tasks, the toy."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_envs import Task, Unicode, UnknownTaskError
from parallel_envs.game import find_task, select_tasks
from parallel_envs.render import side_by_side
from parallel_envs.toy import ToyTasks


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_belongs_to_the_space(text: str) -> None:
    assert text in Unicode()
    assert (text in Unicode(max_length=3)) == (len(text) <= 3)


def test_the_space_is_a_well_behaved_gymnasium_space() -> None:
    space = Unicode(seed=3)
    drawn = [space.sample() for _ in range(50)]
    again = Unicode(seed=3)
    assert [again.sample() for _ in range(50)] == drawn
    assert all(text in space for text in drawn)
    assert len(set(drawn)) > 40
    assert all(len(text) <= 2 for text in (Unicode(2, seed=0).sample() for _ in range(20)))
    assert pickle.loads(pickle.dumps(space)) == space == Unicode() != Unicode(5)
    assert repr(space) == "Unicode(max_length=1048576)"
    assert all(other not in space for other in (None, 3, b"x", ["x"], ("x",), "\ud800"))
    with pytest.raises(ValueError, match="admissible_actions"):
        space.sample(mask=(3, None))


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=200)), min_size=1, max_size=9),
    st.integers(24, 200),
)
def test_no_line_is_wider_than_the_terminal(cells: list[tuple[str, str]], width: int) -> None:
    titles = [f"env {i + 1}" for i, _ in enumerate(cells)]
    picture = side_by_side(titles, [text for _, text in cells], width=width)
    for title in titles:
        assert title in picture
    assert all(len(line) <= width for line in picture.split("\n"))


@given(st.text(alphabet="abc xyz", max_size=120))
def test_no_word_is_lost(text: str) -> None:
    picture = side_by_side(["left", "right"], [text, "stop"], width=60)
    column = [line.split("│")[0] for line in picture.split("\n")[2:]]
    assert "".join("".join(column).split()) == "".join(text.split())


def test_tasks_are_found_by_id_alone() -> None:
    tasks = [Task("a/1", "a"), Task("b/1", "b")]
    assert find_task(tasks, "b/1") == tasks[1]
    for wrong in ("a", "b/2", None, 1, ""):
        with pytest.raises(UnknownTaskError):
            find_task(tasks, wrong)


def test_one_name_must_not_be_taken_for_a_list_of_letters() -> None:
    with pytest.raises(TypeError, match=r"tasks=\['boil'\]"):
        select_tasks([Task("boil/1", "boil")], "boil")


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_toys_expert_wins_from_every_room(split: str) -> None:
    for task in ToyTasks(split).tasks:
        game = ToyTasks(split).open(task, 1)
        for walk in range(5):
            (state,) = game.start()
            for _ in range(walk):
                state = game.step(0, "go east")
            if walk == 3:
                state = game.step(0, "ring bell")
            for action in game.expert_plan(0, "shortest"):
                assert action in state.admissible_actions
                state = game.step(0, action)
            assert state.won
            assert state.score == 1
            assert game.expert_plan(0, "shortest") == ()
