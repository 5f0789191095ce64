"""`Pool`: workers on a Ray cluster, and work that outlives any of them."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from dpepo.scale.cluster import ClusterError, connect, ray

__all__ = ["Pool", "Worker"]

logger = logging.getLogger(__name__)

# A worker that is gone with its process or its machine. What its code raises is none of them.
LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.OutOfMemoryError,
)
TRIES = 3  # times that every worker may be lost in a row
PATIENCE = 60.0  # seconds without a worker after which that is said


class Worker(Protocol):
    """What lives in a process of the cluster. Its `__init__` must not fail: `begin` may."""

    def begin(self, order: Any) -> None:
        """Get ready for a run; what an earlier one left undone is forgotten."""
        ...

    def work(self, new: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take these items as well, and return what was found for one or more of those held."""
        ...


class Pool:
    """Workers on a cluster. One that is lost is replaced, and what it held is done elsewhere.

    Args:
        address: Of the cluster; see `connect`.
        make: Returns a worker; called in its process.
        workers: How many; None takes a worker for each CPU, or for each GPU with `on_gpu`. Those
            that the cluster has no room for start when it has.
        on_gpu: Share out the cluster's GPUs, where it has any.

    Attributes:
        size: Number of workers.

    Raises:
        ClusterError: There is no cluster.
    """

    def __init__(
        self,
        address: str,
        make: Callable[[], Worker],
        workers: int | None = None,
        *,
        on_gpu: bool = False,
    ) -> None:
        connect(address)
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = int(there.get("GPU", 0)) if on_gpu else 0
        self.size = workers or gpus or int(there.get("CPU", 0)) or 1
        options: dict[str, Any] = {"num_cpus": 1, "num_gpus": min(1.0, gpus / self.size)}
        if not gpus:  # else every worker would put its model on the first GPU that it sees
            options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}
        self._actor: Any = ray.remote(_Actor).options(**options)
        self._make = make
        self._workers = [self._new() for _ in range(self.size)]

    def ask(self, method: str) -> Any:
        """Call a method of all workers, and return what the first of them answers."""
        calls = [worker.call.remote(method) for worker in self._workers]
        while True:
            call = _next(calls, begun=False)
            calls.remove(call)
            try:
                return _answer(call)
            except LOST as error:
                if not calls:
                    raise ClusterError(
                        f"every worker was lost, the last one so: {error}"
                    ) from error

    def run(self, order: Any, items: Mapping[str, Any], at_once: int) -> Iterator[tuple[str, Any]]:
        """Do each item once and yield what was found, as it comes.

        Args:
            order: What all workers need to know; sent to each once.
            items: What is to be done, by name.
            at_once: Items that a worker holds at a time.

        Raises:
            ClusterError: One worker after the other was lost, and none found anything.
            Exception: What a worker raised.
        """
        sent = ray.put(order)
        waiting = deque(items.items())
        held: dict[Any, dict[str, Any]] = {}
        calls: dict[Any, Any] = {}
        idle: list[Any] = []

        def begin(worker: Any) -> None:
            held[worker] = {}
            calls[worker.call.remote("begin", sent)] = worker

        def give(worker: Any) -> None:
            room = min(at_once - len(held[worker]), len(waiting))
            new = dict(waiting.popleft() for _ in range(room))
            held[worker] |= new
            if held[worker]:
                calls[worker.call.remote("work", new)] = worker
            else:
                idle.append(worker)

        for worker in self._workers:
            begin(worker)
        lost = 0
        while waiting or any(held.values()):
            call = _next(list(calls), begun=any(held.values()))
            worker = calls.pop(call)
            try:
                found: Mapping[str, Any] = _answer(call) or {}
            except LOST as error:
                lost += 1
                if lost > TRIES * self.size:
                    raise ClusterError(
                        f"{lost} workers were lost one after the other, the last one so: {error}"
                    ) from error
                logger.warning("a worker was lost; what it had begun is done again by another")
                waiting.extend(held.pop(worker).items())  # last, lest one item end every worker
                begin(self._replaced(worker))
                rested, idle = idle, []
                for each in rested:
                    give(each)
                continue
            for name in found:
                del held[worker][name]
                lost = 0
            give(worker)
            yield from found.items()

    def close(self) -> None:
        """End the workers and leave the cluster. Closing twice is fine."""
        ray.shutdown()

    def _new(self) -> Any:
        return self._actor.remote(self._make)

    def _replaced(self, worker: Any) -> Any:
        ray.kill(worker)  # it may be there still, and only out of reach
        new = self._new()
        self._workers[self._workers.index(worker)] = new
        return new


class _Actor:
    """A worker, behind one method, so that any class can be one."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._worker = make()

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._worker, method)(*arguments)
        except Exception as error:
            error.add_note(f"on the machine {socket.gethostname()}")
            raise


def _next(calls: list[Any], *, begun: bool) -> Any:
    """Return a call that is done; say so if not even one worker is there for long."""
    done, _ = ray.wait(calls, timeout=None if begun else PATIENCE)
    if not done:
        logger.warning("no worker is ready yet; ray status says what the cluster has room for")
        done, _ = ray.wait(calls)
    return done[0]


def _answer(call: Any) -> Any:
    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        logger.warning("a worker failed %s", " ".join(getattr(cause, "__notes__", ())))
        raise cause from None
