"""Whether a recovery left the checkpoint behind on purpose. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.sink_conditions import SINK_KNOWS_OTHER_QUERY
from lastgood.frozen import dataclass
from lastgood.query.observation import LedgerMemory, Observation
from lastgood.sources.kafka.starting_offsets import offsets_to_json

CHECKPOINT_LEFT_BEHIND = Condition(
    "CHECKPOINT_LEFT_BEHIND",
    Severity.INFO,
    "a recovery left the checkpoint behind, and the application is told by its configuration where it begins",
    """\
`plan --goal fresh --via app-config`, and `lastgood run` and `recover` where the policy says `via = "app-config"`, set
every file of the logs aside and write the offsets into a file of the application's own configuration. Until the
application has planned its first batch the checkpoint is empty; that is no loss. Batches count from 0 again, under a
new query id, so the mark of the query before in a Delta table does not count any more.

Start the application: it has to take its `startingOffsets` from that file. `lastgood undo` puts checkpoint and file
back as they were, as long as nothing was planned since. Where a sink that goes by query ids knows a query that it did
not know then, one has begun since, and it is its checkpoint that is lost: `recover` and `run` then call a person.""",
)
FIRST_START_UNPROVEN = Condition(
    "FIRST_START_UNPROVEN",
    Severity.WARNING,
    "no batch is here, and nobody tells whether the query has ever run",
    """\
A checkpoint that was lost looks like one that never was: no plan, no commit, and where no `lastgood run` kept a mirror
nothing beside it. A query that starts on it begins at batch 0, where its own options say: with `latest` all that came
meanwhile is left out, with `earliest` everything is written once more.

A ledger tells where one is configured and knows batches of this checkpoint (`CHECKPOINT_LOST`). A sink can tell the two
apart as well, so name it: `--sink` of `recover`, `sink` of the pipeline in `lastgood.toml`. A Delta
table, a folder of Spark's file sink, an Iceberg table and a fence table show batches of the query that wrote them.
`--kafka` and `--topic` beside it let a lost checkpoint be seeded anew. Where it surely is the first start,
`--first-start` says so, and nothing is warned of. It stands against nothing that a sink, a mirror or a ledger knows.
There is no such key in `lastgood.toml`: it would be true once, and wrong on the day on which the checkpoint is
lost.""",
)
CONDITIONS = (CHECKPOINT_LEFT_BEHIND, FIRST_START_UNPROVEN)


@dataclass(frozen=True, slots=True)
class Later:
    """A query that a sink did not know when the checkpoint was left behind."""

    sink: str
    name: str
    last_batch: int


def find_begun_since(observed: Observation) -> Later | None:
    """The query that has begun on the checkpoint since it was left behind, if a sink shows one: its logs are lost."""
    marks = observed.left.marks if observed.left is not None else {}
    for sink in observed.sinks:
        known = marks.get(sink.location)
        if known is None:
            continue
        for name, last_batch in sink.others.items():
            if name not in known:
                return Later(sink.location, name, last_batch)
    return None


def find_left(observed: Observation) -> Iterator[Finding]:
    """The one finding, if it was left behind."""
    left, later = observed.left, find_begun_since(observed)
    if left is None:
        return
    effect, level = "The next start begins at batch 0, where this file says.", None
    starts = {source_id: offsets_to_json(each) for source_id, each in left.starts.items()}
    evidence: dict[str, Any] = {"recovery": left.recovery, "starts": starts, **left.file.to_json()}
    if later is not None:
        level = Severity.ERROR
        effect = (
            f"Query {later.name} has begun since, as {later.sink} shows, and its logs are lost: the next start would"
            " write again what it has written."
        )
        evidence |= {"begun_since": later.name, "last_batch": later.last_batch}
    evidence["undo"] = observed.make_undo_command(left)
    yield Finding(CHECKPOINT_LEFT_BEHIND, left.file.location, effect, evidence, observed.command("recover"), level)


def drop_of_the_left(observed: Observation, findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those about the query that was left behind: what it has written is not written again."""
    if observed.left is None or find_begun_since(observed) is not None:
        return list(findings)
    return [finding for finding in findings if finding.condition is not SINK_KNOWS_OTHER_QUERY]


def make_first_start_unproven(
    checkpoint: str, silent: Sequence[str], left_by: str | None = None, memory: LedgerMemory | None = None
) -> Finding:
    """The warning before a start of which nobody can tell that it is the first.

    Args:
        checkpoint: Its location.
        silent: The sinks that were asked and do not tell.
        left_by: The recovery after which nobody can tell whether the query has run; None: whether it ever has.
        memory: The answer of the ledger that was asked; None without one.
    """
    since = "ever run" if left_by is None else f"run since recovery {left_by} left its checkpoint behind"
    begins = "where the options of the application say" if left_by is None else "where that recovery said"
    why = f"{', '.join(silent)} does not tell" if silent else "no sink was named"
    if memory is not None and memory.unknown is not None:
        why = f"{why}, and the ledger {memory.place} does not either ({memory.unknown})"
    effect = (
        f"Whether the query has {since} nobody can tell: {why}. If it has, its checkpoint is lost, and this start"
        f" begins at batch 0, {begins}: records are left out, or written twice."
    )
    named = ["--sink LOCATION", "--kafka SERVERS", "--topic NAME"]
    return Finding(FIRST_START_UNPROVEN, checkpoint, effect, {"name": named, "silent": list(silent)})
