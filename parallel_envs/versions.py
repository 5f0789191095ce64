"""Versions of the packages that decide what a game says."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from parallel_envs.errors import DependencyError

__all__ = ["installed", "not_usable"]


def installed(extra: str, *packages: str) -> dict[str, str]:
    """Return the versions of an engine's packages.

    Args:
        extra: The extra of this package that installs them.
        packages: Their names.

    Raises:
        DependencyError: One is not installed.
    """
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise not_usable(extra, error) from error


def not_usable(extra: str, error: ImportError) -> DependencyError:
    """Return the error of an engine that cannot be imported, with the way to install it."""
    return DependencyError(
        f"{extra} is not usable here ({error}). "
        f"Install it with: pip install 'parallel-text-envs[{extra}]'"
    )
