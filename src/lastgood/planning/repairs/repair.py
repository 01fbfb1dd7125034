"""A repair in the making: which files change, what that rests on, and where the query would stand then. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.layout import (
    COMMITS,
    METADATA,
    OFFSETS,
    SOURCES,
    parse_batch,
    parse_state_version,
)
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import SourceOffset
from lastgood.checkpoint.state import State
from lastgood.diagnosis.records import find_against_exactly_once, is_only_twice
from lastgood.diagnosis.rules_kafka_broker import list_suspicions
from lastgood.diagnosis.rules_state import STALE_STATE_SNAPSHOT, STATE_LEFT_OVER
from lastgood.diagnosis.sink_conditions import SINK_BEHIND, SINK_ROLLED_BACK
from lastgood.frozen import dataclass
from lastgood.planning.draft import Draft, Edit, RepairRefusedError
from lastgood.planning.log_edits import add_checksum_edits, apply_edits, list_names_in
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import choose_weakest, judge_unasked
from lastgood.planning.standing import Standing, see_as, take_back_evidence
from lastgood.planning.steps import BringStep, MoveStep, StateStep
from lastgood.query.lost import MIRROR
from lastgood.query.observation import Observation, RepairFacts
from lastgood.query.prediction.skipping import may_be_skipped
from lastgood.query.prediction.source_replay import list_unasked_sources
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.stale_snapshots import find_stale_snapshots
from lastgood.sources.kafka.ranges import select_only_in
from lastgood.steps.step import SinkEdit

THIS = "this recovery"


@dataclass(frozen=True, slots=True)
class Renewal:
    """The state is made anew: without a row, so that a batch fills it again, or as it was."""

    steps: tuple[StateStep | BringStep, ...]
    moves: tuple[MoveStep, ...]
    """What of it is set aside."""
    state: State
    """As it is then."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that is put right."""

    edits: tuple[Edit, ...]
    word: Guarantee = Guarantee.EXACTLY_ONCE
    rests_on: tuple[str, ...] = ()
    prices: tuple[SourcePrice, ...] = ()
    keeps_state: bool = False
    """Whether it may be done to a query with state, since the logs tell afterwards what they told before."""
    sinks: tuple[SinkEdit, ...] = ()
    drops: bool = False
    """Whether a batch is taken back: state that was made beyond the newest commit is set aside."""
    renewal: Renewal | None = None
    """Whether the state is made anew, and how: then it fits whatever the logs say."""

    @property
    def fits_state(self) -> bool:
        """Whether the state still goes with the logs afterwards, if the query keeps any."""
        return self.keeps_state or self.drops or self.renewal is not None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be said of the first start after all repairs."""

    word: Guarantee
    rests_on: tuple[str, ...] = ()
    prices: tuple[SourcePrice, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """A query under repair. Begin with `Work.begin`."""

    standing: Standing
    """As it would stand now."""
    began: Standing
    """As it stood."""
    repairs: tuple[Repair, ...] = ()
    mirror: Mapping[str, bytes] = field(default_factory=dict)
    """What the mirror holds of this very query."""

    @classmethod
    def begin(cls, observed: Observation, spark: SparkVersion) -> Work:
        """Nothing is changed yet.

        Raises:
            RepairRefusedError: the query writes its logs in a way that is not repaired.
        """
        standing, facts = Standing.of(observed, spark), observed.repair
        require_micro_batch(standing)
        is_own = facts.mirrored_id is not None and standing.query_id in (None, facts.mirrored_id)
        return cls(standing, standing, mirror=facts.mirror if is_own else {})

    @property
    def spark(self) -> SparkVersion:
        """The version that will run it."""
        return self.began.spark

    @property
    def facts(self) -> RepairFacts:
        """What is known of its files."""
        return self.began.observed.repair

    def with_repair(self, repair: Repair, observed: Observation | None = None) -> Work:
        """The same after one more repair.

        Args:
            repair: What is put right.
            observed: What is known around the checkpoint, if the repair sheds another light on it.

        Raises:
            RepairRefusedError: the query keeps state, which the repair would not fit.
        """
        before = observed or self.standing.observed
        if before.is_stateful and not repair.fits_state:
            raise refuse(
                self.standing,
                "the query keeps state, which would not fit logs that are changed by hand",
                found=f"{repair.edits[0].path}: {repair.edits[0].why}" if repair.edits else None,
                expected="a plan that is dropped, or files that the mirror holds",
                next=self.standing.observed.command("backup list"),
            )
        sinks = tuple(take_back_evidence(sink, repair.sinks) for sink in before.sinks)
        edits = add_checksum_edits(repair.edits, self.facts.checksums)
        changed = (edit for edit in edits if not self._is_idle(edit))  # else what it tells of its batch is as it was
        # The mirror's copy of a plan tells by its time what the plan told that is lost.
        made = (edit for edit in changed if edit.after is None or edit.after != self.mirror.get(edit.path))
        rewritten = {number: THIS for edit in made if (number := parse_batch(edit.path, OFFSETS)) is not None}
        checkpoint = apply_edits(before.checkpoint, edits)
        unsound = before.unsound
        if repair.renewal is not None:
            checkpoint = replace(checkpoint, state=repair.renewal.state)
            unsound = {}  # the next batch loads nothing of what was there
        after = replace(
            before,
            checkpoint=checkpoint,
            sinks=sinks,
            unsound=unsound,
            rewritten={**before.rewritten, **rewritten},
        )
        if self.standing.query_id is None:
            found = after.checkpoint.query
            if found is not None:
                after = _see_as_restored(after)
        moved = (*self.standing.moved, *(edit.location for edit in repair.sinks))
        standing = Standing.of(after, self.spark, moved)
        require_micro_batch(standing)
        return replace(self, standing=standing, repairs=(*self.repairs, repair))

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What all repairs change, each file once, without what changes nothing."""
        found: dict[str, Edit] = {}
        for repair in self.repairs:
            for edit in repair.edits:
                found.pop(edit.path, None)
                found[edit.path] = edit
        changed = tuple(edit for edit in found.values() if not self._is_idle(edit))
        return add_checksum_edits(changed, self.facts.checksums)

    def draft(self, outlook: Outlook) -> Draft:
        """The answer."""
        edits, moves = self.edits, self._moves()
        touched = {edit.path for edit in edits}
        is_plain = self._is_plain() and not moves
        sources = list_unasked_sources(self.standing.observed, find_beginnings_by_mirror(self.facts.mirror))
        is_same = is_plain or all(repair.keeps_state for repair in self.repairs)
        words = (*(repair.word for repair in self.repairs), outlook.word, judge_unasked(sources, is_same=is_same))
        grounds = (line for repair in self.repairs for line in repair.rests_on)
        lines = (*grounds, *self._list_taken_for_own(outlook), *outlook.rests_on)
        lines = (*lines, *self.began.list_unmarked(), *self.began.written_elsewhere())
        lines = (*lines, *self.began.list_heads_untold(), *(each.ground for each in sources))
        doubt = self.began.observed.state_in_doubt
        if doubt is not None:
            words = (*words, self._judge_doubt())
            lines = (*lines, f"the assumption that the query keeps no state, though {doubt}")
        prices = [repair.prices for repair in self.repairs if repair.prices]
        asked = outlook.prices or (prices[-1] if prices else ())
        # No word is better than the price that is named beside it.
        guarantee, against = self._held_against_findings(
            choose_weakest((*words, *(price.guarantee for price in asked))), moves
        )
        return Draft(
            edits=edits,
            guarantee=guarantee,
            rests_on=tuple(dict.fromkeys((*lines, *against))),
            moves=moves,
            renewed=tuple(step for renewal in self._renewals() for step in renewal.steps),
            sinks=tuple({edit.location: edit for repair in self.repairs for edit in repair.sinks}.values()),
            sources=asked,
            guards=tuple(path for path in self._read() if path not in touched),
            is_plain=is_plain,
        )

    def _judge_doubt(self) -> Guarantee:
        """The word where the query may have kept state: a plain restart fails without it, changed logs lose rows."""
        if all(repair.fits_state for repair in self.repairs):
            return Guarantee.AT_LEAST_ONCE
        return Guarantee.LOSSY

    def _list_taken_for_own(self, outlook: Outlook) -> Iterator[str]:
        """What was taken to be so of a plan that a repair has committed or replaced since."""
        back = {edit.location: edit.batch for repair in self.repairs for edit in repair.sinks}
        for each in self.began.sinks:
            has_gone_back = back.get(each.sink.location, self.began.planned) < self.began.planned
            if each.told_by_clocks is None or has_gone_back:
                continue
            for line in each.list_taken_for_own():
                if line not in outlook.rests_on:
                    yield line

    def _is_plain(self) -> bool:
        return not (self.edits or self._renewals() or any(repair.sinks for repair in self.repairs))

    def _held_against_findings(self, word: Guarantee, moves: tuple[MoveStep, ...]) -> tuple[Guarantee, tuple[str, ...]]:
        """The guarantee, and why it is a weaker one where `diagnose` would report a loss or a repetition then."""
        if word is Guarantee.LOSSY:
            return word, ()
        observed, restart = self.standing.observed, self.standing.restart
        if self.standing.query_id is None:  # it begins as another query, which the sinks do not know
            observed = see_as(observed, "", asked_as=self.began.query_id)
        priced = () if self._is_plain() else (SINK_ROLLED_BACK, SINK_BEHIND)  # or it is read again
        if moves:  # every file of a version that has yet to be made is set aside
            aside = {move.path for move in moves}
            is_left = any(each.path not in aside for each in find_stale_snapshots(observed.checkpoint))
            priced = (*priced, STATE_LEFT_OVER) if is_left else (*priced, STALE_STATE_SNAPSHOT, STATE_LEFT_OVER)
        against = [each for each in find_against_exactly_once(observed, restart) if each.condition not in priced]
        again = (*self._left_out_again(), *self._looked_recreated())
        if not (against or again):
            return word, ()
        is_twice = not again and all(map(is_only_twice, against))
        lines = (*again, *(f"{each.condition.name} {each.subject}: {each.effect}" for each in against))
        return Guarantee.AT_LEAST_ONCE if is_twice else Guarantee.LOSSY, lines

    def _looked_recreated(self) -> Iterator[str]:
        """Topics that looked created again before a repair has changed the plans that told it."""
        began = self.began
        if self._is_plain():
            return  # told by what is found
        for each in list_suspicions(began.observed, began.restart):
            if each.is_strong and each.costs:
                yield f"what was unread of {each.topic} may be gone: {each.answer.because}"

    def _left_out_again(self) -> tuple[str, ...]:
        """Of a plan that is dropped: what it left out, if an application that plans so again would not be stopped."""
        began, number = self.began, self.began.planned
        is_dropped = began.has_orphan and f"{OFFSETS}/{number}" in {edit.path for edit in self.edits}
        if not is_dropped or began.observed.fail_on_data_loss:
            return ()
        before, plan = began.plan(number - 1), began.plan(number)
        if before is None or plan is None:
            return ()
        missing = {
            source: select_only_in(topics, plan.topics.get(source, {})) for source, topics in before.topics.items()
        }
        return tuple(
            f"{OFFSETS}/{number} left out {', '.join(topics)} of source {source}: so will the next plan, without an"
            " error (failOnDataLoss=false)"
            for source, topics in missing.items()
            if topics
        )

    def _is_idle(self, edit: Edit) -> bool:
        """Whether the file is so already, as far as it was read."""
        checkpoint = self.began.checkpoint
        folder, _, name = edit.path.rpartition("/")
        if edit.after is None:
            listings = {COMMITS: checkpoint.commits.listing, OFFSETS: checkpoint.offsets.listing}
            listings |= {log.folder: log.listing for log in checkpoint.sources}
            is_listed = bool(folder) and not name.endswith(".compact.crc")
            return is_listed and (folder not in listings or name not in list_names_in(listings[folder]))
        entry: object = checkpoint.query if edit.path == METADATA else None
        if name.isdecimal() and folder == OFFSETS:
            entry = checkpoint.offsets.entries.get(int(name))
        if name.isdecimal() and folder == COMMITS:
            entry = checkpoint.commits.entries.get(int(name))
        return isinstance(entry, QueryMetadata | OffsetEntry | CommitEntry) and entry.raw == edit.after

    def _renewals(self) -> list[Renewal]:
        return [repair.renewal for repair in self.repairs if repair.renewal is not None]

    def _moves(self) -> tuple[MoveStep, ...]:
        renewals = self._renewals()
        if renewals:
            return renewals[-1].moves
        if not (self.standing.observed.is_stateful and any(repair.drops for repair in self.repairs)):
            return ()
        state = self.began.checkpoint.state
        if state is not None and state.operators and not self.facts.state_files:
            raise refuse(
                self.began, "the files of the state were not listed", expected="a list of what lies below state"
            )
        begins = self.standing.restart.batch
        newest = max(self.standing.committed + 1, 0 if begins is None else begins)
        if self.standing.has_orphan and begins == self.standing.planned and self._may_be_skipped(begins):
            newest = begins + 1  # the batch makes no state again, and the next one begins with that
        why = f"it is of a batch that is taken back: batch {newest} begins with version {newest} of the state"
        return tuple(
            MoveStep(path, size, why)
            for path, size in sorted(self.facts.state_files.items())
            if (version := parse_state_version(path)) is not None and version > newest
        )

    def _may_be_skipped(self, batch_id: int) -> bool:
        return may_be_skipped(self.standing.observed.sinks, batch_id)

    def _read(self) -> list[str]:
        """The files that were there and that the answer goes by."""
        checkpoint = self.began.checkpoint
        newest = checkpoint.offsets.ids.last(2)
        paths = [f"{OFFSETS}/{batch_id}" for batch_id in newest]
        paths += [f"{COMMITS}/{batch_id}" for batch_id in checkpoint.commits.ids.last(1)]
        if checkpoint.query is not None:
            paths.insert(0, METADATA)
        return paths


