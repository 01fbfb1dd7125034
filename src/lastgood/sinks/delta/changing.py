"""What lastgood may change of a Delta table as it stands: the step that takes it back, and whether it can be fenced."""

from __future__ import annotations

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.actions import Transaction
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.sinks.delta.history import trace_history
from lastgood.sinks.delta.sink import is_tried, write_obstacles
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.delta.taking_back import find_reach_back, list_versions_above
from lastgood.sinks.evidence import SinkEvidence
from lastgood.steps.step import SinkEdit
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Storage, parse_location
from lastgood.storage.writing import may_create_exclusively

_SECONDS = 60.0


def find_fenceable_name(sink: SinkEvidence) -> str | None:
    """The name whose writers can be fenced off from a table; None if none can."""
    if not sink.known or sink.presumed_app_id is not None or sink.write_obstacles:
        return None
    is_ours_alone = may_create_exclusively(parse_location(sink.location)) and is_tried(sink.location)
    if not is_ours_alone:
        return None
    return sink.app_id or None


def make_delta_steps(edit: SinkEdit, storage: Storage) -> tuple[DeltaStep, ...] | str:
    """The step that takes a table back; see `SinkChanges.measure`."""
    log = read_table_log(storage, parse_location(edit.location), deadline=Deadline.after(_SECONDS))
    if log is None or isinstance(log, Damage) or edit.app_id is None or log.metadata is None:
        if log is None:
            return "no table"
        return str(log)
    if edit.renews:
        return _make_renewal(log, edit, log.metadata.table_id, edit.app_id)
    history = trace_history(log.commits, edit.app_id)
    mark = log.transactions.get(edit.app_id)
    reached, because = find_reach_back(log, history, write_obstacles(log))
    if mark is None or not _is_where(edit, mark.version) or reached is None or reached > edit.batch:
        return because
    step = DeltaStep(
        table=edit.location,
        table_id=log.metadata.table_id,
        mark=Transaction(edit.app_id, mark.version, mark.last_updated_ms),
        batch=edit.batch,
        version=log.newest_version,
        versions=list_versions_above(history, edit.batch),
        why=edit.why,
    )
    return (step,)


def _is_where(edit: SinkEdit, mark: int) -> bool:
    """Whether the mark still allows what was planned."""
    if edit.after is None:
        return mark >= edit.batch
    return mark == edit.after


def _make_renewal(log: TableLog, edit: SinkEdit, table_id: str, app_id: str) -> tuple[DeltaStep, ...] | str:
    """The step for a mark that is made again; what is left of it is in the log, or in the version of its rows."""
    marks = (commit.by_app.get(app_id) for commit in reversed(log.commits))
    left = (log.transactions.get(app_id), *marks)
    mark = next((each for each in left if each is not None and each.version >= 0), Transaction(app_id, edit.batch))
    obstacles = write_obstacles(log)
    if obstacles:
        return obstacles[0]
    if mark.version != edit.batch:
        return f"mark {mark.version}"
    step = DeltaStep(
        table=edit.location,
        table_id=table_id,
        mark=mark,
        batch=edit.batch,
        version=log.newest_version,
        versions=(),
        why=edit.why,
    )
    return (step,)
