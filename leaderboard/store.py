"""Durable results: one folder a run, one appended line an episode."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leaderboard.protocol import Protocol, differences
from leaderboard.result import Result

logger = logging.getLogger(__name__)

__all__ = ["RunFolder", "StoreError", "run_folders", "write_whole"]


class StoreError(Exception):
    """A results folder cannot be used; the message says why and what to do."""


class RunFolder:
    """The folder of one run: ``protocol.json`` and ``episodes.jsonl``.

    A line is on disk before the next episode starts. A run that was stopped goes on where it was:
    finished episodes are kept, failed ones are played again. A finished run may be packed, as
    ``episodes.jsonl.gz``: it is read like any other and written no more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.episodes = path / "episodes.jsonl"
        self.packed = path / "episodes.jsonl.gz"
        self._protocol = path / "protocol.json"

    @contextmanager
    def opened(self, protocol: Protocol) -> Iterator[set[str]]:
        """Lock the folder for writing and give the ids of the tasks that it has a result of.

        Raises:
            StoreError: Another run is writing here, or the folder is of another protocol.
        """
        with _explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / ".lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(
                        f"another run is writing to {self.path}; wait for it or choose another "
                        "--out"
                    ) from None
                self._claim(protocol)
                yield {result.task_id for result in self.latest() if result.error is None}

    def latest(self) -> Iterator[Result]:
        """Yield the latest result of each task, one at a time, so that memory stays small.

        A last line without its end was cut off by a crash and is left out.

        Raises:
            StoreError: A line is not a result; the message names it.
        """
        last: dict[str, int] = {}
        for number, data in self._data():
            last[data["task_id"]] = number
        wanted = set(last.values())
        for number, data in self._data():
            if number in wanted:
                try:
                    yield Result.from_json(data)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise self._damaged(number, error) from error

    def results(self) -> list[Result]:
        """Return the latest result of each task."""
        return list(self.latest())

    def is_torn(self) -> bool:
        """Whether the last line was cut off."""
        if self._source == self.packed or not self.episodes.exists():
            return False
        with self.episodes.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if not size:
                return False
            file.seek(size - 1)
            return file.read(1) != b"\n"

    def protocol(self) -> Protocol:
        """Return the protocol that the folder was made for."""
        try:
            return Protocol.from_json(json.loads(self._protocol.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self._protocol} is not readable as a protocol of this version ({error}), so "
                f"what {self.path} holds is unknown. Choose another --out."
            ) from error

    def append(self, result: Result) -> None:
        """Write one line to the disk; if there is no room, leave the file as it was.

        Raises:
            StoreError: The disk is full, or the folder cannot be written.
        """
        text = json.dumps(
            result.to_json(), ensure_ascii=True, allow_nan=False, separators=(",", ":")
        )
        with _explained(self.path), self.episodes.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            line = memoryview(text.encode() + b"\n")
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise

    def fingerprint(self) -> str:
        """Return a hash of the protocol and the episodes, packed or not."""
        digest = hashlib.sha256(self._protocol.read_bytes())
        reader = gzip.open if self._source == self.packed else open
        with reader(self._source, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        return digest.hexdigest()

    def pack(self) -> None:
        """Compress the episodes of a finished run, for a repository."""
        with self.episodes.open("rb") as file:
            # No time stamp, so that the same run packs to the same bytes.
            write_whole(self.packed, gzip.compress(file.read(), mtime=0))
        self.episodes.unlink()

    @property
    def _source(self) -> Path:
        return self.packed if self.packed.exists() and not self.episodes.exists() else self.episodes

    def _data(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the content of each whole line."""
        source = self._source
        if not source.exists():
            return
        reader = gzip.open if source == self.packed else open
        number = 0
        try:
            with reader(source, "rt", encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, start=1):
                    if line.endswith("\n"):
                        data = json.loads(line)
                        if not isinstance(data, dict) or not isinstance(data.get("task_id"), str):
                            raise ValueError("it has no task_id")
                        yield number, data
        except (OSError, EOFError, ValueError) as error:
            raise self._damaged(number, error) from error

    def _damaged(self, number: int, error: Exception) -> StoreError:
        return StoreError(
            f"{self._source} line {number} is not a result ({error}); the file was changed or "
            "damaged, so nothing in it is trusted"
        )

    def _claim(self, protocol: Protocol) -> None:
        if self.packed.exists() and not self.episodes.exists():
            raise StoreError(f"{self.path} is a packed run; gunzip {self.packed.name} to go on")
        if not self._protocol.exists() and not self.episodes.exists():
            write_whole(self._protocol, (json.dumps(protocol.to_json(), indent=2) + "\n").encode())
            return
        changed = differences(self.protocol(), protocol)
        if changed:
            raise StoreError(
                f"{self.path} holds results of another protocol ({'; '.join(changed)}). "
                "Choose another --out."
            )
        if self.is_torn():
            self._set_torn_aside()

    def _set_torn_aside(self) -> None:
        content = self.episodes.read_bytes()
        whole, end, torn = content.rpartition(b"\n")
        aside = self.episodes.with_suffix(".torn")
        with aside.open("ab") as file:
            file.write(torn + b"\n")
        write_whole(self.episodes, whole + end)
        logger.warning(
            "the last line of %s was cut off; it was set aside in %s and its task is played again",
            self.episodes,
            aside.name,
        )


def run_folders(root: Path) -> list[RunFolder]:
    """Return the runs in a folder, which may be one itself, sorted by path.

    Raises:
        StoreError: There are none.
    """
    found = sorted(path.parent for path in root.rglob("protocol.json"))
    if not found:
        raise StoreError(
            f"{root} holds no results (no protocol.json in it or below); make some with "
            f"python -m leaderboard.run --agent random --out {root}"
        )
    return [RunFolder(path) for path in found]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves either the old or the new one."""
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the file system into messages."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        hint = (
            "There is no room left. What was finished is kept: make room and run the same "
            "command again."
            if full
            else "Choose another --out."
        )
        raise StoreError(f"cannot write to {path}: {error.strerror}. {hint}") from error
