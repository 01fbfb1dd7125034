"""Every command that an answer names works, looks where the verb looked that names it, and keeps what that promised."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from printed import Answer, Printed, parsed, require_same, run
from shared_corpus import CORPUS

from lastgood.asked import LOOKING
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import format_command_line
from lastgood.observe.open_query import gather
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

CASES = Path(__file__).parent / "cases"
HERE_NTH, SHARED_NTH = 5, 15
"""Of each corpus, one case in so many; all of them under `proof`."""
VERBS = (
    ["status", "--max-downtime", "3d"],
    ["diagnose"],
    ["inspect"],
    ["inspect", "--batch", "999999"],
    ["inspect", "--offset", "orders/0/999999"],
    ["offsets", "--stable-lag", "999999"],
    ["offsets", "--batch", "999999"],
    ["plan", "--spark", "4.0"],
    ["plan", "--goal", "replan", "--fail-on-data-loss", "false"],
    ["plan", "--goal", "reposition", "--stable-lag", "1"],
    ["plan", "--goal", "reposition", "--earliest", "--accept", "duplicates"],
    ["plan", "--goal", "fresh", "--earliest"],
    ["plan", "--goal", "fresh", "--stable-lag", "1", "--via", "app-config", "--start-file", "start.json"],
    ["verify"],
    ["backup list"],
    ["recover", "--observe"],
    ["recover", "--goal", "reposition", "--stable-lag", "1", "--accept", "duplicates"],
)
USELESS = {2: "usage", 4: "a bug", 21: "no such batch", 40: "in no batch", 64: "no Kafka source"}
"""Exit codes of a command that nobody should have been told to run."""
DEPTH = 2
"""What a printed command prints is looked at as well."""


def cases() -> list[Path]:
    here = sorted(path.parent for path in CASES.glob("*/about.json"))
    shared = sorted(path.parent for path in CORPUS.glob("*/about.json"))
    return [*here[::HERE_NTH], *shared[::SHARED_NTH]]


def everything() -> list[Path]:
    return sorted(path.parent for root in (CASES, CORPUS) for path in root.glob("*/about.json"))


def name(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("case", cases(), ids=name)
def test_every_command_that_is_printed_works(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look(case, tmp_path, monkeypatch)


@pytest.mark.proof
@pytest.mark.parametrize("case", everything(), ids=name)
def test_every_command_that_is_printed_works_on_every_case(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(case, tmp_path, monkeypatch)


def look(case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    shutil.copytree(case, folder / "a case", symlinks=True)
    checkpoint = folder / "a case" / "checkpoint"
    follow(checkpoint, [])
    follow(checkpoint, evidence(checkpoint))


@pytest.mark.parametrize(("orphans", "shown"), [(0, 1), (1, 1), (1, 2), (2, 2), (2, 3)])
@pytest.mark.parametrize("can_go_back", [True, False])
def test_ways_that_are_offered_keep_their_word_wherever_the_sink_stands(
    orphans: int, shown: int, can_go_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the goal itself is refused, as where a table cannot give the batch back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    checkpoint, sink = tmp_path / "checkpoint", tmp_path / "sink"
    query = CheckpointBuilder(checkpoint)
    query.run(2)
    for _ in range(orphans):
        query.plan()
    mode: Literal["append", "overwrite"] = "append" if can_go_back else "overwrite"
    for batch in range(shown + 1):
        mark = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch, 0)])
        write_deltalake(sink, pa.table({"n": [batch]}), mode=mode, commit_properties=mark)
    for goal in ("resume", "replan"):
        require_kept(run("plan", str(checkpoint), "--goal", goal, *evidence(checkpoint), "--format", "json"))


def evidence(checkpoint: Path) -> list[str]:
    """What the case has of sink and Kafka; else a table that shows what is committed, and a broker that has it all."""
    found = gather(resolve_target(str(checkpoint)), batches=2, may_be_missing=True)
    sink, kafka = checkpoint.parent / "sink", checkpoint.parent / "kafka.json"
    committed = found.checkpoint.last_committed
    if not sink.exists() and found.query_id is not None and committed is not None:
        mark = CommitProperties(app_transactions=[Transaction(found.query_id, committed, 0)])
        write_deltalake(sink, pa.table({"n": [1]}), commit_properties=mark)
    newest = found.checkpoint.newest_offsets
    lines = [line.offset for line in newest.sources] if newest else []
    topics = {
        topic: {"partitions": {str(each): {"earliest": 0, "latest": end + 5} for each, end in ends.items()}}
        for offset in lines
        if isinstance(offset, KafkaOffset)
        for topic, ends in offset.topics.items()
    }
    if not kafka.exists():
        kafka.write_text(json.dumps({"bootstrap": "broker:9092", "captured_at_ms": 1, "topics": topics}))
    (checkpoint.parent / "client.properties").write_text("")
    words = ["--kafka", str(kafka), "--topic", "it's one", "--txn-app-id", found.query_id or "nobody"]
    return [*words, *(["--sink", str(sink)] if sink.exists() else [])]


def follow(checkpoint: Path, said: list[str]) -> None:
    """Run each verb, then each command that it prints, and look at those that these print."""
    done: set[str] = set()
    for verb in VERBS:
        for form in ("json", "text"):
            words = [*verb[0].split(), str(checkpoint), *verb[1:], *(said if verb[0] in LOOKING else ())]
            answer = run(*words, "--format", form)
            check(answer, parsed(format_command_line(*words)), done, DEPTH)
            if form == "json":
                require_kept(answer)
    below = run("status", str(checkpoint.parent.parent), *said, "--format", "json")
    assert all(each["next"] for each in below.said["checkpoints"])  # perhaps one of Kafka's own tools
    check(below, parsed(format_command_line(*below.words)), done, DEPTH)


def check(answer: Answer, asked: Printed, done: set[str], depth: int) -> None:
    for printed in answer.printed():
        if printed.verb != "explain":
            require_same(answer, asked, printed)
        if not depth or printed.line in done or not printed.can_be_run or not printed.only_reads:
            continue
        done.add(printed.line)
        then = run(*printed.words, "--format", "json")
        assert then.code not in USELESS, (answer, printed.line, then.out)
        check(then, printed, done, depth - 1)


def require_kept(answer: Answer) -> None:
    """See that the plan of an alternative has the word that the alternative was printed with."""
    told = answer.said
    refused = told.get("error") or {}
    for other in (*told.get("alternatives", ()), *refused.get("alternatives", ())):
        if other["command"] is not None:
            made = run(*parsed(other["command"]).words, "--format", "json").said
            assert made.get("guarantee") == other["guarantee"], (other, made.get("error"))
