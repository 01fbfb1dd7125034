"""TARGET: a checkpoint location, or the name of a pipeline in `lastgood.toml`; resolved once, and handed down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path

from lastgood.asked import DEAD
from lastgood.errors import LastgoodError, UsageError
from lastgood.frozen import dataclass
from lastgood.ledger.url import LedgerPlace
from lastgood.settings.config import NAME, Config, ConfiguredQuery, Kafka, Pipeline
from lastgood.settings.keys import Keys
from lastgood.settings.policy import Policy
from lastgood.sources.kafka.start_files import StartFile
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.rights import WORK_SUFFIX

_UNBOUND = Keys()


@dataclass(frozen=True, slots=True)
class Target:
    """A query's checkpoint, and what the configuration knows beside it."""

    checkpoint: str
    sink: str | None = None
    kafka: Kafka | None = None
    ledger: LedgerPlace | None = None
    topics: tuple[str, ...] = ()
    offset_columns: str | None = None
    txn_app_id: str | None = None
    source_replays: bool = False
    via: StartFile | None = None
    """The file by which its application is told where to begin; None: its checkpoint says it."""
    max_downtime_ms: int | None = None
    """How long it may be down without losing anything; None if nobody said."""
    name: str | None = field(default=None, compare=False)
    """By which the `lastgood.toml` here knows it; None for a location, and for a name in another configuration."""
    typed: str = field(default="", compare=False)
    """As it was named: a name or a location."""
    config: Config = field(default_factory=Config, compare=False, repr=False)
    """Where that comes from; all that follows goes by this one, and reads none anew."""
    keys: Keys = field(default=_UNBOUND, compare=False, repr=False)
    """The keys of this machine, read when they are first asked for: all that follows goes by the same ones."""

    def __post_init__(self) -> None:
        """Where nobody has named it otherwise it goes by its location, and its keys are those of its configuration."""
        if not self.typed:
            object.__setattr__(self, "typed", self.checkpoint)
        if self.keys is _UNBOUND:
            object.__setattr__(self, "keys", Keys(self.config))

    @property
    def location(self) -> Location:
        """Where its checkpoint lies.

        Raises:
            LocationInvalidError: that is no location.
        """
        return parse_location(self.checkpoint)

    @property
    def pipeline(self) -> Pipeline | None:
        """Whose query it is; None if the configuration does not know it.

        Raises:
            ConfigError: there is a configuration, and it is broken.
            LocationInvalidError: it is neither a name nor a location.
        """
        return self.config.pipeline_of(self.typed)

    @property
    def policy(self) -> Policy:
        """What its pipeline allows; the default one if the configuration does not know it.

        Raises:
            ConfigError, LocationInvalidError: as `pipeline`.
        """
        return self.config.policy_of(self.typed)


def make_target(pipeline: Pipeline, query: ConfiguredQuery) -> Target:
    """One query of a pipeline."""
    return Target(
        query.checkpoint,
        query.sink,
        pipeline.kafka,
        pipeline.ledger,
        query.topics,
        query.offset_columns,
        query.txn_app_id,
        query.source_replays,
        pipeline.policy.via,
        pipeline.max_downtime_ms,
        config=pipeline.config,
    )


def resolve_target(text: str, config: Config | None = None) -> Target:
    """Find what TARGET means; who does it hands the answer down.

    A name of a pipeline counts before a folder of that name (`./orders` is the folder); `PIPELINE.QUERY` is one of
    several queries. Where there is a configuration, a bare name is not taken for a folder that is not there: it is
    mistyped, and would look like a query that never ran.

    Args:
        text: What was typed.
        config: Of this command; None: the `lastgood.toml` here.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        UsageError: there is neither such a pipeline nor such a folder; the pipeline has several queries, or none.
    """
    config = config or Config()
    if NAME.fullmatch(text) and config.is_there:
        name, _, query = text.partition(".")
        pipelines = config.pipelines()
        if name in pipelines:
            found = make_target(pipelines[name], _choose_query(pipelines[name], query, config.path))
            return replace(found, name=text if config.named is None else None, typed=text)
        if not any(_is_there(place) for place in (text, f"{text}{WORK_SUFFIX}")):
            raise _make_unknown_error(text, pipelines.values(), config.path)
    return Target(text, config=config)


