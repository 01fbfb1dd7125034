"""What is wrong where both logs of a checkpoint are lost, and a mirror or a ledger still knows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.lost import KnownElsewhere, find_known_elsewhere
from lastgood.query.observation import Observation

CHECKPOINT_LOST = Condition(
    "CHECKPOINT_LOST",
    Severity.ERROR,
    "both logs are lost, and mirror or ledger know of them",
    """\
The checkpoint has neither plans nor commits, and its mirror (`CHECKPOINT.lastgood`), or the ledger that is configured,
shows that it had some: the folder was deleted, emptied, or another one stands in its place.

A start on it as it is begins at batch 0, where the application's own options say: with `earliest` everything is read
again, with `latest`, Kafka's default, all that was written since the last batch is left out. A sink that goes by the
numbers of batches drops those that it has seen under the same query id.

`lastgood backup restore` puts back what the mirror holds, byte for byte. A ledger knows where batches ended, and holds
no plan as it was: what it knows, `plan --goal fresh --batch N` begins the query anew with; a sink that is named with
`--sink` tells how much of it is written already. A query that is to begin anew on purpose takes another folder, or
`plan --goal fresh --earliest`: a ledger forgets nothing.""",
)
CONDITIONS = (CHECKPOINT_LOST,)


def find_lost(observed: Observation) -> Iterator[Finding]:
    """The one finding, if mirror or ledger know of batches that the checkpoint does not."""
    known = find_known_elsewhere(observed)
    if known is None:
        return
    effect = f"A start begins at batch 0; {known.holder} {'holds' if known.is_mirror else 'knows'} batches"
    evidence = {"mirrored" if known.is_mirror else "remembered": [known.first, known.last]}
    effect = f"{effect} {known.first} to {known.last}."
    yield Finding(CHECKPOINT_LOST, "offsets, commits", effect, evidence, find_way_back(observed, known))


def find_way_back(observed: Observation, known: KnownElsewhere) -> str | None:
    """The command that goes on from what is known elsewhere; None where nobody knows offsets of Kafka."""
    if known.is_mirror:
        return observed.command("backup restore")
    if known.offsets_after is None:
        return None
    return observed.command("plan", "--goal", "fresh", "--batch", str(known.offsets_after))
