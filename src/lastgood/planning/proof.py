"""What came of trying a plan with real Spark. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_READS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of trying a plan with real Spark; it is kept in the plan."""

    is_proven: bool
    spark: str
    """The version that was asked: the installed one."""
    batch: int | None = None
    """The batch that it planned first; None: there was nothing to read, or it was not asked."""
    reads: tuple[str, ...] = ()
    """What that batch reads, one line for each partition or source."""
    because: str | None = None
    """Why it is not proven."""
    leaves_open: tuple[str, ...] = ()
    """What a proof cannot tell; one line each."""

    @property
    def line(self) -> str:
        """The one line for a person."""
        if not self.is_proven:
            return f"NOT proven: {self.because}"
        if self.batch is None:
            return f"proven with Spark {self.spark}: it starts, and has nothing to read yet"
        more = f" and {len(self.reads) - _READS_SHOWN} more" if len(self.reads) > _READS_SHOWN else ""
        reads = f"reads {', '.join(self.reads[:_READS_SHOWN])}{more}" if self.reads else "is empty"
        return f"proven with Spark {self.spark}: next batch {self.batch} {reads}"

    def to_json(self) -> dict[str, Any]:
        """The object `proof` of a plan."""
        return {
            "proven": self.is_proven,
            "line": self.line,
            "spark": self.spark,
            "batch": self.batch,
            "reads": list(self.reads),
            "because": self.because,
            "leaves_open": list(self.leaves_open),
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave.

        Raises:
            KeyError, TypeError: it is none.
        """
        given = {name: told[name] for name in ("spark", "batch", "because")}
        return cls(told["proven"], reads=tuple(told["reads"]), leaves_open=tuple(told["leaves_open"]), **given)
