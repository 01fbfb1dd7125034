"""One pass over every batch that is known, however long the log is: a few are held at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from lastgood.checkpoint.contents import take_entry_in_mode
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.reader import read_batches
from lastgood.checkpoint.stretches import find_plain_stretches
from lastgood.mirror.plain_runs import find_plain_runs
from lastgood.observe.open_query import OpenQuery, collect_mirrored_batches
from lastgood.query.history import BatchRecord, merge_one
from lastgood.storage.reading import LocalStorage

Progress: TypeAlias = Callable[[int, int], None]
"""Told now and then how many batches have been read, and of how many."""

_TOLD_EVERY = 500


class Walk:
    """Iterate over it, once: each batch that the checkpoint or its mirror knows, in the order of their ids.

    Example:
        >>> walk = Walk(query)
        >>> sum(record.is_committed for record in walk)
        3
        >>> walk.query.checkpoint.damage
        {}
    """

    def __init__(
        self,
        query: OpenQuery,
        *,
        newest_first: bool = False,
        only_ends: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Walk over what `query` knows, the mirror among it if it was read.

        Args:
            query: From `gather`.
            newest_first: From the newest batch to the oldest.
            only_ends: Of a stretch in which nothing is out of the ordinary (see `find_plain_stretches`, and
                `find_plain_runs` of the mirror) give only the first and the last batch, and tell by `passed` which were
                between; oldest first only.
            progress: Is told how many batches have been read, and of how many.
        """
        self._query = query
        self._progress = progress or (lambda _done, _total: None)
        self._mirrored = collect_mirrored_batches(query.copies)
        self._logged = {*query.checkpoint.offsets.ids, *query.checkpoint.commits.ids}
        self._ids = sorted(self._logged.union(self._mirrored), reverse=newest_first)
        self._only_ends = only_ends
        self._passed: list[range] = []
        self._damaged_plans: dict[int, Damage] = {}
        self._damaged_commits: dict[int, Damage] = {}

    def __len__(self) -> int:
        """How many batches are known."""
        return len(self._ids)

    def __iter__(self) -> Iterator[BatchRecord]:
        """The batches.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        newest = self._query.checkpoint.last_committed
        last_committed = -1 if newest is None else newest
        total = len(self._ids)
        if self._only_ends:
            passed = self._pass_by()
        else:
            passed = 0
        held = self._held()
        for number, batch_id in enumerate(self._ids, start=passed):
            if number % _TOLD_EVERY == 0:
                self._progress(number, total)
            record = None
            if batch_id in self._logged:
                record = next(held)
            mirrored = self._mirrored.get(batch_id)
            if record is not None and (mirrored is None or (record.commit is not None and _has_plan(record))):
                yield record
            elif mirrored is not None:
                older = mirrored.record(batch_id)
                if record is None:
                    yield older
                else:
                    yield merge_one(record, older, last_committed)
        self._progress(total, total)

    def _pass_by(self) -> int:
        """Leave out what stands within plain stretches; how many batches that are."""
        count, total = 0, len(self._ids)
        for stretch in itertools.chain(self._find_plain_logged(), self._find_plain_mirrored()):
            between = stretch[1:-1]
            if between:
                self._passed.append(between)
                count += len(between)
                self._progress(count, total)
        self._ids = sorted(set(self._ids).difference(*self._passed))
        return count

    def _find_plain_logged(self) -> Iterator[range]:
        query, checkpoint = self._query, self._query.checkpoint
        if isinstance(query.storage, LocalStorage):
            both = BatchIds.of(set(checkpoint.offsets.ids).intersection(checkpoint.commits.ids))
            yield from find_plain_stretches(query.location, both)

    def _find_plain_mirrored(self) -> Iterator[range]:
        only_mirrored = itertools.filterfalse(self._logged.__contains__, self._ids)
        return find_plain_runs(self._mirrored, only_mirrored)

    @property
    def passed(self) -> BatchIds:
        """The batches that were read and found plain, and are not given; see `only_ends`."""
        return BatchIds(tuple(sorted((each for each in self._passed if each), key=lambda each: each.start)))

    @property
    def query(self) -> OpenQuery:
        """The query with what was found damaged on the way."""
        checkpoint = self._query.checkpoint
        plans = {**checkpoint.offsets.entries, **self._damaged_plans}
        commits = {**checkpoint.commits.entries, **self._damaged_commits}
        offsets = replace(checkpoint.offsets, entries=dict(sorted(plans.items())))
        commit_log = replace(checkpoint.commits, entries=dict(sorted(commits.items())))
        whole = replace(checkpoint, offsets=offsets, commits=commit_log)
        return replace(self._query, seen=replace(self._query.seen, checkpoint=whole))

    def _held(self) -> Iterator[BatchRecord | None]:
        """What the checkpoint holds of each batch that it listed; None if that was purged since."""
        query, mode = self._query, self._query.checkpoint.mode
        logged = self._logged
        for batch in read_batches(query.storage, query.location, (each for each in self._ids if each in logged)):
            plan = take_entry_in_mode(batch.offsets, mode)
            if isinstance(plan, Damage):
                self._damaged_plans[batch.batch_id] = plan
            if isinstance(batch.commit, Damage):
                self._damaged_commits[batch.batch_id] = batch.commit
            is_gone = plan is None and batch.commit is None
            if is_gone:
                yield None
            else:
                yield BatchRecord(batch.batch_id, plan, batch.commit)


def _has_plan(record: BatchRecord) -> bool:
    """Whether the checkpoint itself tells what was planned, so that its mirror need not be asked."""
    return isinstance(record.offsets, OffsetEntry)
