"""What `recover` comes to: start the application, ask a person, or try again later."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

from lastgood.diagnosis.findings import Finding
from lastgood.errors import LastgoodError, format_command_line
from lastgood.frozen import dataclass
from lastgood.ladder.tally import FailedBatch
from lastgood.planning.plan import Plan
from lastgood.recovery.applying import Recovery
from lastgood.recovery.driver_death import list_words_needed
from lastgood.settings.config import Config
from lastgood.values import JsonValue, make_form


class Verdict(enum.Enum):
    """What is to be done next."""

    START = "start"
    """Start the application now."""
    PERSON = "person"
    """A person has to decide."""
    LATER = "later"
    """Try again in a while."""

    @property
    def exit_code(self) -> int:
        """What `recover` exits with."""
        return {Verdict.START: 0, Verdict.PERSON: 3, Verdict.LATER: 75}[self]


@dataclass(frozen=True, slots=True)
class Decision(JsonValue):
    """What `recover` came to."""

    json = make_form("*_made decision=verdict because file next error warning failed", texts="file")
    """What `recover --format json` prints: the plan, what became of it, and the decision."""

    verdict: Verdict
    because: str
    """One line for a person."""
    plan: Plan | None = None
    file: Path | None = None
    """Where the plan is saved, if a person has to decide on it."""
    recovery: Recovery | None = None
    """What was carried out; None: nothing had to be changed, or nothing was."""
    error: LastgoodError | None = None
    """What stands in the way."""
    next: str | None = None
    """The command by which a person allows it."""
    warning: Finding | None = None
    """What a person should know before the start."""
    failed: FailedBatch | None = None
    """What has failed again and again since the newest commit, as far as calls of `recover` have seen it."""

    @property
    def changes(self) -> bool:
        """Whether something was changed before the start, or would be."""
        is_planned = self.plan is not None and bool(self.plan.steps)
        return self.recovery is not None or (self.verdict is Verdict.START and is_planned)

    def way_on(self, config: Config) -> str | None:
        """The command by which a person goes on; None if there is none. `config` is that of this command."""
        if self.next is not None:
            return self.next
        if self.file is not None:
            words = () if self.plan is None else list_words_needed(self.plan.checkpoint, config, self.plan)
            return format_command_line("apply", self.file, *words)
        return None if self.error is None else self.error.next

    @property
    def _made(self) -> Recovery | Plan | dict[str, Any]:
        return self.recovery or self.plan or {}
