"""`lastgood.toml`: read once, checked whole, handed on as frozen values."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from threading import RLock
from typing import Any

import platformdirs

from lastgood.errors import ConfigError, UsageError, format_command_line
from lastgood.frozen import dataclass
from lastgood.ledger.url import LedgerPlace, LedgerUrlError, parse_place
from lastgood.redaction import add_redaction
from lastgood.settings.ownership import require_own, require_regular
from lastgood.settings.policy import ACCEPTABLE, CODE_CHANGES, OUTAGE_STARTS, STATE_LOSSES, Policy
from lastgood.sources.kafka.start_files import StartFile, StartForm
from lastgood.storage.reading import LocationInvalidError, parse_location

CONFIG_NAME = "lastgood.toml"
APP_CONFIG = "app-config"
NAME = re.compile(r"[\w-]+(\.[\w-]+)?")
"""What a TARGET looks like that may be a name in it."""
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:")
_KINDS = {bool: "true or false", int | float: "a number", str: "a text", list: "a list", dict: "a table"}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_STATE_SECONDS = 600.0
"""How often the state is kept, unless somebody says otherwise."""
_SECONDS_MAX = 1e11
"""Three thousand years: what is longer is a mistake, and no clock can be set by it."""
_SIZE_MAX = 4 * 1024 * 1024
"""In characters; of what is longer the end is not looked for."""
_SIZE = re.compile(r"(\d{1,18})\s*([KMG]?i?B?)", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


class Config:
    """A `lastgood.toml`: read when something of it is first asked for, and never again.

    So all of one command goes by one configuration, whatever becomes of the file meanwhile.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Nothing is read yet.

        Args:
            path: Which file; None: the `lastgood.toml` here, if there is one.
        """
        if path is None:
            self.path = Path(CONFIG_NAME)
        else:
            self.path = path
        # Now: the folder that we were called in may be removed while a command is supervised.
        self._is_here = path is None or _is_found_here(path)
        self._reading = RLock()
        self._document: Mapping[str, Any] | None = None
        self._pipelines: dict[str, Pipeline] | None = None
        self._here: Config | None = None

    @property
    def named(self) -> str | None:
        """How a command has to name it; None where it is the one that a command finds here by itself."""
        if self._is_here:
            return None
        return str(self.path)

    @property
    def here(self) -> Config:
        """The one that a command typed here finds by itself."""
        with self._reading:
            if self._here is None:
                if self.named is None:
                    self._here = self
                else:
                    self._here = Config()
            return self._here

    @property
    def is_there(self) -> bool:
        """Whether there is such a file."""
        return self._document is not None or self.path.exists()

    def pipelines(self) -> Mapping[str, Pipeline]:
        """Every pipeline, by name.

        Relative paths in it are meant from its own folder. The one that is found here by itself is obeyed only if it is
        this user's own; a path that somebody gives is obeyed as given.

        Raises:
            ConfigError: no such file, another user's, no TOML, or an unknown, missing or wrong entry; it names file and
                key.
        """
        with self._reading:
            if self._pipelines is None:
                self._pipelines = self._parsed(self._top())
            return self._pipelines

    def key_file(self) -> Path | None:
        """The file of keys that it names; None if it names none. The rest of it is not looked at.

        Raises:
            ConfigError: as `pipelines`.
        """
        return _parse_key_file(self._top())

    def pipeline_of(self, text: str) -> Pipeline | None:
        """The pipeline that a TARGET names, or that has its checkpoint there; None if this does not know it.

        Raises:
            ConfigError: there is a configuration, and it is broken.
            LocationInvalidError: TARGET is neither a name nor a location.
        """
        if not self.is_there:
            return None
        pipelines = self.pipelines()
        name = text.partition(".")[0]
        if NAME.fullmatch(text) and name in pipelines:
            return pipelines[name]
        wanted = parse_location(text).identity
        for pipeline in pipelines.values():
            if any(parse_location(query.checkpoint).identity == wanted for query in pipeline.queries):
                return pipeline
        return None

    def policy_of(self, text: str) -> Policy:
        """The policy of the pipeline that has a TARGET; the default one if this does not know it.

        Raises:
            ConfigError, LocationInvalidError: as `pipeline_of`.
        """
        pipeline = self.pipeline_of(text)
        if pipeline is not None:
            return pipeline.policy
        return Policy()

    def _top(self) -> _Table:
        with self._reading:
            if self._document is None:
                self._document = _read(self.path)
            return _Table(self._document, self.path, "")

    def _parsed(self, top: _Table) -> dict[str, Pipeline]:
        ledger = top.ledger()
        _redact(top)
        _parse_key_file(top)
        pipelines = {
            name: replace(_parse_pipeline(name, table, ledger), is_configured=True, config=self)
            for name, table in top.tables("pipeline", required="a [pipeline.NAME] table").items()
        }
        top.finish()
        return pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Where a pipeline's topics live."""

    bootstrap: str
    config: Path | None = None
    """A `client.properties`, as Kafka's own tools take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredQuery:
    """One streaming query of a pipeline."""

    name: str
    checkpoint: str
    sink: str | None = None
    txn_app_id: str | None = None
    """What its function gives as `txnAppId` when it writes to its Delta tables; None: they know it by the query id."""
    topics: tuple[str, ...] = ()
    """What it reads, for the day when no log is left to tell."""
    offset_columns: str | None = None
    """Columns of the Delta table that hold `[topic,]partition,offset`, for the same day."""
    source_replays: bool = False
    """Whether its sources that cannot be asked serve their ranges again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """An application, and the queries that it runs."""

    name: str
    command: tuple[str, ...]
    """Empty: a query of this process is started instead."""
    queries: tuple[ConfiguredQuery, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    kafka: Kafka | None = None
    ledger: LedgerPlace | None = None
    """Where the history of its queries is kept; the mirror alone has it if None."""
    policy: Policy = field(default_factory=Policy)
    driver_check: tuple[str, ...] = ()
    """A command whose exit code 0 means that the driver is dead; empty if there is none."""
    max_downtime_ms: int | None = None
    """How long its queries may be down without losing anything; None if nobody said."""
    mirror_state_seconds: float | None = None
    """How often their state is kept while they run, so that less of it has to be made anew; None: never."""
    standby: bool = False
    """Whether a second driver waits, warm, to take the place of the first."""
    standby_memory: int | None = None
    """How many bytes it may hold while it waits; None: however many."""
    class_archive: bool = False
    """Whether Spark's classes are archived in idle time, so that the next start takes less."""
    restart_in_session: bool = False
    """Whether a query that fails is started again in its driver, where that goes on."""
    is_configured: bool = False
    """Whether it stands in the configuration; else a command line has named it."""
    config: Config = field(default_factory=Config, compare=False, repr=False)
    """What is set on this machine."""

    @property
    def stem(self) -> str:
        """Its name, as files are named by it."""
        return re.sub(r"[^\w.-]+", "_", self.name)

    @property
    def log(self) -> Path:
        """File for what its command prints."""
        return platformdirs.user_log_path("lastgood") / f"{self.stem}.log"


def parse_size(text: object) -> int:
    """Bytes from `128MB`, `2GiB`, or a number of bytes.

    Raises:
        ValueError: it is none of these, or no byte at all.
    """
    found = _SIZE.fullmatch(str(text).strip())
    unit = None
    if found is not None:
        unit = _SIZE_UNITS.get(found.group(2).upper())
    if found is None or unit is None or not int(found.group(1)):
        raise ValueError(f"no size: {text!r}")
    return int(found.group(1)) * unit


def parse_duration(text: object) -> float:
    """Seconds from `500ms`, `10s`, `5m`, `2h`, `1d`, or a number of seconds.

    Raises:
        ValueError: it is none of these, or negative.
    """
    seconds = math.nan
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = text
    elif isinstance(text, str) and (match := _DURATION.fullmatch(text.strip())) is not None:
        seconds = float(match.group(1)) * _UNITS[match.group(2)]
    if not 0 <= seconds <= _SECONDS_MAX:
        raise ValueError(f"no duration: {text!r}")
    return float(seconds)


def _parse_key_file(top: _Table) -> Path | None:
    """`key_file` of `[trust]`."""
    trust = top.table("trust")
    if trust is None:
        return None
    file = trust.string("key_file")
    trust.finish()
    if file is None:
        return None
    return trust.folder.absolute() / Path(file).expanduser()


def _read(path: Path) -> Mapping[str, Any]:
    """The file as it stands: the one place that opens it."""
    try:
        is_found_here = path == Path(CONFIG_NAME)
        # What is named may be a pipe of the shell's; one that lies here would be waited for without end.
        waiting = os.O_NONBLOCK if is_found_here else 0
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | waiting), encoding="utf-8") as stream:
            if is_found_here:
                require_own(path, os.fstat(stream.fileno()))
                require_regular(path, os.fstat(stream.fileno()))
            text = stream.read(_SIZE_MAX + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no {path.name}",
            subject=str(path),
            found="no such file",
            expected="a file with a [pipeline.NAME] table; or a command, which needs none",
            next="lastgood run --checkpoint LOCATION -- COMMAND",
        ) from error
    except (OSError, ValueError) as error:  # no UTF-8, or a name that no file can have
        raise ConfigError(f"{path.name} cannot be read", subject=str(path), found=str(error)) from error
    if len(text) > _SIZE_MAX:
        raise ConfigError(f"{path.name} is too long", subject=str(path), expected=f"at most {_SIZE_MAX:,} characters")
    import tomllib  # noqa: PLC0415 - who names a checkpoint need not have such a file

    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(
            f"{path.name} is no valid TOML", subject=str(path), found="it is nested too deeply"
        ) from error
    except ValueError as error:  # also a number of very many digits
        raise ConfigError(f"{path.name} is no valid TOML", subject=str(path), found=str(error)) from error


