"""What a query that is about to start is made of, as Spark plans it: its sources, and what it will keep as state.

Nothing is started, read or written for it. Only a classic session shows its plans.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError

from .fit import FORMAT_VERSION

_STREAMING = "org.apache.spark.sql.execution.streaming"
_PLANNED = (f"{_STREAMING}.runtime.IncrementalExecution", f"{_STREAMING}.IncrementalExecution")
"""Since 4.1, and before."""
_OPTIONS = ("subscribe", "subscribePattern", "assign", "path", "failOnDataLoss")
"""Of a source; all others may hold what is secret."""
_AGGREGATIONS = ("StateStoreSaveExec", "SessionWindowStateStoreSaveExec")
_MAY_KEEP = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "Join",
    "TransformWithState",
    "TransformWithStateInPandas",
    "TransformWithStateInPySpark",
}
"""Kinds of logical plans."""
_UNNAMED = "defaultName"
"""So Spark calls an operator that has no name of its own."""
_WITH_VALUES = {"StateStoreSaveExec": True, "SessionWindowStateStoreSaveExec": False}
"""Operators whose values are the columns below them, and whether without those of the key."""
_NUMBER = re.compile(r"#\d+L?(?:-T\d+ms)?")
_SLIDE = re.compile(r"% (\d+)\)")
_LENGTH = re.compile(r"\+ (\d+)\), LongType, TimestampType\)+")
_BEGIN = re.compile(r"- (\d+)\) %")
_GAP = re.compile(r"\+ cast\((.*?) as interval\)")


def describe(frame: Any, output_mode: str | None = None) -> dict[str, Any]:
    """The sources of a streaming DataFrame, and its stateful operators, in the order in which Spark numbers them.

    Args:
        frame: The DataFrame, of a classic session.
        output_mode: As the writer has it; it decides nothing of what is kept.

    Returns:
        `format`, `spark`, `sources` (`kind`, `name`, `options`), `operators` (`id`, `name`, `keys` and `values` as
        pairs of name and type, None where Spark does not show them, `computes`), `windows` (`length_us`, `slide_us`,
        `begin_us`, or the `gap` of a session).

    Raises:
        Py4JError: Spark cannot plan it: it would not start either; or is of a version that is not known.
    """
    execution = frame._jdf.queryExecution()  # noqa: SLF001 - Python's DataFrame has no way to Java's plan
    session = frame.sparkSession
    planned = _plan(session, execution, output_mode).executedPlan()
    return {
        "format": FORMAT_VERSION,
        "spark": session.version,
        "mode": output_mode,
        "sources": describe_sources(frame),
        "operators": sorted(_describe_operators(planned), key=lambda each: int(each["id"])),
        "windows": list(_describe_windows(execution.analyzed())),
    }


def find_output_mode(writer: Any) -> str | None:
    """The output mode of a writer: `Append`, `Complete` or `Update`; None where it does not tell."""
    java = getattr(writer, "_jwrite", None)
    if java is None:
        return None
    try:
        field = java.getClass().getDeclaredField("outputMode")
        field.setAccessible(True)
        return str(field.get(java).toString())
    except Py4JError:
        return None


def describe_sources(frame: Any) -> list[dict[str, Any]]:
    """Its sources alone, which needs no planning."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    found: list[tuple[Any, dict[str, Any]]] = []
    for leaf in _list(leaves):
        if _name_class(leaf) not in ("StreamingRelation", "StreamingRelationV2"):
            continue
        is_known = any(leaf.equals(other) for other, _ in found)
        if not is_known:  # else Spark reads it once, too
            found.append((leaf, _describe_source(leaf)))
    return [each for _, each in found]


def list_sources_of_kafka(frame: Any) -> list[Any]:
    """Its leaves that read Kafka, as Java's plan has them."""
    leaves = _list(frame._jdf.queryExecution().analyzed().collectLeaves())  # noqa: SLF001
    return list(filter(_is_of_kafka, leaves))


def _is_of_kafka(leaf: Any) -> bool:
    return _name_class(leaf) == "StreamingRelationV2" and leaf.sourceName() == "kafka"


def may_keep_state(frame: Any) -> bool:
    """Whether any part of it may keep state, by its kind; a join with a table that stands still counts as well."""
    return any(_name_class(each) in _MAY_KEEP for each in _list_nodes(frame._jdf.queryExecution().analyzed()))  # noqa: SLF001


def _describe_source(leaf: Any) -> dict[str, Any]:
    if _name_class(leaf) == "StreamingRelation":
        source = leaf.dataSource()
        kind, options = source.className(), source.options()
        told = {name: options.get(name) for name in _OPTIONS}
        found = {name: _unwrap(value) for name, value in told.items()}
    else:
        kind, options = leaf.sourceName(), leaf.extraOptions()
        found = {name: options.get(name) for name in _OPTIONS}
    chosen = {name: value for name, value in found.items() if value is not None}
    return {"kind": kind, "name": leaf.sourceName(), "options": chosen}


