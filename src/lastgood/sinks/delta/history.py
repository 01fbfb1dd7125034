"""What the versions of a Delta table did to the batches of one application: written, taken back, written again. Pure.

Rows and marker are two things. A RESTORE takes rows back and leaves the marker; a commit that lowers the marker takes
back whatever it stood for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from lastgood.delta_log.actions import CLONE, DELETE, FENCE, PUT_BACK, RENEW, RESTORE, TableCommit, Transaction
from lastgood.frozen import dataclass
from lastgood.sinks.evidence import CommittedBatch


@dataclass(frozen=True, slots=True)
class _Live:
    """The live batches after a version, newest first: a list whose tail all later versions share."""

    batch_id: int
    version: int
    before: _Live | None = field(repr=False, compare=False)  # as long as the log: nothing may follow it by recursion


@dataclass(frozen=True, slots=True)
class ShownByTable:
    """What the table shows of an application after one version."""

    batch_id: int | None = None
    """Newest batch; None for none."""
    is_from_before: bool = False
    """Whether it is still what it was before the first version that was read; then there is no `batch_id`."""
    unclear: str | None = None
    """Why it cannot be told."""
    live: _Live | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class History:
    """The batches of one application, as far back as the versions go."""

    batches: tuple[CommittedBatch, ...]
    shown: ShownByTable
    last_version: int | None = None
    """The last version that changed what is shown; None if none did."""
    restored: bool = False
    """Whether that was a RESTORE."""
    unclear: str | None = None
    """What went back to nobody knows where; None if nothing did."""


def trace_history(commits: Sequence[TableCommit], app_id: str) -> History:
    """Tell what became of the batches of an application, from versions without a gap, oldest first."""
    walk = _Walk(app_id, is_whole=bool(commits) and commits[0].version == 0)
    for position, commit in enumerate(commits):
        walk.step(commit, commits[:position] if commit.operation == RESTORE else ())
    live = {at.version for at in _list_live(walk.shown.live)}
    written = ((commit, txn, _is_live(commit, live, walk.unclear_before)) for commit, txn in walk.written)
    return History(
        batches=tuple(_make_batch(commit, txn, is_live=is_live) for commit, txn, is_live in written),
        shown=walk.shown,
        last_version=walk.last.version if walk.last else None,
        restored=walk.last is not None and walk.last.operation == RESTORE,
        unclear=walk.unclear,
    )


def _is_live(commit: TableCommit, live: set[int], unclear_before: int) -> bool | None:
    if commit.version in live:
        return True
    if commit.version < unclear_before:
        return None
    return False


def _make_batch(commit: TableCommit, transaction: Transaction, *, is_live: bool | None) -> CommittedBatch:
    if commit.operation == CLONE:
        committed_at_ms = transaction.last_updated_ms
    else:
        committed_at_ms = commit.timestamp_ms
    is_streaming = None
    if commit.recovery is None:
        is_streaming = commit.query_id is not None
    return CommittedBatch(
        batch_id=transaction.version,
        version=commit.version,
        is_live=is_live,
        row_count=commit.row_count,
        committed_at_ms=committed_at_ms,
        user_metadata=commit.user_metadata,
        is_streaming=is_streaming,
        output_mode=commit.output_mode,
    )


def _list_live(live: _Live | None) -> Iterator[_Live]:
    while live is not None:
        yield live
        live = live.before


class _Holders:
    """Which files hold what the versions of one application wrote, as far as nobody has changed it since."""

    def __init__(self) -> None:
        self._files: dict[int, set[str]] = {}
        self._versions: dict[str, set[int]] = {}
        self._rows: dict[int, int] = {}

    @property
    def versions(self) -> set[int]:
        """The versions whose rows are there, all of them."""
        return {version for version, files in self._files.items() if files}

    @property
    def row_count(self) -> int:
        """Rows that are known to be there."""
        return sum(self._rows[version] for version in self.versions)

    def add(self, commit: TableCommit) -> None:
        """A version of the application has written its files."""
        self._files[commit.version] = set(commit.added)
        self._versions |= {path: {commit.version} for path in commit.added}
        self._rows[commit.version] = commit.row_count or 0

    def find_gone(self, commit: TableCommit) -> set[int]:
        """The versions all of whose files a version removes."""
        return {version for version in self.versions if self._files[version] <= commit.removed}

    def follow(self, commit: TableCommit) -> None:
        """A version of somebody has moved rows, or changed them: then nobody knows what is left of them."""
        moved: set[int] = set().union(*(self._versions.pop(path, ()) for path in commit.removed))
        for version in moved:
            self._files[version] -= commit.removed
        if commit.changes_data:
            for version in moved:
                for path in self._files.pop(version):
                    self._versions[path].discard(version)
            return
        for version in moved:
            self._files[version] |= commit.added
        self._versions |= {path: set(moved) for path in commit.added}


class _Walk:
    """Goes through the versions, and remembers what was shown after each, for a RESTORE to come back to."""

    def __init__(self, app_id: str, *, is_whole: bool) -> None:
        self._app_id = app_id
        self._after: dict[int, ShownByTable] = {}
        self._marker: int | None = None
        self.shown = ShownByTable(is_from_before=not is_whole)
        self.written: list[tuple[TableCommit, Transaction]] = []
        self.last: TableCommit | None = None
        self.unclear_before = 0
        """Whether batches of older versions are live is not known, unless they are in `shown.live`."""
        self.unclear: str | None = None
        """The last reason for which it was not known what is shown."""
        self._holders = _Holders()

    def step(self, commit: TableCommit, earlier: Sequence[TableCommit]) -> None:
        transaction = commit.by_app.get(self._app_id)
        if transaction is None and commit.recovery is None:
            self._lose(commit)
        before = self.shown
        if commit.operation == RESTORE:
            self.shown = self._restored(commit, earlier)
        if transaction is not None:
            if commit.operation == PUT_BACK:
                self.shown = self._put_back(commit)
            elif commit.operation not in (FENCE, RENEW):
                self._mark(commit, transaction.version)
            self._marker = transaction.version
        if self.shown.unclear is not None and self.shown is not before and commit.restored_version is None:
            self.unclear_before = commit.version
        if self.shown is not before:
            self.last = commit
            self.unclear = self.shown.unclear or self.unclear
        self._after[commit.version] = self.shown
        self._holders.follow(commit)
        if transaction is not None:
            self._holders.add(commit)

    def _lose(self, commit: TableCommit) -> None:
        """Somebody has replaced all rows by fewer, or deleted those of the newest batches: the mark says nothing of it.

        Who deletes all rows, or the oldest, does what is done with a table all the time.
        """
        if not (commit.is_replacing or commit.operation == DELETE):
            return
        gone, held = self._holders.find_gone(commit), self._holders.versions
        why = None
        if gone and gone == held:
            why = _explain_replaced(commit, self._holders)
        if commit.operation == DELETE and not commit.added and gone and min(gone) > min(held) and max(held) in gone:
            why = f"version {commit.version} deleted all that the newest batches had written"
        if why is None:
            return
        live = self.shown.live
        while live is not None and live.version >= min(gone):
            live = live.before
        self.shown = replace(self.shown, live=live)
        self.unclear, self.unclear_before = why, commit.version

    def _mark(self, commit: TableCommit, batch_id: int) -> None:
        lowers = self._marker is not None and batch_id < self._marker
        takes_back = lowers and (not commit.added or commit.operation == DELETE)
        if commit.operation == RESTORE or takes_back:
            self.shown = _lower_shown(self.shown, batch_id)
        elif batch_id == self._marker and not commit.added and commit.query_id is None:
            return  # the marker put in again, without rows
        else:
            self.written.append((commit, commit.by_app[self._app_id]))
            self.shown = ShownByTable(batch_id, live=_Live(batch_id, commit.version, self.shown.live))

    def _put_back(self, commit: TableCommit) -> ShownByTable:
        version = commit.shown_again
        found = None
        if version is not None:
            found = self._after.get(version)
        return found or ShownByTable(
            unclear=f"version {commit.version} goes by one that is older than what could be read"
        )

    def _restored(self, commit: TableCommit, earlier: Sequence[TableCommit]) -> ShownByTable:
        version = commit.restored_version
        if version is not None:
            return self._after.get(version) or ShownByTable(
                unclear=f"version {commit.version} restored version {version}, which is older than what could be read"
            )
        candidates = _find_restored_versions(commit, earlier)
        found = [self._after[version] for version in candidates]
        if found and all(one is found[0] for one in found):
            return found[0]
        return ShownByTable(
            unclear=f"version {commit.version} is a RESTORE by time, and its files do not tell to which version"
        )


def _explain_replaced(commit: TableCommit, holders: _Holders) -> str | None:
    """Why rows are missing once a version has put others in the place of all; None if as many are there, or more."""
    if not commit.is_replacing or (commit.row_count is not None and commit.row_count >= holders.row_count):
        return None
    count = "nobody knows how many" if commit.row_count is None else f"{commit.row_count:,}"
    by = f"by {count}, where the query had written {holders.row_count:,}"
    return f"version {commit.version} ({commit.operation}) replaced all rows {by}"


def _lower_shown(shown: ShownByTable, batch_id: int) -> ShownByTable:
    """What is shown once a marker says that only batches up to `batch_id` count."""
    live = next((at for at in _list_live(shown.live) if at.batch_id <= batch_id), None)
    if shown.batch_id is not None:
        return replace(shown, batch_id=min(batch_id, shown.batch_id), live=live)
    if shown.unclear is None and not shown.is_from_before:
        return shown  # nothing was shown
    return ShownByTable(batch_id, live=live)


def _find_restored_versions(restore: TableCommit, earlier: Sequence[TableCommit]) -> range:
    """The versions that a RESTORE by time may have brought back, told by its files; empty if they do not tell.

    Files that a version added and that are there after the RESTORE show that it is not undone. Files that it added and
    that are gone, or removed and that are there, show that it is.
    """
    touched: set[str] = set()
    end = restore.version
    for commit in reversed(earlier):
        are_live = commit.added - touched
        were_live = commit.added & touched
        if (are_live - restore.removed) or (were_live & restore.added):
            return range(commit.version, end)
        if commit.added or commit.removed & restore.added:
            end = commit.version
        touched |= commit.added | commit.removed
    return range(0)
