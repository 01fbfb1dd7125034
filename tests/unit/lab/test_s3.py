from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lastgood.errors import StorageError
from lastgood.lab.s3 import VERSION, S3Program, S3Server, S3ServerError, find_s3

GATEWAY = S3Program("versitygw", ("/bin/versitygw",))


def go(folder: Path, script: str) -> dict[str, str]:
    """An environment whose `go` is a shell script."""
    folder.mkdir()
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_server_that_is_only_described_touches_nothing(tmp_path: Path) -> None:
    described = S3Server(tmp_path / "s3", GATEWAY)
    described.stop()
    described.kill()
    assert described.pid is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="first start"):
        _ = described.endpoint


def test_clients_are_told_by_aws_own_variables_and_by_options(tmp_path: Path) -> None:
    server = S3Server(tmp_path, GATEWAY, port=21001)
    assert server.environment["AWS_ENDPOINT_URL"] == server.options["endpoint_url"] == "http://127.0.0.1:21001"
    assert server.environment["AWS_ACCESS_KEY_ID"] == server.options["key"]
    assert server.spark_conf["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:21001"


def test_both_kinds_of_servers_listen_on_loopback_only() -> None:
    assert "127.0.0.1:9" in GATEWAY.make_command(Path("/data"), 9)
    assert GATEWAY.make_command(Path("/data"), 9)[-2:] == ["posix", "/data"]
    assert S3Program("moto", ("moto",)).make_command(Path("/data"), 9) == ["moto", "-H", "127.0.0.1", "-p", "9"]


def test_what_was_built_is_taken_from_the_cache(tmp_path: Path) -> None:
    program = tmp_path / f"go/versitygw-{VERSION}"
    program.parent.mkdir()
    program.write_text("")
    assert find_s3(env={"PATH": ""}, cache=tmp_path) == S3Program("versitygw", (str(program),))


def test_it_is_built_once_and_put_in_place_whole(tmp_path: Path) -> None:
    env = go(tmp_path / "bin", 'echo "$@" >> "$GOBIN/../asked"; echo built > "$GOBIN/versitygw"')
    told: list[str] = []
    for _ in range(2):
        found = find_s3(env=env, cache=tmp_path / "cache", progress=told.append)
    assert Path(found.command[0]).read_text() == "built\n"
    assert (tmp_path / "cache/go/asked").read_text().count("\n") == 1
    assert told == ["building the S3 server, once"]
    assert sorted(path.name for path in (tmp_path / "cache/go").iterdir()) == [
        *("asked", "lock", f"versitygw-{VERSION}", "versitygw.log")
    ]


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    env = go(tmp_path / "bin", "echo no such module; exit 3")
    with pytest.raises(S3ServerError) as raised:
        find_s3(env=env, cache=tmp_path / "cache")
    assert raised.value.found == "exit code 3: no such module"
    assert not (tmp_path / f"cache/go/versitygw-{VERSION}").exists()


def test_moto_stands_in_where_there_is_no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.lab.go._PLACES", ())
    assert find_s3(env={"PATH": ""}, cache=tmp_path) == S3Program("moto", (sys.executable, "-P", "-m", "moto.server"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(S3ServerError) as raised:
        find_s3(env={"PATH": ""}, cache=tmp_path)
    assert raised.value.found == "neither Go nor moto"


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    dying = S3Program("versitygw", ("/bin/sh", "-c", "echo the disk is on fire; exit 7", "--"))
    with pytest.raises(S3ServerError) as raised:
        S3Server(tmp_path, dying).start()
    assert raised.value.found == "it ended with exit code 7: the disk is on fire"


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as raised:
        S3Server(tmp_path / "file/s3", GATEWAY).start()
    assert raised.value.subject == str(tmp_path / "file/s3")
