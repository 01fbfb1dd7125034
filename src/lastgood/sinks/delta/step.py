"""What a plan does to a Delta table: the rows and the mark of a query. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lastgood.delta_log.actions import Transaction
from lastgood.frozen import dataclass
from lastgood.sinks.delta.kind import DELTA_SINK
from lastgood.steps.step import Rank, SinkEdit, Step, Turn, require_location
from lastgood.values import make_form


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStep(Step):
    """One version of a Delta table moves the mark of the query, and takes out what batches above it put in.

    A mark that goes up, without a row, uses numbers up: a driver that is still inside such a batch writes nothing any
    more, neither when it began before, which is a conflict, nor after, since the batch counts as written. A mark that
    stays has expired, and is made again.
    """

    json = make_form(
        "do undo effect kind table table_id app_id=mark.app_id mark=mark.version "
        "mark_updated_ms=mark.last_updated_ms batch version versions why",
        prepare=lambda told: {**told, "mark": _flatten_mark(told)},
        check=lambda step: step.require_sound(),
    )
    kind: ClassVar = "delta"

    table: str
    table_id: str
    mark: Transaction
    """The mark of the query when the plan was made; of one that is made again the last that there was."""
    batch: int
    """The batch that the table shows then; its mark says the same."""
    version: int
    """The newest version of the table when the plan was made."""
    versions: tuple[int, ...]
    """Those whose files go; none if somebody has taken the rows back already, and only the mark is too high."""
    why: str
    """One line for a person."""

    @property
    def path(self) -> str:
        """What it touches."""
        return self.table

    @property
    def uses_up(self) -> bool:
        """Whether it uses up the number of a batch."""
        return self.batch > self.mark.version

    @property
    def used_up(self) -> int | None:
        """The number that it uses up."""
        return self.batch if self.uses_up else None

    @property
    def renews(self) -> bool:
        """Whether it makes a mark again that has expired."""
        return self.batch == self.mark.version

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        if self.renews:
            return f"put the mark of batch {self.batch}, which has expired, back into {self.table}: {self.why}"
        if self.uses_up:
            end = "a driver that is still inside it can write nothing any more"
            return f"mark batch {self.batch} as written in {self.table}, without rows: {self.why}; {end}"
        what = "rows and mark" if self.versions else "the mark"
        return f"take {what} of {self.table} back from batch {self.mark.version} to {self.batch}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        if self.renews:
            kept = "the history of the table keeps both"
            return f"make the mark of batch {self.batch} in {self.table} as old as it was, by one more version: {kept}"
        what = "put rows and mark"
        if self.uses_up or not self.versions:
            what = "put the mark"
        return f"{what} of batch {self.mark.version} back into {self.table}, by one more version"

    @property
    def effect(self) -> str | None:
        """What others will see of it; one line for a person."""
        if not self.versions:
            return None
        told = "finds rows removed, and stops; with skipChangeCommits it never learns of it"
        return f"a stream that reads {self.table} {told}"

    @property
    def rank(self) -> Rank:
        """With the sinks."""
        return Turn.SINK, 0, 0, self.table

    @property
    def edit(self) -> SinkEdit:
        """Rows and mark go back, or the mark alone is moved."""
        after = self.mark.version if self.uses_up else None
        return SinkEdit(
            DELTA_SINK.name, self.table, self.mark.app_id, self.batch, self.why, renews=self.renews, after=after
        )

    @property
    def writer(self) -> str:
        """Whose mark it is."""
        return self.mark.app_id

    def require_sound(self) -> None:
        """See that its fields make a step together.

        Raises:
            ValueError: they do not; the message is one line for a person.
        """
        require_location(self.table)
        if self.batch < 0 or self.mark.version < 0 or not all(0 <= each <= self.version for each in self.versions):
            raise ValueError(f"batch {self.batch}, mark {self.mark.version} or versions are no numbers of a table")
        if self.versions and self.batch >= self.mark.version:
            raise ValueError("versions of a table can go only with a lower mark")


def _flatten_mark(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "app_id": told["app_id"],
        "version": told["mark"],
        "last_updated_ms": told["mark_updated_ms"],
    }