def refuse(
    standing: Standing,
    sentence: str,
    *,
    subject: str | None = None,
    found: str | None = None,
    expected: str | None = None,
    effect: str | None = None,
    next: str | None = None,  # noqa: A002 - as in `LastgoodError`
) -> RepairRefusedError:
    """The error that says why; it is about the checkpoint if nothing else is said."""
    where = subject or standing.observed.location
    return RepairRefusedError(sentence, subject=where, found=found, expected=expected, effect=effect, next=next)


def require_micro_batch(standing: Standing) -> None:
    """See that the query writes every batch.

    Raises:
        RepairRefusedError: it does not.
    """
    if standing.checkpoint.mode is not Mode.MICRO_BATCH:
        raise refuse(
            standing,
            "only logs that hold every micro-batch are repaired",
            found=f"a query in the mode {standing.checkpoint.mode.value}",
            expected="micro-batches",
            next=standing.observed.command("diagnose"),
        )


def find_beginnings_by_mirror(mirror: Mapping[str, bytes]) -> dict[str, SourceOffset]:
    """Where each source began, as the mirror's copies of `sources/<i>/0` tell."""
    found: dict[str, SourceOffset] = {}
    for path, content in mirror.items():
        folder, _, name = path.rpartition("/")
        began = None
        if name == "0" and folder.startswith(f"{SOURCES}/"):
            began = parse_initial_offset(content)
        if isinstance(began, InitialOffset):
            found[folder.removeprefix(f"{SOURCES}/")] = began.offset
    return found


def copy_from_mirror(work: Work, path: str, why: str) -> Edit | None:
    """The mirror's copy of a file; None if it has none."""
    content = work.mirror.get(path)
    if content is None:
        return None
    return Edit(path, content, why)


def name_copy(path: str) -> str:
    """What a file from the mirror rests on."""
    return f"{MIRROR}'s copy of {path}"


def _see_as_restored(observed: Observation) -> Observation:
    query_id = getattr(observed.checkpoint.query, "query_id", None)
    if query_id is None:
        return observed
    return see_as(observed, query_id)
