"""`ParallelTextEnv`: n replicas of one text-game task as one Gymnasium environment."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypedDict, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from parallel_envs.diversity import summary
from parallel_envs.episode import Episode, Turn, text_hash
from parallel_envs.errors import ActionError, EngineError, ReplicaMismatchError
from parallel_envs.game import GameState, Task, TaskSet, TextGame, find_task
from parallel_envs.render import side_by_side
from parallel_envs.spaces import Unicode

__all__ = ["Observation", "ParallelTextEnv", "StopRule"]

StopRule = Literal["first_win", "all_ended"]


class Observation(TypedDict):
    """What the agent sees: the task and what each of the n replicas last showed."""

    task: str
    observations: tuple[str, ...]


class ParallelTextEnv(gymnasium.Env[Observation, tuple[str, ...]]):
    """n replicas of one task: act in any of them each turn, see all, win when one is solved.

    ========== =====================================================================
    Action     ``Tuple(Unicode × n)``; ``""`` leaves that replica alone
    Observed   ``Dict(task=Unicode, observations=Tuple(Unicode × n))``
    Reward     rise of the best score of any replica so far, scores in [0, 1]
    Terminated a replica has won (``stop="first_win"``), or every replica has ended
    Truncated  ``max_turns`` turns were played and nothing of the above happened
    ========== =====================================================================

    The return of an episode is its best score (points for the start are paid in the first turn); a
    win is paid once. All replicas start in the
    same state (checked at every reset) and never influence one another. A replica that has won
    or is lost is *closed*: later actions for it are not sent, and ``info["ignored"]`` says so.

    ``info`` holds, with n the number of replicas and arrays of length n:

    - ``task_id``, ``task_type``, ``split``: which task is played.
    - ``admissible_actions``: n tuples of strings, each in a fixed order.
    - ``score`` (float in [0, 1]), ``raw_score`` (the engine's own), ``won``, ``closed``: where
      each replica stands.
    - ``acted``, ``ignored``: was an action sent; was one given to a closed replica.
    - ``admissible``: was the sent action in the list held before this step.
    - ``changed_nothing``: the action left the replica in the state it was in.
    - ``state_key``: n short hashes, equal exactly when two replicas are in the same state.
    - ``pending``: n open questions of the engine, None where there is none.
    - ``turn``: turns played; ``steps``: actions sent, summed over replicas.
    - ``state_coverage``: different states that any replica was in so far;
      ``checkpoint_coverage``: share of the task's checkpoints reached so far, None without any.
    - In the last turn also ``record``, the `Episode`, and ``diversity``, its exploration metrics
      (`parallel_envs.diversity.summary`).

    Args:
        task_set: The tasks of a split.
        n: Number of replicas, at least 1.
        max_turns: Turns after which the episode is truncated, at least 1.
        stop: ``"first_win"`` ends the episode with the first win, ``"all_ended"`` when every
            replica has ended.
        render_mode: ``"ansi"`` makes `render` return the replicas side by side.

    Example:
        >>> from parallel_envs.toy import ToyTasks
        >>> env = ParallelTextEnv(ToyTasks(), n=3)
        >>> obs, info = env.reset(seed=0)
        >>> obs["task"]
        'Find the coin and take it.'
        >>> obs, reward, terminated, truncated, info = env.step(("go east", "go west", ""))
        >>> [text.splitlines()[0] for text in obs["observations"]]
        ['You are in the attic.', 'You are in the cellar.', 'You are in the hall.']
        >>> info["acted"].tolist(), info["steps"], reward
        ([True, True, False], 2, 0.0)
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self,
        task_set: TaskSet,
        n: int = 4,
        *,
        max_turns: int = 25,
        stop: StopRule = "first_win",
        render_mode: str | None = None,
    ) -> None:
        self.task_set = task_set
        self.n = _positive("n", n)
        self.max_turns = _positive("max_turns", max_turns)
        if stop not in ("first_win", "all_ended"):
            raise ValueError(f"stop must be 'first_win' or 'all_ended', not {stop!r}")
        self.stop = stop
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'ansi', not {render_mode!r}")
        self.render_mode = render_mode
        # A space of its own for every replica: a shared one would be seeded n times.
        self.action_space = gymnasium.spaces.Tuple([Unicode() for _ in range(self.n)])
        spaces: dict[str, gymnasium.Space[Any]] = {
            "task": Unicode(),
            "observations": gymnasium.spaces.Tuple([Unicode() for _ in range(self.n)]),
        }
        self.observation_space = cast("gymnasium.Space[Observation]", gymnasium.spaces.Dict(spaces))
        self._game: TextGame | None = None
        self._task: Task | None = None
        self._states: tuple[GameState, ...] = ()
        self._over = "reset() has not been called"  # why step() is refused; "" while playing

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on a task drawn with the seed, or on ``options["task_id"]``.

        Args:
            seed: Seeds the draw of this and of later tasks. The same seed gives the same task
                with the same text in every process.
            options: ``{"task_id": id}`` names the task; other keys are ignored.

        Raises:
            UnknownTaskError: The split has no such task.
            ReplicaMismatchError: Two replicas did not start in the same state.
            EngineError: The engine could not be started.
        """
        super().reset(seed=seed)
        if not isinstance(options, Mapping | None):
            raise TypeError(f"options must be a dict or None, not {type(options).__name__}")
        wanted = (options or {}).get("task_id")
        if wanted is None:
            tasks = self.task_set.tasks
            task = tasks[int(self.np_random.integers(len(tasks)))]
        else:
            task = find_task(self.task_set.tasks, wanted)
        self._over = "the last reset() failed"
        game = self._game if task == self._task else None
        try:
            states = (game or self._open_game(task)).start()
        except EngineError:
            if game is None:
                raise
            # A game that is kept for another episode can be in a Java server that died since.
            states = self._open_game(task).start()
        _require_identical(task, states)
        self._states = states
        self._start = states[0]
        self._turns: list[Turn] = []
        self._turn = 0
        self._steps = 0
        self._best = 0.0
        assert self._game is not None
        reached = self._start.reached
        self._checkpoints = tuple(c for c in self._game.checkpoints if c not in reached)
        self._reached = [reached] * self.n
        self._visited = {self._start.state_key}
        self._over = ""
        nobody = np.zeros(self.n, dtype=bool)
        return self._observation(), self._info(nobody, nobody, nobody, nobody)

    def step(self, action: Sequence[str]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one turn: send each non-empty action to its replica.

        Args:
            action: n strings; ``action[i]`` goes to replica i, ``""`` leaves it alone.

        Returns:
            The observation, the rise of the best score, ``terminated``, ``truncated``, ``info``.

        Raises:
            ActionError: Not n strings; nothing was sent and the episode goes on.
            EngineError: The engine failed; call `reset` to start anew.
            gymnasium.error.ResetNeeded: There is no episode to play in.
        """
        if self._over:
            raise ResetNeeded(f"Cannot step: {self._over}. Call reset() to start an episode.")
        actions = self._checked(action)
        assert self._game is not None
        before = self._states
        given = np.array([text != "" for text in actions])
        closed = np.array([state.ended for state in before])
        acted = given & ~closed
        states = list(before)
        self._over = "the engine failed during the last step()"
        for replica in np.flatnonzero(acted).tolist():
            states[replica] = self._game.step(replica, actions[replica])
        self._states = tuple(states)
        self._turn += 1
        self._steps += int(acted.sum())
        best = max(self._best, *(state.score for state in states))
        reward, self._best = best - self._best, best

        won = any(state.won for state in states)
        terminated = all(s.ended for s in states) or (won and self.stop == "first_win")
        truncated = not terminated and self._turn >= self.max_turns
        self._over = "the episode is over" if terminated or truncated else ""

        admissible = np.array(
            [
                sent and text in state.admissible_actions
                for sent, text, state in zip(acted, actions, before, strict=True)
            ]
        )
        unchanged = np.array(
            [
                sent and old.state_key == new.state_key
                for sent, old, new in zip(acted, before, states, strict=True)
            ]
        )
        new = [state.reached - old for state, old in zip(states, self._reached, strict=True)]
        self._reached = [old | more for old, more in zip(self._reached, new, strict=True)]
        self._visited.update(state.state_key for state in states)
        info = self._info(acted, given & closed, admissible, unchanged)
        self._turns.append(
            Turn(
                actions=actions,
                acted=tuple(acted.tolist()),
                admissible=tuple(admissible.tolist()),
                observations=tuple(text_hash(state.observation) for state in states),
                state_keys=info["state_key"],
                checkpoints=tuple(
                    tuple(i for i, name in enumerate(self._checkpoints) if name in names)
                    if names
                    else ()
                    for names in new
                ),
                scores=tuple(info["score"].tolist()),
                raw_scores=tuple(info["raw_score"].tolist()),
                won=tuple(info["won"].tolist()),
                closed=tuple(info["closed"].tolist()),
                engine_done=tuple(state.engine_done for state in states),
                reward=reward,
            )
        )
        if terminated or truncated:
            info["record"] = self.record(terminated, truncated)
            info["diversity"] = summary(info["record"])
        return self._observation(), reward, terminated, truncated, info

    def render(self) -> str | None:
        """Return the replicas side by side as text, or None without a render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs gymnasium.make(..., render_mode='ansi')")
            return None
        if not self._states:
            raise ResetNeeded("Cannot render before reset().")
        titles = [
            f"env {i + 1}" + (" WON" if s.won else " LOST" if s.lost else f" {s.score:.0%}")
            for i, s in enumerate(self._states)
        ]
        texts = [state.observation for state in self._states]
        head = f"turn {self._turn}/{self.max_turns}"
        if self._game is not None:
            head += f" | {self._game.objective}"
        return head + "\n" + side_by_side(titles, texts)

    @property
    def objective(self) -> str:
        """The sentence that tells the player what to do."""
        if self._game is None:
            raise ResetNeeded("There is no task before reset().")
        return self._game.objective

    def expert_plan(self, replica: int = 0, expert: str | None = None) -> tuple[str, ...]:
        """Return actions that solve the task from where `replica` stands; can be slow.

        Args:
            replica: Whose state the plan starts from.
            expert: Name of the engine's expert (ALFWorld: ``"planner"``, ``"handcoded"``;
                ScienceWorld: ``"gold"``); None takes the best one.

        Returns:
            The actions, none when the expert finds no way.
        """
        if self._game is None:
            raise ResetNeeded("Cannot plan before reset().")
        if not 0 <= replica < self.n:
            raise IndexError(f"replica must be in 0..{self.n - 1}, not {replica}")
        experts = self.task_set.experts
        if expert is not None and expert not in experts:
            raise ValueError(f"expert must be one of {', '.join(experts)}, not {expert!r}")
        return self._game.expert_plan(replica, expert or experts[0])

    def fork(self) -> Self:
        """Return a second environment in the same state, turn and episode included.

        Both play on independently, and draw the same tasks at later resets. On ALFWorld it takes
        half a millisecond; on ScienceWorld new worlds are loaded and all actions played again,
        about a second for 4 replicas after 10 turns.

        Example:
            >>> from parallel_envs.toy import ToyTasks
            >>> env = ParallelTextEnv(ToyTasks(), n=1)
            >>> _ = env.reset(seed=0), env.step(("go east",))
            >>> twin = env.fork()
            >>> env.step(("look",))[0] == twin.step(("look",))[0]
            True
        """
        if self._game is None:
            raise ResetNeeded("Cannot fork before reset().")
        twin = copy.copy(self)
        twin.action_space = copy.deepcopy(self.action_space)
        twin.observation_space = copy.deepcopy(self.observation_space)
        twin._np_random = copy.deepcopy(self._np_random)
        twin.task_set = self.task_set.share()
        twin._game = self._game.fork()
        twin._turns = list(self._turns)
        twin._reached, twin._visited = list(self._reached), set(self._visited)
        return twin

    def sibling(self, n: int | None = None) -> ParallelTextEnv:
        """Return a new environment with the tasks and rules of this one, to be played beside it.

        What the task set holds open, such as a Java server, is shared.

        Args:
            n: Number of replicas, by default as many.

        Example:
            >>> from parallel_envs.toy import ToyTasks
            >>> env = ParallelTextEnv(ToyTasks(), n=3, max_turns=9)
            >>> env.sibling().max_turns, env.sibling(1).n
            (9, 1)
        """
        n = self.n if n is None else n
        return ParallelTextEnv(self.task_set.share(), n, max_turns=self.max_turns, stop=self.stop)

    def record(self, terminated: bool = False, truncated: bool = False) -> Episode:
        """Return the record of the episode as far as it has been played.

        Args:
            terminated: Whether to record it as terminated.
            truncated: Whether to record it as truncated.
        """
        if self._task is None:
            raise ResetNeeded("There is nothing to record before reset().")
        return Episode(
            engine=self.task_set.engine,
            split=self.task_set.split,
            task_id=self._task.id,
            task_type=self._task.type,
            n=self.n,
            max_turns=self.max_turns,
            stop=self.stop,
            versions=dict(self.task_set.versions),
            start_observation=text_hash(self._start.observation),
            start_key=self._start.state_key,
            checkpoints=self._checkpoints,
            turns=tuple(self._turns),
            terminated=terminated,
            truncated=truncated,
        )

    def close(self) -> None:
        """Free the game and its engine. Closing twice is fine; `reset` opens it again."""
        self._close_game()
        self.task_set.close()
        self._over = "the environment is closed"

    def _open_game(self, task: Task) -> TextGame:
        self._close_game()
        game = self._game = self.task_set.open(task, self.n)
        self._task = task
        return game

    def _close_game(self) -> None:
        game, self._game, self._task = self._game, None, None
        if game is not None:
            game.close()

    def _checked(self, action: Sequence[str]) -> tuple[str, ...]:
        """Return the joint action as n plain strings, or raise before anything is sent."""
        if isinstance(action, str) or not isinstance(action, Sequence):
            raise ActionError(
                f"step() takes a tuple of {self.n} strings, one for each replica, "
                f"not {type(action).__name__}; '' leaves a replica alone"
            )
        if len(action) != self.n:
            raise ActionError(
                f"step() takes {self.n} strings, one for each replica, not {len(action)}; "
                "'' leaves a replica alone"
            )
        for replica, text in enumerate(action):
            if not isinstance(text, str):
                raise ActionError(
                    f"the action of replica {replica} must be a string, "
                    f"not {type(text).__name__}; '' leaves it alone"
                )
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ActionError(
                    f"the action of replica {replica} is not valid Unicode text ({error.reason} "
                    f"at character {error.start}); decode model output with errors='replace'"
                ) from None
        return tuple(str(text) for text in action)

    def _observation(self) -> Observation:
        assert self._game is not None
        return Observation(
            task=self._game.objective,
            observations=tuple(state.observation for state in self._states),
        )

    def _info(
        self,
        acted: np.ndarray,
        ignored: np.ndarray,
        admissible: np.ndarray,
        changed_nothing: np.ndarray,
    ) -> dict[str, Any]:
        assert self._task is not None
        states = self._states
        return {
            "task_id": self._task.id,
            "task_type": self._task.type,
            "split": self.task_set.split,
            "admissible_actions": tuple(state.admissible_actions for state in states),
            "score": np.array([state.score for state in states]),
            "raw_score": np.array([state.raw_score for state in states]),
            "won": np.array([state.won for state in states]),
            "closed": np.array([state.ended for state in states]),
            "acted": acted.copy(),
            "ignored": ignored.copy(),
            "admissible": admissible.copy(),
            "changed_nothing": changed_nothing.copy(),
            "state_key": tuple(state.state_key for state in states),
            "pending": tuple(state.pending for state in states),
            "turn": self._turn,
            "steps": self._steps,
            "state_coverage": len(self._visited),
            "checkpoint_coverage": self._checkpoint_coverage(),
        }

    def _checkpoint_coverage(self) -> float | None:
        if not self._checkpoints:
            return None
        reached = frozenset[str]().union(*self._reached)
        return sum(name in reached for name in self._checkpoints) / len(self._checkpoints)


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _require_identical(task: Task, states: tuple[GameState, ...]) -> None:
    """Raise unless all replicas start alike; the message names two that differ, and how."""
    for replica, state in enumerate(states[1:], start=1):
        for field in GameState.__slots__:
            first, other = getattr(states[0], field), getattr(state, field)
            if first != other:
                raise ReplicaMismatchError(
                    f"task {task.id}: replicas 0 and {replica} did not start in the same "
                    f"state; {field} is {first!r:.200} in one and {other!r:.200} in the other. "
                    "This is a fault of the engine, please report it."
                )