def require_known(target: Target) -> None:
    """Refuse a bare name that stands for nothing, where no configuration tells whether it is a pipeline.

    Raises:
        UsageError: it is one.
    """
    text, config = target.typed, target.config
    if NAME.fullmatch(text) and not config.is_there and not _is_there(text):
        raise _make_unknown_error(text, (), config.path)


def _is_there(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # no name that a file of this machine can have
        return False


def find_target_at(location: Location, config: Config) -> Target:
    """What a configuration knows of the query at a checkpoint; the location alone if it does not know it.

    Raises:
        ConfigError: there is a configuration, and it is broken.
    """
    pipeline = config.pipeline_of(str(location))
    for query in () if pipeline is None else pipeline.queries:
        if pipeline is not None and parse_location(query.checkpoint).identity == location.identity:
            return make_target(pipeline, query)
    return Target(str(location), config=config)


def find_known_here(checkpoint: str, config: Config) -> Target | None:
    """The query of the `lastgood.toml` here that has its checkpoint there, by its name; None if there is none.

    Args:
        checkpoint: Its location.
        config: Of this command.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        LocationInvalidError: it is no location.
    """
    pipeline = config.here.pipeline_of(checkpoint)
    wanted = parse_location(checkpoint).identity
    for query in () if pipeline is None else pipeline.queries:
        if pipeline is not None and parse_location(query.checkpoint).identity == wanted:
            is_only = len(pipeline.queries) == 1
            if is_only:
                name = pipeline.name
            else:
                name = f"{pipeline.name}.{query.name}"
            return replace(make_target(pipeline, query), name=name)
    return None


def list_words_of_death(checkpoint: str, config: Config) -> tuple[str, ...]:
    """What a person who types `apply` or `undo` here has to add, having seen that the driver is dead; often nothing.

    Args:
        checkpoint: Location of the query.
        config: Of this command; these verbs take none but the one that they find here.
    """
    try:
        pipeline = config.here.pipeline_of(checkpoint)
    except LastgoodError:  # whoever types the command is told what is wrong with the configuration
        return (DEAD,)
    if pipeline is not None and pipeline.driver_check:
        return ()
    return (DEAD,)


def _make_unknown_error(text: str, pipelines: Iterable[Pipeline], config: Path) -> UsageError:
    names = []
    for pipeline in pipelines:
        names.append(pipeline.name)
        names += [f"{pipeline.name}.{query.name}" for query in pipeline.queries]
    known = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
    import difflib  # noqa: PLC0415 - only a name that is not known is held against those that are

    near = difflib.get_close_matches(text, names, n=1)
    folder = f"./{text} for a folder that is not there yet"
    if known:
        found = f"pipelines {known}"
    else:
        found = f"no {config.name} here"
    if near:
        expected = f"{near[0]}; or {folder}"
    else:
        expected = folder
    return UsageError(
        f"there is neither a pipeline '{text}' nor such a folder",
        subject=str(config),
        found=found,
        expected=expected,
    )


def _choose_query(pipeline: Pipeline, name: str, config: Path) -> ConfiguredQuery:
    chosen = [query for query in pipeline.queries if not name or query.name == name]
    if len(chosen) == 1:
        return chosen[0]
    names = [f"{pipeline.name}.{query.name}" for query in pipeline.queries]
    if chosen:
        sentence = f"which query of pipeline '{pipeline.name}'?"
    else:
        sentence = "the pipeline has no such query"
    if names:
        expected = f"one of {', '.join(names)}"
    else:
        expected = "checkpoint = …"
    raise UsageError(
        sentence,
        subject=f"{config}: pipeline.{pipeline.name}",
        found=", ".join(names) or "no checkpoint",
        expected=expected,
    )
