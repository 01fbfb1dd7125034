"""Starts of queries, watched on a class like pyspark's."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lastgood.spark.agent import starts


class Conf(dict[str, str]):
    pass


class Session:
    def __init__(self, **conf: str) -> None:
        self.conf = Conf({key.replace("_", "."): value for key, value in conf.items()})


class Observer:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def before_start(self, start: starts.Start) -> None:
        self.told.append(("before", start.query_name, start.checkpoint))

    def after_start(self, start: starts.Start, query: Any) -> None:
        self.told.append(("after", query))

    def start_failed(self, start: starts.Start, error: Exception) -> None:
        self.told.append(("failed", start.checkpoint, str(error)))

    def report_trouble(self, error: Exception) -> None:
        self.told.append(("trouble", str(error)))


@pytest.fixture
def observer() -> Iterator[Observer]:
    observing = Observer()
    starts.observe(observing)
    yield observing
    starts.forget(observing)


def writer_class(session: Session | None = None) -> type[Any]:
    class DataStreamWriter:
        def __init__(self) -> None:
            self._spark = session or Session()

        def option(self, key: str, value: Any) -> Any:
            return self

        def options(self, **options: Any) -> Any:
            return self

        def queryName(self, queryName: str) -> Any:  # noqa: N802, N803 - Spark's names
            return self

        def start(self, *arguments: Any, **options: Any) -> str:
            if options.get("broken"):
                raise ValueError("no such format")
            return "query"

        def toTable(self, tableName: str, **options: Any) -> str:  # noqa: N802, N803
            return f"query to {tableName}"

    module = ModuleType("readwriter")
    module.DataStreamWriter = DataStreamWriter  # type: ignore[attr-defined]
    starts.watch(module)
    starts.watch(module)
    return DataStreamWriter


@pytest.mark.parametrize(
    ("build", "name", "checkpoint"),
    [
        (lambda writer: writer.option("checkpointLocation", "/a").queryName("q").start(), "q", "/a"),
        (lambda writer: writer.option(key="CHECKPOINTLOCATION", value="/a").start(), None, "/a"),
        (lambda writer: writer.options(checkpointLocation="/a", x=1).queryName(queryName="q").start("/p"), "q", "/a"),
        (lambda writer: writer.start(checkpointLocation="/a", queryName="q"), "q", "/a"),
        (lambda writer: writer.start("/p", "delta", "append", None, "q", checkpointLocation="/a"), "q", "/a"),
        (lambda writer: writer.option("checkpointLocation", "/b").toTable("t", checkpointLocation="/a"), None, "/a"),
        (lambda writer: writer.start(), None, None),
    ],
)
def test_name_and_checkpoint_are_known_however_they_are_given(
    observer: Observer, build: Any, name: str | None, checkpoint: str | None
) -> None:
    build(writer_class()())
    assert observer.told[0] == ("before", name, checkpoint)
    assert [each[0] for each in observer.told] == ["before", "after"]


def test_checkpoint_of_a_named_query_lies_below_the_configured_root(observer: Observer) -> None:
    session = Session(spark_sql_streaming_checkpointLocation="/root")
    writer_class(session)().queryName("q").start()
    writer_class(session)().start()
    assert [each[2] for each in observer.told if each[0] == "before"] == ["/root/q", None]


def test_failed_start_is_told_and_raised(observer: Observer) -> None:
    with pytest.raises(ValueError, match="no such format"):
        writer_class()().option("checkpointLocation", "/a").start(broken=True)
    assert observer.told[1:] == [("failed", "/a", "no such format")]


def test_observer_that_raises_is_no_concern_of_the_query(observer: Observer) -> None:
    def refuse(start: starts.Start) -> None:
        raise RuntimeError("no Java")

    observer.before_start = refuse  # type: ignore[method-assign]
    assert writer_class()().start() == "query"
    assert observer.told == [("trouble", "no Java"), ("after", "query")]


def test_query_that_an_observer_says_must_not_start_does_not(observer: Observer) -> None:
    class Guard(Observer):
        def before_start(self, start: starts.Start) -> None:
            raise starts.NotToStartError("it would not fit")

    guard = Guard()
    starts.observe(guard)
    try:
        with pytest.raises(starts.NotToStartError, match="would not fit"):
            writer_class()().option("checkpointLocation", "/a").start()
    finally:
        starts.forget(guard)
    assert observer.told == [("before", None, "/a"), ("failed", "/a", "it would not fit")]
    assert guard.told == [("failed", "/a", "it would not fit")]


def test_wrong_call_fails_as_it_does_without_us(observer: Observer) -> None:
    writer = writer_class()()
    with pytest.raises(TypeError, match="option"):
        writer.option("only a key")
    with pytest.raises(TypeError, match="toTable"):
        writer.toTable()
    assert observer.told[-1][0] == "failed"


def test_methods_keep_their_names_and_are_wrapped_once() -> None:
    kind = writer_class()
    assert (kind.start.__name__, kind.toTable.__name__) == ("start", "toTable")
    assert not hasattr(kind.start.__wrapped__, "__wrapped__")
