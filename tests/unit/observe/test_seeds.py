"""From what a lost checkpoint can be seeded, with real tables and what a broker has said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from planning import broker

from lastgood.delta_log.listing import name_commit
from lastgood.errors import StorageError, UsageError
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.positions import MARGIN_MS, StartChoice
from lastgood.observe.seeds import list_other_seeds, make_seed
from lastgood.observe.survey import add_repair_facts, survey
from lastgood.planning.price import Guarantee
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

COLUMNS = "topic,partition,offset"
OTHER_ID = "0b7e60a2-1111-4222-8333-944445555666"
EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(table: str, offsets: Iterable[int], *, batch: int = 0, query_id: str | None = QUERY_ID) -> None:
    rows = list(offsets)
    data = {
        "topic": ["orders"] * len(rows),
        "partition": pa.array([0] * len(rows), pa.int32()),
        "offset": pa.array(rows, pa.int64()),
    }
    marks = [] if query_id is None else [Transaction(query_id, batch, 1_795_290_600_000)]
    write_deltalake(table, pa.table(data), mode="append", commit_properties=CommitProperties(app_transactions=marks))


def looked(*tables: str, facts: KafkaFacts | None = None) -> OpenQuery:
    """A query that was lost, as it is found now."""
    options = EvidenceOptions(sinks=tables, topics=("orders",))
    found = survey(resolve_target("chk"), evidence=options, may_be_missing=True)
    found = replace(found, seen=replace(found.seen, kafka=facts))
    return add_repair_facts(found)


def test_rows_are_measured_against_where_the_source_began(tmp_path: Path) -> None:
    write("table", range(4, 9))
    by_rows = StartChoice(offset_columns=COLUMNS)
    assert make_seed(looked("table"), by_rows).extent.word is LOSSY  # type: ignore[union-attr]
    folder = tmp_path / "chk/sources/0"
    folder.mkdir(parents=True)
    (folder / "0").write_bytes(b'\0v1\n{"orders":{"0":4}}')
    found = make_seed(looked("table"), by_rows)
    assert found.extent is not None
    assert (found.extent.word, found.offsets) == (EXACT, {"0": {"orders": {0: 9}}})


def test_query_whose_id_is_known_is_the_only_one_that_may_write() -> None:
    write("table", range(3))
    write("table", range(3, 5), batch=1, query_id=OTHER_ID)
    by_rows = StartChoice(offset_columns=COLUMNS)
    lost = make_seed(looked("table"), by_rows).extent
    assert lost is not None
    assert (lost.word, "others write to" in lost.rests_on[1]) == (TWICE, True)
    CheckpointBuilder(Path("chk")).run(1)
    known = make_seed(looked("table"), by_rows).extent
    assert known is not None
    assert known.rests_on[-1].endswith(f"too: {OTHER_ID}")


def test_further_sink_is_not_measured_by_the_rows_of_one() -> None:
    write("table", range(3))
    Path("files/_spark_metadata").mkdir(parents=True)
    found = make_seed(looked("table", "files"), StartChoice(offset_columns=COLUMNS)).extent
    assert found is not None
    assert (found.word, found.rests_on[1]) == (LOSSY, "how far 1 other sink has come, its rows do not tell")


def test_which_of_two_tables_is_meant_has_to_be_said() -> None:
    write("one", range(3))
    write("two", range(3))
    with pytest.raises(UsageError, match="which table"):
        make_seed(looked("one", "two"), StartChoice(offset_columns=COLUMNS))


def test_table_without_a_row_of_the_topic_is_refused() -> None:
    write("table", range(3))
    CheckpointBuilder(Path("chk")).run(1)
    Path("chk/offsets/0").write_bytes(Path("chk/offsets/0").read_bytes().replace(b"orders", b"bills"))
    with pytest.raises(UsageError, match="no row of a topic") as caught:
        make_seed(looked("table"), StartChoice(offset_columns=COLUMNS))
    assert (caught.value.found, caught.value.expected) == ("orders", "bills")


@pytest.mark.parametrize(
    "action",
    [
        {"metaData": {"id": "x", "configuration": {"delta.redirectReaderWriter-preview": "{}"}}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["coordinatedCommits-preview"]}},
        {"txn": {}},
    ],
)
def test_rows_of_a_table_whose_newest_may_be_elsewhere_are_not_gone_by(action: dict[str, object]) -> None:
    write("table", range(3))
    (Path("table/_delta_log") / name_commit(1)).write_text(json.dumps(action))
    with pytest.raises(StorageError, match="cannot be asked for its offsets"):
        make_seed(looked("table"), StartChoice(offset_columns=COLUMNS))


def test_other_ways_are_offered_with_the_options_that_ask_for_them() -> None:
    write("table", [0, 1, 3])
    found = looked("table", facts=broker((0, 9)))
    goal = make_seed(found, StartChoice(offset_columns=COLUMNS))
    assert [options for _, options in list_other_seeds(found, goal)] == [
        ("--at", '{"orders": {"0": 4}}'),
        ("--earliest",),
    ]


def test_own_commits_tell_the_time_whoever_else_writes() -> None:
    for batch in range(3):
        write("table", [batch], batch=batch)
        write("table", [100 + batch], query_id=None)
    times = {each["version"]: each["timestamp"] for each in DeltaTable("table").history()}
    CheckpointBuilder(Path("chk")).run(3)
    asked = {times[2] - MARGIN_MS: {"orders": {0: FoundRecord(3), 1: FoundRecord(4)}}}
    found = looked("table", facts=replace(broker((0, 9), (0, 9)), first_at=asked))
    goal = make_seed(found, StartChoice(at_last_commit=True))
    assert goal.offsets == {"0": {"orders": {0: 3, 1: 4}}}
    assert goal.extent is not None
    assert goal.extent.rests_on[0].startswith("the time of version 2 of")


def test_rows_under_a_number_whose_plan_reads_nothing_do_not_end_where_that_plan_does() -> None:
    """As after a repair that used a number up: the rows are of an older plan, which nobody has any more."""
    builder = CheckpointBuilder(Path("chk"))
    for batch in range(3):
        planned_ms = int(time.time() * 1000)
        builder.plan(5, at_ms=planned_ms)
        write("table", range(5 * batch, 5 * batch + 5), batch=batch)
        if batch < 2:
            builder.commit()
    assert make_seed(looked("table"), StartChoice(at_sink=True)).offsets == {"0": {"orders": {0: 15, 1: 15}}}
    builder.drop_plan()
    builder.plan(0, at_ms=planned_ms)  # a repair leaves the time of a plan as it was
    with pytest.raises(UsageError, match="the plan that is left is another one"):
        make_seed(looked("table"), StartChoice(at_sink=True))
