"""Whether the state of a query is that of one windowed aggregation, written once a window is closed. Pure.

In output mode append Spark writes a window when its end is reached by the watermark, and drops every later row for it.
So the watermark tells which windows are written, and their state can be made anew from the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.lines import Json, is_long
from lastgood.checkpoint.operators import STORE_DEFAULT, StateSchema, list_fields
from lastgood.checkpoint.state import State, StateOperator
from lastgood.query.observation import Observation
from lastgood.query.refills import is_refill
from lastgood.query.sinks import SinkView

_AGGREGATION = "stateStoreSave"
_WINDOW = "spark.timeWindow"
_DELAY = "spark.watermarkDelayMs"
_OF_OTHER_OPERATORS = frozenset({"groupState", "timeoutTimestamp", "__dummy__", "expiresAtMicros"})
"""Columns that `mapGroupsWithState`, `applyInPandasWithState` and deduplication keep under a key, whatever it is."""
APPEND = "append"


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and what it rests on."""

    is_so: bool | None
    """None: nothing tells."""
    because: str
    """One line for a person."""


def is_state_lost(checkpoint: Checkpoint) -> bool:
    """Whether files of the state are gone or damaged without which the next batch cannot begin."""
    return checkpoint.state is not None and bool(checkpoint.state.obstacles)


def is_windowed(observed: Observation) -> Told:
    """Whether a query keeps the state of one windowed aggregation with a watermark, and no other.

    What Spark has noted down of the state goes where the state is emptied, until a batch has begun to fill it again.
    """
    checkpoint = observed.checkpoint
    told = _is_windowed_by_state(checkpoint.state)
    committed, plans = checkpoint.last_committed, checkpoint.offsets.entries
    if told.is_so is not None or committed is None or committed not in observed.rewritten:
        return told
    if is_refill(plans.get(committed), plans.get(committed + 1)):
        return Told(is_so=True, because=f"offsets/{committed + 1}, whose batch is to fill the emptied state of one")
    return told


def _is_windowed_by_state(state: State | None) -> Told:
    operators = state.operators if state is not None else ()
    if not operators:
        return Told(is_so=None, because="nothing is left of the state")
    if len(operators) > 1:
        names = ", ".join(f"{each.operator}: {each.name or 'unknown'}" for each in operators)
        return Told(is_so=False, because=f"{len(operators)} stateful operators ({names})")
    operator = operators[0]
    if operator.name not in (None, _AGGREGATION):
        return Told(is_so=False, because=f"state/{operator.operator} is of {operator.name}")
    if any(store.name != STORE_DEFAULT for store in operator.stores):
        return Told(is_so=False, because=f"state/{operator.operator} has several stores")
    return _is_windowed_by_schema(operator, operator.schema)


def _is_windowed_by_schema(operator: StateOperator, schema: StateSchema | None) -> Told:
    path = f"state/{operator.operator}/0/_metadata/schema"
    if schema is None or not schema.families:
        return Told(is_so=None, because=f"{path} cannot be read")
    family = schema.families[0]
    keys, values = list_fields(family.key) or [], list_fields(family.value) or []
    names = {str(field.get("name")) for field in values}
    if not _OF_OTHER_OPERATORS.isdisjoint(names):
        return Told(is_so=False, because=f"{path} is of no aggregation")
    windows = [each for each in keys if _is_window_with_watermark(each.get("metadata"))]
    if not windows:
        return Told(is_so=False, because=f"{path} has no window with a watermark in its key")
    return Told(is_so=True, because=f"{path}, whose key is the window {windows[0].get('name')}")


def _is_window_with_watermark(metadata: Json) -> bool:
    return isinstance(metadata, dict) and metadata.get(_WINDOW) is True and is_long(metadata.get(_DELAY))


def is_appending(sinks: Iterable[SinkView]) -> Told:
    """Whether a query writes in output mode append, as its sinks tell."""
    told = list(_list_output_modes(sinks))
    other = next((each for each in told if each.is_so is False), None)
    if other is not None:
        return other
    sure = next((each for each in told if each.is_so), None)
    return sure or Told(is_so=None, because="no sink tells the output mode")


def _list_output_modes(sinks: Iterable[SinkView]) -> Iterator[Told]:
    for each in sinks:
        if each.sink.traits.appends_only:
            yield Told(
                is_so=True, because=f"Spark's {each.sink.kind} sink, which knows no other output mode than append"
            )
        modes = {batch.output_mode for batch in each.sink.batches if batch.output_mode is not None}
        for mode in sorted(modes):
            because = f"{each.sink.location} was written in output mode {mode}"
            yield Told(is_so=mode.lower() == APPEND, because=because)
