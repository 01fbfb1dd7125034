from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.process.java import JavaMissingError, find_java


def install(folder: Path, banner: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_counts_before_path(tmp_path: Path) -> None:
    home = install(tmp_path / "home", 'openjdk version "21.0.4" 2024-07-16')
    other = install(tmp_path / "other", 'openjdk version "17.0.1"')
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.version, found.home, found.program) == (21, home, home / "bin" / "java")


def test_java_on_path_is_found(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", 'openjdk version "17.0.15" 2025-04-15')
    assert find_java({"PATH": str(home / "bin")}).version == 17


def test_old_numbering_is_understood_and_refused(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", 'java version "1.8.0_202"')
    with pytest.raises(JavaMissingError) as raised:
        find_java({"JAVA_HOME": str(home)})
    assert raised.value.found == f"Java 8 ({home / 'bin' / 'java'})"


@pytest.mark.parametrize("env", [{"PATH": "/nowhere"}, {"JAVA_HOME": "/nowhere"}, {}])
def test_no_java_says_what_to_install(env: dict[str, str]) -> None:
    with pytest.raises(JavaMissingError) as raised:
        find_java(env)
    assert "Java 17" in str(raised.value)
    assert raised.value.next is not None
    assert "openjdk" in raised.value.next


def test_program_that_is_no_java_is_refused(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", "hello")
    with pytest.raises(JavaMissingError, match="Java 17"):
        find_java({"JAVA_HOME": str(home)})
