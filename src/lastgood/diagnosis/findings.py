"""What is wrong with a query, or could be better: conditions and findings. Values only. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lastgood.frozen import dataclass
from lastgood.values import JsonValue, make_form
from lastgood.written import redact_written


class Severity(enum.IntEnum):
    """How bad a finding is; worse is larger."""

    INFO = 0
    """Good to know, or advice. A healthy checkpoint has no finding above it."""
    WARNING = 1
    """It works, and something is not as it is to be."""
    ERROR = 2
    """Records are lost, doubled or wrong, or the query cannot go on."""

    @property
    def word(self) -> str:
        """As it is printed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Condition:
    """A kind of finding, told once: for the finding itself, for `lastgood explain` and for the reference page."""

    name: str
    severity: Severity
    """As it usually is; a finding may be milder or worse."""
    title: str
    """What is so, one line, lower case, without a full stop."""
    story: str
    """How it comes about, what Spark makes of it, and what to do: a few paragraphs, separated by blank lines."""


@dataclass(frozen=True, slots=True)
class Finding(JsonValue):
    """One condition, found somewhere; its texts are without secrets, whatever it was given."""

    json = make_form("condition=condition.name severity=severity.word subject evidence effect next")
    """One of the objects `findings` of `diagnose --format json`."""

    condition: Condition
    subject: str
    """The file, partition, source or sink it is about."""
    effect: str
    """What will be lost, doubled, wrong or stuck, in plain words, as a sentence."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What it rests on, by name; JSON values."""
    next: str | None = None
    """The command to type; None where nothing need be done."""
    level: Severity | None = None
    """Another severity than the condition's."""

    def __post_init__(self) -> None:
        """Take secrets out here, so that nothing that shows or keeps a finding holds one."""
        told = redact_written({"location": self.subject, "effect": self.effect, "evidence": self.evidence})
        object.__setattr__(self, "subject", told["location"])
        object.__setattr__(self, "effect", told["effect"])
        object.__setattr__(self, "evidence", told["evidence"])

    @property
    def severity(self) -> Severity:
        """How bad it is here."""
        return self.condition.severity if self.level is None else self.level


def sort_worst_first(findings: list[Finding]) -> list[Finding]:
    """The findings in the order in which a person should hear of them."""
    return sorted(findings, key=lambda finding: -finding.severity)
