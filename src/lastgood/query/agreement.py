"""How a sink stands to the logs of a query, in one sentence. Pure."""

from __future__ import annotations

from lastgood.checkpoint.logs import name_batches
from lastgood.frozen import dataclass
from lastgood.query.sinks import Agreement, Rerun, SinkView
from lastgood.sinks.evidence import SinkEvidence
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class SinkStanding(JsonValue):
    """Where a sink stands to the checkpoint."""

    json = make_form(
        "location=evidence.location kind=evidence.kind agreement last_batch=evidence.last_batch known=evidence.known "
        "skips_up_to=evidence.skips_up_to would_drop holes=evidence.holes sentence because=evidence.because "
        "notes=evidence.notes"
    )
    """One element of `sinks` in `status --format json`."""

    evidence: SinkEvidence
    agreement: Agreement
    sentence: str
    """What is so, for a person."""
    would_drop: tuple[int, int] | None = None
    """First and last of the batches still to come that the sink would drop without a word; None if it drops none."""


_AGAIN = {
    Rerun.REPEATS: "run again, its rows are written a second time",
    Rerun.UNKNOWN: "whether it is written a second time when it runs again is not known",
    Rerun.RECOGNISES: "run again, it adds nothing",
}


def judge_sink_standing(view: SinkView) -> SinkStanding:
    """Say how a sink stands to the logs."""
    evidence, drops = view.sink, view.would_drop
    sentence = _describe_standing(view)
    if drops:
        would = "would" if evidence.skips_known else "may"
        sentence += f"; {name_batches(drops)} of the query {would} be dropped without a word"
    if evidence.presumed_app_id is not None:
        sentence += f" (if the query writes as {evidence.presumed_app_id}, the only name in the table)"
    return SinkStanding(evidence, view.agreement, sentence, (drops[0], drops[-1]) if drops else None)


def _describe_standing(view: SinkView) -> str:
    """How it stands to the logs, for a person."""
    if not view.sink.known:
        return f"unknown, because {view.sink.because}"
    if view.anew is not None:
        return f"not known how far it has come: {view.anew.because}"
    if view.agreement is Agreement.NONE:
        return f"shows no batch of this query: {view.sink.because}"
    if view.agreement is Agreement.AHEAD:
        return (
            f"ahead: holds {name_batches(range(view.planned + 1, view.shown + 1))}, which the checkpoint does not know"
        )
    if view.agreement is Agreement.BEHIND:
        return f"behind: {name_batches(range(view.shown + 1, view.committed + 1))} committed, and not in it"
    return _describe_agreeing(view)


def _describe_agreeing(view: SinkView) -> str:
    if view.sink.last_batch is None:
        return "shows no batch yet"
    sentence = f"agrees: its newest is batch {view.shown}"
    if view.shown > view.committed:
        again = None
        if view.rerun is not None:
            again = _AGAIN.get(view.rerun)
        sentence += ", which is planned and not committed"
        if again is None:
            return sentence
        return f"{sentence}: {again}"
    if view.shown < view.committed:
        return f"{sentence}, and {name_batches(range(view.shown + 1, view.committed + 1))} had nothing to write"
    return sentence
