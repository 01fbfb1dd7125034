"""What `run` does about its queries before each start: diagnose, plan, and carry out what the policy allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from lastgood.asked import Asked
from lastgood.errors import LastgoodError, format_command_line
from lastgood.failures.ending import Cause
from lastgood.failures.failure_class import FailureClass
from lastgood.frozen import dataclass
from lastgood.journal.incident import ComingBack
from lastgood.ladder.rungs import CommandStanding, Rung, choose_rungs
from lastgood.observe.evidence import EvidenceOptions, make_asked_at_location
from lastgood.observe.exposure import has_unread
from lastgood.observe.open_query import read_clock_ms
from lastgood.observe.positions import StartChoice
from lastgood.observe.retention import ask_retention
from lastgood.planning.plan import Plan
from lastgood.planning.price import Waiver
from lastgood.recovery.applying import Owner
from lastgood.recovery.attempts import Attempts, find_newest_read
from lastgood.recovery.climb import ASKED_FOR, FRESH, Climbed, choose_goal, choose_windows, climb, decide_if_possible
from lastgood.recovery.deciding import decide
from lastgood.recovery.decision import Decision, Verdict
from lastgood.recovery.going_back import has_passed
from lastgood.recovery.outage import Outage, decide_after_outage, find_outage
from lastgood.recovery.plans import PlanOptions
from lastgood.redaction import describe_left_out_password, hide_login
from lastgood.settings.config import Pipeline
from lastgood.settings.policy import START
from lastgood.settings.target import Target
from lastgood.spark.kept_code import NOTHING_KEPT, note_code, read_kept
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise.agents import Agents
from lastgood.supervise.care import PersonNeededError, Wait
from lastgood.supervise.events import Diagnosed, Ended, Event, Noticed, Repaired, Repairing
from lastgood.supervise.rebuilding import Rebuilder
from lastgood.supervise.run_attempts import RunAttempts
from lastgood.supervise.silent_driver import ToldToStopError
from lastgood.supervise.story import Story
from lastgood.supervise.topic_watch import TopicWatch

_STANDS = "the command is not started"
_STANDS_HERE = "the query is not started; end this session before anything is changed: it may still write state"


@dataclass(slots=True)
class _Query:
    """A query, and what was tried for it since it last made progress."""

    target: Target
    evidence: EvidenceOptions
    story: Story
    topics: TopicWatch
    attempts: RunAttempts
    before: Attempts | None = None
    """What was kept of it when this run began, until it is started."""
    tried: set[Rung] = field(default_factory=set)
    repaired_at: CommandStanding | None = None
    """How it stood when it was repaired last: until it has been started, nothing more is tried."""
    waiting: Decision | None = None
    """The cheapest plan that nobody has accepted."""
    plan: Plan | None = None
    """By which it was started last."""
    is_warned: bool = False
    """Whether it was said that nobody can tell whether this is its first start."""


class Healer:
    """Makes the queries of one pipeline ready to start; belongs to the supervisor's thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        targets: Mapping[Location, Target],
        *,
        tell: Callable[[Event], None],
        first_start: bool = False,
        go_on: bool = False,
    ) -> None:
        """Prepare.

        Args:
            pipeline: What may be done, and how the driver is known to be dead.
            targets: Its queries.
            tell: Gets each event.
            first_start: Whether a person says that they have never run.
            go_on: A person has looked: however long the queries were down, they are started as they stand.
        """
        self._first_start = first_start
        self._pipeline = pipeline
        self._go_on = go_on
        self._running_ms: int | None = None
        """When the command was last seen running."""
        self._tell = tell
        self.agents: Agents | None = None
        """In the drivers of the command; None without one."""
        self.rebuilder: Rebuilder | None = None
        """Makes state anew that is lost; None: nobody does without being asked."""
        self._queries: dict[str, _Query] = {}
        self._asking: list[threading.Thread] = []
        self._remembered: dict[str, CommandStanding] = {}
        """What nobody has asked for yet."""
        for location, target in targets.items():
            self.add(location, target)

    def add(self, location: Location, target: Target) -> None:
        """Look after a query as well."""
        evidence = EvidenceOptions().of(target)
        story = Story(location, evidence, self._pipeline, tell=self._tell, rows_of=self._rows_of)
        if target.max_downtime_ms is not None:  # no start waits for it
            asking = threading.Thread(target=self._tell_retention, args=(location, target), daemon=True)
            self._asking.append(asking)
            asking.start()
        topics = TopicWatch(location, evidence, tell=self._tell)
        attempts = RunAttempts(location, evidence, self._pipeline, self._uncounted)
        self._queries[str(location)] = _Query(target, evidence, story, topics, attempts)

    def adopt(self, location: Location, target: Target) -> None:
        """Look after a query as well of which nobody knew before the command was started.

        What others have seen of it counts from here on as if it had been known: else the failure of this start would be
        the first, and be written over all those before it.
        """
        self.add(location, target)
        query = self._queries[str(location)]
        standing = self._recall(str(location), query).standing
        query.before = None
        query.attempts.note_start(standing, query.tried)

    def before_start(self, standing: CommandStanding) -> Wait | None:
        """See `Care`."""
        stands = {}
        for checkpoint, query in self._queries.items():
            stands[checkpoint] = own = self._stands(checkpoint, query, standing)
            query.waiting = None
            try:
                wait = self._heal(checkpoint, query, own)
            except ToldToStopError:
                wait = Wait("the supervisor is told to stop")
            if wait is not None:
                return wait
            query.topics.begin()
        for checkpoint, query in self._queries.items():
            query.before = None
            query.attempts.note_start(stands[checkpoint], query.tried)
        self._put_kept()
        return None

    def _put_kept(self) -> None:
        """Have the guard in the drivers hold their code against the checkpoints."""
        if self.agents is None:
            return
        kept = {}
        try:
            kept = {checkpoint: self._read_kept(checkpoint) for checkpoint in self._queries}
        except LastgoodError as error:
            self._tell_not_compared(error.sentence)
        try:
            self.agents.put_kept(kept)  # also if it is empty: what was told before an earlier start is so no more
        except OSError as error:
            self._tell_not_compared(str(error))

    def _tell_not_compared(self, because: str) -> None:
        sentence = f"the code is not held against its checkpoint: {because}"
        self._tell(Noticed(at=time.time(), condition="CODE_NOT_COMPARED", sentence=sentence))

    def _read_kept(self, checkpoint: str) -> dict[str, Any]:
        if self._pipeline.policy.on_code_change == START:
            return NOTHING_KEPT
        location = parse_location(checkpoint)
        return read_kept(open_storage(location), location)

    def _stands(self, checkpoint: str, query: _Query, standing: CommandStanding) -> CommandStanding:
        """How one query stands; before the first start: as those who started it before have left it."""
        if standing.cause is not None:
            own = standing.of(checkpoint)
            if own.failures <= 1 and own is standing:
                query.tried.clear()
            return own
        return (query.before or self._recall(checkpoint, query)).standing

    def _recall(self, checkpoint: str, query: _Query) -> Attempts:
        """What was kept of a query before this run began."""
        query.before = found = query.attempts.find(go_on=self._go_on)
        self._remembered[checkpoint] = found.standing
        query.tried.update(found.tried)
        return found

    def recall_standings(self) -> Mapping[str, CommandStanding]:
        """See `Care`."""
        found, self._remembered = self._remembered, {}
        return found

    def may_start_beside(self, ended: Ended, cause: Cause) -> bool:
        """See `supervise.session_restarts.BesideCare`."""
        checkpoint = cause.checkpoint
        query = None if checkpoint is None else self._queries.get(checkpoint)
        if checkpoint is None or query is None:
            return False
        began = time.monotonic()
        try:
            decision = self._recover(
                checkpoint, query, Rung.RESUME.value, StartChoice(), observe=True, is_driver_alive=True
            )
        except LastgoodError:  # whoever starts the whole command meets it again, and says it
            return False
        # Without a plan it is started on something else than what stands there: an open repair, state that is lost.
        if decision.verdict is not Verdict.START or decision.plan is None or decision.changes:
            return False
        seconds = time.monotonic() - began
        query.plan = decision.plan
        query.story.note_failure(ended, cause, ended.positions.get(checkpoint, {}))
        query.story.note_restart(decision.because, query.plan, seconds)
        query.topics.begin()
        self._tell(_make_diagnosed(checkpoint, decision, seconds))
        return True

    def note_end(self, standing: CommandStanding | None, *, is_done: bool = False) -> None:
        """See `Care`."""
        for checkpoint, query in self._queries.items():
            is_own = standing is not None and standing.of(checkpoint) is standing
            query.attempts.note_end(standing if is_own else None, is_done=is_done)

    def has_read(self, checkpoint: str, since: int | None, committed: int) -> bool:
        """See `Care`."""
        if since is None:
            return True
        location = parse_location(checkpoint)
        try:
            newest = find_newest_read(open_storage(location), location, committed)
        except LastgoodError:  # it is committed, and that is all that anybody knows
            return True
        return newest is None or newest > since

    def note_failure(self, ended: Ended, cause: Cause) -> None:
        """See `Care`."""
        self._running_ms = int(ended.at * 1000)
        for checkpoint, query in self._queries.items():
            query.story.note_failure(ended, cause, ended.positions.get(checkpoint, {}))

    def note_first_batch(self, checkpoint: str, batch: int, *, rerun: bool, back: ComingBack) -> None:
        """See `Care`."""
        query = self._queries.get(checkpoint)
        if query is None:
            return
        if self.agents is not None:
            back = replace(back, query_at_ms=self.agents.find_query_start_ms(checkpoint))
        query.story.note_first_batch(batch, query.plan, rerun=rerun, back=back)
        code = None if self.agents is None else self.agents.code_of(checkpoint)
        if code is not None:
            self._note_code(checkpoint, code)

    def _note_code(self, checkpoint: str, code: Mapping[str, Any]) -> None:
        """From now on the state is of this code."""
        location = parse_location(checkpoint)
        try:
            note_code(open_writable(location), location, code, now_ms=read_clock_ms())
        except LastgoodError as error:
            sentence = f"the code of {checkpoint} is not noted down beside it: {error.sentence}"
            self._tell(Noticed(at=time.time(), condition="CODE_NOT_NOTED", sentence=sentence))

    def is_ahead(self, checkpoint: str) -> bool:
        """See `Care`: as Kafka tells; what nobody can tell is no."""
        query = self._queries.get(checkpoint)
        if query is None or query.evidence.kafka is None:
            return False
        try:
            return has_unread(self._at(checkpoint), query.evidence)
        except LastgoodError:  # what cannot be looked at is the business of whoever starts next
            return False

    def find_strayed(self, checkpoint: str) -> Cause | None:
        """See `Care`."""
        query = self._queries.get(checkpoint)
        line = None if query is None else query.topics.strayed
        if line is None:
            return None
        return Cause(FailureClass.SOURCE_RECREATED, line=line)

    def find_last_resort(self) -> PersonNeededError | None:
        """See `Care`."""
        found = None
        for checkpoint, query in self._queries.items():
            query.story.note_giving_up("nothing else is left to try", query.waiting)
            if query.waiting is not None and found is None:
                found = _make_person_needed_error(self._pipeline, self._at(checkpoint), query.evidence, query.waiting)
        return found

    def close(self) -> None:
        """Finish what is still being asked and written down."""
        for asking in self._asking:
            asking.join()
        for query in self._queries.values():
            query.topics.close()
            query.story.close()

    def _tell_retention(self, location: Location, target: Target) -> None:
        found = ask_retention(target)
        for each in found.warnings:
            sentence = f"{each.effect} {each.next}"
            self._tell(Noticed(at=time.time(), condition=each.condition.name, sentence=sentence))
        if found.unknown is not None:
            sentence = (
                f"whether Kafka keeps what {location} has not read for max_downtime is not known: {found.unknown}"
            )
            self._tell(Noticed(at=time.time(), condition="RETENTION_UNKNOWN", sentence=sentence))

    def _rows_of(self, location: Location, batch: int) -> int | None:
        if self.agents is None:
            return None
        return self.agents.rows_of(location, batch)

    def _heal(self, checkpoint: str, query: _Query, standing: CommandStanding) -> Wait | None:
        """Do what helps; None: start."""
        began = time.monotonic()
        way_out = (Rung.RESUME,) if standing is query.repaired_at else choose_rungs(self._pipeline.policy, standing)
        outage = self._outage(checkpoint)
        # Where no batch is planned it is most likely the application. It may be another one by now, and gets one start.
        gives_up = query.before is not None and query.before.gives_up and query.before.orphan is not None
        if outage is None:
            # What was tried often enough is not done once more; only what a person has to decide on is looked for.
            first = self._recover(checkpoint, query, Rung.RESUME.value, StartChoice(), observe=gives_up)
            climbed = climb(
                way_out,
                query.tried,
                lambda rung: self._decide(checkpoint, query, rung, first),
                first,
                via=query.target.via,
            )
        else:
            decided = decide_after_outage(
                outage,
                lambda goal, where: self._recover(checkpoint, query, goal, where),
                self._go_on_command(checkpoint, query),
            )
            climbed = Climbed(Rung.RESUME, decided)
        decision, seconds = climbed.decision, time.monotonic() - began
        query.waiting = climbed.waiting
        is_more = decision.changes and climbed.rung is not Rung.RESUME
        if (
            query.before is not None
            and gives_up
            and outage is None
            and decision.verdict is Verdict.START
            and not is_more
        ):
            raise self._given_up(checkpoint, query, query.before)
        if decision.verdict is Verdict.LATER:
            return Wait(decision.because)
        if decision.verdict is Verdict.PERSON:
            query.story.note_decision(decision, seconds)
            raise _make_person_needed_error(self._pipeline, self._at(checkpoint), query.evidence, decision)
        if decision.recovery is not None:
            if climbed.rung is not Rung.RESUME:
                query.tried.add(climbed.rung)
            query.repaired_at = standing
            self._repaired(checkpoint, query, decision, seconds)
            return None
        query.plan = decision.plan
        query.story.note_restart(decision.because, query.plan, seconds)
        if decision.warning is not None and not query.is_warned:
            query.is_warned = True
            warning = decision.warning
            sentence = f"{warning.effect} {self._describe_first_start()}"
            self._tell(Noticed(at=time.time(), condition=warning.condition.name, sentence=sentence))
        self._tell(_make_diagnosed(checkpoint, decision, seconds))
        return None

    def _describe_first_start(self) -> str:
        """What a person can say where nobody can tell whether a query has ever run."""
        if not self._pipeline.command:
            return "Name what can tell (sink=…), or say first_start=True."
        named = "sink in lastgood.toml" if self._pipeline.is_configured else "--sink"
        return f"Name what can tell ({named}), or say --first-start."

    def _given_up(self, checkpoint: str, query: _Query, before: Attempts) -> LastgoodError:
        """It has failed too often before this run began: a person is called, with what there is to decide on."""
        query.story.note_giving_up(before.because, query.waiting)
        if query.waiting is None:
            return before.exhausted(self._go_on_command(checkpoint, query))
        return _make_person_needed_error(
            self._pipeline,
            self._at(checkpoint),
            query.evidence,
            replace(query.waiting, because=f"{before.because}, and {query.waiting.because}"),
        )

    def _go_on_command(self, checkpoint: str, query: _Query) -> str:
        """By which a person who has looked starts the query as it stands."""
        if not self._pipeline.is_configured:  # a command that was named on the command line has no other name
            return make_asked_at_location(self._at(checkpoint), query.evidence).command("recover", "--go-on")
        named = self._pipeline.config.named
        return format_command_line(
            "run", self._pipeline.name, "--go-on", *(() if named is None else ("--config", named))
        )

    def _outage(self, checkpoint: str) -> Outage | None:
        if self._go_on:
            return None
        location, running_ms = parse_location(checkpoint), self._running_ms
        return find_outage(
            location, self._pipeline.policy, now_ms=read_clock_ms(), running_ms=running_ms, tell=self._notice
        )

    def _notice(self, sentence: str) -> None:
        self._tell(Noticed(at=time.time(), condition="OUTAGE_UNKNOWN", sentence=sentence))

    def _uncounted(self, sentence: str) -> None:
        self._tell(Noticed(at=time.time(), condition="ATTEMPTS_UNKNOWN", sentence=sentence))

    def _decide(self, checkpoint: str, query: _Query, rung: Rung, first: Decision) -> Decision | None:
        """What a rung beyond the last good batch comes to; None if it cannot be gone here."""
        goal, where = choose_goal(rung, self._pipeline.policy.stable_lag, query.target.via, first)

        def towards() -> Decision | None:
            if rung is Rung.STABLE and not has_passed(self._at(checkpoint)):
                return None
            return self._recover(checkpoint, query, goal, where)

        return decide_if_possible(towards, is_asked_for=goal in ASKED_FOR)

    def _recover(
        self,
        checkpoint: str,
        query: _Query,
        goal: str,
        where: StartChoice,
        *,
        observe: bool = False,
        is_driver_alive: bool = False,
    ) -> Decision:
        policy, via = self._pipeline.policy, query.target.via
        waivers, windows = tuple(map(Waiver, policy.accept)), choose_windows(goal, policy)
        options = PlanOptions(goal, where, query.evidence, waivers, windows=windows, named=via)
        if goal == FRESH:
            options = replace(options, via=via, takes_any_number=policy.takes_any_number)
        proof = None if self.agents is None or is_driver_alive else self.agents.death
        owner = Owner(proof, self._pipeline.driver_check, None if via is None else via.location)
        columns = query.target.offset_columns
        lost = None
        if columns is not None:
            lost = StartChoice(offset_columns=columns)
        return decide(
            self._at(checkpoint),
            options,
            observe=observe,
            owner=owner,
            lost=lost,
            first_start=self._first_start,
            tell=lambda doing: self._tell(Repairing(at=time.time(), checkpoint=checkpoint, doing=doing)),
            rebuilder=self.rebuilder,
        )

    def _at(self, checkpoint: str) -> Target:
        """A query by its location alone: what is known beside it goes with what is asked."""
        return Target(checkpoint, config=self._pipeline.config)

    def _repaired(self, checkpoint: str, query: _Query, decision: Decision, seconds: float) -> None:
        done = decision.recovery
        assert done is not None
        query.plan = done.plan
        query.story.note_decision(decision, seconds)
        self._tell(
            Repaired(
                at=time.time(),
                checkpoint=checkpoint,
                recovery=done.id,
                goal=done.plan.goal,
                guarantee=done.plan.guarantee.value,
                because=done.plan.summary,
                price=[line for source in done.plan.sources for line in source.lines],
                backup=done.backup,
                undo=done.undo_command,
                seconds=round(seconds, 3),
            )
        )


