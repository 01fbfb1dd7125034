"""What a query needs before it is started: finish what is open, plan, and do what the policy allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import platformdirs

from lastgood.asked import DEAD, Asked
from lastgood.checkpoint.contents import Presence
from lastgood.checkpoint.logs import name_batches
from lastgood.diagnosis.findings import Finding
from lastgood.diagnosis.rules_left import make_first_start_unproven
from lastgood.diagnosis.rules_lost import find_way_back
from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.journal.room import (
    PlanNotOfThisPlaceError,
    RecoveryStage,
    Room,
    find_latest_stage,
    find_open_recovery,
    locate_recoveries,
)
from lastgood.ladder.rungs import Rung, choose_rungs
from lastgood.observe.evidence import make_asked_at_location
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import CheckpointMissingError, OpenQuery, read_clock_ms
from lastgood.observe.positions import StartChoice
from lastgood.observe.rereading import WindowChoice
from lastgood.observe.survey import add_wanted, survey
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan, PlanInvalidError
from lastgood.planning.price import Guarantee, Waiver
from lastgood.query.lost import KnownElsewhere, find_known_elsewhere
from lastgood.query.prediction.restart import Outcome
from lastgood.recovery.applying import Owner, Recovery, WaiverNeededError, apply_plan, find_driver_check, undo
from lastgood.recovery.attempts import Attempts
from lastgood.recovery.climb import ASKED_FOR, FRESH, Climbed, choose_goal, choose_windows, climb, decide_if_possible
from lastgood.recovery.decision import Decision, Verdict
from lastgood.recovery.driver_death import DriverNotProvenDeadError, list_words_needed, prove_driver_dead
from lastgood.recovery.engine import PlanStaleError
from lastgood.recovery.going_back import has_passed
from lastgood.recovery.outage import decide_after_outage, find_outage
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.recovery.rebuilding import Rebuilding
from lastgood.recovery.start_file import StartFileNotNamedError
from lastgood.recovery.topic_notes import note_before_first_start, note_topics
from lastgood.recovery.warrant import (
    FileNotNamedError,
    Named,
    PlanNotAllowedError,
    SinkNotNamedError,
    warrant_out_of_lake,
)
from lastgood.recovery.whereabouts import note_made
from lastgood.settings.policy import Policy
from lastgood.settings.target import Target, require_known
from lastgood.signing import SignatureMissingError, SignatureWrongError
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.kinds import find_traits
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.rights import make_private, open_privately
from lastgood.storage.writing import open_writable

Tell = Callable[[str], None]


_RESUME = "resume"
_STANDS = "reposition"
_FOR_A_PERSON = (
    StartFileNotNamedError,
    SinkNotNamedError,
    FileNotNamedError,
    PlanNotAllowedError,
    PlanNotOfThisPlaceError,
    DriverNotProvenDeadError,
)
"""Why what was found in the lake is not done without a person."""


def decide(  # noqa: PLR0913 - all but the first two by name
    target: Target,
    options: PlanOptions | None = None,
    *,
    observe: bool = False,
    driver_is_dead: bool = False,
    save_to: Path | None = None,
    tell: Tell = lambda _: None,
    owner: Owner | None = None,
    lost: StartChoice | None = None,
    first_start: bool = False,
    go_on: bool = False,
    rebuilder: Rebuilding | None = None,
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
        owner: Who calls, if it is the supervisor of the application itself.
        lost: Where to start if the checkpoint is lost, and a sink holds batches; None: as `lastgood.toml` tells, else
            where a mirror or the sink's mark say.
        first_start: Whether a person says that the query has never run: then nobody is warned where nobody can tell.
        go_on: A person has looked: what has failed before counts no more, nor how long the query was down.
        rebuilder: Makes state anew that is lost, where nothing else is exact; None: nobody does without being asked.

    Raises:
        LastgoodError: nobody can tell what is the matter: an option is not understood, the storage forbids to look, the
            checkpoint was changed under the seal (subclasses). What may be otherwise in a while is a `Decision`.
    """
    options = _add_allowed(target, options or PlanOptions())
    work = _Work(target, options, observe, driver_is_dead, save_to, tell, owner, lost, first_start, rebuilder)
    is_counted = owner is None and options.goal == _RESUME
    if go_on and not is_counted:
        raise UsageError(
            "another goal is a person's own word already", subject="--go-on", found=f"--goal {options.goal}"
        )
    return work.climb(read_clock_ms(), go_on=go_on) if is_counted else work.decide()


