"""What classes of failure there are, and what a rule is that tells them apart. Values only. Pure."""

from __future__ import annotations

import enum
import re

from lastgood.frozen import dataclass


class FailureClass(enum.Enum):
    """What a failure calls for."""

    TRANSIENT = "transient"
    """The same start can work in a while."""
    CONCURRENT_RUN = "concurrent_run"
    """Another driver works on the checkpoint."""
    LOG_DAMAGED = "log_damaged"
    """A file of the offset log, the commit log, a source's or a sink's log, or `metadata` stops the start."""
    STATE_DAMAGED = "state_damaged"
    """A state store cannot be loaded."""
    CODE_INCOMPATIBLE = "code_incompatible"
    """The code or its settings do not go with the checkpoint, or cannot run at all."""
    POISON_DATA = "poison_data"
    """User code or an expression fails on the data of the batch."""
    SOURCE_EXPIRED = "source_expired"
    """What was to be read is no longer there."""
    SOURCE_RECREATED = "source_recreated"
    """The source is another one of the same name, or it is gone."""
    RESOURCES = "resources"
    """Memory, disk or slots do not suffice."""
    STOPPED_ON_PURPOSE = "stopped_on_purpose"
    """Somebody ended it; nothing is wrong."""
    UNKNOWN = "unknown"


class ChainPart(enum.Enum):
    """Which exceptions of a chain a rule is about."""

    ANYWHERE = enum.auto()
    ENGINE = enum.auto()
    """Thrown by the streaming engine in the driver: not by a state store, not by user code."""
    EXPRESSION = enum.auto()
    """Thrown while an expression was evaluated over rows."""
    USER = enum.auto()
    """Of user code in a query (`foreachBatch`, a UDF, …), and nothing of Spark stands further in."""
    INNERMOST = enum.auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: it is about an exception with one of `conditions`, or one that `classes` and `text` both fit.

    Conditions and classes come first; text is for what Spark gives nothing else for, over all versions from 3.5 to 4.3.
    """

    name: str
    cls: FailureClass
    because: str
    """What is so, for a person: one line, lower case, without a full stop."""
    source: str
    """Where names and texts come from: a file of somebody's sources; the versions of Spark that were seen to say it."""
    conditions: tuple[str, ...] = ()
    """Spark's names, each with all that stand below it after a dot."""
    classes: tuple[str, ...] = ()
    """Simple class names; `""` where only the message is known; empty: any, if `text` is given."""
    text: re.Pattern[str] | None = None
    where: ChainPart = ChainPart.ANYWHERE
    is_weak: bool = False
    """Decides only if no other rule does for any exception of the chain."""
    is_aftermath: bool = False
    """Follows from something else that ended the driver: what failed before counts first."""
    is_of_driver: bool = False
    """Between Python and Java of the driver: a connection that failed within it was to the other, and to no service."""

    def fits(self, *, class_name: str, condition: str | None, message: str) -> bool:
        """Whether the row is about this exception, wherever it stands; `class_name` is its simple name."""
        if condition is not None and any(
            condition == each or condition.startswith(f"{each}.") for each in self.conditions
        ):
            return True
        if not self.classes and self.text is None:
            return not self.conditions
        if self.classes and class_name not in self.classes:
            return False
        return self.text is None or self.text.search(message) is not None


def compile_any_of(*patterns: str) -> re.Pattern[str]:
    """A pattern that finds what one of these finds."""
    return re.compile("|".join(patterns))
