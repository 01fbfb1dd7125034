"""TARGET: a checkpoint location, or the name of a pipeline in `lastgood.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lastgood.errors import UsageError
from lastgood.ledger.url import LedgerPlace
from lastgood.storage import parse_location
from lastgood.supervise.config import CONFIG_NAME, Kafka, Pipeline, Query, load_config

_NAME = re.compile(r"[\w-]+(\.[\w-]+)?")


@dataclass(frozen=True, slots=True)
class Target:
    """A query's checkpoint, and what the configuration knows beside it."""

    checkpoint: str
    sink: str | None = None
    kafka: Kafka | None = None
    ledger: LedgerPlace | None = None


def resolve_target(text: str, config: Path = Path(CONFIG_NAME)) -> Target:
    """Find what TARGET means.

    A name of a pipeline counts before a folder of that name (`./orders` is the folder); `PIPELINE.QUERY` is one of
    several queries.

    Raises:
        ConfigError: there is a configuration, and it is broken.
        UsageError: the pipeline has several queries, or none.
    """
    if _NAME.fullmatch(text) and config.exists():
        name, _, query = text.partition(".")
        pipeline = load_config(config).get(name)
        if pipeline is not None:
            found = _query(pipeline, query, config)
            return Target(found.checkpoint, found.sink, pipeline.kafka, pipeline.ledger)
    return Target(text)


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
