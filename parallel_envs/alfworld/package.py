"""Import of the alfworld package without its side effects."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from types import ModuleType

__all__ = ["import_alfworld"]


def import_alfworld(module: str) -> ModuleType:
    """Import ``alfworld.<module>``.

    Importing alfworld creates the folder ``$ALFWORLD_DATA`` and sets that variable, which hides a
    wrong path. Here it is pointed at a folder that exists while the import runs.
    """
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()
    try:
        return importlib.import_module(f"alfworld.{module}")
    finally:
        info = sys.modules.get("alfworld.info")
        if info is not None:
            vars(info)["ALFWORLD_DATA"] = before or os.path.expanduser("~/.cache/alfworld")
        if before is None:
            del os.environ["ALFWORLD_DATA"]
        else:
            os.environ["ALFWORLD_DATA"] = before
