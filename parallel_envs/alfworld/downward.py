"""The Fast Downward library behind ALFWorld's games: one loaded copy plays many replicas.

The library holds one task and a current state. It also exports `get_state_id` and
`set_state_id`, which TextWorld does not use: with them n replicas take turns on one copy.
Neither it nor its Python side is safe in threads: `exclusive` lets one in at a time.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

import fast_downward

from parallel_envs.errors import EngineError

__all__ = ["Downward", "Operator", "exclusive", "parse_pddl", "translate"]


_LOCK = threading.RLock()
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def exclusive(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let one thread at a time into all functions marked so.

    The library, the translator (which swaps ``sys.stdout``) and TextWorld's parsers have state
    that belongs to the whole process.
    """

    @functools.wraps(function)
    def alone(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with _LOCK:
            return function(*args, **kwargs)

    return alone


@contextmanager
def _kept(owner: Any, name: str) -> Iterator[None]:
    """Put an attribute back that the translator overwrites."""
    value = getattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, value)


with _kept(sys, "argv"):
    # The translator reads a command line when it is imported.
    sys.argv = ["translate.py", "domain", "task"]
    from fast_downward.translate.pddl_parser import lisp_parser


class Operator(NamedTuple):
    """A ground action that is applicable in the current state."""

    id: int
    name: str  # "gotolocation agent1 loc_a loc_b shelf_1"
    n_effects: int


class Downward:
    """One loaded copy of the library, holding one task.

    Copies come from a pool and go back to it: the library can neither be loaded twice without a
    copy of its 33 MB file nor be unloaded without crashing the interpreter at exit.
    """

    _pool: list[Any] = []

    def __init__(self, sas: bytes) -> None:
        self._sas = sas
        self._users = 1
        library = self._library = self._borrow()
        # Also for a game that is forgotten instead of closed.
        self._give_back = weakref.finalize(self, self._pool.append, library)
        library.load_sas(sas)

    @classmethod
    def _borrow(cls) -> Any:
        return cls._pool.pop() if cls._pool else _load_library()

    def share(self) -> Downward:
        """Return itself, to be closed once more: games on one task can take turns on a copy."""
        self._users += 1
        return self

    def close(self) -> None:
        """Give the copy back to the pool when the last user is done."""
        self._users -= 1
        if self._users == 0:
            self._library = None
            self._give_back()

    def start_over(self) -> bool:
        """Forget all states but the first, unless another user needs them; say if it was done."""
        if self._users > 1:
            return False
        self._library.load_sas(self._sas)
        return True

    def state_id(self) -> int:
        """Return a number that stands for the current state in this task."""
        return int(self._library.get_state_id())

    def go_to(self, state_id: int) -> None:
        """Make an earlier state the current one."""
        self._library.set_state_id(state_id)

    def atoms(self) -> list[str]:
        """Return what holds in the current state, as ``"Atom p(a, b)"`` or ``"NegatedAtom …"``."""
        buffer = (fast_downward.Atom * self._library.get_state_size())()
        self._library.get_state(buffer)
        return [atom.name for atom in buffer]

    def applicable(self) -> list[Operator]:
        """Return the ground actions that can be applied now, in the library's order."""
        buffer = (fast_downward.Operator * self._library.get_applicable_operators_count())()
        self._library.get_applicable_operators(buffer)
        return [Operator(item.id, item.name, item.nb_effect_atoms) for item in buffer]

    def apply(self, operator: Operator) -> list[str]:
        """Apply a ground action and return its effects in order, named as in `atoms`."""
        effects = (fast_downward.Atom * operator.n_effects)()
        self._library.apply_operator(operator.id, effects)
        return [effect.name for effect in effects]

    def goal_reached(self) -> bool:
        """Return whether the current state satisfies the goal."""
        return bool(self._library.check_goal())

    @classmethod
    def solve(cls, sas: bytes) -> tuple[str, ...]:
        """Return the names of the ground actions of a plan, empty when there is none."""
        library = cls._borrow()
        try:
            if not library.solve_sas(sas, False):
                return ()
            plan = (fast_downward.Operator * library.get_last_plan_length())()
            library.get_last_plan(plan)
            return tuple(step.name for step in plan)
        finally:
            cls._pool.append(library)


def translate(domain: str, problem: str, *, optimize: bool = False) -> tuple[Any, bytes]:
    """Ground a PDDL problem; return the translator's task and the planner's input.

    Args:
        domain: PDDL domain.
        problem: PDDL problem.
        optimize: Drop what no plan needs, for planning. Playing needs everything.

    Raises:
        EngineError: The translator cannot make sense of it, or its goal is out of reach.
    """
    try:
        with _kept(sys, "argv"), _kept(sys, "stdout"):
            task, sas = fast_downward.pddl2sas(domain, problem, optimize=optimize)
    except (Exception, SystemExit) as error:  # it ends the program on some bad input
        raise EngineError(f"the PDDL translator failed: {error!r}") from error
    return task, sas.encode()


def parse_pddl(text: str) -> list[Any]:
    """Return PDDL text as nested lists of lower-case words."""
    return list(lisp_parser.parse_nested_list(text.split("\n")))


def _load_library() -> Any:
    library = fast_downward.load_lib()
    library.get_state_id.argtypes, library.get_state_id.restype = [], ctypes.c_int
    library.set_state_id.argtypes, library.set_state_id.restype = [ctypes.c_int], None
    return library
