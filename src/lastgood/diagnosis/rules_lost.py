"""What is wrong where both logs of a checkpoint are lost, and a mirror or a ledger still knows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.lost import KnownElsewhere, find_known_elsewhere, find_recorded_after
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
LOGS_OLDER_THAN_RECORDS = Condition(
    "LOGS_OLDER_THAN_RECORDS",
    Severity.ERROR,
    "the logs end before a batch that was committed",
    """\
The recorder in the application saw a later batch committed than the logs plan: an older copy of the checkpoint was put
in its place, or somebody deleted the newest plans and commits.

A start plans the numbers in between anew. What was read under them is read again, and a sink that goes by the numbers
of batches (Delta, Spark's file sink, a function with `txnAppId`) drops all that comes under one that it has, also what
no batch has read before.

Name the sink with `--sink`: it tells which batches it has. A copy that is newer, a mirror or a backup brings the plans
back as they were.""",
)
CONDITIONS = (CHECKPOINT_LOST, LOGS_OLDER_THAN_RECORDS)


def find_lost(observed: Observation) -> Iterator[Finding]:
    """The one finding, if mirror, ledger or recorder know of batches that the checkpoint does not."""
    yield from find_older(observed)
    known = find_known_elsewhere(observed)
    if known is None:
        return
    effect = f"A start begins at batch 0; {known.holder} {'holds' if known.is_mirror else 'knows'} batches"
    evidence = {"mirrored" if known.is_mirror else "remembered": [known.first, known.last]}
    effect = f"{effect} {known.first} to {known.last}."
    yield Finding(CHECKPOINT_LOST, "offsets, commits", effect, evidence, find_way_back(observed, known))


def find_older(observed: Observation) -> Iterator[Finding]:
    """The one finding, if a recorder saw later batches than the logs have."""
    recorded, planned = find_recorded_after(observed), observed.checkpoint.last_planned
    if recorded is None or planned is None:
        return
    effect = (
        f"A start plans batch {planned + 1} anew, and batch {recorded} was committed: a sink that has these numbers"
    )
    effect = f"{effect} drops what comes under them; which it has tells --sink."
    evidence = {"planned": planned, "recorded": recorded}
    command = observed.command("backup list")
    yield Finding(LOGS_OLDER_THAN_RECORDS, f"offsets/{planned}", effect, evidence, command)


def find_way_back(observed: Observation, known: KnownElsewhere) -> str | None:
    """The command that goes on from what is known elsewhere; None where nobody knows offsets of Kafka."""
    if known.is_mirror:
        return observed.command("backup restore")
    if known.offsets_after is None:
        return None
    return observed.command("plan", "--goal", "fresh", "--batch", str(known.offsets_after))
