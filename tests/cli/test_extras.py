"""Storages whose library is not installed: every verb says which extra is needed, wherever the location stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reading import CASES

LASTGOOD = Path(sys.executable).parent / "lastgood"
CHECKPOINT = CASES / "4.2-kafka-multi-topic" / "checkpoint"
LIBRARIES = ("adlfs", "gcsfs", "s3fs")
HIDDEN = f"""
import importlib.metadata

discover = importlib.metadata.Distribution.discover
importlib.metadata.Distribution.discover = classmethod(
    lambda cls, **found: (each for each in discover(**found) if each.metadata["Name"] not in {LIBRARIES})
)
"""
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


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which no library of a service can be imported, nor is known to be installed."""
    folder = tmp_path_factory.mktemp("without")
    for name in LIBRARIES:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')")
    (folder / "sitecustomize.py").write_text(HIDDEN)
    return {**os.environ, "PYTHONPATH": str(folder), "XDG_STATE_HOME": str(folder)}


def say(command: list[str], env: dict[str, str]) -> tuple[int, str, str]:
    at = command.index("--") if "--" in command else len(command)
    line = [LASTGOOD, *command[:at], "--format", "json", *command[at:]]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def check(command: list[str], place: str, env: dict[str, str]) -> None:
    code, out, err = say([word.replace("PLACE", place) for word in command], env)
    assert "Traceback" not in out + err
    error = json.loads(out)["error"]
    assert (code, error["condition"]) == (5, "EXTRA_MISSING"), (command, error)
    assert error["next"] == f"pip install 'lastgood[{PLACES[place]}]'"


@pytest.mark.parametrize("command", VERBS, ids=lambda command: " ".join(command[:2]))
def test_a_verb_names_the_extra_of_a_checkpoint_location(command: list[str], without: dict[str, str]) -> None:
    check(command, "gs://lake/x", without)


@pytest.mark.parametrize("place", PLACES)
def test_every_such_location_has_its_extra(place: str, without: dict[str, str]) -> None:
    check(["status", "PLACE"], place, without)


@pytest.mark.parametrize("command", AS_SINK, ids=lambda command: f"{command[0]} {command[-1]}")
def test_a_verb_names_the_extra_of_a_sink(command: list[str], without: dict[str, str]) -> None:
    check(command, "wasbs://lake@acme.blob.core.windows.net/x", without)