def _plan(session: Any, execution: Any, output_mode: str | None) -> Any:
    """The plan of a batch, as `explain` makes it: nothing is written down of it."""
    jvm, gateway = session._jvm, session.sparkContext._gateway  # noqa: SLF001
    planned = _find_class(jvm, _PLANNED)
    made = planned.getConstructors()[0]
    kinds = [each.getName() for each in made.getParameterTypes()]
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode or "Append")
    known: dict[str, Callable[[str], Any]] = {
        "SparkSession": lambda _: execution.sparkSession(),
        "LogicalPlan": lambda _: execution.logical(),
        "OutputMode": lambda _: mode(),
        "String": lambda _: "<unknown>",
        "UUID": lambda _: jvm.java.util.UUID.randomUUID(),
        "long": lambda _: 0,
        "OffsetSeqMetadata": lambda kind: _make_metadata(jvm, gateway, kind),
        "OffsetSeqMetadataBase": lambda kind: _make_metadata(jvm, gateway, kind[: -len("Base")]),
        "WatermarkPropagator": lambda kind: _find_companion(jvm, kind).noop(),
        "Option": lambda _: jvm.scala.Option.empty(),
    }
    arguments = gateway.new_array(jvm.java.lang.Object, len(kinds))
    for number, kind in enumerate(kinds):
        make = known.get(kind.rpartition(".")[2])
        if make is None:
            arguments[number] = _find_default(jvm, gateway, planned.getName(), number + 1, otherwise=False)
        else:
            arguments[number] = make(kind)
    return made.newInstance(arguments)


def _make_metadata(jvm: Any, gateway: Any, name: str) -> Any:
    """What a plan says of the time of its batch: nothing has been read yet."""
    (made,) = [each for each in _find_class(jvm, (name,)).getConstructors() if each.getParameterCount() == 3]
    arguments = gateway.new_array(jvm.java.lang.Object, 3)
    arguments[0], arguments[1], arguments[2] = 0, 0, _find_default(jvm, gateway, name, 3, otherwise=None)
    return made.newInstance(arguments)


def _find_default(jvm: Any, gateway: Any, name: str, number: int, *, otherwise: Any) -> Any:
    """What a parameter of a constructor of Scala is if nobody says it."""
    companion, wanted = _find_companion(jvm, name), f"$lessinit$greater$default${number}"
    for each in companion.getClass().getMethods():
        if each.getName() == wanted:
            return each.invoke(companion, gateway.new_array(jvm.java.lang.Object, 0))
    return otherwise


def _find_companion(jvm: Any, name: str) -> Any:
    return _find_class(jvm, (f"{name}$",)).getField("MODULE$").get(None)


def _find_class(jvm: Any, names: tuple[str, ...]) -> Any:
    for name in names[:-1]:
        try:
            return jvm.java.lang.Class.forName(name)
        except Py4JError:
            continue
    return jvm.java.lang.Class.forName(names[-1])


def _describe_operators(planned: Any) -> Iterator[dict[str, Any]]:
    for node in _list_nodes(planned):
        name = _ask(node, "shortName")
        info = _ask(node, "stateInfo")
        if name is None or info is None or not info.isDefined():
            continue  # one that restores has no name, and the number of the one that saves
        kind = _name_class(node)
        keys = _list_columns(node, "keyWithoutSessionExpressions", "keyExpressions", "groupingAttributes")
        yield {
            "id": info.get().operatorId(),
            "name": None if name == _UNNAMED else name,
            "keys": keys,
            "values": _list_values(node, kind, keys),
            "computes": _list_computed(node, kind),
        }


def _list_columns(node: Any, *methods: str) -> list[list[Any]] | None:
    for method in methods:
        columns = _ask(node, method)
        if columns is not None:
            return [_describe_column(each) for each in _list(columns)]
    return None


def _list_values(node: Any, kind: str, keys: list[list[Any]] | None) -> list[list[Any]] | None:
    if kind not in _WITH_VALUES or keys is None:
        return None
    columns = [_describe_column(each) for each in _list(node.child().output())]
    return columns[len(keys) :] if _WITH_VALUES[kind] and columns[: len(keys)] == keys else columns


def _list_computed(node: Any, kind: str) -> list[str]:
    """The aggregates of an aggregation, such as `sum(v)`."""
    if kind not in _AGGREGATIONS:
        return []
    for each in _list_nodes(node.child()):
        computed = _ask(each, "aggregateExpressions")
        if computed is not None:
            return [_NUMBER.sub("", part.aggregateFunction().toString()) for part in _list(computed)]
    return []


def _describe_column(column: Any) -> list[Any]:
    return [column.name(), json.loads(column.dataType().json())]


def _describe_windows(analyzed: Any) -> Iterator[dict[str, Any]]:
    """The windows by which is grouped: what they were made from is gone by now, but their bounds are computed."""
    for node in _list_nodes(analyzed):
        kind = _name_class(node)
        if kind == "Project":
            texts = [each.toString() for each in _list(node.projectList())]
        elif kind == "Expand":
            texts = [_list(each)[0].toString() for each in _list(node.projections())[:1]]
        else:
            continue
        for text in texts:
            length, slide, gap = _LENGTH.search(text), _SLIDE.search(text), _GAP.search(text)
            if not text.startswith("named_struct(start, "):
                continue
            if length and slide:
                begin = _BEGIN.search(text)
                yield {
                    "length_us": int(length[1]),
                    "slide_us": int(slide[1]),
                    "begin_us": int(begin[1]) if begin else 0,
                }
            elif gap:
                yield {"gap": _NUMBER.sub("", gap[1])}


def _list_nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _list(node.children()):
        yield from _list_nodes(child)


def _unwrap(option: Any) -> Any:
    """What is in an Option of Scala."""
    if option.isDefined():
        return option.get()
    return None


def _list(sequence: Any) -> list[Any]:
    """The elements of a Seq of Scala."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _name_class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _ask(node: Any, method: str) -> Any:
    """What a method gives; None where the class has none of that name."""
    try:
        return getattr(node, method)()
    except Py4JError:
        return None
