"""`Unicode`: a Gymnasium text space that accepts any string."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Text

__all__ = ["Unicode"]


class Unicode(Text):
    r"""Every string of at most `max_length` characters, whatever its characters.

    Gymnasium's `Text` lists its characters one by one, which is slow for long texts and cannot
    hold all of Unicode. Here membership is a matter of type and length; samples are drawn from
    printable ASCII and are short, so that sampling stays cheap.

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
        """Return whether `x` is a string that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length

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
