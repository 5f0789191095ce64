"""What a training run came to, update by update: JSON lines, TensorBoard, and early warnings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

__all__ = ["Curves", "alarms"]

Row = dict[str, float]


class Curves:
    """Writes the rows of a run, each at once; of a run that goes on, later rows replace earlier.

    Args:
        folder: Gets ``metrics.jsonl`` and TensorBoard's events (``tensorboard --logdir FOLDER``).
        done: Updates that the run goes on after.

    Attributes:
        rows: All rows so far.
    """

    def __init__(self, folder: Path, done: int = 0) -> None:
        path = folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if line.endswith("}")]  # a crash can cut the last one
        self.rows: list[Row] = [r for r in map(json.loads, kept) if r["update"] <= done]
        beside = folder / "metrics.new"
        beside.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
        beside.replace(path)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder), purge_step=done + 1)

    def add(self, row: Row) -> None:
        """Write a row."""
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in row.items():
            if name != "update":
                self._board.add_scalar(name, value, int(row["update"]))

    def close(self) -> None:
        """Write what is left."""
        self._file.close()
        self._board.close()


def alarms(rows: Sequence[Row]) -> list[str]:
    """Return what the last row says of a collapse that may be coming, in plain words.

    Args:
        rows: The rows of a run so far.

    Example:
        >>> alarms([{"won": 0.4, "acting": 1.0, "kl": 1.5, "entropy": 0.4}])
        ['the policy is far from where it began (KL 1.50 > 1): lower --lr or raise --kl']
    """
    last = rows[-1]
    found = []
    if last.get("kl", 0.0) > 1:
        found.append(
            f"the policy is far from where it began (KL {last['kl']:.2f} > 1): lower --lr or "
            "raise --kl"
        )
    spreads = [row["entropy"] for row in rows if "entropy" in row]
    if "entropy" in last and last["entropy"] < 0.1 * max(spreads):
        found.append(
            f"replies hardly vary any more (entropy {last['entropy']:.3f}, once "
            f"{max(spreads):.3f}): lower --lr or raise --temperature"
        )
    if last["acting"] < 0.5:
        found.append(
            f"only {last['acting']:.0%} of the replies hold an action: is the --model trained for "
            "this --prompt, and is --max-tokens enough?"
        )
    if len(rows) >= 5 and all("kl" not in row for row in rows[-5:]):
        found.append(
            "five updates without anything to learn: all attempts at a task ended alike; take "
            "easier tasks, a larger --group or a better --model"
        )
    return found