def choose_pipeline(config: Config, name: str | None) -> Pipeline:
    """The pipeline called `name`, or the only one.

    Raises:
        UsageError: there is none of that name, or several and no name.
        ConfigError: as `Config.pipelines`.
    """
    pipelines, path = config.pipelines(), config.path
    known = ", ".join(pipelines)
    if name is None:
        if len(pipelines) == 1:
            return next(iter(pipelines.values()))
        raise UsageError(
            "which pipeline?",
            subject=str(path),
            found=f"pipelines {known}",
            expected="the name of one",
        )
    if name not in pipelines:
        near = _suggest_nearest(name, pipelines, "{}")
        words: tuple[object, ...] = ()
        if path != Path(CONFIG_NAME):
            words = ("--config", path)
        raise UsageError(
            f"there is no pipeline '{name}'",
            subject=str(path),
            found=f"pipelines {known}",
            expected=f"[pipeline.{name}]",
            next=near and format_command_line("run", near, *words),
        )
    return pipelines[name]


def make_pipeline_of_command(
    command: Sequence[str],
    checkpoints: Sequence[str],
    sink: str | None = None,
    kafka: str | None = None,
    *,
    source_replays: bool = False,
) -> Pipeline:
    """What `lastgood run -- COMMAND` stands for: a pipeline named after its script, with the default policy."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    queries = tuple(
        ConfiguredQuery(name=str(number), checkpoint=each, sink=sink, source_replays=source_replays)
        for number, each in enumerate(checkpoints)
    )
    source = None
    if kafka is not None:
        source = Kafka(bootstrap=kafka)
    return Pipeline(name=Path(script).stem, command=tuple(command), queries=queries, kafka=source)


def _redact(top: _Table) -> None:
    """Count as secret, in this whole process and beside what always is one, what [redact] names."""
    inner = top.table("redact")
    if inner is None:
        return
    for name in ("regex", "string_regex"):
        told = inner.string(name)
        try:
            add_redaction(**{name: told})
        except (re.error, ValueError) as error:
            expected = "a regular expression of Python that does not match everything"
            raise inner.wrong(name, str(error), expected) from error
    inner.finish()


def _parse_pipeline(name: str, table: _Table, ledger: LedgerPlace | None) -> Pipeline:
    """`ledger` is that of the whole file."""
    command = table.strings("command", required=True)
    own = _parse_query(name, table, is_required=False)
    queries = (*own, *(query for name, each in table.tables("query").items() for query in _parse_query(name, each)))
    cwd = table.string("cwd")
    max_downtime = table.duration("max_downtime", None)
    working_folder = None
    if cwd:
        working_folder = table.folder / cwd
    max_downtime_ms = None
    if max_downtime is not None:
        max_downtime_ms = int(max_downtime * 1000)
    pipeline = Pipeline(
        name=name,
        command=tuple(command),
        queries=queries,
        env=table.string_map("env"),
        cwd=working_folder,
        kafka=_parse_kafka(table),
        ledger=table.ledger() or ledger,
        policy=_parse_policy(table, len(queries)),
        driver_check=tuple(table.strings("driver_check")),
        max_downtime_ms=max_downtime_ms,
        mirror_state_seconds=_parse_mirror_state(table),
        standby=table.boolean("standby"),
        standby_memory=_parse_standby_memory(table),
        class_archive=table.boolean("class_archive"),
        restart_in_session=table.boolean("restart_in_session"),
    )
    table.finish()
    return pipeline


def _parse_mirror_state(table: _Table) -> float | None:
    """How often the state is kept; None: it is not."""
    is_wanted, seconds = table.boolean("mirror_state"), table.duration("mirror_state_every", None)
    if seconds is None:
        seconds = _STATE_SECONDS
    elif not is_wanted:
        found = "mirror_state_every without mirror_state"
        raise table.wrong("mirror_state_every", found, "mirror_state = true beside it")
    elif seconds < 1:
        raise table.wrong("mirror_state_every", f"{seconds:g} s", "a duration of 1s or more")
    if is_wanted:
        return float(seconds)
    return None


def _parse_standby_memory(table: _Table) -> int | None:
    size: int | None = table.size("standby_memory")
    if size is not None and not table.boolean("standby"):
        raise table.wrong("standby_memory", "standby_memory without standby", "standby = true beside it")
    return size


def _parse_query(name: str, table: _Table, *, is_required: bool = True) -> tuple[ConfiguredQuery, ...]:
    """The query of a table; none if it names no checkpoint, and need not."""
    checkpoint = table.string("checkpoint", required=is_required)
    told = {
        "sink": table.string("sink"),
        "txn_app_id": table.string("txn_app_id"),
        "topics": tuple(table.strings("topics")),
        "offset_columns": table.string("offset_columns"),
        "source_replays": table.boolean("source_replays"),
    }
    if is_required:
        table.finish()
    if checkpoint is not None:
        return (ConfiguredQuery(name=name, checkpoint=checkpoint, **told),)
    for key, value in told.items():
        if value:
            raise table.wrong(key, f"{key} without a checkpoint", "checkpoint = … beside it")
    return ()


def _parse_kafka(table: _Table) -> Kafka | None:
    inner = table.table("kafka")
    if inner is None:
        return None
    config = inner.string("config")
    kafka = Kafka(bootstrap=inner.string("bootstrap", required=True), config=inner.folder / config if config else None)
    inner.finish()
    return kafka


def _parse_one_of(table: _Table, key: str, among: tuple[str, ...]) -> str | None:
    found: str | None = table.string(key)
    if found is not None and found not in among:
        raise table.wrong(key, repr(found), f"one of {', '.join(among)}")
    return found


def _parse_policy(table: _Table, queries: int) -> Policy:
    policy = Policy()
    inner = table.table("policy")
    if inner is None:
        return policy
    numbers = {key: inner.integer(key) for key in ("max_attempts", "same_batch", "stable_lag", "max_replay")}
    accept = inner.strings("accept", may_be_empty=True)
    if not set(accept) <= set(ACCEPTABLE):
        raise inner.wrong("accept", repr(accept), f"of {', '.join(ACCEPTABLE)}")
    after_outage, outage_start = (
        inner.duration("after_outage", None),
        _parse_one_of(inner, "outage_start", OUTAGE_STARTS),
    )
    if outage_start is not None and after_outage is None:
        raise inner.wrong("outage_start", "outage_start without after_outage", 'after_outage = "1h" beside it')
    policy = replace(
        policy,
        **{key: value for key, value in numbers.items() if value is not None},
        restart_within_seconds=inner.duration("restart_within", policy.restart_within_seconds),
        stall_after_seconds=inner.duration("stall_after", None),
        after_outage_seconds=after_outage,
        outage_start=outage_start or policy.outage_start,
        on_code_change=_parse_one_of(inner, "on_code_change", CODE_CHANGES) or policy.on_code_change,
        on_state_loss=_parse_one_of(inner, "on_state_loss", STATE_LOSSES) or policy.on_state_loss,
        backoff_seconds=inner.duration("backoff", policy.backoff_seconds),
        backoff_max_seconds=inner.duration("backoff_max", policy.backoff_max_seconds),
        grace_seconds=inner.duration("grace", policy.grace_seconds),
        accept=tuple(dict.fromkeys(accept)),
        via=_parse_start_file(inner, queries),
        takes_any_number=inner.flag("takes_any_number"),
        show_data=inner.flag("show_data"),
    )
    if policy.takes_any_number and policy.via is None:
        raise inner.wrong("takes_any_number", "no via", f'via = "{APP_CONFIG}" beside it')
    inner.finish()
    return policy


def _parse_start_file(table: _Table, queries: int) -> StartFile | None:
    """The file that tells the application where to begin; None without `via`."""
    via, file = table.string("via"), table.string("start_file")
    form, key = table.string("start_form"), table.string("start_key")
    if via is None:
        for name, value in (("start_file", file), ("start_form", form), ("start_key", key)):
            if value is not None:
                raise table.wrong(name, f"{name} without via", f'via = "{APP_CONFIG}" beside it')
        return None
    if via != APP_CONFIG:
        raise table.wrong("via", repr(via), f'"{APP_CONFIG}"')
    if queries != 1:
        raise table.wrong("via", f"{queries} queries", "a pipeline with one query: one file tells one where to begin")
    forms = [each.value for each in StartForm]
    if form not in (None, *forms):
        raise table.wrong("start_form", repr(form), " or ".join(f'"{each}"' for each in forms))
    if file is None:
        raise table.wrong("start_file", "nothing", "the file that the application takes its startingOffsets from")
    place = file if _SCHEME.match(file) else str(table.folder.absolute() / file)
    try:
        return StartFile(str(parse_location(place)), StartForm(form or StartForm.JSON.value), key)
    except LocationInvalidError as error:
        raise table.wrong("start_file", repr(file), error.expected or "a file") from error
    except UsageError as error:
        raise table.wrong("start_key", repr(key) if key else "nothing", error.expected or "a key") from error


def _is_found_here(path: Path) -> bool:
    try:
        return path.absolute() == Path(CONFIG_NAME).absolute()
    except FileNotFoundError:  # the current folder was removed: nothing is found in it
        return False


class _Table:
    """A TOML table that remembers which of its keys were asked for, so that the rest can be refused."""

    def __init__(self, values: Mapping[str, Any], path: Path, where: str) -> None:
        self._values = values
        self._path = path
        self._where = where
        self._known: list[str] = []

    @property
    def folder(self) -> Path:
        return self._path.parent

    def wrong(self, key: str, found: str, expected: str, hint: str | None = None) -> ConfigError:
        if self._where:
            name = f"{self._where}.{key}"
        else:
            name = key
        return ConfigError(
            f"'{name}' cannot be understood",
            subject=f"{self._path}: {name}",
            found=found,
            expected=expected,
            next=hint,
        )

    def _get(self, key: str, kind: type, expected: str) -> Any:
        self._known.append(key)
        value = self._values.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise self.wrong(key, _describe_value(value, kind), expected)
        return value

    def string(self, key: str, *, required: bool = False) -> Any:
        value = self._get(key, str, "a text in quotes")
        if (value is None and required) or value == "":
            raise self.wrong(key, "nothing", "a text in quotes")
        return value

    def ledger(self) -> LedgerPlace | None:
        told = self.string("ledger")
        try:
            if told is None:
                return None
            return parse_place(told, folder=self.folder)
        except LedgerUrlError as error:
            raise self.wrong("ledger", error.found or "", error.expected or "") from error

    def integer(self, key: str) -> int | None:
        value: int | None = self._get(key, int, "a whole number, 0 or more")
        if value is not None and value < 0:
            raise self.wrong(key, str(value), "a whole number, 0 or more")
        return value

    def boolean(self, key: str) -> bool:
        self._known.append(key)
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, repr(value), "true or false")
        return value

    def duration(self, key: str, default: float | None) -> Any:
        self._known.append(key)
        if key not in self._values:
            return default
        try:
            return parse_duration(self._values[key])
        except ValueError as error:
            raise self.wrong(key, repr(self._values[key]), 'a duration such as "500ms", "10s", "5m"') from error

    def size(self, key: str) -> int | None:
        self._known.append(key)
        if key not in self._values:
            return None
        try:
            return parse_size(self._values[key])
        except ValueError as error:
            raise self.wrong(key, repr(self._values[key]), 'a number of bytes such as "512MB"') from error

    def flag(self, key: str) -> bool:
        self._known.append(key)
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, repr(value), "true or false")
        return value

    def strings(self, key: str, *, required: bool = False, may_be_empty: bool = False) -> list[str]:
        expected = 'a list of texts, such as ["spark-submit", "app.py"]'
        value = self._get(key, list, expected)
        if (value is None and not required) or (value == [] and may_be_empty):
            return []
        if not value or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "nothing" if value is None else repr(value), expected)
        return list(value)

    def string_map(self, key: str) -> dict[str, str]:
        value = self._get(key, dict, "a table of texts") or {}
        for name, item in value.items():
            if not isinstance(item, str):
                raise self.wrong(f"{key}.{name}", _name_kind(item), "a text in quotes")
        return dict(value)

    def table(self, key: str) -> _Table | None:
        value = self._get(key, dict, "a table")
        if value is None:
            return None
        return _Table(value, self._path, f"{self._where}.{key}".lstrip("."))

    def tables(self, key: str, *, required: str | None = None) -> dict[str, _Table]:
        value = self._get(key, dict, "a table of tables") or {}
        if required and not value:
            raise self.wrong(key, "nothing", required)
        for name, item in value.items():
            if not isinstance(item, dict):
                raise self.wrong(f"{key}.{name}", _describe_value(item, dict), "a table")
        prefix = f"{self._where}.{key}".lstrip(".")
        return {name: _Table(item, self._path, f"{prefix}.{name}") for name, item in value.items()}

    def finish(self) -> None:
        """Refuse what nobody asked for: a mistyped key must not silently mean its default."""
        for key in self._values:
            if key not in self._known:
                known = ", ".join(self._known)
                raise self.wrong(
                    key, f"unknown key '{key}'", known, _suggest_nearest(key, self._known, "did you mean '{}'?")
                )


def _describe_value(value: object, kind: type) -> str:
    """What stands where something else is expected: a login may hide in a table, or in place of one."""
    if kind is dict or isinstance(value, dict):
        return _name_kind(value)
    return repr(value)


def _name_kind(value: object) -> str:
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return name
    return "a date or a time"


def _suggest_nearest(word: str, known: Mapping[str, object] | list[str], sentence: str) -> str | None:
    import difflib  # noqa: PLC0415 - only a name that is not known is held against those that are

    near = difflib.get_close_matches(word, list(known), n=1)
    if not near:
        return None
    return sentence.format(near[0])
