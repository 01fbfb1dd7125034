"""Whether the state of a query is that of one aggregation, and how what it holds was written. Pure.

In output mode append Spark writes a window when its end is reached by the watermark, and drops every later row for it.
So the watermark tells which windows are written, and their state can be made anew from the source. In output mode
complete all that was ever read is in the state, and each batch writes all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.lines import Json, is_long
from lastgood.checkpoint.operators import STORE_DEFAULT, list_fields
from lastgood.checkpoint.state import State, StateOperator
from lastgood.frozen import dataclass
from lastgood.query.observation import Observation, make_views
from lastgood.query.refills import is_refill
from lastgood.query.sinks import SinkView
from lastgood.sinks.evidence import APPEND, COMPLETE

_AGGREGATION = "stateStoreSave"
_WINDOW = "spark.timeWindow"
_SESSION = "spark.sessionWindow"
_DELAY = "spark.watermarkDelayMs"
_OF_OTHER_OPERATORS = frozenset({"groupState", "timeoutTimestamp", "__dummy__", "expiresAtMicros"})
"""Columns that `mapGroupsWithState`, `applyInPandasWithState` and deduplication keep under a key, whatever it is."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and what it rests on."""

    is_so: bool | None
    """None: nothing tells."""
    because: str
    """One line for a person."""


@dataclass(frozen=True, slots=True)
class OutputMode:
    """How a query writes what its state holds."""

    name: str | None
    """`append`, `complete` or `update`; None: nothing tells, or different things are told."""
    because: str
    """One line for a person."""
    is_told: bool = False
    """Whether a sink told anything."""


def is_state_lost(checkpoint: Checkpoint) -> bool:
    """Whether files of the state are gone or damaged without which the next batch cannot begin."""
    return checkpoint.state is not None and bool(checkpoint.state.obstacles)


def is_windowed(observed: Observation) -> Told:
    """Whether a query keeps the state of one windowed aggregation with a watermark, and no other.

    What Spark has noted down of the state goes where the state is emptied, until a batch has begun to fill it again.
    """
    told = _ask_schema(observed.checkpoint.state, _is_windowed_by_keys)
    return _recall_refill(observed, told)


def is_aggregation(observed: Observation) -> Told:
    """Whether a query keeps the state of one aggregation, by whatever key, and no other; as `is_windowed`."""
    told = _ask_schema(observed.checkpoint.state, _is_aggregated_by_keys)
    return _recall_refill(observed, told)


def can_make_anew(observed: Observation) -> bool:
    """Whether the files tell that the state can be made anew from the sources, with nothing said by a person."""
    if is_windowed(observed).is_so:
        return True
    is_whole = find_output_mode(make_views(observed)).name == COMPLETE
    return is_whole and bool(is_aggregation(observed).is_so)


def _recall_refill(observed: Observation, told: Told) -> Told:
    """The same; where nothing is noted down, what a recovery has seen that has emptied the state."""
    committed, plans = observed.checkpoint.last_committed, observed.checkpoint.offsets.entries
    if told.is_so is not None or committed is None or committed not in observed.rewritten:
        return told
    if is_refill(plans.get(committed), plans.get(committed + 1)):
        return Told(is_so=True, because=f"offsets/{committed + 1}, whose batch is to fill the emptied state of one")
    return told


def _ask_schema(state: State | None, judge: Callable[[str, Sequence[dict[str, Json]]], Told]) -> Told:
    """What the key of the one aggregation tells of which there is a state.

    Args:
        state: As it was read.
        judge: Is given the path of the schema, and the fields of the key.
    """
    operators = state.operators if state is not None else ()
    if not operators:
        return Told(is_so=None, because="nothing is left of the state")
    if len(operators) > 1:
        shown = ", ".join(f"{each.operator}: {each.name or 'unknown'}" for each in operators)
        return Told(is_so=False, because=f"{len(operators)} stateful operators ({shown})")
    operator = operators[0]
    if operator.name not in (None, _AGGREGATION):
        return Told(is_so=False, because=f"state/{operator.operator} is of {operator.name}")
    if any(store.name != STORE_DEFAULT for store in operator.stores):
        return Told(is_so=False, because=f"state/{operator.operator} has several stores")
    return _ask_operator(operator, judge)


def _ask_operator(operator: StateOperator, judge: Callable[[str, Sequence[dict[str, Json]]], Told]) -> Told:
    path, schema = f"state/{operator.operator}/0/_metadata/schema", operator.schema
    if schema is None or not schema.families:
        return Told(is_so=None, because=f"{path} cannot be read")
    keys = list_fields(schema.families[0].key) or []
    if not _OF_OTHER_OPERATORS.isdisjoint(list_value_names(operator)):
        return Told(is_so=False, because=f"{path} is of no aggregation")
    return judge(path, keys)


def list_value_names(operator: StateOperator) -> set[str]:
    """Names of the columns that an operator keeps under a key; empty if nothing tells."""
    if operator.schema is None or not operator.schema.families:
        return set()
    return {str(field.get("name")) for field in list_fields(operator.schema.families[0].value) or []}


def _is_windowed_by_keys(path: str, keys: Sequence[dict[str, Json]]) -> Told:
    windows = [each for each in keys if _is_window_with_watermark(each.get("metadata"))]
    if not windows:
        return Told(is_so=False, because=f"{path} has no window with a watermark in its key")
    return Told(is_so=True, because=f"{path}, whose key is the window {windows[0].get('name')}")


def _is_aggregated_by_keys(path: str, keys: Sequence[dict[str, Json]]) -> Told:
    metadata = [each.get("metadata") for each in keys]
    if any(isinstance(each, dict) and each.get(_SESSION) is True for each in metadata):
        return Told(is_so=False, because=f"{path} is of session windows")
    return Told(is_so=True, because=f"{path}, which is of one aggregation")


def _is_window_with_watermark(metadata: Json) -> bool:
    return isinstance(metadata, dict) and metadata.get(_WINDOW) is True and is_long(metadata.get(_DELAY))


def find_output_mode(sinks: Iterable[SinkView]) -> OutputMode:
    """How a query has written, as its sinks tell."""
    told = list(_list_output_modes(sinks))
    if not told:
        return OutputMode(None, "no sink tells the output mode")
    other = next((each for each in told if each.name != told[0].name), None)
    if other is not None:
        return OutputMode(None, f"{told[0].because}, and {other.because}", is_told=True)
    return told[0]


def _list_output_modes(sinks: Iterable[SinkView]) -> Iterator[OutputMode]:
    for each in sinks:
        if each.sink.traits.appends_only:
            because = f"Spark's {each.sink.kind} sink, which knows no other output mode than append"
            yield OutputMode(APPEND, because, is_told=True)
        modes = {batch.output_mode for batch in each.sink.batches if batch.output_mode is not None}
        for mode in sorted(modes):
            because = f"{each.sink.location} was written in output mode {mode}"
            yield OutputMode(mode.lower(), because, is_told=True)
