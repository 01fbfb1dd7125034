"""What a plan does to the one file outside of the checkpoint that its user has named. Values only."""

from __future__ import annotations

from typing import ClassVar

from lastgood.frozen import dataclass
from lastgood.steps.step import Rank, Step, Turn, WrittenOutside
from lastgood.storage.location import LocationInvalidError, resolve_location
from lastgood.values import make_form


@dataclass(frozen=True, slots=True)
class StartFileStep(Step):
    """The file by which an application is told where to start gets another content, or appears."""

    json = make_form("do undo kind path before after why", strict=True, check=lambda step: _require_location(step.path))
    kind: ClassVar = "start_file"

    path: str
    """Its location."""
    before: str | None
    """`compute_digest` of what it was when the plan was made; None if there was no such file."""
    after: bytes
    """What it is then."""
    why: str
    """One line for a person."""

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        return f"{'write' if self.before is None else 'rewrite'} {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        if self.before is None:
            return f"remove {self.path}"
        return f"put {self.path} back as it was"

    @property
    def rank(self) -> Rank:
        """Last."""
        return Turn.OUTSIDE, 0, 0, self.path

    @property
    def outside(self) -> WrittenOutside:
        """It is the file outside."""
        return WrittenOutside(self.path, self.before, self.after)


def _require_location(path: str) -> None:
    try:
        resolve_location(path)
    except LocationInvalidError as error:
        raise ValueError(f"{path} is no location of a file") from error
