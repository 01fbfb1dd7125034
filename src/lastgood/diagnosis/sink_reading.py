"""A sink of a query, as findings tell of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.frozen import dataclass
from lastgood.query.observation import Observation, make_views
from lastgood.query.prediction.restart import Restart
from lastgood.query.sinks import SinkView


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReading(SinkView):
    """One sink, and what a finding about it needs beside that."""

    observed: Observation
    restart: Restart

    def finding(
        self,
        condition: Condition,
        effect: str,
        evidence: Mapping[str, Any],
        command: str | None = None,
        level: Severity | None = None,
    ) -> Finding:
        """A finding about this sink; evidence that is None is left out, and the effect begins with a capital."""
        found = {name: value for name, value in evidence.items() if value is not None}
        told: dict[str, Any] = {
            "kind": self.sink.kind,
            "shown": self.sink.last_batch,
            "because": self.sink.because,
            **found,
        }
        sentence = effect[:1].upper() + effect[1:]
        if self.sink.presumed_app_id is not None:
            told["presumed_app_id"] = self.sink.presumed_app_id
            says = f"{effect[:1].lower()}{effect[1:]}"
            sentence = f"If the query writes as {self.sink.presumed_app_id}, the only name in the table: {says}"
            level = min(condition.severity if level is None else level, Severity.WARNING)
        return Finding(condition, self.sink.location, sentence, told, command, level)

    def inspect(self, batch_id: int) -> str:
        """The command that shows a batch."""
        return self.observed.command("inspect", "--batch", str(batch_id))

    def status(self) -> str:
        """The command that asks the sink again."""
        return self.observed.command("status")

    def verify(self) -> str:
        """The command that counts what is there."""
        return self.observed.command("verify", "--data")

    def plan(self) -> str:
        """The command that offers a way out."""
        return self.observed.command("plan")

    def plan_as(self, name: str) -> str:
        """The same, where the query is said to write under a name."""
        return self.observed.command("plan", "--txn-app-id", name)

    def replan(self) -> str:
        """The command that has the batch which runs again taken back, and planned anew."""
        return self.observed.command("plan", "--goal", "replan")

    def backups(self) -> str:
        """The command that shows what there is to put back."""
        return self.observed.command("backup list")


def make_sink_readings(observed: Observation, restart: Restart) -> list[SinkReading]:
    """Every sink that was asked."""
    return [
        SinkReading(
            each.checkpoint,
            each.sink,
            each.spans_of,
            each.held,
            each.is_stateful,
            each.rewritten,
            observed=observed,
            restart=restart,
        )
        for each in make_views(observed)
    ]
