"""`History`: what an agent has seen and done in one episode, as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parallel_envs import Observation

__all__ = ["History", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One action that was run in one replica.

    Attributes:
        turn: The turn it was run in, from 1.
        action: What was sent, word for word.
        observation: What the replica then showed.
        changed_nothing: It left the replica in the state it was in.
    """

    turn: int
    action: str
    observation: str
    changed_nothing: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """The visible history of one episode, turn by turn; the same for every engine.

    It is built anew for each episode with `start` and grows by `after`, which leaves the old value
    as it was, so no episode can see anything of another one. An agent keeps it in its `View`:

        history = view.memory.get("history")
        if history is None:
            history = History.start(view.observation, view.info)
        else:
            history = history.after(view.memory["sent"], view.observation, view.info)

    Per-replica values are tuples of length n, by position from 0.

    Attributes:
        task: The sentence that says what to do.
        task_id: Which task it is; to tell episodes apart, not to be shown.
        start_text: What every replica showed at the start, without the task sentence at its end.
        start_actions: The admissible actions of the start state.
        admissible: The admissible actions of each replica now.
        closed: Whether it has ended and takes no further action.
        won: Whether the task is solved in it.
        pending: Its open question, which the next action answers, else None.
        steps: The actions that were run in it, oldest first.
        turn: Turns played.
        max_turns: Turns after which the episode is cut off, None when that is not known.

    Example:
        >>> from parallel_envs.toy import ToyTasks
        >>> from parallel_envs import ParallelTextEnv
        >>> env = ParallelTextEnv(ToyTasks(), n=2)
        >>> first = History.start(*env.reset(seed=0), max_turns=25)
        >>> first.task, first.start_text, first.start_actions[:2], first.last_turn
        ('Find the coin and take it.', 'You are in the hall.', ('go east', 'go west'), 0)
        >>> joint = ("", "ring bell")
        >>> observation, _, _, _, info = env.step(joint)
        >>> second = first.after(joint, observation, info)
        >>> second.steps[1]
        (Step(turn=1, action='ring bell', observation='How many times? (1 to 3)', ...),)
        >>> second.pending, second.turn, first.turn
        ((None, 'How many times? (1 to 3)'), 1, 0)
    """

    task: str
    task_id: str
    start_text: str
    start_actions: tuple[str, ...]
    admissible: tuple[tuple[str, ...], ...]
    closed: tuple[bool, ...]
    won: tuple[bool, ...]
    pending: tuple[str | None, ...]
    steps: tuple[tuple[Step, ...], ...]
    turn: int = 0
    max_turns: int | None = None

    @classmethod
    def start(
        cls, observation: Observation, info: Mapping[str, Any], max_turns: int | None = None
    ) -> History:
        """Return the history of an episode in which nothing was done yet.

        Args:
            observation: What `reset` returned.
            info: The ``info`` that `reset` returned.
            max_turns: The turn limit, if the agent may know it.

        Raises:
            ValueError: The episode is under way already.
        """
        if int(info["turn"]) != 0:
            raise ValueError(
                f"a history starts with what reset() returned, not after turn {info['turn']}."
            )
        task, texts = observation["task"], observation["observations"]
        return cls(
            task=task,
            task_id=str(info["task_id"]),
            start_text=_without_task(texts[0], task),
            start_actions=info["admissible_actions"][0],
            steps=((),) * len(texts),
            max_turns=max_turns,
            **_now(info),
        )

    def after(
        self, joint_action: Sequence[str], observation: Observation, info: Mapping[str, Any]
    ) -> History:
        """Return the history with one more turn.

        Args:
            joint_action: The n actions that were given; what was not run leaves no step.
            observation: What `step` returned.
            info: The ``info`` that `step` returned.

        Raises:
            ValueError: These are of another episode, or not of this one's next turn.
        """
        found = (str(info["task_id"]), int(info["turn"]))
        if found != (self.task_id, self.turn + 1) or len(joint_action) != self.n:
            raise ValueError(
                f"after turn {self.turn} of {self.task_id} with {self.n} replicas comes turn "
                f"{self.turn + 1}, not turn {found[1]} of {found[0]} with {len(joint_action)}; "
                "a new episode starts with History.start()."
            )
        steps = tuple(
            (*old, Step(found[1], action, text, bool(unchanged))) if acted else old
            for old, action, text, acted, unchanged in zip(
                self.steps,
                joint_action,
                observation["observations"],
                info["acted"],
                info["changed_nothing"],
                strict=True,
            )
        )
        return replace(self, steps=steps, turn=found[1], **_now(info))

    @property
    def n(self) -> int:
        """Number of replicas."""
        return len(self.steps)

    @property
    def last_turn(self) -> int:
        """The latest turn in which an action was run, 0 when none was.

        Turns after it, in which the agent said nothing that could be run, have nothing to show.
        """
        return max((steps[-1].turn for steps in self.steps if steps), default=0)

    @property
    def last(self) -> tuple[Step | None, ...]:
        """What was done in each replica in the `last_turn`, None where nothing was."""
        turn = self.last_turn
        return tuple(
            steps[-1] if steps and steps[-1].turn == turn else None for steps in self.steps
        )

    @property
    def earlier(self) -> tuple[tuple[Step, ...], ...]:
        """The steps of each replica without those of the `last_turn`."""
        return tuple(
            steps if last is None else steps[:-1]
            for steps, last in zip(self.steps, self.last, strict=True)
        )

    @property
    def current(self) -> tuple[str, ...]:
        """What each replica last showed; at the start without the task sentence."""
        return tuple(steps[-1].observation if steps else self.start_text for steps in self.steps)


def _now(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what describes the replicas at present, in plain Python values."""
    return {
        "admissible": tuple(tuple(actions) for actions in info["admissible_actions"]),
        "closed": tuple(bool(closed) for closed in info["closed"]),
        "won": tuple(bool(won) for won in info["won"]),
        "pending": tuple(info["pending"]),
    }


def _without_task(text: str, task: str) -> str:
    """Return a text without the task sentence at its end, which some engines put there.

    Example:
        >>> _without_task("A room. Your task: leave.", "Your task: leave.")
        'A room.'
    """
    bare = text.rstrip()
    return bare.removesuffix(task).rstrip() if task and bare.endswith(task) else text
