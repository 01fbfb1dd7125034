"""How earlier recoveries left a query, and so what of its mirror counts: what one took away no other puts back.

The mirror only ever grows, and nobody need have looked between a recovery and the loss of the checkpoint. So what a
recovery wrote and removed is read from the plan that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import TypeVar

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, LogFile, QueryMetadataFile, classify, parse_batch
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.frozen import dataclass
from lastgood.journal.plan_file import PLAN_BYTES_MAX, parse_plan
from lastgood.journal.room import (
    RecoveryStage,
    find_latest_stage,
    list_recoveries,
    locate_recoveries,
    read_noted_ms,
    read_settled_ms,
)
from lastgood.planning.plan import Plan
from lastgood.planning.steps import compute_digest, list_files_after, list_files_before
from lastgood.query.prediction.restart import Outcome
from lastgood.query.sinks import NONE
from lastgood.signing import NO_KEYS, KeyRing, Signer
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location, Storage

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ending:
    """A recovery that is closed, or that was taken back."""

    at_ms: int
    """When all was as it stayed, milliseconds since 1970: from then on a driver may have started."""
    since_ms: int | None
    """Taken back: when it had begun; in between the checkpoint was not the query's own. None: it is closed."""
    planned: int
    """The newest batch that was planned then, or `NONE`."""
    committed: int
    """The newest batch that was committed then, or `NONE`."""
    gone: Mapping[str, str | None] = field(default_factory=dict)
    """Digest of what is not there any more, by its path: it took that away, or it was its own."""
    written: tuple[Copy, ...] = ()
    """What it left in the logs."""

    def voids(self, copy: Copy) -> bool:
        """Whether what the mirror saw is not of the query as it went on from here."""
        if self.since_ms is not None and copy.seen_ms < self.since_ms:
            return False
        is_of_before = copy.seen_ms <= self.at_ms
        if is_of_before and self._is_beyond(copy.path):
            return True
        if copy.path not in self.gone:
            return False
        # No two plans are alike, since each holds its time; a commit that is made anew may be the same.
        may_be = is_of_before or parse_batch(copy.path, OFFSETS) is not None
        return may_be and compute_digest(copy.content) == self.gone[copy.path]

    def _is_beyond(self, path: str) -> bool:
        """Whether it is of a batch that was not there any more."""
        log, batch = _find_entry(path)
        if log == OFFSETS:
            return batch > self.planned
        return log == COMMITS and batch > self.committed


@lru_cache(maxsize=1)  # each copy is held against every ending in turn
def _find_entry(path: str) -> tuple[str, int]:
    """The log that a file is of, and its batch; an empty one for any other file."""
    log = path.rpartition("/")[0]
    batch = parse_batch(path, log)
    if batch is None:
        return "", NONE
    return log, batch


def select_as_left(copies: Iterable[Copy], endings: Sequence[Ending]) -> Iterator[Copy]:
    """What the mirror holds that still counts, and what recoveries have written since it last looked.

    Args:
        copies: What it saw.
        endings: Oldest first.
    """
    yield from (copy for copy in copies if not any(ending.voids(copy) for ending in endings))
    for number, ending in enumerate(endings, 1):
        yield from (copy for copy in ending.written if not any(later.voids(copy) for later in endings[number:]))


def find_endings(storage: Storage, checkpoint: Location, keys: KeyRing = NO_KEYS) -> list[Ending]:
    """Every recovery of a checkpoint that came to an end, oldest first.

    Args:
        storage: Of the checkpoint.
        checkpoint: Beside which it is looked.
        keys: Of which one has to have signed what it goes by; none: nobody need have.

    Raises:
        PlanInvalidError: the plan of one, or what it has noted down, cannot be read.
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
        StorageError: the storage does not answer (subclasses).
    """
    ids, look = list_recoveries(storage, checkpoint), partial(_find_ending, storage, checkpoint, keys)
    with open_threads(storage) as pool:
        found = [ending for ending in pool.map(look, ids) if ending is not None]
    return sorted(found, key=lambda ending: ending.at_ms)


def _find_ending(storage: Storage, checkpoint: Location, keys: KeyRing, recovery: str) -> Ending | None:
    folder = locate_recoveries(checkpoint) / recovery
    stage = find_latest_stage(storage, folder)
    if stage not in (RecoveryStage.CLOSED, RecoveryStage.TAKEN_BACK):
        return None
    signer = Signer.at(keys, checkpoint)
    begun_ms = read_noted_ms(storage, folder, RecoveryStage.BEGUN, signer)
    at_ms = read_settled_ms(storage, folder, stage, signer)
    file = folder / "plan.json"
    raw = storage.read(file, limit=PLAN_BYTES_MAX)
    if raw is None or begun_ms is None or at_ms is None:  # it was given up before it had begun
        return None
    plan = parse_plan(raw, str(file), keys, (checkpoint, recovery))
    if stage is RecoveryStage.CLOSED:
        return _make_closed(plan, at_ms)
    return _make_taken_back(plan, begun_ms, at_ms)


def _make_closed(plan: Plan, at_ms: int) -> Ending:
    batch, outcome = plan.promise.batch or 0, plan.promise.outcome
    planned, committed = batch - 1, batch - 1
    if outcome == Outcome.RERUNS.value:
        planned = batch
    if outcome == Outcome.STARTS.value:
        planned, committed = NONE, NONE
    before, after = _select_of_logs(list_files_before(plan.steps)), _select_of_logs(list_files_after(plan.steps))
    if METADATA in after:
        query_id = _parse_id(after[METADATA])
    else:
        query_id = plan.query_id
    return Ending(
        at_ms,
        None,
        planned,
        committed,
        {path: was for path, was in before.items() if was not in (None, compute_digest(after[path]))},
        tuple(Copy(query_id, path, at_ms, None, content) for path, content in after.items() if query_id and content),
    )


def _make_taken_back(plan: Plan, begun_ms: int, at_ms: int) -> Ending:
    planned, committed = (plan.position.get(name) for name in ("planned", "committed"))
    before = _select_of_logs(list_files_before(plan.steps))
    after = {path: compute_digest(content) for path, content in _select_of_logs(list_files_after(plan.steps)).items()}
    planned_then = planned if isinstance(planned, int) else NONE
    committed_then = committed if isinstance(committed, int) else NONE
    return Ending(
        at_ms,
        begun_ms,
        planned_then,
        committed_then,
        {path: then for path, then in after.items() if then not in (None, before[path])},
    )


def _select_of_logs(files: Mapping[str, _T]) -> dict[str, _T]:
    """Of the files of a checkpoint those that a query writes into its logs, and their checksums not."""
    return {path: each for path, each in files.items() if isinstance(classify(path), LogFile | QueryMetadataFile)}


def _parse_id(metadata: bytes | None) -> str | None:
    parsed = None
    if metadata is not None:
        parsed = parse_query_metadata(metadata)
    return parsed.query_id if isinstance(parsed, QueryMetadata) else None
