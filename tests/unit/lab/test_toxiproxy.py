from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.lab.toxiproxy import VERSION, Toxic, Toxiproxy, ToxiproxyError, find_toxiproxy


def test_server_that_is_only_described_touches_nothing(tmp_path: Path) -> None:
    described = Toxiproxy(tmp_path / "proxy", Path("/bin/toxiproxy"))
    described.stop()
    described.kill()
    assert described.pid is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="first start"):
        described.proxy("s3", 9)


def test_toxics_are_told_in_toxiproxys_own_words() -> None:
    assert Toxic("latency", {"latency": 50}).to_json("slow") == {
        "name": "slow",
        "type": "latency",
        "stream": "downstream",
        "toxicity": 1.0,
        "attributes": {"latency": 50},
    }
    assert Toxic("reset_peer", upstream=True, toxicity=0.2).to_json("x")["stream"] == "upstream"


def test_what_was_built_is_taken_from_the_cache_and_without_go_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastgood.lab.go._PLACES", ())
    with pytest.raises(ToxiproxyError) as raised:
        find_toxiproxy(env={"PATH": ""}, cache=tmp_path)
    assert raised.value.found == "no Go"
    program = tmp_path / f"go/toxiproxy-{VERSION}"
    program.parent.mkdir()
    program.write_text("")
    assert find_toxiproxy(env={"PATH": ""}, cache=tmp_path) == program


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho the wire is cut\nexit 7\n")
    dying.chmod(0o755)
    with pytest.raises(ToxiproxyError) as raised:
        Toxiproxy(tmp_path / "log", dying).start()
    assert raised.value.found == "it ended with exit code 7: the wire is cut"


def test_a_command_that_nobody_takes_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToxiproxyError, match="POST /proxies"):
        Toxiproxy(tmp_path, Path("/bin/toxiproxy"), port=1).proxy("s3", 9)
