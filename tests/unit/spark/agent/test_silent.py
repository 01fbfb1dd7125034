"""The writer of a query that is to run silently, without a Spark: what it is made to do, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from lastgood.spark.agent import silent, starts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/lake/chk", "file:///lake/chk/"),
        ("file:/lake/chk", "/lake//chk"),
        ("s3://lake/chk", "s3a://lake/chk/"),
        ("hdfs://node/chk", "HDFS://node/chk"),
    ],
)
def test_spellings_of_one_place_are_the_same(one: str, other: str) -> None:
    assert starts.identify(one) == starts.identify(other)


def test_other_places_are_not_and_a_relative_one_is_meant_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert starts.identify("chk") == starts.identify(str(tmp_path / "chk"))
    assert starts.identify("s3://lake/chk") != starts.identify("s3://lake/chk2")
    assert starts.identify("s3://lake/chk") != starts.identify("/lake/chk")


class Query:
    def __init__(self, error: str | None) -> None:
        self._error = error

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        if self._error is not None:
            raise RuntimeError(self._error)


class Writer:
    """What the agent asks of a DataStreamWriter."""

    started: ClassVar[list[dict[str, Any]]]
    errors: ClassVar[list[str | None]]

    def __init__(self) -> None:
        self._spark = SimpleNamespace(_jsparkSession=None, conf=SimpleNamespace(get=lambda *_: None))
        self.told: dict[str, Any] = {}

    def _set(self, **told: Any) -> Writer:
        self.told |= told
        return self

    def option(self, key: str, value: Any) -> Writer:
        return self._set(**{key: value})

    def options(self, **told: Any) -> Writer:
        return self._set(**told)

    def queryName(self, queryName: str) -> Writer:  # noqa: N802, N803 - Spark's names
        return self._set(queryName=queryName)

    def format(self, source: str) -> Writer:
        return self._set(format=source)

    def outputMode(self, mode: str) -> Writer:  # noqa: N802 - Spark's name
        return self._set(outputMode=mode)

    def trigger(self, **told: Any) -> Writer:
        return self._set(trigger=told)

    def start(self, *args: Any, **kwargs: Any) -> Query:
        assert not args
        assert not kwargs
        if not self.errors:
            raise SystemExit  # the process is ended, which a thread is here
        self.started.append(dict(self.told))
        return Query(self.errors.pop(0))

    toTable = start  # noqa: N815 - Spark's name


@pytest.fixture
def muted(tmp_path: Path) -> type[Any]:
    module = ModuleType("readwriter")
    kind = type("DataStreamWriter", (Writer,), {**vars(Writer), "started": [], "errors": [None, "it broke"]})
    module.DataStreamWriter = kind  # type: ignore[attr-defined]
    silent.mute(module, tmp_path, "/lake/chk")
    return kind


def _ask(folder: Path, number: int, below: str) -> None:
    draft = folder / "draft"
    draft.write_text(json.dumps({"below": below}))
    draft.replace(folder / silent.name_turn(number))


@pytest.mark.parametrize("begin", ["start", "toTable"])
def test_query_runs_beside_its_checkpoint_without_its_sink_once_for_each_turn(
    muted: Any, tmp_path: Path, begin: str
) -> None:
    writer = muted().format("parquet").trigger(processingTime="1 second").option("checkpointLocation", "/lake/chk")

    def run() -> None:
        with contextlib.suppress(SystemExit):
            getattr(writer, begin)("target", "delta", "complete")

    application = threading.Thread(target=run)
    application.start()
    answers = []
    for number, below in enumerate((".lastgood/rebuilt/1", ".lastgood/rebuilt/2")):
        _ask(tmp_path, number, below)
        answer = tmp_path / silent.name_answer(number)
        while not answer.exists():
            pass
        answers.append(json.loads(answer.read_text())["error"])
    _ask(tmp_path, 2, "")
    application.join()
    assert answers == [None, "it broke"]
    assert [each["checkpointLocation"] for each in muted.started] == [
        "/lake/chk.lastgood/rebuilt/1",
        "/lake/chk.lastgood/rebuilt/2",
    ]
    for each in muted.started:
        assert (each["format"], each["trigger"], each["outputMode"]) == ("noop", {"once": True}, "complete")


def test_other_query_is_not_started_and_nothing_can_be_asked_of_it(muted: Any, tmp_path: Path) -> None:
    query = muted().option("checkpointLocation", "/lake/other").start()
    assert (query.isActive, muted.started) == (True, [])
    assert (tmp_path / silent.name_passed()).read_text() == "/lake/other\n"
    with pytest.raises(RuntimeError, match="awaitTermination"):
        query.awaitTermination()


def test_client_of_connect_is_refused(muted: Any) -> None:
    writer = muted().option("checkpointLocation", "/lake/chk")
    del writer._spark._jsparkSession
    with pytest.raises(RuntimeError, match="Connect"):
        writer.start()
