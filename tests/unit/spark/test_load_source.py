"""What the source of a load raises where a storage does not answer, or refuses: all that Spark passes on."""

from __future__ import annotations

import traceback

import pytest

from lastgood.errors import StorageError
from lastgood.failures.causes import read_causes
from lastgood.failures.classify import classify_causes
from lastgood.failures.lack import explain_lack
from lastgood.spark.load_source import name_storage
from lastgood.storage.reading import StorageDeniedError


class ServerDisconnectedError(Exception):
    """As a library has one that no rule knows."""


def raise_within(kind: type[StorageError]) -> None:
    error = kind("it did not work", subject="s3a://lake/in.csv", found="Server disconnected")
    raise error from ServerDisconnectedError()


def test_a_storage_that_does_not_answer_is_one_to_ask_later() -> None:
    with pytest.raises(ConnectionError) as told, name_storage():
        raise_within(StorageError)
    text = "".join(traceback.format_exception(told.value))
    java = f"org.apache.spark.SparkException: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] latestOffset: {text}"
    lack = explain_lack(classify_causes(read_causes(java)))
    assert lack is not None
    assert lack["kind"] == "transient"
    assert lack["found"].endswith(": it did not work: s3a://lake/in.csv: Server disconnected")


def test_a_storage_that_refuses_is_named_and_not_asked_again() -> None:
    with pytest.raises(RuntimeError, match=r"it did not work: s3a://lake/in\.csv: Serv"), name_storage():
        raise_within(StorageDeniedError)
