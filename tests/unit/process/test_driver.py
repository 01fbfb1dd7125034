from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lastgood.process.child import CommandNotFoundError
from lastgood.process.driver import PythonUnusableError, prepare_launch
from lastgood.process.java import JavaMissingError

OWN = Path(sys.executable)
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def java(tmp_path: Path) -> Path:
    return script(tmp_path / "jdk" / "bin" / "java", "echo 'openjdk version \"17.0.1\"' >&2").parent.parent


@pytest.fixture
def env(java: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(java)}


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_python(path: Path, version: str, pyspark: str) -> Path:
    major, minor = version.split(".")
    return script(path, f'echo \'{{"python": [{major}, {minor}], "pyspark": "{pyspark}"}}\'')


def test_any_other_command_is_started_as_it_stands(env: dict[str, str]) -> None:
    launch = prepare_launch(["sh", "-c", "true"], env)
    assert (launch.command, launch.env, launch.python, launch.java) == (("sh", "-c", "true"), env, None, None)


def test_program_beside_lastgood_is_found_without_its_environment_being_active(env: dict[str, str]) -> None:
    launch = prepare_launch(["spark-submit", "app.py"], env)
    assert launch.command == (str(OWN.parent / "spark-submit"), "app.py")
    assert launch.env["PATH"].split(":")[0] == str(OWN.parent)
    assert launch.python is not None
    assert launch.python.pyspark == "4.2.0"


def test_python_without_pyspark_gives_way_to_the_one_that_runs_lastgood(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path / "bin" / "python3", 'echo \'{"python": [3, 11], "pyspark": null}\'')
    launch = prepare_launch(["python3", "app.py"], env | {"PATH": str(tmp_path / "bin")})
    assert launch.command[0] == str(OWN)


def test_a_python_named_by_its_path_is_the_one_that_is_used(tmp_path: Path, env: dict[str, str]) -> None:
    python = fake_python(tmp_path / "bin" / "python3", "3.12", "4.2.0")
    launch = prepare_launch([str(python), "app.py"], env)
    assert launch.command == (str(python), "app.py")
    assert str(launch.python) == "Python 3.12, pyspark 4.2.0"


def test_workers_get_the_drivers_python_by_path_where_python3_is_that_python(
    tmp_path: Path, env: dict[str, str]
) -> None:
    python = fake_python(tmp_path / "bin" / "python3", "3.12", "4.2.0")
    launch = prepare_launch([str(python)], env)
    assert launch.env["PATH"] == f"{python.parent}:{env['PATH']}"
    assert "PYSPARK_PYTHON" not in launch.env


def test_workers_get_the_drivers_python_by_name_where_python3_is_another(tmp_path: Path, env: dict[str, str]) -> None:
    fake_python(tmp_path / "bin" / "python3", "3.9", "4.2.0")
    python = fake_python(tmp_path / "bin" / "python3.12", "3.12", "4.2.0")
    launch = prepare_launch([str(python)], env)
    assert launch.env["PYSPARK_PYTHON"] == str(python)


def test_pyspark_python_that_does_not_exist_is_named(env: dict[str, str]) -> None:
    with pytest.raises(PythonUnusableError) as raised:
        prepare_launch(["python3", "app.py"], env | {"PYSPARK_PYTHON": "/no/such/python"})
    assert raised.value.subject == "PYSPARK_PYTHON=/no/such/python"
    assert raised.value.found == "no such program"
    assert raised.value.next == "unset PYSPARK_PYTHON"


def test_pyspark_python_that_is_no_python_is_named(env: dict[str, str]) -> None:
    with pytest.raises(PythonUnusableError, match="workers") as raised:
        prepare_launch(["spark-submit", "app.py"], env | {"PYSPARK_PYTHON": "/bin/ls"})
    assert raised.value.found == "it does not run a Python program"


def test_pyspark_python_of_another_version_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    other = fake_python(tmp_path / "other", "3.9", "4.2.0")
    with pytest.raises(PythonUnusableError) as raised:
        prepare_launch([str(OWN), "app.py"], env | {"PYSPARK_PYTHON": str(other)})
    assert raised.value.found == "Python 3.9, pyspark 4.2.0"
    assert f"Python {HERE}" in (raised.value.expected or "")


def test_spark_3_runs_on_an_old_java_and_spark_4_does_not(tmp_path: Path, env: dict[str, str]) -> None:
    old = script(tmp_path / "jdk8" / "bin" / "java", "echo 'java version \"1.8.0\"' >&2").parent.parent
    env["JAVA_HOME"] = str(old)
    three = fake_python(tmp_path / "three" / "python3", "3.11", "3.5.9")
    four = fake_python(tmp_path / "four" / "python3", "3.11", "4.0.5")
    assert prepare_launch([str(three)], env).java is not None
    with pytest.raises(JavaMissingError):
        prepare_launch([str(four)], env)


def test_missing_java_is_found_before_the_start(env: dict[str, str]) -> None:
    with pytest.raises(JavaMissingError):
        prepare_launch(["spark-submit", "app.py"], env | {"JAVA_HOME": "/nowhere"})


def test_a_remote_session_needs_no_java(env: dict[str, str]) -> None:
    assert prepare_launch(["python3", "app.py"], env | {"JAVA_HOME": "/no", "SPARK_REMOTE": "sc://host"}).java is None


def test_command_that_does_not_exist_names_path(env: dict[str, str]) -> None:
    with pytest.raises(CommandNotFoundError) as raised:
        prepare_launch(["no-such-program"], env)
    assert raised.value.subject == "no-such-program"
    assert env["PATH"] in (raised.value.expected or "")


def test_command_that_is_not_executable_is_told_apart(tmp_path: Path, env: dict[str, str]) -> None:
    plain = tmp_path / "app.sh"
    plain.write_text("")
    with pytest.raises(CommandNotFoundError) as raised:
        prepare_launch([str(plain)], env)
    assert raised.value.found == "not executable"


def test_given_environment_is_not_changed(env: dict[str, str]) -> None:
    before = dict(env)
    prepare_launch(["spark-submit", "app.py"], env)
    assert env == before
    assert os.environ.get("JAVA_HOME") != env["JAVA_HOME"]
