"""What is wrong where logs are lost or older than what mirror, ledger or recorder know of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.lost import MIRROR, KnownElsewhere, find_committed_after, find_known_elsewhere, find_noted_before
from lastgood.query.observation import Observation, make_views
from lastgood.query.sinks import NONE

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
The recorder in the application saw a later batch committed than the logs plan, or the mirror or the ledger knows of
one, and no recovery has taken the logs back since: an older copy of the checkpoint was put in its place, or the newest
plans and commits were deleted or lost.

A start plans the numbers in between anew. What was read under them is read again, and a sink that goes by the numbers
of batches (Delta, Spark's file sink, a function with `txnAppId`) drops all that comes under one that it has, also what
no batch has read before.

Name the sink with `--sink`: it tells which batches it has. A copy that is newer, a mirror or a backup brings the plans
back as they were; `plan` does it where the mirror goes on from what the logs hold, and the state fits.

It is a warning where no sink drops a number: then what was read in between only comes twice.""",
)
PLANS_LOST = Condition(
    "PLANS_LOST",
    Severity.ERROR,
    "both logs are empty, and a file source has noted down the files of several batches",
    """\
The checkpoint has neither plans nor commits, and the log of a file source (`sources/N`) goes further than a first
batch: somebody deleted what was in `offsets` and `commits`, or it was lost.

A start begins at batch 0 and reads all the files that are noted down once more. A sink that goes by the numbers of
batches (Delta under the same query id, Spark's file sink, a function with `txnAppId`) drops what comes under those that
it has, and any other gets it twice.

Name the sink with `--sink`: it tells which batches it has. A backup, or the mirror, brings the logs back.""",
)
CONDITIONS = (CHECKPOINT_LOST, PLANS_LOST, LOGS_OLDER_THAN_RECORDS)


def find_lost(observed: Observation) -> Iterator[Finding]:
    """The one finding, if mirror, ledger or recorder know of batches that the checkpoint does not."""
    yield from find_older(observed)
    known = find_known_elsewhere(observed)
    if known is None:
        yield from _find_plans_lost(observed)
        return
    effect = f"A start begins at batch 0; {known.holder} {'holds' if known.is_mirror else 'knows'} batches"
    evidence = {"mirrored" if known.is_mirror else "remembered": [known.first, known.last]}
    effect = f"{effect} {known.first} to {known.last}."
    yield Finding(CHECKPOINT_LOST, "offsets, commits", effect, evidence, find_way_back(observed, known))


def _find_plans_lost(observed: Observation) -> Iterator[Finding]:
    noted = find_noted_before(observed.checkpoint)
    views = make_views(observed)
    if noted is None or (views and all(view.complete_to == NONE for view in views)):
        return
    effect = (
        "A start begins at batch 0: a sink that has these numbers drops what comes under them, another gets it twice."
    )
    yield Finding(PLANS_LOST, "offsets, commits", effect, {"noted": noted}, observed.command("backup list"))


def find_older(observed: Observation) -> Iterator[Finding]:
    """The one finding, if somebody knows a later batch to be committed than the logs have."""
    after, planned = find_committed_after(observed), observed.checkpoint.last_planned
    if after is None or planned is None:
        return
    effect = (
        f"A start plans batch {planned + 1} anew, and {after.holder} knows that batch {after.batch_id} was committed"
    )
    if after.may_be_dropped:
        effect = f"{effect}: a sink that has these numbers drops what comes under them; which it has tells --sink."
    else:
        effect = f"{effect}: what was read in between comes twice."
    evidence = {"planned": planned, "committed": after.batch_id, "known_by": after.holder}
    command = observed.command("plan" if after.holder == MIRROR else "backup list")
    level = None if after.may_be_dropped else Severity.WARNING
    yield Finding(LOGS_OLDER_THAN_RECORDS, f"offsets/{planned}", effect, evidence, command, level)


def find_way_back(observed: Observation, known: KnownElsewhere) -> str | None:
    """The command that goes on from what is known elsewhere; None where nobody knows offsets of Kafka."""
    if known.is_mirror:
        return observed.command("backup restore")
    if known.offsets_after is None:
        return None
    return observed.command("plan", "--goal", "fresh", "--batch", str(known.offsets_after))
