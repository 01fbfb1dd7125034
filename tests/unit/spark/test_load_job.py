"""What is told of an error that ends a load, and which columns one has that gets some."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lastgood.errors import NoSpaceError, StorageError
from lastgood.load.specification import LoadFormat, LoadSpec, ParseMode
from lastgood.spark.load_job import LoadRefusedError, add_columns, explain_failure, explain_incomparable, find_reason
from lastgood.storage.reading import StorageDeniedError

FAILED = "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: "
WORKER = f"""{FAILED}[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "ranges.py", line 71, in read
    raise EOFError
EOFError: 3 of 5 bytes

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "load_source.py", line 71, in read
    raise RuntimeError
RuntimeError: /in.csv was cut off while it was loaded
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = a, runId = b]"""
JAVA = """An error occurred while calling o192.start.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/tmp/t
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirs(RawLocalFileSystem.java:878)
"""
ENDED = f"{FAILED}[USER_RAISED_EXCEPTION] load ended, since a line is a JSON array: [1] SQLSTATE: P0001\nmore"
QUOTED = "[MALFORMED] a record in raise_error(concat(load ended, since it is one, value))"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER, "/in.csv was cut off while it was loaded"),
        (JAVA, "Parent path is not a directory: file:/tmp/t"),
        (ENDED, "a line is a JSON array: [1] SQLSTATE: P0001"),
        (f"{FAILED}[MALFORMED] a record in raise_error(concat(load ended, since it is one, value))\nmore", QUOTED),
        (f"{FAILED}[MALFORMED] a record\nmore", "[MALFORMED] a record"),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'.\n== SQL ==",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'.",
        ),
        ("", ""),
    ],
)
def test_the_reason_is_told_in_one_line(text: str, reason: str) -> None:
    assert find_reason(RuntimeError(text)) == reason


@pytest.mark.parametrize(
    ("error", "kind"), [(StorageError, "transient"), (NoSpaceError, "own"), (StorageDeniedError, "own")]
)
def test_an_error_of_ours_names_its_place_and_says_whether_time_mends_it(error: type[StorageError], kind: str) -> None:
    told = explain_failure(error("the file cannot be written", subject="s3a://lake/chk", found="it is gone"))
    assert told == {"kind": kind, "found": "the file cannot be written: s3a://lake/chk: it is gone"}


def make_columns(**kinds: type) -> StructType:
    return StructType([StructField(name, kind()) for name, kind in kinds.items()])


KNOWN = make_columns(id=IntegerType, name=StringType)


@pytest.mark.parametrize("are_in_order", [True, False])
def test_columns_that_came_since_are_behind_those_that_were_there(are_in_order: bool) -> None:
    more = make_columns(id=IntegerType, name=StringType, b=LongType, a=LongType)
    assert add_columns(KNOWN, more, are_in_order=are_in_order) == more
    assert add_columns(KNOWN, KNOWN, are_in_order=are_in_order) == KNOWN


def test_known_by_their_names_they_may_be_in_any_order_and_one_may_be_absent() -> None:
    found = add_columns(KNOWN, make_columns(b=LongType, id=IntegerType), are_in_order=False)
    assert found == make_columns(id=IntegerType, name=StringType, b=LongType)


@pytest.mark.parametrize(
    ("found", "are_in_order", "why"),
    [
        (make_columns(id=LongType, name=StringType), True, "the column id as bigint, which was int"),
        (make_columns(id=LongType), False, "the column id as bigint, which was int"),
        (make_columns(id=IntegerType), True, "first the columns id, and not id, name"),
        (make_columns(name=StringType, id=IntegerType), True, "first the columns name, id, and not id, name"),
        (make_columns(id=IntegerType, name=StringType, ID=LongType), True, "the column ID beside id"),
    ],
)
def test_a_column_that_was_there_stays_what_it_was(found: StructType, are_in_order: bool, why: str) -> None:
    with pytest.raises(LoadRefusedError) as refused:
        add_columns(KNOWN, found, are_in_order=are_in_order)
    assert refused.value.answer == {"kind": "evolve", "found": why}


@pytest.mark.parametrize(
    ("form", "mode", "at_first", "columns", "is_comparable"),
    [
        (LoadFormat.CSV, ParseMode.DROPMALFORMED, None, KNOWN, True),
        (LoadFormat.CSV, ParseMode.PERMISSIVE, 1, KNOWN, True),
        (LoadFormat.JSONL, ParseMode.DROPMALFORMED, 1, KNOWN, True),
        (LoadFormat.CSV, ParseMode.DROPMALFORMED, 1, KNOWN, False),
        (LoadFormat.CSV, ParseMode.PERMISSIVE, 1, make_columns(id=IntegerType, _corrupt_record=StringType), False),
    ],
)
def test_records_that_would_be_corrupt_now_are_not_compared(
    form: LoadFormat, mode: ParseMode, at_first: int | None, columns: StructType, is_comparable: bool
) -> None:
    spec = LoadSpec(
        table="delta:/t",
        form=form,
        schema=None,
        infers=False,
        options={},
        mode=mode,
        files=(),
        columns_at_first=at_first,
    )
    assert (explain_incomparable(spec, columns) is None) == is_comparable
    apart = replace(spec, quarantine="delta:/q")
    assert (explain_incomparable(apart, columns) is None) == (at_first is None or form is not LoadFormat.CSV)
