"""Many tasks at once: a Gymnasium `VectorEnv` of `ParallelTextEnv`s in worker processes."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from parallel_envs.env import Observation, ParallelTextEnv
from parallel_envs.errors import ActionError, UnknownTaskError
from parallel_envs.registration import constructor

__all__ = ["ParallelTextVectorEnv", "WorkerError", "alfworld", "scienceworld", "toy"]

Arrays = np.ndarray[Any, Any]
JointActions = tuple[tuple[str, ...], ...]  # one joint action for each environment

_NO_EPISODE = "it has no episode"
_WORK = "from parallel_envs.vector import _work; _work({})"
_GRACE = 5.0  # seconds in which a worker may end by itself


class WorkerError(RuntimeError):
    """One environment of a vector failed; the others are as they were."""


class ParallelTextVectorEnv(
    VectorEnv[tuple[Observation, ...], tuple[tuple[str, ...], ...], Arrays]
):
    """``num_envs`` tasks side by side, each with its n replicas.

    Observations and actions are tuples with one item for each environment: what its `reset` and
    `step` return and take. Rewards, terminations and truncations are arrays of length num_envs.
    Infos are merged as Gymnasium merges them: ``infos["score"]`` has shape (num_envs, n),
    ``infos["admissible_actions"][i]`` is environment i's, and ``infos["_score"]`` says which
    environments have one.

    Nothing resets by itself: a finished episode stays as it is, takes no action and pays nothing,
    until ``reset(options={"reset_mask": mask})`` names its environment.

    A failure in one environment (an engine's error, a worker that died or did not answer in time)
    is not an exception: ``infos["error"][i]`` names it, the episode is truncated without reward,
    and the others go on. A reset of that environment brings it back.

    Args:
        make: Returns a new environment; called in each worker.
        num_envs: Number of environments.
        timeout: Seconds that a worker may take for one call.

    Example:
        >>> import gymnasium, parallel_envs
        >>> envs = gymnasium.make_vec("ParallelToy-v0", num_envs=2, n=3)
        >>> observations, infos = envs.reset(seed=0)
        >>> actions = tuple(tuple(a[0] for a in each) for each in infos["admissible_actions"])
        >>> observations, rewards, terminations, truncations, infos = envs.step(actions)
        >>> rewards.shape, infos["score"].shape
        ((2,), (2, 3))
        >>> envs.close()
    """

    metadata: dict[str, Any] = {
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.DISABLED,
    }

    def __init__(
        self, make: Callable[[], ParallelTextEnv], num_envs: int, *, timeout: float = 300.0
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, not {num_envs}")
        self.num_envs = num_envs
        template = make()  # engines start at the first reset, so this is cheap
        self.render_mode = template.render_mode
        self.single_action_space = template.action_space
        self.single_observation_space = template.observation_space
        self.action_space = cast(
            "gymnasium.Space[JointActions]",
            gymnasium.spaces.Tuple([copy.deepcopy(template.action_space) for _ in range(num_envs)]),
        )
        self.observation_space = cast(
            "gymnasium.Space[tuple[Observation, ...]]",
            gymnasium.spaces.Tuple(
                [copy.deepcopy(template.observation_space) for _ in range(num_envs)]
            ),
        )
        self._n = template.n
        self._task_ids = [task.id for task in template.task_set.tasks]
        template.close()
        self._queue: list[str] = []  # tasks still to be played before any is played again
        payload = cloudpickle.dumps(make)
        self._workers = [_Worker(index, payload, timeout) for index in range(num_envs)]
        nothing = Observation(task="", observations=("",) * self._n)
        self._observations: list[Observation] = [nothing] * num_envs
        self._infos: list[dict[str, Any]] = [{}] * num_envs
        self._terminated = np.zeros(num_envs, dtype=bool)
        self._truncated = np.zeros(num_envs, dtype=bool)
        self._errors: list[str | None] = [_NO_EPISODE] * num_envs

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[Observation, ...], dict[str, Any]]:
        """Start episodes, by default in every environment and each on another task.

        Args:
            seed: A number seeds the order of tasks: from it on, no task is played twice until the
                split is used up. A sequence is given to the environments one by one instead.
            options: ``"reset_mask"``, a bool for each environment, resets only some;
                ``"task_id"``, one for all (a group of equal episodes) or a sequence, names tasks.

        Raises:
            UnknownTaskError: The split has no such task.
        """
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs)), dtype=bool)
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be {self.num_envs} bools, not shape {mask.shape}")
        chosen = np.flatnonzero(mask).tolist()
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
            self._queue = []
        elif seed is not None:
            seeds = list(seed)
        wanted = options.pop("task_id", None)
        if isinstance(wanted, str):
            wanted = [wanted] * self.num_envs
        for items, name in ((seeds, "seed"), (wanted, "task_id")):
            if items is not None and len(items) != self.num_envs:
                raise ValueError(f"{name} must have {self.num_envs} items, not {len(items)}")
        for index in chosen:
            named = dict(options)
            if wanted is not None:
                named["task_id"] = wanted[index]
            elif seeds[index] is None:
                named["task_id"] = self._next_task()
            self._workers[index].send("reset", seed=seeds[index], options=named)
        refused: Exception | None = None
        for index in chosen:
            try:
                self._observations[index], self._infos[index] = self._workers[index].receive()
                self._errors[index] = None
                self._truncated[index] = False
            except WorkerError as error:
                self._fail(index, error)
            except UnknownTaskError as error:  # raised when all have answered
                self._fail(index, WorkerError(_NO_EPISODE))
                refused = error
            self._terminated[index] = False
        if refused is not None:
            raise refused
        return tuple(self._observations), self._merged()

    def step(
        self, actions: Sequence[Sequence[str]]
    ) -> tuple[tuple[Observation, ...], Arrays, Arrays, Arrays, dict[str, Any]]:
        """Play one turn in every environment whose episode goes on.

        Args:
            actions: A joint action for each environment; what stands there for a finished
                episode is not read.

        Raises:
            ActionError: A joint action is not n strings; the other environments have stepped.
        """
        if len(actions) != self.num_envs:
            raise ValueError(
                f"step() takes {self.num_envs} joint actions, one for each environment, "
                f"not {len(actions)}"
            )
        rewards = np.zeros(self.num_envs)
        running = np.flatnonzero(~(self._terminated | self._truncated)).tolist()
        running = [index for index in running if self._errors[index] is None]
        for index in running:
            self._workers[index].send("step", actions[index])
        refused: Exception | None = None
        for index in running:
            try:
                (
                    self._observations[index],
                    rewards[index],
                    self._terminated[index],
                    self._truncated[index],
                    self._infos[index],
                ) = self._workers[index].receive()
            except WorkerError as error:
                self._fail(index, error)
            except ActionError as error:  # raised when all have answered
                refused = ActionError(f"environment {index}: {error}")
        if refused is not None:
            raise refused
        return (
            tuple(self._observations),
            rewards,
            self._terminated.copy(),
            self._truncated.copy(),
            self._merged(),
        )

    def call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a method of every environment, for example ``call("expert_plan", 0)``.

        Raises:
            WorkerError: An environment failed.
        """
        for worker in self._workers:
            worker.send(name, *arguments)
        return tuple(worker.receive() for worker in self._workers)

    def render(self) -> tuple[str, ...] | None:
        """Return each environment's picture."""
        return None if self.render_mode is None else cast("tuple[str, ...]", self.call("render"))

    def close_extras(self, **_: Any) -> None:
        """End the workers and wait for them."""
        for worker in self._workers:
            worker.stop()

    def _next_task(self) -> str:
        if not self._queue:
            order = self.np_random.permutation(len(self._task_ids))
            self._queue = [self._task_ids[index] for index in order]
        return self._queue.pop(0)

    def _fail(self, index: int, error: WorkerError) -> None:
        self._errors[index] = str(error)
        self._truncated[index] = True

    def _merged(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for index, (info, error) in enumerate(zip(self._infos, self._errors, strict=True)):
            # A dict would be merged entry by entry, into arrays that cannot hold undefined values.
            whole = {key: _Whole(value) for key, value in info.items() if isinstance(value, dict)}
            merged = self._add_info(merged, {**info, **whole, "error": error}, index)
        for values in merged.values():
            for place in np.flatnonzero([isinstance(value, _Whole) for value in values]):
                values[place] = values[place].value
        return merged


class _Whole:
    """A value that is not to be looked into."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Worker:
    """A process that holds one environment, and this end of the pipe to it."""

    def __init__(self, index: int, payload: bytes, timeout: float) -> None:
        self._index, self._payload, self._timeout = index, payload, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._unsent: WorkerError | None = None

    def send(self, method: str, *arguments: Any, **named: Any) -> None:
        """Ask for a method call; a reset starts the process if there is none."""
        self._unsent = None
        if self._pipe is None and method == "reset":
            self._start()
        try:
            if self._pipe is None:
                self._unsent = self._error(_NO_EPISODE)
            else:
                self._pipe.send((method, arguments, named))
        except OSError:
            self._unsent = self._error(self._obituary())

    def receive(self) -> Any:
        """Return the answer to the call sent last.

        Raises:
            WorkerError: The process died, did not answer in time, or its engine failed.
            ActionError, UnknownTaskError: The caller made a mistake; nothing has changed.
        """
        if self._unsent is not None:
            raise self._unsent
        assert self._pipe is not None
        try:
            if not self._pipe.poll(self._timeout):
                self.stop()
                raise self._error(f"no answer within {self._timeout:g} s, so its worker was ended")
            answer, mistake, failure = self._pipe.recv()
        except (EOFError, OSError):
            raise self._error(self._obituary()) from None
        if mistake is not None:
            raise mistake
        if failure is not None:
            raise self._error(failure)
        return answer

    def stop(self) -> None:
        """End the process, with all that it started, and wait for it."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is None or pipe is None:
            return
        pipe.close()  # an idle worker ends by itself now, and closes its engine
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a frozen Java server would outlive it
        process.wait()

    def _start(self) -> None:
        # A new interpreter, not a fork: a child would share Java pipes and the CUDA context of
        # its parent. Nor multiprocessing's spawn, which runs the user's script once more.
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"from parallel_envs.vector import _work; _work({theirs.fileno()})",
            ],
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a process group of its own; and Ctrl-C is not for it
        )
        theirs.close()
        self._pipe.send((sys.path, self._payload))

    def _error(self, what: str) -> WorkerError:
        return WorkerError(f"environment {self._index}: {what}")

    def _obituary(self) -> str:
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        code = process.returncode
        self.stop()
        how = f"killed by signal {-code}" if code and code < 0 else f"exit code {code}"
        return f"its worker died ({how})"


def _work(descriptor: int) -> None:
    """Answer calls until the pipe closes. Runs in the worker."""
    pipe = Connection(descriptor)
    sys.path[:], payload = pipe.recv()
    env: ParallelTextEnv = cloudpickle.loads(payload)()
    with contextlib.suppress(EOFError, OSError):  # the parent is done, or gone
        while True:
            method, arguments, named = pipe.recv()
            reply: tuple[Any, Exception | None, str | None]
            try:
                reply = getattr(env, method)(*arguments, **named), None, None
            except (ActionError, UnknownTaskError) as mistake:
                reply = None, mistake, None
            except Exception as failure:
                reply = None, None, f"{type(failure).__name__}: {failure}"
            pipe.send(reply)
    env.close()


def _maker(name: str) -> Callable[..., ParallelTextVectorEnv]:
    def make(num_envs: int, *, timeout: float = 300.0, **arguments: Any) -> ParallelTextVectorEnv:
        make_one = partial(constructor(name), **arguments)
        return ParallelTextVectorEnv(make_one, num_envs, timeout=timeout)

    return make


# What gymnasium.make_vec calls; each takes the arguments of its environment as well.
alfworld = _maker("alfworld")
scienceworld = _maker("scienceworld")
toy = _maker("toy")
