"""TARGET: a checkpoint location, or the name of a pipeline in `lastgood.toml`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lastgood.asked import DEAD
from lastgood.errors import LastgoodError, UsageError
from lastgood.ledger.url import LedgerPlace
from lastgood.settings.config import CONFIG_NAME, Kafka, Pipeline, Query, load_config
from lastgood.settings.policy import Policy
from lastgood.sources.kafka.start_files import StartFile
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.rights import WORK_SUFFIX

_NAME = re.compile(r"[\w-]+(\.[\w-]+)?")


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
    policy: str | None = field(default=None, compare=False)
    """Another configuration than the `lastgood.toml` here."""


def target_of(pipeline: Pipeline, query: Query) -> Target:
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
    )


def resolve_target(text: str, config: Path = Path(CONFIG_NAME)) -> Target:
    """Find what TARGET means.

    A name of a pipeline counts before a folder of that name (`./orders` is the folder); `PIPELINE.QUERY` is one of
    several queries. Where there is a configuration, a bare name is not taken for a folder that is not there: it is
    mistyped, and would look like a query that never ran.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        UsageError: there is neither such a pipeline nor such a folder; the pipeline has several queries, or none.
    """
    if _NAME.fullmatch(text) and config.exists():
        name, _, query = text.partition(".")
        pipelines = load_config(config)
        if name in pipelines:
            return _known_here(target_of(pipelines[name], _query(pipelines[name], query, config)), text, config)
        if not any(Path(place).exists() for place in (text, f"{text}{WORK_SUFFIX}")):
            raise _unknown(text, pipelines.values(), config)
    return _known_here(Target(text), None, config)


def _known_here(target: Target, name: str | None, config: Path) -> Target:
    """With the name that stands for it in a command typed here, or the configuration that one has to name."""
    policy = name_policy(config)
    return replace(target, name=name) if policy is None else replace(target, policy=policy)


def name_policy(config: Path | None) -> str | None:
    """How a command has to name a configuration; None where it is the one that it finds here by itself."""
    is_here = config is None or config.absolute() == Path(CONFIG_NAME).absolute()
    return None if is_here else str(config)


def require_known(text: str, config: Path = Path(CONFIG_NAME)) -> None:
    """Refuse a bare name that stands for nothing, where no configuration tells whether it is a pipeline.

    Raises:
        UsageError: it is one.
    """
    if _NAME.fullmatch(text) and not config.exists() and not Path(text).exists():
        raise _unknown(text, (), config)


def pipeline_of(target: str, config: Path | None = None) -> Pipeline | None:
    """The pipeline that TARGET names, or that has its checkpoint there; None if no configuration knows it.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        LocationInvalidError: TARGET is neither a name nor a location.
    """
    path = Path(CONFIG_NAME) if config is None else config
    if not path.exists():
        return None
    pipelines = load_config(path)
    name = target.partition(".")[0]
    if _NAME.fullmatch(target) and name in pipelines:
        return pipelines[name]
    wanted = parse_location(target).identity
    for pipeline in pipelines.values():
        if any(parse_location(query.checkpoint).identity == wanted for query in pipeline.queries):
            return pipeline
    return None


def target_at(location: Location, config: Path | None = None) -> Target:
    """What a configuration knows of the query at a checkpoint; the location alone if none knows it.

    Raises:
        ConfigError: there is a configuration, and it is broken.
    """
    pipeline = pipeline_of(str(location), config)
    for query in () if pipeline is None else pipeline.queries:
        if pipeline is not None and parse_location(query.checkpoint).identity == location.identity:
            return target_of(pipeline, query)
    return Target(str(location))


def known_here(checkpoint: str) -> Target | None:
    """The query of the `lastgood.toml` here that has its checkpoint there, by its name; None if there is none.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        LocationInvalidError: it is no location.
    """
    pipeline = pipeline_of(checkpoint)
    wanted = parse_location(checkpoint).identity
    for query in () if pipeline is None else pipeline.queries:
        if pipeline is not None and parse_location(query.checkpoint).identity == wanted:
            is_only = len(pipeline.queries) == 1
            name = pipeline.name if is_only else f"{pipeline.name}.{query.name}"
            return replace(target_of(pipeline, query), name=name)
    return None


def policy_of(target: str, config: Path | None = None) -> Policy:
    """The policy of the pipeline that has TARGET; the default one if no configuration knows it.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        LocationInvalidError: TARGET is neither a name nor a location.
    """
    pipeline = pipeline_of(target, config)
    return Policy() if pipeline is None else pipeline.policy


def word_of_death(checkpoint: str) -> tuple[str, ...]:
    """What a person who types `apply` or `undo` here has to add, having seen that the driver is dead; often nothing.

    Args:
        checkpoint: Location of the query.
    """
    try:
        pipeline = pipeline_of(checkpoint)
    except LastgoodError:  # whoever types the command is told what is wrong with the configuration
        return (DEAD,)
    return () if pipeline is not None and pipeline.driver_check else (DEAD,)


def start_file_of(target: str, config: Path | None = None) -> StartFile | None:
    """The file by which the application of a pipeline is told where to begin; None if no configuration names one.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        LocationInvalidError: TARGET is neither a name nor a location.
    """
    return policy_of(target, config).via


def _unknown(text: str, pipelines: Iterable[Pipeline], config: Path) -> UsageError:
    names = [
        name
        for pipeline in pipelines
        for name in (pipeline.name, *(f"{pipeline.name}.{query.name}" for query in pipeline.queries))
    ]
    known = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
    near = difflib.get_close_matches(text, names, n=1)
    folder = f"./{text} for a folder that is not there yet"
    return UsageError(
        f"there is neither a pipeline '{text}' nor such a folder",
        subject=str(config),
        found=f"pipelines {known}" if known else f"no {config.name} here",
        expected=f"{near[0]}; or {folder}" if near else folder,
    )


def _query(pipeline: Pipeline, name: str, config: Path) -> Query:
    chosen = [query for query in pipeline.queries if not name or query.name == name]
    if len(chosen) == 1:
        return chosen[0]
    names = [f"{pipeline.name}.{query.name}" for query in pipeline.queries]
    raise UsageError(
        f"which query of pipeline '{pipeline.name}'?" if chosen else "the pipeline has no such query",
        subject=f"{config}: pipeline.{pipeline.name}",
        found=", ".join(names) or "no checkpoint",
        expected=f"one of {', '.join(names)}" if names else "checkpoint = …",
    )
