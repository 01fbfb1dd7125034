"""What came of trying a plan with real Spark. Values only."""

from __future__ import annotations

from lastgood.frozen import dataclass
from lastgood.values import JsonValue, make_form

_READS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Proof(JsonValue):
    """What came of trying a plan with real Spark; it is kept in the plan."""

    json = make_form("proven=is_proven line spark batch reads because leaves_open")
    """The object `proof` of a plan."""

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
        if len(self.reads) > _READS_SHOWN:
            more = f" and {len(self.reads) - _READS_SHOWN} more"
        else:
            more = ""
        if self.reads:
            reads = f"reads {', '.join(self.reads[:_READS_SHOWN])}{more}"
        else:
            reads = "is empty"
        return f"proven with Spark {self.spark}: next batch {self.batch} {reads}"
