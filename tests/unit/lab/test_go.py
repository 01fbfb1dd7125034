from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.lab.go import GoProgram
from lastgood.lab.s3 import S3ServerError

PROGRAM = GoProgram("example.org/things/cmd/server", "1.2.3", "thing", noun="thing", not_built=S3ServerError)


def go(folder: Path, script: str) -> dict[str, str]:
    """An environment whose `go` is a shell script."""
    folder.mkdir()
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_it_is_built_once_and_put_in_place_whole_under_its_own_name(tmp_path: Path) -> None:
    env = go(tmp_path / "bin", 'echo "$@ $CGO_ENABLED" >> "$GOBIN/../asked"; echo built > "$GOBIN/server"')
    told: list[str] = []
    for _ in range(2):
        built = PROGRAM.built(env=env, cache=tmp_path / "cache", progress=told.append)
    assert built == tmp_path / "cache/go/thing-1.2.3"
    assert built.read_text() == "built\n"
    assert (tmp_path / "cache/go/asked").read_text() == "install example.org/things/cmd/server@v1.2.3 0\n"
    assert told == ["building the thing, once"]
    left = sorted(path.name for path in (tmp_path / "cache/go").iterdir())
    assert left == ["asked", "lock", "thing-1.2.3", "thing.log"]


def test_what_was_built_needs_no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.lab.go._PLACES", ())
    assert PROGRAM.built(env={"PATH": ""}, cache=tmp_path) is None
    program = tmp_path / "go/thing-1.2.3"
    program.parent.mkdir()
    program.write_text("")
    assert PROGRAM.built(env={"PATH": ""}, cache=tmp_path) == program


@pytest.mark.parametrize(
    ("script", "found"),
    [("echo no such module; exit 3", "exit code 3: no such module"), ("echo nothing to do", "exit code 0")],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(script: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(S3ServerError) as raised:
        PROGRAM.built(env=go(tmp_path / "bin", script), cache=tmp_path / "cache")
    assert raised.value.found is not None
    assert raised.value.found.startswith(found)
    assert sorted(path.name for path in (tmp_path / "cache/go").iterdir()) == ["lock", "thing.log"]
