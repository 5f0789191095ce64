"""`Unicode`: a Gymnasium text space that accepts any string."""

from __future__ import annotations

from typing import Any

from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector.utils import create_shared_memory

__all__ = ["Unicode"]


class Unicode(Text):
    r"""Every string of at most `max_length` characters, whatever its characters.

    Gymnasium's `Text` lists its characters one by one, which is slow for long texts and cannot
    hold all of Unicode. Here every string that can be encoded belongs; samples are short, of
    letters, digits and blanks, so that sampling stays cheap.

    Args:
        max_length: Longest string that belongs to the space, in characters.
        seed: Seed of `sample`.

    Example:
        >>> space = Unicode()
        >>> "go to desk 1" in space, "naïve ☕\\n" in space, "" in space, None in space
        (True, True, True, False)
        >>> space.sample() in space
        True
    """

    _SAMPLE_LENGTH = 32

    def __init__(self, max_length: int = 2**20, *, seed: int | None = None) -> None:
        super().__init__(
            max_length,
            min_length=0,
            charset="abcdefghijklmnopqrstuvwxyz 0123456789",
            seed=seed,
        )

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that is short enough and has no lone surrogates."""
        if not isinstance(x, str) or len(x) > self.max_length:
            return False
        try:
            x.encode()
        except UnicodeEncodeError:
            return False
        return True

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random string; `mask` and `probability` are not supported."""
        if mask is not None or probability is not None:
            raise ValueError(
                "Unicode.sample takes no mask: draw from info['admissible_actions'] instead"
            )
        length = int(self.np_random.integers(self._SAMPLE_LENGTH + 1))
        return super().sample(mask=(min(length, self.max_length), None))

    def __repr__(self) -> str:
        """Return a short form, without the character set."""
        return f"Unicode(max_length={self.max_length})"

    def __eq__(self, other: Any) -> bool:
        """Equal when the longest strings are equally long."""
        return isinstance(other, Unicode) and self.max_length == other.max_length


@create_shared_memory.register(Unicode)
def _no_shared_memory(space: Unicode, n: int = 1, ctx: Any = None) -> None:
    """Refuse shared memory: Gymnasium 1.4 would show its filler as every observation."""
    raise CustomSpaceError("text cannot be kept in shared memory; pass shared_memory=False")
