"""Tables that Delta and delta-rs wrote over the years: what is read of their logs is what Delta itself reads.

Where they come from is told in `delta/README.md`; `delta/facts.json` is what Delta 4.4.0 says of each, and
`tests/spark/test_delta_tables.py` asks it again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.sinks.delta.sink import DeltaSink
from lastgood.sinks.evidence import SinkEvidence
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import LocalStorage, parse_location

DELTA = Path(__file__).parent / "delta"
FACTS: dict[str, dict[str, Any]] = json.loads((DELTA / "facts.json").read_text())
LEFT_OPEN = {"simple_table_features": "minReaderVersion", "table_with_liquid_clustering": "table feature liquid"}
"""Tables that are not judged: Delta refuses the first, and no release of it has the writer feature of the second."""
READ = [name for name in FACTS if name not in LEFT_OPEN]
OF_DELTA: list[dict[str, Any]] = json.loads((DELTA / "of_delta.json").read_text())
"""What the tables of Delta's own tests ask of who reads them."""
NOW_MS = 1_700_000_000_000


def read(table: Path) -> TableLog:
    log = read_table_log(LocalStorage(), parse_location(str(table)), deadline=Deadline.after(60))
    assert isinstance(log, TableLog)
    return log


def ask(name: str, query_id: str) -> SinkEvidence:
    return DeltaSink(LocalStorage(), parse_location(str(DELTA / name))).evidence(query_id, now_ms=NOW_MS)


def test_every_table_has_its_facts() -> None:
    assert sorted(FACTS) == sorted(str(log.parent.relative_to(DELTA)) for log in DELTA.rglob("_delta_log"))


@pytest.mark.parametrize("name", READ)
def test_log_is_read_as_delta_reads_it(name: str) -> None:
    log, facts = read(DELTA / name), FACTS[name]
    assert (log.unknown, log.unjudged) == (None, None)
    assert log.metadata is not None
    assert log.protocol is not None
    assert {
        "version": log.newest_version,
        "transactions": {app_id: mark.version for app_id, mark in log.transactions.items()},
        "table_id": log.metadata.table_id,
        "protocol": [log.protocol.min_reader_version, log.protocol.min_writer_version],
    } == facts


@pytest.mark.parametrize("name", READ)
def test_query_that_never_wrote_to_it_has_no_batch_in_it(name: str) -> None:
    evidence = ask(name, "a-query-of-elsewhere")
    assert (evidence.known, evidence.last_batch) == (True, None)


@pytest.mark.parametrize("name", READ)
def test_log_without_its_newest_commit_is_another_one_or_not_judged(name: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(DELTA / name, tmp_path / "table"))
    newest = copy / f"_delta_log/{FACTS[name]['version']:020}.json"
    newest.unlink()
    log = read_table_log(LocalStorage(), parse_location(str(copy)), deadline=Deadline.after(60))
    is_judged = isinstance(log, TableLog) and log.unknown is None and log.unjudged is None
    assert not is_judged or log.newest_version < FACTS[name]["version"]


@pytest.mark.parametrize("name", LEFT_OPEN)
def test_table_that_asks_for_what_nobody_knows_is_not_judged(name: str) -> None:
    evidence = ask(name, "a-query-of-elsewhere")
    assert (evidence.known, evidence.last_batch) == (False, None)
    assert LEFT_OPEN[name] in evidence.because


def test_last_mark_of_a_query_is_found() -> None:
    query_id, batch = next(iter(FACTS["delta-0.2.0"]["transactions"].items()))
    assert ask("delta-0.2.0", query_id).last_batch == batch


def table_like(folder: Path, asks: dict[str, Any], **transactions: int) -> DeltaSink:
    """A table of one version that asks for the same, with the marks of these applications."""
    actions: list[dict[str, Any]] = [{"txn": {"appId": name, "version": mark}} for name, mark in transactions.items()]
    if asks["protocol"] is not None:
        reader, writer = asks["protocol"]
        features = {"readerFeatures": asks["reader_features"]} if reader >= 3 else {}
        features |= {"writerFeatures": asks["writer_features"]} if writer >= 7 else {}
        actions.append({"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}})
    if asks["configuration"] is not None:
        metadata = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}"}
        actions.append({"metaData": {**metadata, "partitionColumns": [], "configuration": asks["configuration"]}})
    (folder / "_delta_log").mkdir()
    commit = folder / f"_delta_log/{0:020}.json"
    commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    return DeltaSink(LocalStorage(), parse_location(str(folder)))


@pytest.mark.parametrize("asks", OF_DELTA, ids=lambda asks: str(asks["first"]).rpartition("/")[2])
def test_table_that_asks_for_what_those_of_delta_ask_for_is_judged_or_left_open(
    asks: dict[str, Any], tmp_path: Path
) -> None:
    sink = table_like(tmp_path, asks, ours=5, theirs=7, others=3)
    mine, nobody = (sink.evidence(query_id, now_ms=NOW_MS) for query_id in ("ours", "a-query-of-elsewhere"))
    if asks["unjudged"] is None:
        assert [(each.known, each.last_batch) for each in (mine, nobody)] == [(True, 5), (True, None)]
    else:
        assert (mine.known, nobody.known) == (False, False)
        assert asks["unjudged"] in nobody.because
