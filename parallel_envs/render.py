"""Replicas side by side as text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

__all__ = ["side_by_side"]

_NARROWEST = 24


def side_by_side(titles: Sequence[str], texts: Sequence[str], width: int | None = None) -> str:
    """Lay texts out in columns under their titles, in as many rows as the width asks for.

    Args:
        titles: One title for each text.
        texts: The texts; line breaks are kept, long lines are wrapped.
        width: Characters in a line; the terminal's width when None.

    Example:
        >>> print(side_by_side(["env 1", "env 2"], ["A cup.", "A fork and a spoon."], width=52))
        env 1                    │ env 2
        ─────────────────────────┼─────────────────────────
        A cup.                   │ A fork and a spoon.
    """
    width = width or shutil.get_terminal_size((120, 24)).columns
    columns = max(1, min(len(titles), (width + 3) // (_NARROWEST + 3)))
    room = max(_NARROWEST, (width - 3 * (columns - 1)) // columns)
    cells = [
        [title, "─" * room, *_wrapped(text, room)]
        for title, text in zip(titles, texts, strict=True)
    ]
    rows = []
    for start in range(0, len(cells), columns):
        row = zip_longest(*cells[start : start + columns], fillvalue="")
        for number, line in enumerate(row):
            bar = "─┼─" if number == 1 else " │ "
            rows.append(bar.join(cell.ljust(room) for cell in line).rstrip())
        rows.append("")
    return "\n".join(rows).rstrip("\n")


def _wrapped(text: str, room: int) -> list[str]:
    lines: list[str] = []
    for line in text.expandtabs(2).splitlines():
        lines += textwrap.wrap(line, room, subsequent_indent="  " if len(line) > room else "") or [
            ""
        ]
    return lines