@dataclass(frozen=True, slots=True)
class _Work:
    """One recovery, and how to go about it."""

    target: Target
    options: PlanOptions
    observe: bool
    driver_is_dead: bool
    save_to: Path | None
    tell: Tell
    owner: Owner | None = None
    lost: StartChoice | None = None
    first_start: bool = False
    rebuilder: Rebuilding | None = None

    def climb(self, began_at_ms: int, *, go_on: bool) -> Decision:
        """What the ladder comes to, by how often the same batch has failed; kept for the next call."""
        policy = self.target.policy
        attempts = Attempts.found(
            target=self.target,
            location=self.target.location,
            policy=policy,
            evidence=self.options.evidence,
            began_ms=began_at_ms,
            tell=self.tell,
        )
        if go_on:
            attempts = attempts.forget_failures(is_for_good=not self.observe)
        try:
            outage = None if go_on else find_outage(attempts.location, policy, now_ms=began_at_ms, tell=self.tell)
        except LastgoodError as error:
            return self.decide_on_error(error)
        if outage is None:
            found = self._climb(attempts, policy)
        else:
            found = Climbed(Rung.RESUME, decide_after_outage(outage, self._towards, self._again("--go-on")))
        decision = replace(found.decision, failed=attempts.failed)
        if outage is None and attempts.gives_up and not (decision.changes and found.rung is not Rung.RESUME):
            decision = self._given_up(decision, found.waiting, attempts)
        elif found.waiting is not None:
            command = found.waiting.way_on(self.target.config)
            way_on = "" if command is None else f"; {command}"
            self.tell(f"more could be done than a restart: {found.waiting.because}{way_on}")
        if not self.observe:
            attempts.keep(decision, found.rung)
        return decision

    def _climb(self, attempts: Attempts, policy: Policy) -> Climbed:
        # What was tried often enough is not done once more; only what a person has to decide on is looked for.
        first = replace(self, observe=self.observe or attempts.gives_up).decide()

        def decide(rung: Rung) -> Decision | None:
            goal, where = choose_goal(rung, policy.stable_lag, policy.via, first)

            def towards() -> Decision | None:
                if rung is Rung.STABLE and not has_passed(self.target):
                    return None
                return self._towards(goal, where, choose_windows(goal, policy))

            return decide_if_possible(towards, is_asked_for=goal in ASKED_FOR)

        return climb(choose_rungs(policy, attempts.standing), attempts.tried, decide, first, via=policy.via)

    def _towards(self, goal: str, where: StartChoice, windows: WindowChoice | None = None) -> Decision:
        """The same with another goal."""
        windows = windows or WindowChoice()
        options = _add_allowed(self.target, replace(self.options, goal=goal, where=where, windows=windows))
        return replace(self, options=options).decide()

    def _given_up(self, decision: Decision, waiting: Decision | None, attempts: Attempts) -> Decision:
        """It has failed too often: a person is called, with what there is to decide on."""
        if decision.verdict is not Verdict.START:
            return decision
        failed, because = attempts.failed, attempts.because
        error = attempts.exhausted(self._again("--go-on"))
        if waiting is not None:
            because = f"{because}, and {waiting.because}"
            return replace(waiting, because=because, error=waiting.error or error, failed=failed)
        file = None
        if decision.plan is not None and decision.plan.steps:
            file = self._saved(decision.plan)
        return Decision(Verdict.PERSON, because, decision.plan, file, error=error, next=error.next, failed=failed)

    def decide(self) -> Decision:
        """Finish what was interrupted; else plan, and do it."""
        try:
            return self.finish() or self.plan()
        except CheckpointMissingError as error:
            return self.start_from_nothing(error)
        except LastgoodError as error:
            return self.decide_on_error(error)

    def finish(self) -> Decision | None:
        """Finish a repair that was interrupted; None if there is none, or none any more."""
        location = self.target.location
        storage = open_storage(location)
        recovery = find_open_recovery(storage, location)
        if recovery is None:
            return None
        folder = locate_recoveries(location) / recovery
        stage = find_latest_stage(storage, folder)
        is_back = stage is not None and stage.is_back
        try:
            warrant_out_of_lake(location, recovery, self._named(), self.target.keys(), is_taken_back=is_back)
            if self.observe:
                done_first = "taken back first" if is_back else "finished"
                return Decision(Verdict.START, f"recovery {recovery}, which was interrupted, would be {done_first}")
            if is_back:
                self._take_back(recovery)
                return None
            done = self._apply(str(folder / "plan.json"))
        except PlanStaleError:
            if (
                find_latest_stage(storage, folder) is not RecoveryStage.BEGUN
            ):  # then there is more than its seal, or nothing left of it
                raise
            self._take_back(recovery)
            return None
        except _FOR_A_PERSON as error:
            return self._shown(error, location, recovery)
        because = f"recovery {recovery}, which was interrupted, is finished"
        return Decision(Verdict.START, because, done.plan, recovery=done)

    def _shown(self, error: LastgoodError, location: Location, recovery: str) -> Decision:
        """A repair that was found in the lake, for a person to look at; nothing is done.

        What it names itself is shown, and no part of the command: who pastes that would name it.
        """
        try:
            room = Room(location, recovery, open_writable(location), self.target.keys())
            plan = room.plan().said_here(str(location), ())
        except PlanInvalidError:
            plan = None
        following = error.next
        if isinstance(error, SinkNotNamedError):
            following = self._again("--sink", "LOCATION")
        if isinstance(error, FileNotNamedError):
            following = self._again(*(word for option in error.options for word in (option, "FILE")))
        if isinstance(error, DriverNotProvenDeadError):
            following = self._again(DEAD)
        because = f"recovery {recovery} was interrupted: {error.sentence}"
        return Decision(Verdict.PERSON, because, plan, error=error, next=following)

    def _named(self) -> Named:
        """What is named on this machine."""
        owner = self.owner
        return Named(self.options.evidence, (self._start_file, owner.start_file if owner else None), self.target.config)

    def _take_back(self, recovery: str) -> None:
        """Take an open recovery back, since it cannot be finished; what is right now is planned anew."""
        self.tell(f"recovery {recovery} was interrupted and cannot be finished: it is taken back")
        undo(
            recovery,
            target=self.target,
            driver_is_dead=self.driver_is_dead,
            tell=self.tell,
            owner=self.owner,
            start_file=self._start_file,
            evidence=self.options.evidence,
        )

    def plan(self) -> Decision:
        """Plan, and do it; where that is not exact, or not possible, with state that is made anew if there is who does.

        Raises:
            RepairRefusedError: nothing can be promised of anything.
        """
        if self.rebuilder is None or self.options.goal != _RESUME:
            return self._carry_out(make_plan(self.target, self.options))
        try:
            plan = make_plan(self.target, self.options)
        except RepairRefusedError as refused:
            rebuilt = self._rebuild(self.rebuilder)
            if rebuilt is None:
                raise refused from None
            return rebuilt
        rebuilt = self._rebuild(self.rebuilder, plan) if plan.needs else None
        return rebuilt or self._carry_out(plan)

    def _rebuild(self, rebuilder: Rebuilding, otherwise: Plan | None = None) -> Decision | None:
        """Have the state made anew, and bring it; None where that is no way."""
        try:
            replay = rebuilder.foresee(self.target, self.options)
        except (RepairRefusedError, WaiverNeededError):
            return None
        if self.observe:
            because = f"{name_batches(replay.batches)} would run again, without a sink, to make the state anew"
            return Decision(Verdict.START, because)
        self._require_driver_dead()
        try:
            made = rebuilder.rebuild(self.target, self.options, self.tell)
        except LastgoodError as error:
            verdict = Verdict.LATER if error.retry is Retry.LATER else Verdict.PERSON
            because = f"the state could not be made anew: {error.sentence}"
            file = None if otherwise is None else self._saved(otherwise)
            return Decision(verdict, because, otherwise, file, error=error)
        return self._carry_out(made)

    def _require_driver_dead(self) -> None:
        """See that it will be possible to bring what somebody would have waited for.

        Raises:
            DriverNotProvenDeadError: nobody knows whether the driver is dead.
        """
        owner, location = self.owner, self.target.location
        prove_driver_dead(
            str(location),
            told=self.driver_is_dead,
            check=find_driver_check(owner, location, self.target.config),
            known=None if owner is None else owner.proof,
        )

    def _carry_out(self, plan: Plan) -> Decision:
        if not plan.steps and not plan.needs:
            self._noting(lambda: note_topics(plan))
            return Decision(Verdict.START, _explain_plain(plan), plan, warning=self._warning(plan))
        if self.observe and not plan.needs:
            return Decision(Verdict.START, "the plan would be carried out", plan)
        if plan.needs:
            file = self._saved(plan)
            words = " and ".join(waiver.value for waiver in plan.needs)
            return Decision(Verdict.PERSON, f"nobody has accepted {words}", plan, file, next=self._accepting(plan))
        try:
            done = self._apply(plan)
        except LastgoodError as error:
            return replace(self.decide_on_error(error), plan=plan, file=self._saved(plan))
        return Decision(Verdict.START, "the plan was carried out", plan, recovery=done)

    def _noting(self, note: Callable[[], None]) -> None:
        """Note down that the query goes on in the topics that are there now."""
        try:
            if not self.observe:
                note()
        except LastgoodError as error:
            self.tell(f"of which topics the offsets are is not noted down: {error.sentence}")

    def start_from_nothing(self, missing: CheckpointMissingError) -> Decision:
        """There is no checkpoint, and no mirror of one: a first deployment, unless sink or ledger know better.

        Raises:
            LastgoodError: a sink does not let us look; the target may be a pipeline of another folder.
        """
        options = self.options
        found = survey(
            self.target,
            evidence=options.evidence,
            spark=options.spark,
            may_be_missing=True,
        )
        found = add_wanted(found, options.goal_words(), options.accept)
        for sink in found.seen.sinks:
            if sink.others or sink.last_batch is not None:
                return self._start_again(missing, found, sink)
        sinks = found.seen.sinks
        for sink in sinks:
            if sink.is_silent:
                because = f"nobody can tell whether this is a first start: {sink.location}, {sink.because}"
                return Decision(Verdict.LATER, because, error=missing)
        known = find_known_elsewhere(found.seen)
        if known is not None:
            return self._lost(missing, found, known)
        if self.target.config.named is None:
            require_known(self.target)
        for sink in sinks:
            if not sink.known and sink.traits.tells_batches and not self.first_start:
                return self._unproven(missing, sink)
        self._noting(lambda: note_before_first_start(found))
        absent = ", ".join(sink.location for sink in sinks if not sink.traits.is_there)
        told = "" if sinks else ", and no sink was named"
        told += f"; nothing is at {absent}" if absent else ""
        where = str(self.target.location)
        silent = [sink.location for sink in sinks if not sink.known and sink.traits.is_there]
        is_proven = self.first_start or (sinks and not silent)
        warning = None if is_proven else make_first_start_unproven(where, silent, memory=found.seen.memory)
        if warning is not None and found.seen.checkpoint.presence is Presence.EMPTY and not self._has_run_here:
            # So a disk looks that is not mounted; Spark makes the folder itself, with its first batch.
            because = f"{where} is an empty folder, and nobody can tell whether this is a first start"
            missing.expected = "the disk mounted that holds it; no folder; or --first-start, where it has never run"
            return Decision(Verdict.PERSON, because, error=missing, next=self._first_start)
        return Decision(Verdict.START, f"a first start: no batch was ever planned at {where}{told}", warning=warning)

    def _lost(self, missing: CheckpointMissingError, found: OpenQuery, known: KnownElsewhere) -> Decision:
        """The checkpoint is lost, and of those that are asked only a ledger knows of its batches."""
        because = f"there is no checkpoint, and {known.holder} knows batches {known.first} to {known.last} of it"
        missing.effect = "a start from batch 0 leaves records out, or writes them twice"
        missing.expected = "the checkpoint, or a backup of it; another folder for a query that begins anew"
        missing.next = None
        return Decision(Verdict.PERSON, because, error=missing, next=find_way_back(found.seen, known))

    def _unproven(self, missing: CheckpointMissingError, sink: SinkEvidence) -> Decision:
        """There is a table, and it does not tell whether the query has written it; nor will it later."""
        because = f"there is no checkpoint, and {sink.location} does not tell whether the query has run: {sink.because}"
        missing.effect = "if it has, a start from batch 0 leaves records out, or writes them twice"
        missing.expected = "the checkpoint, a backup of it, or --first-start, where the query has never run"
        return Decision(Verdict.PERSON, because, error=missing, next=self._first_start)

    @property
    def _first_start(self) -> str:
        """By which a person says that the query has never run."""
        return self._again("--first-start") if self.owner is None else "the same again, with --first-start"

    def _warning(self, plan: Plan) -> Finding | None:
        """What is to be said before a plain start on a checkpoint that has no batch."""
        if self.first_start or plan.promise.outcome != Outcome.STARTS.value:
            return None
        left_by = plan.options.get("left_by")
        if left_by is not None and plan.options["has_begun"] is False:
            return None
        if left_by is None and plan.guarantee is Guarantee.EXACTLY_ONCE:
            return None
        silent = [sink.location for sink in plan.sinks if find_traits(sink.kind).is_there]
        if plan.sinks and not silent:
            return None
        return make_first_start_unproven(plan.checkpoint, silent, left_by)

    def _start_again(self, missing: CheckpointMissingError, found: OpenQuery, sink: SinkEvidence) -> Decision:
        """The checkpoint is lost, and a sink holds batches: a new one is seeded from what is best known."""
        fresh = replace(self.options, goal="fresh", where=self._where_if_lost())
        missing.next = found.seen.command("plan", *fresh.goal_words())
        missing.effect = f"{sink.location} holds batches of a query: from batch 0 on they might be lost, or come twice"
        try:
            return replace(self, options=fresh).plan()
        except LastgoodError as error:
            if error.retry is Retry.LATER:
                return Decision(Verdict.LATER, error.sentence, error=error)
            missing.found = error.sentence
            told = "there is no checkpoint, and a sink holds batches of a query"
            return Decision(Verdict.PERSON, told, error=missing)

    def decide_on_error(self, error: LastgoodError) -> Decision:
        """What an error comes to: a person can mend it, or it may be otherwise in a while.

        Raises:
            LastgoodError: neither.
        """
        if isinstance(error, DriverNotProvenDeadError):
            return Decision(Verdict.PERSON, error.sentence, error=error, next=self._again(DEAD))
        if isinstance(error, SignatureMissingError | SignatureWrongError):
            return Decision(Verdict.PERSON, error.sentence, error=error)
        if isinstance(error, RepairRefusedError):
            return self._where_it_stands(error) or Decision(Verdict.PERSON, error.sentence, error=error)
        if error.retry is Retry.LATER or isinstance(error, PlanStaleError):
            return Decision(Verdict.LATER, error.sentence, error=error)
        raise error

    def _where_it_stands(self, refused: RepairRefusedError) -> Decision | None:
        """The offsets where the query stands, moved to what Kafka still serves; None if that is no way out either.

        For what was to be read next and is gone: then no way is exact, and this one loses nothing else.
        """
        is_a_way = any(each.goal == _STANDS and each.guarantee is not None for each in refused.alternatives)
        if self.options.goal != _RESUME or not is_a_way:
            return None
        try:
            stands = StartChoice(batch=find_offsets_after(self.target).batch)
            return replace(self, options=replace(self.options, goal=_STANDS, where=stands)).plan()
        except LastgoodError as error:  # of a refusal the first one says more
            return Decision(Verdict.LATER, error.sentence, error=error) if error.retry is Retry.LATER else None

    def _accepting(self, plan: Plan) -> str:
        """The command that accepts the price and carries the plan out: so it says of the driver what a plan needs."""
        pipeline = self.target.pipeline
        is_checked = pipeline is not None and bool(pipeline.driver_check)
        dead = () if is_checked else list_words_needed(plan.checkpoint, self.target.config, plan)
        return self._again("--accept", plan.price, *dead)

    def _again(self, *words: str) -> str:
        """The command of the same recovery, with more said."""
        options = self.options
        accepted = tuple(waiver.value for waiver in options.accept)
        policy = self.target.config.named
        asked = Asked(self.target.typed, options.evidence.words())
        if policy is None:
            asked = make_asked_at_location(self.target, options.evidence)
        asked = replace(asked, start=options.start_words(), accepted=accepted, policy=policy)
        dead = [DEAD] if self.driver_is_dead and DEAD not in words else []
        output = [] if self.save_to is None else ["--output", str(self.save_to)]
        return asked.command("recover", *options.goal_words(), *words, *dead, *output)

    def _apply(self, planned: str | Plan) -> Recovery:
        return apply_plan(
            planned,
            driver_is_dead=self.driver_is_dead,
            tell=self.tell,
            target=self.target,
            owner=self.owner,
            start_file=self._start_file,
            evidence=self.options.evidence,
        )

    @property
    def _has_run_here(self) -> bool:
        """Whether our supervisor has started the application before, so that the folder may be its own."""
        return self.owner is not None and self.owner.proof is not None

    @property
    def _start_file(self) -> str | None:
        """The file that the caller lets a recovery write."""
        return None if self.options.via is None else self.options.via.location

    def _saved(self, plan: Plan) -> Path | None:
        """Where a person finds the plan; None if this machine has no room for it."""
        file = platformdirs.user_state_path("lastgood") / "plans" / f"plan-{plan.recovery}.json"
        path = self.save_to or file
        try:
            make_private(path.parent)
            with open(path, "wb", opener=open_privately) as stream:
                stream.write(plan.to_bytes(self.target.keys()))
        except OSError as error:
            if self.save_to is not None:
                raise UsageError("the plan cannot be saved", subject=str(path), found=error.strerror) from error
            self.tell(f"the plan is not saved: {path}: {error.strerror}")
            return None
        note_made(plan)
        return path

    def _where_if_lost(self) -> StartChoice:
        if self.lost is not None or self.options.where.is_chosen:
            return self.lost or self.options.where
        pipeline = self.target.pipeline
        identity = self.target.location.identity
        for query in () if pipeline is None else pipeline.queries:
            if query.offset_columns is not None and parse_location(query.checkpoint).identity == identity:
                return StartChoice(offset_columns=query.offset_columns)
        return StartChoice()


def _explain_plain(plan: Plan) -> str:
    left_by = plan.options.get("left_by")
    if left_by is None:
        return f"Spark's own restart does it: {plan.promise.because}"
    return f"recovery {left_by} left the checkpoint behind on purpose, and the application is told where it begins"


def _add_allowed(target: Target, options: PlanOptions) -> PlanOptions:
    """With what the policy of the target's pipeline accepts, and how it starts a query afresh."""
    pipeline = target.pipeline
    if pipeline is None:
        return options
    policy = pipeline.policy
    accepted = tuple(map(Waiver, policy.accept))
    options = replace(options, accept=tuple(dict.fromkeys((*options.accept, *accepted))))
    if options.goal == FRESH and options.via is None and policy.via is not None:
        return replace(options, via=policy.via, takes_any_number=policy.takes_any_number)
    return options
