"""Whether lastgood itself keeps drivers away from a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.observation import Observation

SEALED_BY_LASTGOOD = Condition(
    "SEALED_BY_LASTGOOD",
    Severity.ERROR,
    "a repair was begun and neither finished nor taken back",
    """\
Before lastgood changes a checkpoint it seals it: with an empty file where the next plan would stand, and if a batch is
planned and not committed, another where its commit would. By Spark's own rules no driver can then go on with the
checkpoint, and none can start: it fails at once (`Incomplete log file`), before its sink is called.

The seal goes as the last step of the repair. If it stands and nobody is at work, the repair was interrupted; nothing is
lost by that. `lastgood apply` with the same plan, which is kept beside the checkpoint, finishes it, `lastgood undo`
takes it back. Do not remove the empty files by hand: what has been done so far would then be left half done.

With a key (`lastgood key`), a repair that it has not signed is neither finished nor taken back: anybody who may write
to the lake can have put it there. Look at it, and sign it if it is your own.""",
)
CONDITIONS = (SEALED_BY_LASTGOOD,)


def find_seal(observed: Observation) -> Iterator[Finding]:
    """The one finding, if there is a seal."""
    if observed.seal is None:
        return
    seal = observed.seal
    undo = observed.asked.about(observed.location).make_undo_command(seal.recovery, None, *seal.undo_words)
    effect = "No driver can start on this checkpoint until the repair is finished or taken back."
    if seal.finish is None:
        effect = "No driver can start on this checkpoint until the repair is taken back, which somebody has begun."
    if seal.refused is not None:
        effect = f"{effect} It is not carried out: {seal.refused}."
    if seal.refused:
        way_on = seal.sign
    else:
        way_on = seal.finish or undo
    evidence: dict[str, Any] = {
        "recovery": seal.recovery,
        "stage": seal.stage,
        "seal": list(seal.paths),
        "finish": seal.finish,
        "undo": undo,
        "refused": seal.refused,
    }
    if seal.refused:
        evidence |= {"finish": None, "undo": None}
    yield Finding(SEALED_BY_LASTGOOD, seal.paths[0], effect, evidence, way_on)


def drop_of_the_seal(observed: Observation, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are not about the empty files of the seal."""
    ours = observed.seal.paths if observed.seal else ()
    return [finding for finding in findings if finding.subject not in ours]
