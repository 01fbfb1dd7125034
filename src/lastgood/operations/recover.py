"""`recover`: once, before the application starts: diagnose, plan, and carry out what the policy allows."""

from __future__ import annotations

from pathlib import Path

from lastgood.incident.notes import note_recover
from lastgood.observe.open_query import read_clock_ms
from lastgood.recovery.deciding import Tell, decide
from lastgood.recovery.decision import Decision
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.policy import REBUILD
from lastgood.settings.target import Target
from lastgood.supervise.rebuilding import CommandApplication, Rebuilder


def recover(  # noqa: PLR0913 - all but the first two by name
    target: Target,
    options: PlanOptions | None = None,
    *,
    observe: bool = False,
    driver_is_dead: bool = False,
    save_to: Path | None = None,
    tell: Tell = lambda _: None,
    first_start: bool = False,
    go_on: bool = False,
) -> Decision:
    """Make a query ready to start, as far as the policy goes.

    Where the same batch was still not committed at call after call, more is tried than the last good batch: what `run`
    would try, in its order, until a person is called.

    Args:
        target: Which query.
        options: What is wanted; what the policy of the target's pipeline accepts is accepted too.
        observe: Change nothing; say what would be done.
        driver_is_dead: Whether a person says so.
        save_to: File for a plan that a person has to decide on; by default one of this user's state folder.
        tell: Gets a line for a person at each turn.
        first_start: Whether a person says that the query has never run: then nobody is warned where nobody can tell.
        go_on: A person has looked: what has failed before counts no more, nor how long the query was down.

    Raises:
        LastgoodError: nobody can tell what is the matter: an option is not understood, the storage forbids to look, the
            checkpoint was changed under the seal (subclasses). What may be otherwise in a while is a `Decision`.
    """
    options = options or PlanOptions()
    began_at_ms = read_clock_ms()
    policy, rebuilder = target.policy, None
    if policy.on_state_loss == REBUILD and target.pipeline is not None and target.pipeline.command:
        rebuilder = Rebuilder(CommandApplication.of(target.pipeline), policy.max_replay)
    decision = decide(
        target,
        options,
        observe=observe,
        driver_is_dead=driver_is_dead,
        save_to=save_to,
        tell=tell,
        first_start=first_start,
        go_on=go_on,
        rebuilder=rebuilder,
    )
    if not observe:
        looked = options.evidence
        note_recover(decision, target, began_at_ms=began_at_ms, tell=tell, evidence=looked)
    return decision
