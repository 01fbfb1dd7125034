"""Storages whose library is not installed: every verb says which extra is needed, wherever the location stands."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reading import CASES
from typed import call

CHECKPOINT = CASES / "4.2-kafka-multi-topic" / "checkpoint"
LIBRARIES = ("adlfs", "gcsfs", "s3fs")
PLACES = {
    "abfss://lake@acme.dfs.core.windows.net/x": "azure",
    "abfs://lake@acme.dfs.core.windows.net/x": "azure",
    "wasbs://lake@acme.blob.core.windows.net/x": "azure",
    "gs://lake/x": "gcs",
    "s3a://lake/x": "s3",
}
VERBS = [
    ["status", "PLACE"],
    ["diagnose", "PLACE"],
    ["inspect", "PLACE"],
    ["offsets", "PLACE", "--batch", "1"],
    ["plan", "PLACE"],
    ["recover", "PLACE"],
    ["apply", "PLACE/plan.json"],
    ["verify", "PLACE"],
    ["backup", "create", "PLACE"],
    ["backup", "list", "PLACE"],
    ["backup", "restore", "PLACE"],
    ["run", "--checkpoint", "PLACE", "--", "true"],
]
AS_SINK = [
    *([verb, str(CHECKPOINT), "--sink", "PLACE"] for verb in ("status", "diagnose", "plan", "recover")),
    *(["plan", str(CHECKPOINT), "--sink", f"{kind}PLACE"] for kind in ("delta:", "file:", "iceberg:")),
]


@pytest.fixture(autouse=True)
def _without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library of a service can be imported, nor is known to be installed."""
    discover = importlib.metadata.Distribution.discover

    def discover_others(**found: Any) -> Iterator[importlib.metadata.Distribution]:
        return (each for each in discover(**found) if each.metadata["Name"] not in LIBRARIES)

    monkeypatch.setattr(importlib.metadata.Distribution, "discover", discover_others)
    for name in LIBRARIES:
        for module in [each for each in sys.modules if each.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def check(command: list[str], place: str) -> None:
    words = [word.replace("PLACE", place) for word in command]
    at = words.index("--") if "--" in words else len(words)
    done = call(*words[:at], "--format", "json", *words[at:])
    assert "Traceback" not in done.stdout + done.stderr
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["condition"]) == (5, "EXTRA_MISSING"), (command, error)
    assert error["next"] == f"pip install 'lastgood[{PLACES[place]}]'"


@pytest.mark.parametrize("command", VERBS, ids=lambda command: " ".join(command[:2]))
def test_a_verb_names_the_extra_of_a_checkpoint_location(command: list[str]) -> None:
    check(command, "gs://lake/x")


@pytest.mark.parametrize("place", PLACES)
def test_every_such_location_has_its_extra(place: str) -> None:
    check(["status", "PLACE"], place)


@pytest.mark.parametrize("command", AS_SINK, ids=lambda command: f"{command[0]} {command[-1]}")
def test_a_verb_names_the_extra_of_a_sink(command: list[str]) -> None:
    check(command, "wasbs://lake@acme.blob.core.windows.net/x")
