"""What a plan does to the one file outside of the checkpoint that its user has named. Values only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lastgood.steps.step import Rank, Step, Turn
from lastgood.storage.location import LocationInvalidError, location_of


@dataclass(frozen=True, slots=True)
class StartFileStep(Step):
    """The file by which an application is told where to start gets another content, or appears."""

    kind: ClassVar = "start_file"

    path: str
    """Its location."""
    before: str | None
    """`digest` of what it was when the plan was made; None if there was no such file."""
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
        return f"remove {self.path}" if self.before is None else f"put {self.path} back as it was"

    @property
    def rank(self) -> Rank:
        """Last."""
        return Turn.OUTSIDE, 0, 0, self.path

    @property
    def file_outside(self) -> str:
        """It is the file outside."""
        return self.path

    def to_json(self) -> dict[str, Any]:
        """The object in `steps` of a plan."""
        return {
            "do": self.do,
            "undo": self.undo,
            "kind": self.kind,
            "path": self.path,
            "before": self.before,
            "after": base64.b64encode(self.after).decode(),
            "why": self.why,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> StartFileStep | None:
        """Read what `to_json` gave; see `Step.of`."""
        match told:
            case {"path": str(path), "before": str() | None as before, "after": str(after), "why": str(why)}:
                try:
                    location_of(path)
                    return cls(path, before, base64.b64decode(after, validate=True), why)
                except LocationInvalidError as error:
                    raise ValueError(f"{path} is no location of a file") from error
                except binascii.Error as error:
                    raise ValueError("the content of a step is no base64") from error
        return None
