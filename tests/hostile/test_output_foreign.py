"""What lies about in the folder where lastgood is called does not command it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.errors import ConfigError
from lastgood.settings import ownership
from lastgood.settings.config import Config
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
STRANGER = 54_321
_HARMLESS = """[pipeline.orders]
command = ["true"]
checkpoint = "/nowhere"
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A configuration that commands; placed by another user where it can be, else world-writable."""
    CheckpointBuilder(tmp_path / "chk").run(3)
    config = tmp_path / "there" / "lastgood.toml"
    proof = f"touch {tmp_path}/obeyed; true"
    config.write_text(
        f"""[pipeline.orders]
command = ["sh", "-c", "touch {tmp_path}/obeyed"]
checkpoint = "{tmp_path}/chk"
driver_check = ["sh", "-c", "{proof}"]
"""
    )
    if os.geteuid() == 0:
        os.chown(config, STRANGER, STRANGER)
    else:
        config.chmod(0o666)
    return config


def typed(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([LASTGOOD, *words], capture_output=True, text=True, check=False, timeout=60, env=env)


def test_configuration_of_another_user_is_not_obeyed(foreign: Path, tmp_path: Path) -> None:
    for words in (
        ["run"],
        ["run", "orders"],
        ["recover", "orders"],
        ["recover", tmp_path / "chk"],
        ["status", "orders"],
        ["plan", tmp_path / "chk", "--goal", "replan"],
    ):
        done = typed(*words)
        assert done.returncode == 2, done
        assert done.stderr.startswith("error [CONFIG_INVALID] the lastgood.toml of this folder is not obeyed\n")
        assert ("user 54321" if os.geteuid() == 0 else "everybody may write it") in done.stderr
        assert f"export LASTGOOD_SAFE_DIRECTORY={foreign.parent}" in done.stderr
        assert not (tmp_path / "obeyed").exists()


def test_configuration_that_is_named_or_allowed_is_obeyed(foreign: Path, tmp_path: Path) -> None:
    assert typed("recover", tmp_path / "chk", "--policy", foreign).returncode == 0
    assert typed("recover", "orders", LASTGOOD_SAFE_DIRECTORY=f"/nowhere:{foreign.parent}").returncode == 0
    assert typed("recover", "orders", LASTGOOD_SAFE_DIRECTORY="*").returncode == 0
    assert typed("recover", "orders", LASTGOOD_SAFE_DIRECTORY=str(tmp_path)).returncode == 2
    done = typed("run", "--no-agent", "--config", foreign)
    assert (done.returncode, (tmp_path / "obeyed").exists()) == (0, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a link to another user")
@pytest.mark.parametrize("link", ["second", "shared"])
def test_configuration_behind_a_link_of_another_user_is_not_obeyed(tmp_path: Path, link: str) -> None:
    """The user's own link leads to one of a stranger, or through a folder that is one, back to a file of the user."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/lastgood.toml").write_text(_HARMLESS)
    (tmp_path / "second").symlink_to("mine/lastgood.toml")
    (tmp_path / "shared").symlink_to("mine")
    (tmp_path / "there/lastgood.toml").symlink_to("../second" if link == "second" else "../shared/lastgood.toml")
    assert Config().pipelines()
    os.chown(tmp_path / link, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(ConfigError) as told:
        Config().pipelines()
    assert "user 54321" in str(told.value.found)


def test_configuration_with_a_second_name_is_not_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may link to a file of the user's chooses which of them commands here."""
    (tmp_path / "another.toml").write_text(_HARMLESS)
    (tmp_path / "there/lastgood.toml").hardlink_to(tmp_path / "another.toml")
    with pytest.raises(ConfigError) as told:
        Config().pipelines()
    assert "2 names" in str(told.value.found)
    monkeypatch.setenv("LASTGOOD_SAFE_DIRECTORY", str(tmp_path / "there"))
    assert Config().pipelines()


def test_no_pipe_or_device_that_lies_here_is_waited_for(tmp_path: Path) -> None:
    here = tmp_path / "there"
    places = (
        os.mkfifo,
        lambda config: config.symlink_to("/dev/zero"),
        lambda config: config.mkdir(),
        lambda config: config.symlink_to("lastgood.toml"),
    )
    for number, put in enumerate(places):
        put(here / "lastgood.toml")
        with pytest.raises(ConfigError):
            Config().pipelines()
        (here / "lastgood.toml").rename(here / f"used{number}")


def test_a_configuration_has_its_bounds(tmp_path: Path) -> None:
    """One that a user names is obeyed, but no more of it is read than any configuration has."""
    config = tmp_path / "lastgood.toml"
    with config.open("wb") as stream:
        stream.truncate(2**40)
    for content in (None, "a = " + "[" * 100_000, "a = " + "9" * 10_000, "a = '"):
        if content is not None:
            config.write_text(content)
        with pytest.raises(ConfigError):
            Config(config).pipelines()


def test_name_of_a_foreign_folder_is_pasted_as_a_name(tmp_path: Path) -> None:
    """Whoever has made the folder has named it, too."""
    folder = tmp_path / f"x; touch {tmp_path.name}; $(id) 'y"
    folder.mkdir()
    (folder / "lastgood.toml").write_text("")
    (folder / "lastgood.toml").chmod(0o666)
    with pytest.raises(ownership.ConfigError) as told:
        ownership.require_own(folder / "lastgood.toml", (folder / "lastgood.toml").stat())
    assert shlex.split(str(told.value.next)) == ["export", f"LASTGOOD_SAFE_DIRECTORY={folder}"]


def _stat(uid: int, mode: int = 0o644) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


def test_own_and_roots_configurations_are_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "lastgood.toml"
    config.write_text("")
    me = config.stat().st_uid
    ownership.require_own(config, _stat(me))
    ownership.require_own(config, _stat(0))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    ownership.require_own(config, _stat(STRANGER))
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    for found in (_stat(STRANGER), _stat(STRANGER + 1, 0o666)):
        with pytest.raises(ownership.ConfigError):
            ownership.require_own(config, found)


def _plant(folder: Path, mark: Path) -> None:
    """Modules that Python would find first, where it looks into the folder it is called in."""
    for name in ("json", "os", "re", "socket", "subprocess", "lastgood", "sitecustomize", "importlib", "click", "rich"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")


def test_modules_of_the_folder_are_not_imported(tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    here = tmp_path / "there"
    _plant(here, mark)
    query = CheckpointBuilder(tmp_path / "there" / "chk")
    query.run(3)
    _plant(tmp_path / "there" / "chk", mark)
    programs = {"ps": "ps", "java": "java", "python3": "python3", "sh": "sh"}
    for name in programs:
        (here / name).write_text(f"#!/bin/sh\necho {name} >> {mark}\n")
        (here / name).chmod(0o755)
    python = Path(sys.executable)
    for words in (
        ["status", "chk"],
        ["diagnose", "./chk"],
        ["verify", "chk"],
        ["recover", "./chk"],
        ["run", "--check", "--", python, "-c", "print(1)"],
        ["run", "--no-agent", "--", "true"],
    ):
        done = typed(*words)
        assert done.returncode == 0, done
    # Of what Python starts as `-c`, the first entry of the path is the folder it is called in.
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("path", [".:{path}", ":{path}", "{path}:", "{path}:there"])
def test_programs_are_not_looked_for_in_this_folder(tmp_path: Path, path: str) -> None:
    mark = tmp_path / "started"
    for name in ("java", "ps", "python", "spark-submit", "own-tool"):
        (tmp_path / "there" / name).write_text(f"#!/bin/sh\necho {name} >> {mark}\n")
        (tmp_path / "there" / name).chmod(0o755)
    done = typed("run", "--no-agent", "--", "own-tool", PATH=path.format(path="/usr/bin:/bin"))
    assert done.returncode == 72, done
    assert not mark.exists()
