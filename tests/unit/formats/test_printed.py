"""What is printed as JSON, byte for byte: by every verb, and of every value that has a form in JSON.

`printed.jsonl` holds what verbs say of checkpoints that are made here, a line each; `samples.jsonl` what values say of
themselves whose fields are all filled, or as bare as they may be. Where a change is meant, `LASTGOOD_KEEP=1` has the
test write them anew: what differs then is what `CHANGELOG.md` has to say.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import classes, filled
from typed import call

from lastgood.testing.checkpoints import CheckpointBuilder

HERE = Path(__file__).parent
LOGS = HERE.parent / "failures/logs"
KEEP = bool(os.environ.get("LASTGOOD_KEEP"))
DEAD = "--driver-is-dead"
UNFILLED = {
    *(
        "LogAudit",
        "OpenQuery",
        "OffsetsAfterBatch",
        "StateSizes",
        "LoadedFiles",
        "Inspection",
        "Status",
        "ToSign",
        "Prepared",
        "Decision",
        "Reach",
    ),
    *("IncidentReport", "Report", "Restart", "CarriedOut"),
}
"""Views of whole checkpoints, or of what no type tells how to fill: the verbs show them."""
NAMELESS = {"Record", "Event", "Toxic"}
"""Their subclasses have a form in JSON; a toxic has one of another kind."""
VERBS: list[list[str]] = [
    ["status", "orders", "--kafka", "facts.json", "--sink", "file:files"],
    ["inspect", "orders", "--sink", "file:files"],
    ["inspect", "orders", "--batch", "3", "--kafka", "facts.json", "--sink", "file:files"],
    ["inspect", "orders", "--offset", "orders/0/12"],
    ["inspect", "orders", "--time", "2026-11-21T00:21:58Z"],
    ["inspect", "orders", "--state"],
    ["offsets", "orders", "--stable-lag", "1"],
    ["diagnose", "orders", "--spark", "4.2", "--kafka", "facts.json", "--sink", "file:files"],
    ["diagnose", "orders", "--spark", "4.2", "--log", "driver.log"],
    ["diagnose", "orders", "--spark", "4.2", "--save", "bundle.zip"],
    ["diagnose", "bundle.zip", "--spark", "4.2"],
    ["diagnose", "broken", "--spark", "3.5"],
    ["verify", "orders"],
    ["verify", "broken"],
    ["plan", "orders", "--kafka", "facts.json", "--sink", "file:files"],
    ["plan", "orders", "--goal", "replan", "--accept", "duplicates", "-o", "replan.json"],
    ["apply", "replan.json", DEAD],
    ["apply", "replan.json", DEAD],
    ["undo", "last", "--checkpoint", "orders", DEAD],
    ["plan", "orders", "--goal", "fresh", "--sink", "file:files"],
    ["apply", "nothing.json", DEAD],
    ["recover", "orders", DEAD, "--sink", "file:files", "--kafka", "facts.json"],
    ["recover", "orders", DEAD, "--sink", "file:files", "--kafka", "facts.json"],
    ["recover", "broken", DEAD],
    ["report", "last", "--checkpoint", "orders"],
    ["status", "broken"],
    ["status", "gone"],
    ["backup", "create", "orders"],
    ["backup", "list", "orders"],
    ["backup", "restore", "broken"],
    ["explain", "ORPHAN_BATCH"],
    ["key", "create", "key"],
    ["key", "sign", "orders"],
]


def masked(text: str, folder: Path) -> str:
    """The same without what is another one each time."""
    now = time.time() * 1000
    text = text.replace(str(folder), "/lake")
    text = re.sub(r"\b\d{13}\b", lambda found: "1" if abs(int(found[0]) - now) < 86_400_000 else found[0], text)
    text = re.sub(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b", "ID", text)
    text = re.sub(r'("[a-z_]*seconds"|"saved_in"|"age_ms"|"size"): [0-9.]+', r"\1: 0", text)
    text = re.sub(r'"id": "[0-9a-f]{8}"', '"id": "KEY"', text)
    text = re.sub(r'"(made_by|sha256)": "[0-9a-f.]+"', r'"\1": ""', text)
    return re.sub(r'"modified_ms": \d+', '"modified_ms": 1', text)


@pytest.fixture
def _lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lastgood.observe.advice_facts.find_own_disk", lambda *_: "ext4")  # tests may run in memory
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home"))
    for name in ("orders", "broken"):
        query = CheckpointBuilder(tmp_path / name)
        query.run(7)
        query.plan()
    (tmp_path / "broken/commits/4").unlink()
    (tmp_path / "broken/offsets/5").write_bytes(b"v1\n")
    shutil.copy(HERE / "written/2d47041/facts.json", tmp_path / "facts.json")
    log = tmp_path / "files/_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(7):
        added = {"path": f"file:///lake/files/{batch}.parquet", "size": 1, "isDir": False, "modificationTime": 1}
        told = {**added, "blockReplication": 1, "blockSize": 1, "action": "add"}
        (log / str(batch)).write_text(f"v1\n{json.dumps(told)}")
    (tmp_path / "driver.log").write_bytes(min(LOGS.rglob("*.log")).read_bytes())


def kept(name: str, lines: list[Any]) -> list[Any]:
    file = HERE / name
    if KEEP:
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.usefixtures("_lake")
def test_verbs_print_what_they_printed(tmp_path: Path) -> None:
    said = []
    for verb in VERBS:
        done = call(*verb, "--format", "json")
        said.append([verb, done.returncode, masked(done.stdout, tmp_path)])
    wanted = kept("printed.jsonl", said)
    for (verb, code, out), then in zip(said, wanted, strict=True):
        assert [verb, code, out] == then


def module_of(kind: type) -> str:
    """The last two words of its name: no two values of the same name share them."""
    return ".".join(kind.__module__.split(".")[-2:])


def shown() -> Iterator[list[Any]]:
    """What each value says of itself: the end of its module's name, its class, whether it is bare, its JSON."""
    for kind in classes("to_json"):
        if kind.__qualname__ in UNFILLED | NAMELESS:
            continue
        for bare in (False, True):
            told = json.dumps(filled(kind, bare=bare).to_json(), ensure_ascii=False)
            yield [module_of(kind), kind.__qualname__, bare, told]


def test_values_say_what_they_said() -> None:
    said = [*shown()]
    now = {tuple(line[:3]): line[3] for line in said}
    for *value, then in kept("samples.jsonl", said):
        assert now[tuple(value)] == then, value
