"""Who answers for a plan: a person who gives it by hand, or nobody, where it lay in the lake.

What lies in the lake is as good as the least trusted of all who may write there. It may say what is to be done within
its own checkpoint; which sinks, files and hosts there are is said on this machine. See docs/why/trust.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.journal.plan_file import PLAN_BYTES_MAX, parse_plan
from lastgood.journal.room import PlanNotOfThisPlaceError, Room
from lastgood.observe.broker import is_file_of_facts
from lastgood.observe.evidence import EvidenceOptions, parse_options
from lastgood.planning.plan import Plan, PlanInvalidError
from lastgood.planning.steps import compute_digest, list_files_after, list_files_outside
from lastgood.recovery.start_file import require_named
from lastgood.recovery.whereabouts import Note, recall_plan
from lastgood.redaction import hide_login
from lastgood.settings.config import Config
from lastgood.settings.target import find_target_at
from lastgood.signing import KeyRing
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.opening import normalise_sink
from lastgood.sources.kafka.start_files import StartFile, StartForm
from lastgood.steps.step import WrittenOutside
from lastgood.steps.written_file import LOG_BYTES_MAX, OUTSIDE
from lastgood.storage.reading import Location, LocationInvalidError, open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, open_writable

_KEPT = re.compile(rf"(.*){re.escape(WORK_SUFFIX)}/recoveries/([^/]+)/plan\.json", re.DOTALL)
_STEPS_SHOWN = 5
_OTHERS_SHOWN = 3


class SinkNotNamedError(UsageError):
    """A plan that lies beside a checkpoint goes by, or changes, a sink that nobody has named here."""

    condition = "SINK_NOT_NAMED"


class FileNotNamedError(UsageError):
    """A repair that another machine has begun goes by a file of that machine, and nobody has named one here."""

    condition = "FILE_NOT_NAMED"

    def __init__(self, recovery: str, missing: Mapping[str, str]) -> None:
        super().__init__(
            "a repair that another machine has begun goes by a file of that machine",
            subject=f"recovery {recovery}",
            found=", ".join(f"{option} {file}" for option, file in missing.items()),
            expected=f"{' and '.join(missing)}, or its place in lastgood.toml, for the file of this machine",
            effect="nothing has been changed",
        )
        self.options = tuple(missing)
        """Those that name it."""


class PlanNotAllowedError(UsageError):
    """A plan that was not made here touches what nobody has named here, and nobody has said that it may.

    Of one that lies beside a checkpoint nobody can: it changes more of the application's file than where it starts.
    """

    condition = "PLAN_NOT_ALLOWED"


@dataclass(frozen=True, slots=True)
class Named:
    """What was named on this machine, for one call."""

    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
    """By the command line."""
    start_files: tuple[str | None, ...] = ()
    """By the command line, or by who supervises the application."""
    config: Config = field(default_factory=Config)
    """What was set here."""

    def at(self, location: Location, note: Note | None = None) -> EvidenceOptions:
        """All that is named of where to look around the query at a location.

        Args:
            location: Its checkpoint.
            note: What this machine remembers of the plan.

        Raises:
            ConfigError: the configuration is broken.
        """
        told = self.evidence.of(find_target_at(location, self.config))
        if note is None:
            before = EvidenceOptions()
        else:
            before = note.evidence
        return replace(
            told,
            sinks=tuple(dict.fromkeys((*self._sinks(location), *before.sinks))),
            kafka=told.kafka or before.kafka,
            kafka_config=told.kafka_config or before.kafka_config,
            topics=told.topics or before.topics,
            txn_app_id=told.txn_app_id or before.txn_app_id,
        )

    def files(self, location: Location, note: Note | None = None) -> tuple[str | None, ...]:
        """All that is named of the file that the application begins by.

        Raises:
            ConfigError: the configuration is broken.
        """
        configured = self.config.policy_of(str(location)).via
        noted_file = None if note is None else note.start_file
        return (*self.start_files, None if configured is None else configured.location, noted_file)

    def _sinks(self, location: Location) -> tuple[str, ...]:
        configured = find_target_at(location, self.config).sink
        return (*self.evidence.sinks, *([] if configured is None else [configured]))


@dataclass(frozen=True, slots=True)
class Warrant:
    """A plan that may be carried out, and by whose word."""

    plan: Plan
    """In the words of this machine."""
    kept: Plan
    """As its file has it."""
    evidence: EvidenceOptions
    """Where it is looked."""
    is_own: bool
    """Whether somebody here, or who has the key, answers for every word of it; else it proves nothing of the world."""
    is_signed: bool = False
    """Whether its file was signed by a key of this machine, for the place of which it is."""


def find_place_of_plan(file: str) -> tuple[Location, str] | None:
    """The checkpoint and the recovery in whose folder the file of a plan lies; None if it is given by hand.

    Raises:
        PlanNotOfThisPlaceError: it lies in a checkpoint, or elsewhere beside one, where lastgood keeps no plan.
        LocationInvalidError: it is no location.
    """
    named = parse_location(file)
    if named.scheme == "file":
        followed = parse_location(os.path.realpath(named.path))
    else:
        followed = named
    for location in (named, followed):
        found = _KEPT.fullmatch(location.path)
        if found is not None:
            return replace(location, path=found[1]), found[2]
        if any(part.endswith(WORK_SUFFIX) for part in location.path.split("/")):
            raise _make_of_the_lake_error(file)
    if followed.scheme == "file" and any(map(_is_checkpoint, Path(followed.path).parents)):
        raise _make_of_the_lake_error(file)
    return None


def _is_checkpoint(folder: Path) -> bool:
    """Whether a folder of this machine is a checkpoint, by what no other folder has."""
    return all((folder / log).is_dir() for log in (OFFSETS, COMMITS))


def warrant_by_hand(planned: str | Plan, keys: KeyRing) -> Warrant:
    """A plan that a person gives us, or a program: trusted like a script; with a key only a file that one has signed.

    Raises:
        UsageError: there is no such file.
        PlanInvalidError: it is no plan, or was changed.
        PlanNotOfThisPlaceError: its file lies in the checkpoint itself.
        SignatureMissingError, SignatureWrongError: there is a key, and none has signed the file.
    """
    if isinstance(planned, Plan):
        plan = planned
    else:
        plan = _read(planned, keys)
    checkpoint = parse_location(plan.checkpoint)
    if isinstance(planned, str) and f"{parse_location(planned).identity}/".startswith(f"{checkpoint.identity}/"):
        raise _make_of_the_lake_error(planned)
    is_signed = bool(keys) and not isinstance(planned, Plan)
    return Warrant(plan, plan, parse_options(plan.evidence), is_own=True, is_signed=is_signed)


def warrant_out_of_lake(
    location: Location, recovery: str, named: Named, keys: KeyRing, *, is_taken_back: bool = False
) -> Warrant:
    """A plan that a recovery keeps beside its checkpoint: this machine's own, or one that only does what is named here.

    With a key: one that was signed, of a recovery that who has the key has begun; or that only does what is named here.
    Files of the machine that has begun it are not those of this one: they are named here once more.

    Args:
        location: The checkpoint.
        recovery: Whose plan it is.
        named: What was named on this machine.
        keys: Of this machine.
        is_taken_back: Whether it is to be taken back, for which nobody asks Kafka.

    Raises:
        RecoveryUnknownError: there is none.
        PlanInvalidError: it is damaged.
        PlanNotOfThisPlaceError: it is of another checkpoint, recovery or query.
        SignatureMissingError, SignatureWrongError: there is a key, and none has signed the plan, or a stage that the
            recovery has noted down.
        StartFileNotNamedError: it would write a file outside of the checkpoint that nobody has named here.
        FileNotNamedError: it was begun on another machine, and goes by a file there.
        SinkNotNamedError: it goes by a sink that nobody has named here, or changes rows of another query.
        PlanNotAllowedError: it changes more of a file outside than where the application starts.
    """
    storage = open_writable(location)
    room = Room(location, recovery, storage, keys)
    stage, plan = room.stage(), room.plan()
    own = _find_own_ids(plan, location, storage)
    note = recall_plan(plan)
    is_signed = bool(keys)
    if note is not None and note.is_own and note.is_begun:
        return Warrant(plan, plan, _find_looked_here(plan, note.evidence), is_own=True, is_signed=is_signed)
    evidence = named.at(location, note)
    # A signed plan alone is not enough: somebody may have made it and decided against it.
    if is_signed and stage is not None:
        require_named(plan, named.files(location, note), is_of_disks=True)
        if not is_taken_back:
            _require_files_named(plan, evidence)
        return Warrant(plan, plan, _find_looked_here(plan, evidence), is_own=True, is_signed=True)
    require_named(plan, named.files(location, note))
    _require_only_start(plan, room, named.config)
    evidence = replace(evidence, sinks=tuple(_list_named_sinks(plan, evidence.sinks)))
    _require_own_rows(plan, own | {evidence.txn_app_id or ""})
    here = plan.said_here(str(location), evidence.words())
    return Warrant(here, plan, evidence, is_own=False, is_signed=is_signed)


def _require_only_start(plan: Plan, room: Room, config: Config) -> None:
    """See that a plan of the lake changes nothing in the file that is named here but where the application starts.

    Such a file may hold all options of the application, and what its driver loads; its name is all that was said here.
    Both contents are known by their digests, which no later write can change.

    Raises:
        PlanNotAllowedError: it changes more, or nobody can tell.
        ConfigError: the configuration is broken.
        StorageError: the file cannot be read (subclasses).
    """
    for step in plan.steps:
        if step.outside is None:
            continue
        before = _read_as_found(step.outside, room)
        edit = _choose_edit(plan, step.outside, config)
        is_known = compute_digest(before) == step.outside.before
        if edit is None or not is_known or not edit.is_all_that_changes(before, step.outside.after):
            raise PlanNotAllowedError(
                "a plan that lies beside the checkpoint changes more of a file than where the application starts",
                subject=step.outside.location,
                found=f"recovery {plan.recovery} of {plan.checkpoint}",
                expected="nothing but the offsets, in the form and under the key that are named here",
                effect="nothing has been changed",
            )


def _read_as_found(written: WrittenOutside, room: Room) -> bytes | None:
    """What the file held when the plan was made: it does so still, or that is kept beside the checkpoint."""
    if written.before is None:
        return None
    file = parse_location(written.location)
    content = open_storage(file).read(file, limit=LOG_BYTES_MAX)
    if compute_digest(content) == written.before:
        return content
    return room.storage.read(room.before / OUTSIDE, limit=LOG_BYTES_MAX)


def _choose_edit(plan: Plan, written: WrittenOutside, config: Config) -> StartFile | None:
    """How the file says where the application starts: as its policy has it; else as the plan says it."""
    configured = config.policy_of(plan.checkpoint).via
    wanted = parse_location(written.location).identity
    if configured is not None and parse_location(configured.location).identity == wanted:
        return configured
    told: Any = plan.options.get("start_file")
    try:
        return StartFile(written.location, StartForm(told["form"]), told["key"])
    except (AttributeError, KeyError, TypeError, ValueError, UsageError):
        return None


def _find_looked_here(plan: Plan, here: EvidenceOptions) -> EvidenceOptions:
    """Where it is looked for a plan whose words count, by the files of this machine."""
    looked = parse_options(plan.evidence)
    if looked.kafka is not None and is_file_of_facts(looked.kafka):
        kafka = here.kafka
    else:
        kafka = here.kafka or looked.kafka
    return replace(looked, kafka=kafka, kafka_config=here.kafka_config)


def _require_files_named(plan: Plan, here: EvidenceOptions) -> None:
    """See that every file by which a plan goes is named on this machine."""
    looked = parse_options(plan.evidence)
    missing: dict[str, str] = {}
    if looked.kafka_config is not None and here.kafka_config is None:
        missing["--kafka-config"] = str(looked.kafka_config)
    if looked.kafka is not None and is_file_of_facts(looked.kafka) and here.kafka is None:
        missing["--kafka"] = looked.kafka
    if missing:
        raise FileNotNamedError(plan.recovery, missing)


def describe_plan(plan: Plan) -> str:
    """What a plan does, in one line."""
    done = [step.do for step in plan.steps] or ["nothing"]
    more = len(done) - _STEPS_SHOWN
    return "; ".join([*done[:_STEPS_SHOWN], *([f"and {more} more"] if more > 0 else [])])


@dataclass(frozen=True, slots=True)
class Outside:
    """What a plan touches outside of its checkpoint, and nobody has named here."""

    what: str
    """One line for a person."""
    option: str
    """The option that allows it."""
    value: str

    @property
    def words(self) -> tuple[str, str]:
        """What allows it, on a command line."""
        return self.option, self.value


def list_outside(warrant: Warrant, named: Named) -> tuple[Outside, ...]:
    """What a plan given by hand touches outside of its checkpoint, and nobody on this machine has named; see `Outside`.

    Of a plan that was made here, or by who has the key, all was named when it was made.

    Raises:
        ConfigError: the configuration is broken.
        LocationInvalidError: a location of the plan is none.
    """
    plan = warrant.plan
    if warrant.is_signed or recall_plan(plan) is not None:
        return ()
    return tuple(_list_outside(plan, named))


def _list_outside(plan: Plan, named: Named) -> Iterator[Outside]:
    location = parse_location(plan.checkpoint)
    evidence, looked = named.at(location), parse_options(plan.evidence)
    files = {parse_location(each).identity for each in named.files(location) if each is not None}
    ours = {normalise_sink(each) for each in evidence.sinks}
    changed = {step.sink for step in plan.steps}
    for file in list_files_outside(plan.steps):
        if parse_location(file).identity not in files:
            yield Outside(f"it writes {file}", "--allow-start-file", file)
    for text in dict.fromkeys((*(sink.location for sink in plan.sinks), *looked.sinks)):
        if normalise_sink(text) not in ours:
            ours.add(normalise_sink(text))
            is_fenced = any(sink.location == text and sink.fence for sink in plan.sinks)
            what = "reads"
            if text in changed or is_fenced:
                what = "commits to"
            yield Outside(f"it {what} {text}", "--allow-sink", text)
    if looked.kafka not in (None, evidence.kafka):
        yield Outside(f"it asks Kafka at {looked.kafka}", "--kafka", str(looked.kafka))
    if looked.kafka_config not in (None, evidence.kafka_config):
        yield Outside(f"it asks Kafka with {looked.kafka_config}", "--kafka-config", str(looked.kafka_config))


def _find_own_ids(plan: Plan, location: Location, storage: WritableStorage) -> set[str]:
    """The ids of the query whose logs these are, by which its plan may call it.

    Where a plan takes `metadata` away, another query may have begun since, and so its own id is none of them.

    Raises:
        PlanNotOfThisPlaceError: the logs tell of another query.
    """
    raw = storage.read(location / METADATA, limit=LOG_BYTES_MAX)
    told = None
    if raw is not None:
        told = parse_query_metadata(raw)
    left = list_files_after(plan.steps)
    known = {plan.query_id, _parse_id(left.get(METADATA))} - {None}
    if not isinstance(told, QueryMetadata) or told.query_id in known or not known:
        return {each for each in known if each is not None}
    if METADATA in left:
        return set()
    raise PlanNotOfThisPlaceError(
        "the plan is of another query than the checkpoint where it lies",
        subject=f"{location}: recovery {plan.recovery}",
        found=f"query {plan.query_id}",
        expected=f"query {told.query_id}",
        effect="nothing has been changed",
    )


def _parse_id(metadata: bytes | None) -> str | None:
    """The id of the query that `metadata` names; None if it names none."""
    told = None
    if metadata is not None:
        told = parse_query_metadata(metadata)
    return told.query_id if isinstance(told, QueryMetadata) else None


def _list_named_sinks(plan: Plan, named: tuple[str, ...]) -> Iterator[str]:
    """The sinks of a plan as they were named here, in its order."""
    ours = {normalise_sink(text): text for text in reversed(named)}
    tables = [*plan.options.get("tables", {})]
    missing = []
    for text in (*(sink.location for sink in plan.sinks), *tables):
        try:
            found = ours.get(normalise_sink(text))
        except LocationInvalidError:
            found = None
        if found is None:
            missing.append(text)
    if missing:
        raise SinkNotNamedError(
            "a plan that lies beside the checkpoint is about a sink that nobody has named here",
            subject=", ".join(dict.fromkeys(map(hide_login, missing))),
            found=f"recovery {plan.recovery} would: {describe_plan(plan)}",
            expected="sink in lastgood.toml, or --sink, if it is where the query writes",
            effect="nothing has been changed",
        )
    yield from (ours[normalise_sink(sink.location)] for sink in plan.sinks)


def _require_own_rows(plan: Plan, own: set[str]) -> None:
    """See that no rows but those of its own query are taken back, and no writer but its own is made to fail."""
    for table, app_id in _list_changed(plan):
        if app_id not in own:
            raise PlanNotOfThisPlaceError(
                "a plan that lies beside the checkpoint changes what another query has written",
                subject=table,
                found=f"recovery {plan.recovery}: the rows of {app_id}",
                expected=f"those of query {plan.query_id}; or --txn-app-id, txn_app_id in lastgood.toml",
                effect="nothing has been changed",
            )


def require_sole_writer(warrant: Warrant, sinks: Iterable[SinkEvidence]) -> None:
    """See that a plan of the lake touches no rows in a sink that others write as well, unless their name is said here.

    Which query a checkpoint is of only its logs say, and whoever may write them can have them name another one.

    Args:
        warrant: The plan.
        sinks: What its sinks say now.

    Raises:
        PlanNotOfThisPlaceError: it does.
    """
    if warrant.is_own:
        return
    plan = warrant.plan
    others = {normalise_sink(each.location): each.others for each in sinks}
    for table, app_id in _list_changed(plan):
        found = sorted(others.get(normalise_sink(table), ()))
        if found and app_id != warrant.evidence.txn_app_id:
            raise PlanNotOfThisPlaceError(
                "a plan that lies beside the checkpoint changes a sink that several queries write, and whose rows are"
                " meant only the lake says",
                subject=hide_login(table),
                found=f"recovery {plan.recovery}: the rows of {app_id}, beside {', '.join(found[:_OTHERS_SHOWN])}",
                expected="--txn-app-id, txn_app_id in lastgood.toml, for the name under which this query writes",
                effect="nothing has been changed",
            )


def _list_changed(plan: Plan) -> Iterator[tuple[str, str]]:
    """Each sink whose rows a plan changes, or whose writer it makes fail, and the name of who writes them."""
    yield from ((step.path, step.writer) for step in plan.steps if step.writer is not None)
    yield from ((sink.location, sink.fence) for sink in plan.sinks if sink.fence is not None)


def _read(file: str, keys: KeyRing) -> Plan:
    location = parse_location(file)
    raw = open_storage(location).read(location, limit=PLAN_BYTES_MAX + 1)
    if raw is None:
        raise UsageError("there is no such plan", subject=file, expected="a file that `lastgood plan` has saved")
    if len(raw) > PLAN_BYTES_MAX:
        raise PlanInvalidError("this is no plan", subject=file, found=f"more than {PLAN_BYTES_MAX:,} bytes")
    return parse_plan(raw, file, keys)


def _make_of_the_lake_error(file: str) -> PlanNotOfThisPlaceError:
    return PlanNotOfThisPlaceError(
        "the file lies in a checkpoint or beside one, where whoever may write to the lake can have put it",
        subject=file,
        expected="the plan.json that a recovery keeps; or a file of your own",
        effect="nothing has been done",
    )
