"""`rebuild`: state that cannot be loaded is made anew by the own batches of a query, without a sink, beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lastgood.planning.plan import Plan
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.target import Target
from lastgood.supervise.rebuilding import CommandApplication, Rebuilder, SessionApplication


def rebuild(
    target: Target,
    command: Sequence[str] | Callable[[], object] = (),
    options: PlanOptions | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    max_replay: int | None = None,
    new_code: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Make the state of a query anew, and plan how it is brought; the checkpoint and its sinks are not changed.

    The application runs, and its query starts: on a checkpoint beside its own, and with no sink, one batch after
    another as they were planned.

    Args:
        target: Which query.
        command: That starts its application; empty: that of its pipeline. Or a function of this process that builds the
            query and starts it.
        options: What is wanted of the plan, and where to look.
        environment: Environment variables of the application, before those of its pipeline; ours if None.
        max_replay: How many offsets and files may be read again; None: as the policy of its pipeline says.
        new_code: The code was changed, and keeps other state: it makes that of all batches since the beginning.
        tell: Is told, in a few words, what takes time.

    Raises:
        CheckpointHeldError: a `run` supervises the query, or it is being repaired.
        WaiverNeededError: the plan would cost what nobody has accepted.
        RepairRefusedError: the state can be loaded, or cannot be made anew in a way of which anything can be promised.
        RebuildFailedError: the application did not run a batch.
        RebuildDivergedError: a batch came to something else than when it ran first.
        CommandNotFoundError, PythonUnusableError, JavaMissingError, UsageError: the command, or the function.
        StorageError: the checkpoint cannot be read, or nothing can be written beside it (subclasses).
    """
    if callable(command):
        application: SessionApplication | CommandApplication = SessionApplication(command)
    else:
        application = CommandApplication.of(target.pipeline, command, environment)
    most = target.policy.max_replay if max_replay is None else max_replay
    return Rebuilder(application, most, new_code).rebuild(target, options or PlanOptions(), tell)
