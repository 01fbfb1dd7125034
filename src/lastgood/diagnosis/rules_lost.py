"""What is wrong where both logs of a checkpoint are lost, and a mirror still knows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.observation import Observation

CHECKPOINT_LOST = Condition(
    "CHECKPOINT_LOST",
    Severity.ERROR,
    "both logs are lost, and the mirror holds them",
    """\
The checkpoint has neither plans nor commits, and its mirror (`CHECKPOINT.lastgood`) shows that it had some: the folder
was deleted, emptied, or another one stands in its place.

A start on it as it is begins at batch 0, where the application's own options say: with `earliest` everything is read
again, with `latest`, Kafka's default, all that was written since the last batch is left out. A sink that goes by the
numbers of batches drops those that it has seen under the same query id.

`lastgood backup restore` puts back what the mirror holds, byte for byte.""",
)
CONDITIONS = (CHECKPOINT_LOST,)


def find_lost(world: Observation) -> Iterator[Finding]:
    """The one finding, if the mirror knows of batches that the checkpoint does not."""
    if world.mirrored is None:
        return
    first, last = world.mirrored.oldest, world.mirrored.newest
    effect = f"A start begins at batch 0; the mirror holds batches {first} to {last}."
    evidence = {"mirrored": [first, last]}
    yield Finding(CHECKPOINT_LOST, "offsets, commits", effect, evidence, world.command("backup restore"))
