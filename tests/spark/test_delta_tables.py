"""Tables that real Delta wrote, in every form that it writes: what we read of their log, and what Delta does.

Where Delta and we both read a log, we read the same; where one of us cannot, it is never we who say that all is known
though something is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import RunningSpark, Sparks
from spark.delta_forms import FORMS

from lastgood.delta_log.listing import name_commit
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import LocalStorage, parse_location

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))
SCRIPT = Path(__file__).with_name("delta_tables_app.py")
VERSION = "4.2.0"
"""The one that has Delta here."""
TRANSACTIONS = {"old": 0, "q": 5, "other": 5}
CORPUS = Path(__file__).parents[1] / "corpus" / "delta"
_VERSION = re.compile(r"(\d{20})\.(?:json|crc)")


class Delta:
    """A real Spark with Delta, and a table of each form that was asked for."""

    def __init__(self, spark: RunningSpark, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def table(self, form: str) -> Path:
        """A copy of a table of this form, for the taker to do with as he likes."""
        made = self._folder / form
        if not made.exists():
            self._spark.call(SCRIPT, "make", form=form, path=str(made))
        copy = self._folder / f"{form}-{len(list(self._folder.iterdir()))}"
        hadoops = shutil.ignore_patterns(".*.crc")  # they would tell Delta that we changed a file
        return Path(shutil.copytree(made, copy, ignore=hadoops))

    def answer(self, table: Path) -> Mapping[str, Any]:
        """What Delta reads of a table; on a copy, since it may write a checksum file."""
        copy = table.with_name(f"{table.name}-asked")
        shutil.copytree(table, copy)
        return self._spark.call(SCRIPT, "ask", path=str(copy))


@pytest.fixture(scope="module")
def delta(sparks: Sparks, tmp_path_factory: pytest.TempPathFactory) -> Delta:
    return Delta(sparks.of(VERSION), tmp_path_factory.mktemp("tables"))


def read(table: Path) -> TableLog | None:
    """What we read of a table; None where we say that we cannot."""
    log = read_table_log(LocalStorage(), parse_location(str(table)), deadline=Deadline.after(60))
    is_told = isinstance(log, TableLog) and log.unknown is None and log.unjudged is None
    return log if is_told and isinstance(log, TableLog) else None


def marks(log: TableLog) -> dict[str, int]:
    return {name: each.version for name, each in log.transactions.items()}


def clean_up(table: Path, *, checksums: bool) -> Path:
    """Leave of the log its newest checkpoint and what follows, with the checksum files of that or without any."""
    log = table / "_delta_log"
    covered = max(int(file.name[:20]) for file in log.glob("*.checkpoint*"))
    for file in log.iterdir():
        found = _VERSION.fullmatch(file.name)
        if found and (int(found[1]) < covered or (not checksums and file.suffix == ".crc")):
            file.unlink()
    return table


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMS)
def test_transactions_are_those_that_delta_reads_from_commits_checkpoint_and_checksum(delta: Delta, form: str) -> None:
    whole = delta.table(form)
    expected = delta.answer(whole)
    assert expected["transactions"] == TRANSACTIONS
    for table in (
        whole,
        clean_up(delta.table(form), checksums=True),
        clean_up(delta.table(form), checksums=False),
    ):
        log = read(table)
        assert log is not None
        assert log.metadata is not None
        assert (log.newest_version, marks(log), log.metadata.table_id) == (
            expected["version"],
            expected["transactions"],
            expected["table_id"],
        )


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines(keepends=True)


def only(log: Path, pattern: str) -> Path:
    (found,) = log.glob(pattern)
    return found


def without_a_sidecar(log: Path) -> None:
    min((log / "_sidecars").glob("*.parquet")).unlink()


def without_the_transactions(log: Path) -> None:
    checkpoint = only(log, "*.checkpoint.*.json")
    checkpoint.write_text("".join(line for line in lines_of(checkpoint) if '"txn"' not in line))


def cut_within_a_line(log: Path) -> None:
    checkpoint = only(log, "*.checkpoint.*.json")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-9])


def without_the_protocol(log: Path) -> None:
    checkpoint = only(log, "*.checkpoint.*.json")
    checkpoint.write_text("".join(line for line in lines_of(checkpoint) if '"protocol"' not in line))
    (log / "_last_checkpoint").unlink()


def with_a_pointer_to_nowhere(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version":99,"size":3}')


def with_a_torn_commit(log: Path) -> None:
    newest = max(log.glob("0*.json"), key=lambda file: (len(file.name) == 25, file.name))
    newest.write_bytes(newest.read_bytes()[:-9])


def with_an_empty_version(log: Path) -> None:
    max(log.glob("0*.json"), key=lambda file: (len(file.name) == 25, file.name)).write_bytes(b"")


def adding(*actions: dict[str, Any]) -> Callable[[Path], None]:
    def damage(log: Path) -> None:
        newest = max(int(file.name[:20]) for file in log.glob("*.json") if len(file.name) == 25)
        (log / name_commit(newest + 1)).write_text("".join(f"{json.dumps(each)}\n" for each in actions))

    return damage


def txn(**fields: object) -> dict[str, Any]:
    return {"txn": fields}


def protocol(reader: int, *features: str) -> dict[str, Any]:
    listed = {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": 7, **listed}}


def writers_only(feature: str) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}}


COORDINATED = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["vacuumProtocolCheck"],
        "writerFeatures": ["coordinatedCommits-preview", "inCommitTimestamp", "vacuumProtocolCheck"],
    }
}
READ_BY_BOTH: dict[str, tuple[str, Callable[[Path], None], dict[str, int]]] = {
    "a pointer to a checkpoint that is not there": ("v2_json", with_a_pointer_to_nowhere, {}),
    "an action that nobody knows": ("classic", adding({"marvel": {}}, txn(appId="m", version=1)), {"m": 1}),
    "the largest version": ("classic", adding(txn(appId="m", version=2**63 - 1)), {"m": 2**63 - 1}),
    "a negative version": ("classic", adding(txn(appId="m", version=-3)), {"m": -3}),
    "a version that went down": ("classic", adding(txn(appId="q", version=2)), {"q": 2}),
}
READ_BY_NEITHER: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a sidecar is gone": ("v2_json", without_a_sidecar),
    "a checkpoint that ends within a line": ("v2_json", cut_within_a_line),
    "a checkpoint without protocol": ("v2_json", without_the_protocol),
    "a torn commit": ("classic", with_a_torn_commit),
    "a reader version to come": ("classic", adding(protocol(4))),
    "a reader feature to come": ("classic", adding(protocol(3, "marvel"))),
    "a redirected table": ("classic", adding(protocol(3, "redirectReaderWriter-preview"))),
    "commits in a catalog": ("classic", adding(protocol(3, "catalogManaged", "inCommitTimestamp"))),
    "a version that is text": ("classic", adding(txn(appId="m", version="5"))),
    "a version that is too large": ("classic", adding(txn(appId="m", version=2**63))),
    "a transaction that is a number": ("classic", adding({"txn": 5})),
}
LEFT_OPEN_BY_US: dict[str, tuple[str, Callable[[Path], None], dict[str, int | None]]] = {
    # Delta does not miss what is gone, takes what is not there for 0, and goes on beside a catalog unknown to it.
    "the transactions are cut off a checkpoint": ("v2_json", without_the_transactions, {"q": 5, "other": 5}),
    "an empty version": ("classic", with_an_empty_version, {**TRANSACTIONS, "other": None}),
    "a transaction without a version": ("classic", adding(txn(appId="q")), {**TRANSACTIONS, "q": 0}),
    "a transaction without a name": ("classic", adding(txn(version=5)), {**TRANSACTIONS, "null": 5}),
    "a feature of writers to come": ("classic", adding(writers_only("marvel")), TRANSACTIONS),
    "commits with a coordinator": ("classic", adding(COORDINATED), TRANSACTIONS),
}


@pytest.mark.proof
@pytest.mark.parametrize("name", READ_BY_BOTH)
def test_what_looks_odd_and_is_not_is_read_as_delta_reads_it(delta: Delta, name: str) -> None:
    form, damage, more = READ_BY_BOTH[name]
    table = clean_up(delta.table(form), checksums=False)
    damage(table / "_delta_log")
    log = read(table)
    assert log is not None
    assert marks(log) == {**TRANSACTIONS, **more} == delta.answer(table)["transactions"]


@pytest.mark.proof
@pytest.mark.parametrize("name", READ_BY_NEITHER)
def test_what_delta_cannot_read_we_do_not_either(delta: Delta, name: str) -> None:
    form, damage = READ_BY_NEITHER[name]
    table = clean_up(delta.table(form), checksums=False)
    damage(table / "_delta_log")
    assert "error" in delta.answer(table)
    assert read(table) is None


@pytest.mark.proof
@pytest.mark.parametrize("damage", [without_the_protocol, without_the_transactions])
def test_delta_goes_by_the_checkpoint_though_every_commit_is_there(
    delta: Delta, damage: Callable[[Path], None]
) -> None:
    table = delta.table("v2_json")
    log = table / "_delta_log"
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    assert (log / name_commit(0)).exists()
    damage(log)
    found = delta.answer(table)
    assert "error" in found or found["transactions"] != TRANSACTIONS
    assert read(table) is None


@pytest.mark.proof
@pytest.mark.parametrize("name", LEFT_OPEN_BY_US)
def test_what_delta_reads_wrongly_or_by_guessing_we_leave_open(delta: Delta, name: str) -> None:
    form, damage, found = LEFT_OPEN_BY_US[name]
    table = clean_up(delta.table(form), checksums=False)
    damage(table / "_delta_log")
    shown = delta.answer(table)["transactions"]
    assert {each: shown.get(each) for each in found} == found
    assert shown.keys() <= found.keys()
    assert read(table) is None


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.proof)])
def test_tables_of_the_corpus_are_what_their_facts_say(delta: Delta, tmp_path: Path, every: int) -> None:
    """Delta is asked of every fourth and of what it refuses, in the proof of all; we read all of them always."""
    known = json.loads((CORPUS / "facts.json").read_text())
    chosen = sorted(known)[SEED % every :: every]
    facts = {name: told for name, told in known.items() if name in chosen or "error" in told}
    copies = {name: Path(shutil.copytree(CORPUS / name, tmp_path / str(n))) for n, name in enumerate(facts)}
    answers = {name: delta.answer(copy) for name, copy in copies.items()}
    refused = {name: told["error"] for name, told in facts.items() if "error" in told}
    assert {name: answer for name, answer in answers.items() if name not in refused} == {
        name: told for name, told in facts.items() if name not in refused
    }
    assert all(error in answers[name].get("error", "") for name, error in refused.items())
