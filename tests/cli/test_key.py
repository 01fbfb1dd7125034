"""`lastgood key`, as it is typed."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import forked
import pexpect
import pytest

from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    CheckpointBuilder(tmp_path / "chk").run(3)
    return tmp_path / "chk"


def run(*words: object, **environment: str) -> forked.Ended:
    return forked.run(*words, env={**os.environ, **environment})


def answer(*words: object, code: int = 0) -> dict[str, Any]:
    done = run(*words, "--format", "json")
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def secrets_of(file: Path) -> list[str]:
    return [line.rpartition(":")[2] for line in file.read_text().splitlines() if not line.startswith("#")]


def test_a_key_is_made_listed_rotated_and_removed(tmp_path: Path) -> None:
    assert run("key", "list").stdout.startswith("There is no key")
    made = run("key", "create")
    file = tmp_path / "config" / "lastgood" / "key"
    assert made.returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "kubectl create secret" in made.stdout
    listed = run("key", "list")
    assert listed.stdout.endswith("  signs\nNothing has been changed.\n")
    (old,) = (each["id"] for each in answer("key", "list")["keys"])
    rotated = answer("key", "rotate")
    assert [each["signs"] for each in rotated["keys"]] == [True, False]
    assert rotated["keys"][1]["id"] == old
    again = run("key", "rotate", file)
    assert f"lastgood key remove {old}" in again.stdout
    assert len(answer("key", "remove", old)["keys"]) == 2
    told = made.stdout + listed.stdout + again.stdout + json.dumps(rotated)
    assert not any(secret in told for secret in secrets_of(file))


def test_a_key_is_not_written_over(tmp_path: Path) -> None:
    assert run("key", "create", tmp_path / "mine").returncode == 0
    before = (tmp_path / "mine").read_bytes()
    error = answer("key", "create", tmp_path / "mine", code=2)["error"]
    assert (error["condition"], error["next"]) == ("KEY_FILE_EXISTS", f"lastgood key rotate {tmp_path / 'mine'}")
    assert (tmp_path / "mine").read_bytes() == before


def test_what_create_prints_lets_lastgood_use_the_key(tmp_path: Path) -> None:
    made = run("key", "create", tmp_path / "mine").stdout
    variable = next(word.rstrip(",") for word in made.split() if word.startswith("LASTGOOD_KEY_FILE="))
    name, _, value = variable.partition("=")
    listed = run("key", "list", "--format", "json", **{name: value})
    assert json.loads(listed.stdout)["origin"] == str(tmp_path / "mine")
    (tmp_path / "lastgood.toml").write_text(
        '[pipeline.a]\ncommand = ["true"]\ncheckpoint = "chk"\n'
        + "\n".join(line.strip() for line in made.splitlines() if line[:3] in ("  [", "  k"))
    )
    assert answer("key", "list")["origin"] == str(tmp_path / "mine")


def test_an_open_file_of_keys_stops_what_would_sign(tmp_path: Path, checkpoint: Path) -> None:
    run("key", "create", tmp_path / "mine")
    (tmp_path / "mine").chmod(0o644)
    done = run("plan", checkpoint, LASTGOOD_KEY_FILE=str(tmp_path / "mine"))
    assert done.returncode == 83
    assert "error [KEY_FILE_OPEN] others can read the file of keys" in done.stderr
    assert f"chmod 600 {tmp_path / 'mine'}" in done.stderr
    assert not list(tmp_path.glob("plan-*.json"))


def test_nothing_is_signed_without_a_key(checkpoint: Path) -> None:
    error = answer("key", "sign", checkpoint, code=84)["error"]
    assert (error["condition"], error["next"]) == ("KEY_MISSING", "lastgood key create")


def test_a_person_is_shown_what_is_signed_and_asked(tmp_path: Path, checkpoint: Path) -> None:
    backup = answer("backup", "create", checkpoint)["id"]
    run("key", "create")
    facts = tmp_path / f"chk.lastgood/backups/{backup}.json"
    nobody = run("key", "sign", checkpoint)
    assert (nobody.returncode, "signature" in facts.read_text()) == (2, False)
    assert f"backup {backup}: not signed: {facts}" in nobody.stdout
    for said, code in (("n", 1), ("y", 0)):
        person = pexpect.spawn(str(LASTGOOD), ["key", "sign", str(checkpoint)], encoding="utf-8", timeout=60)
        person.expect("Sign 1 backup at .* with key [0-9a-f]{8}\\? Have you looked at them\\?")
        person.sendline(said)
        person.expect(pexpect.EOF)
        person.close()
        assert (person.exitstatus, "signature" in facts.read_text()) == (code, said == "y")
    told = answer("key", "sign", checkpoint)
    assert told["left"] == []
    assert [each["standing"] for each in told["files"]] == ["signed"]
    assert answer("backup", "list", checkpoint)["backups"][0]["id"] == backup


def test_the_application_does_not_get_the_key(tmp_path: Path) -> None:
    run("key", "create", tmp_path / "mine")
    line = (tmp_path / "mine").read_text().splitlines()[-1]
    command = [sys.executable, "-c", "import os, pathlib; pathlib.Path('seen').write_text(repr(dict(os.environ)))"]
    run("run", "--checkpoint", tmp_path / "chk", "--", *command, LASTGOOD_KEY=line)
    seen = (tmp_path / "seen").read_text()
    assert "LASTGOOD_KEY'" not in seen
    assert line.rpartition(":")[2] not in seen
