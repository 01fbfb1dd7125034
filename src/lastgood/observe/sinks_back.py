"""What a draft wants of sinks, measured: which versions of a table go, and which entries of a file sink's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.layout import SINK_LOG
from lastgood.delta_log.actions import Transaction
from lastgood.delta_log.listing import DELTA_LOG
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan
from lastgood.planning.sink_steps import DeltaStep, FileSinkStep, SinkEdit, SinkStep
from lastgood.sinks.delta.history import history_of
from lastgood.sinks.delta.sink import is_tried, write_obstacles
from lastgood.sinks.delta.taking_back import reach_back, versions_above
from lastgood.sinks.evidence import DELTA, SinkEvidence
from lastgood.sinks.files.sink import FileSink
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Storage, open_storage, parse_location
from lastgood.storage.writing import may_create_exclusively, open_writable, require_exclusive_create

_SECONDS = 60.0


def fence_of(sink: SinkEvidence) -> str | None:
    """The name whose writers can be fenced off from a sink; None if none can."""
    if sink.kind != DELTA or not sink.known or sink.presumed_app_id is not None or sink.write_obstacles:
        return None
    is_ours_alone = may_create_exclusively(parse_location(sink.location)) and is_tried(sink.location)
    return (sink.app_id or None) if is_ours_alone else None


def require_sinks_exclusive(plan: Plan) -> None:
    """See that of several who commit a version to a table of the plan only one does.

    Raises:
        ExclusiveCreateUnsupportedError: no.
        StorageError: the table cannot be written to.
    """
    stepped = (step.table for step in plan.steps if isinstance(step, DeltaStep))
    for text in dict.fromkeys((*stepped, *(sink.location for sink in plan.sinks if sink.fence is not None))):
        folder = parse_location(text) / DELTA_LOG
        require_exclusive_create(open_writable(folder), folder)


def sink_steps(edits: Iterable[SinkEdit]) -> Iterator[SinkStep]:
    """The steps that take sinks back.

    Raises:
        RepairRefusedError: a sink has changed while the plan was made.
        StorageError: a storage does not answer (subclasses).
    """
    for edit in edits:
        storage = open_storage(parse_location(edit.location))
        if edit.kind == DELTA:
            yield _delta_step(storage, edit)
        else:
            yield from _file_sink_steps(storage, edit)


def _delta_step(storage: Storage, edit: SinkEdit) -> DeltaStep:
    log = read_table_log(storage, parse_location(edit.location), deadline=Deadline.after(_SECONDS))
    if log is None or isinstance(log, Damage) or edit.app_id is None or log.metadata is None:
        raise _moved(edit, "no table" if log is None else str(log))
    if edit.renews:
        return _renewal(log, edit, log.metadata.table_id, edit.app_id)
    history = history_of(log.commits, edit.app_id)
    mark = log.transactions.get(edit.app_id)
    reached, because = reach_back(log, history, write_obstacles(log))
    if mark is None or not _is_where(edit, mark.version) or reached is None or reached > edit.batch:
        raise _moved(edit, because)
    return DeltaStep(
        table=edit.location,
        table_id=log.metadata.table_id,
        mark=Transaction(edit.app_id, mark.version, mark.last_updated_ms),
        batch=edit.batch,
        version=log.newest_version,
        versions=versions_above(history, edit.batch),
        why=edit.why,
    )


def _is_where(edit: SinkEdit, mark: int) -> bool:
    """Whether the mark still allows what was planned."""
    return mark >= edit.batch if edit.after is None else mark == edit.after


def _renewal(log: TableLog, edit: SinkEdit, table_id: str, app_id: str) -> DeltaStep:
    """The step for a mark that is made again; what is left of it is in the log, or in the version of its rows."""
    marks = (commit.by_app.get(app_id) for commit in reversed(log.commits))
    left = (log.transactions.get(app_id), *marks)
    mark = next((each for each in left if each is not None and each.version >= 0), Transaction(app_id, edit.batch))
    obstacles = write_obstacles(log)
    if obstacles or mark.version != edit.batch:
        raise _moved(edit, obstacles[0] if obstacles else f"mark {mark.version}")
    return DeltaStep(
        table=edit.location,
        table_id=table_id,
        mark=mark,
        batch=edit.batch,
        version=log.newest_version,
        versions=(),
        why=edit.why,
    )


def _file_sink_steps(storage: Storage, edit: SinkEdit) -> Iterator[FileSinkStep]:
    sink = parse_location(edit.location)
    log = FileSink(storage, sink, timeout_seconds=_SECONDS).read()
    if log is None or not log.can_be_cut_to(edit.batch):
        raise _moved(edit, "entries of its log that are needed to read what is left are gone")
    names = set(storage.names(sink / SINK_LOG) or ())
    for batch_id in (batch_id for batch_id in log.ids if batch_id > edit.batch):
        name = f"{batch_id}{COMPACT_SUFFIX}" if batch_id in log.listing.compact else str(batch_id)
        for entry in (name, f".{name}.crc"):
            found = storage.stat(sink / SINK_LOG / entry) if entry in names else None
            if found is not None:
                yield FileSinkStep(edit.location, f"{SINK_LOG}/{entry}", found.size or 0, edit.why)


def _moved(edit: SinkEdit, found: str) -> RepairRefusedError:
    return RepairRefusedError(
        f"a sink cannot be taken back to batch {edit.batch}",
        subject=edit.location,
        found=found,
        expected="the sink as it was a moment ago",
        effect="nothing has been changed",
        next="make the plan again",
    )