def _make_person_needed_error(
    pipeline: Pipeline, target: Target, evidence: EvidenceOptions, decision: Decision
) -> PersonNeededError:
    asked, error = make_asked_at_location(target, evidence), decision.error
    found = error.found if error is not None else None
    expected = error.expected if error is not None else None
    otherwise = error.next if error is not None else None
    needed = PersonNeededError(
        f"a person is needed: {decision.because}",
        subject=target.checkpoint,
        found=found,
        expected=expected,
        effect="; ".join((_STANDS if pipeline.command else _STANDS_HERE, *_describe_passwords(asked, evidence))),
        next=decision.next or otherwise or asked.command("diagnose"),
    )
    if decision.file is None:
        needed.file = None
    else:
        needed.file = str(decision.file)
    return needed


def _make_diagnosed(checkpoint: str, decision: Decision, seconds: float) -> Diagnosed:
    """That a query can be started as it stands, with what that rests on."""
    guarantee, rests_on = None, []
    if decision.plan is not None:
        guarantee, rests_on = decision.plan.guarantee.value, list(decision.plan.rests_on)
    return Diagnosed(
        at=time.time(),
        checkpoint=checkpoint,
        because=decision.because,
        guarantee=guarantee,
        rests_on=rests_on,
        seconds=round(seconds, 3),
    )


def _describe_passwords(asked: Asked, evidence: EvidenceOptions) -> list[str]:
    """How the commands about a query get at sinks that they name without a password."""
    named = [sink for sink in evidence.sinks if hide_login(sink) in asked.evidence]
    return [told for told in map(describe_left_out_password, named) if told is not None]
