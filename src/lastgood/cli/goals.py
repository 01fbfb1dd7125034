"""The options that say what is wanted of a query, and what it may cost: the same for `plan` and `recover`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.times import DURATION, TIME
from lastgood.errors import UsageError

if TYPE_CHECKING:
    from lastgood.observe.positions import StartChoice
    from lastgood.planning.price import Waiver
    from lastgood.settings.policy import Policy
    from lastgood.sources.kafka.start_files import StartFile

_F = TypeVar("_F", bound=Callable[..., Any])
_WAIVERS = ("duplicates", "loss")


class Waivers(click.ParamType["tuple[Waiver, ...]"]):
    """`duplicates`, `loss`, or both with a comma."""

    name = "WHAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Waiver, ...]:
        """See `click.ParamType`."""
        from lastgood.planning.price import Waiver

        words = [word.strip() for word in str(value).split(",") if word.strip()]
        if any(word not in _WAIVERS for word in words):
            self.fail(f"{value!r} is none of duplicates, loss, duplicates,loss", param, ctx)
        return tuple(Waiver(word) for word in dict.fromkeys(words))


class Goals(click.Choice[str]):
    """The goals that there are; the table of them is loaded when somebody looks at it."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """By their names."""
        from lastgood.planning.goals.kinds import GOAL_KINDS

        return tuple(GOAL_KINDS)


def _make_start_file(
    via: str | None, file: str | None, form: str | None, key: str | None, *, named: Callable[[], StartFile | None]
) -> StartFile | None:
    """The file that `--via app-config` writes.

    Args:
        via: What was typed, as all that follow.
        file: Its location.
        form: How it tells it.
        key: Of a line.
        named: Gives what the policy of the target's pipeline names, where no file was typed.

    Raises:
        UsageError: one of its options stands alone, or lacks another.
    """
    from lastgood.sources.kafka.start_files import StartFile, StartForm

    if via is None:
        if file is None and form is None and key is None:
            return None
        raise UsageError(
            "only --via app-config writes such a file", subject="--start-file", expected="--via app-config"
        )
    known = None
    if file is None and form is None and key is None:
        known = named()
    if known is not None:
        return known
    if file is None:
        raise UsageError(
            "which file says where the application starts?",
            expected="--start-file FILE, or start_file in the policy of the pipeline",
        )
    return StartFile(file, StartForm.JSON if form is None else StartForm(form), key)


_OPTIONS = (
    click.option(
        "--goal",
        type=Goals(),
        default="resume",
        show_default=True,
        help="What is wanted.",
    ),
    click.option("--stable-lag", type=click.IntRange(0), metavar="N", help="Start after batch CURRENT-N."),
    click.option("--batch", type=click.IntRange(0), metavar="N", help="Start after batch N."),
    click.option("--at", metavar="FILE|JSON", help="Start from these startingOffsets."),
    click.option("--at-time", "at_time_ms", type=TIME, help="Start from the first records written then or later."),
    click.option("--earliest", is_flag=True, help="Start from the earliest, whatever that is when Spark starts."),
    click.option("--latest", is_flag=True, help="Leave out all that is unread."),
    click.option("--at-sink", is_flag=True, help="fresh: start after the newest batch that the sinks show."),
    click.option(
        "--offset-columns",
        metavar="TOPIC,PARTITION,OFFSET",
        help="fresh: start where the rows of the Delta table end, by these columns. Two names: rows of one topic.",
    ),
    click.option(
        "--at-last-commit",
        is_flag=True,
        help="fresh: start from what was written to Kafka when the Delta table was last written to.",
    ),
    click.option(
        "--margin",
        type=DURATION,
        metavar="DURATION",
        help="With --at-last-commit: start this much earlier, as the query may have been behind; 1h if not said.",
    ),
    click.option("--only", multiple=True, metavar="TOPIC/PARTITION", help="Move this partition only. Repeatable."),
    click.option("--source", metavar="ID", help="Of a query with several Kafka sources: which one."),
    click.option(
        "--via",
        type=click.Choice(["app-config"]),
        help="fresh: empty the checkpoint, and let the application's own configuration say where it starts.",
    ),
    click.option(
        "--start-file",
        metavar="FILE",
        help="With --via: the file that is written, by default start_file of the pipeline; what it was is kept.",
    ),
    click.option(
        "--start-form",
        type=click.Choice(["json", "properties", "spark-defaults"]),
        help="With --via: the JSON alone (default); or one line KEY=JSON, or KEY JSON, among others that stay.",
    ),
    click.option("--start-key", metavar="KEY", help="With --via: the key of that line."),
    click.option(
        "--takes-any-number",
        is_flag=True,
        help="With --via: no sink goes by the numbers of batches, also of those that nobody can ask.",
    ),
    click.option(
        "--appends-windows",
        is_flag=True,
        help="recompute: you say that it is one windowed aggregation with a watermark, in output mode append.",
    ),
    click.option(
        "--output-mode",
        type=click.Choice(["complete", "update"]),
        help="recompute: you say that it is one aggregation, and that it writes in this output mode.",
    ),
    click.option(
        "--window",
        "window_ms",
        type=DURATION,
        metavar="DURATION",
        help="recompute: no window is longer, so that older events need not be read again; else all are.",
    ),
    click.option(
        "--max-clock-skew",
        "clock_skew_ms",
        type=DURATION,
        metavar="DURATION",
        help="With --window, where no ledger tells: no event is this much later than Kafka has its record.",
    ),
    click.option(
        "--event-time",
        metavar="SQL",
        help="With --window, where no ledger tells: the time of an event, as SQL over key, value and timestamp of its"
        " record. A Spark job on this machine reads all that was read, once.",
    ),
    click.option(
        "--max-replay",
        type=click.IntRange(min=0),
        metavar="N",
        help="recompute: refuse to read again more than so many offsets and files.",
    ),
    click.option(
        "--shuffle-partitions",
        type=click.INT,
        metavar="N",
        help="recompute: spread the state over so many partitions from then on.",
    ),
    click.option(
        "--state-store",
        metavar="rocksdb|hdfs",
        help="recompute: keep the state by this provider from then on.",
    ),
    click.option(
        "--changelog",
        type=click.Choice(["on", "off"]),
        help="recompute: with RocksDB, how the application is to be started from then on; the plan says with what.",
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="recompute: another conf that the log pins and that may change with the state. Repeatable.",
    ),
    click.option(
        "--accept",
        type=Waivers(),
        multiple=True,
        metavar="WHAT",
        help="duplicates, loss, or duplicates,loss. Repeatable.",
    ),
    click.option("--spark", metavar="VERSION", help="The Spark that will start; by default the newest that can."),
    click.option(
        "--fail-on-data-loss",
        type=click.BOOL,
        default=True,
        metavar="BOOLEAN",
        help="As the query's Kafka source has it.",
    ),
)


def add_goal_options(command: _F) -> _F:
    """Add the options to a command, and those of the evidence; it gets them as one `PlanOptions`, named `wanted`.

    It takes a TARGET, and perhaps a --policy; it gets both as one `Target`.
    """

    @functools.wraps(command)
    def with_options(
        *arguments: Any,
        goal: str,
        options: Any,
        accept: tuple[tuple[Waiver, ...], ...],
        spark: str | None,
        fail_on_data_loss: bool,
        via: str | None,
        start_file: str | None,
        start_form: str | None,
        start_key: str | None,
        takes_any_number: bool,
        appends_windows: bool,
        output_mode: str | None,
        window_ms: int | None,
        clock_skew_ms: int | None,
        event_time: str | None,
        max_replay: int | None,
        shuffle_partitions: int | None,
        state_store: str | None,
        changelog: str | None,
        conf: tuple[str, ...],
        **others: Any,
    ) -> Any:
        from lastgood.observe.rereading import WindowChoice
        from lastgood.planning.pinned_confs import make_conf, parse_conf_words
        from lastgood.recovery.plans import PlanOptions
        from lastgood.settings.config import Config
        from lastgood.settings.target import resolve_target

        text, config = others.pop("target"), Config(others.pop("policy", None))

        def policy() -> Policy:
            return config.policy_of(text)

        wanted = PlanOptions(
            goal,
            _make_start_choice({name: others.pop(name) for name in _PLACES}),
            options,
            tuple(dict.fromkeys(waiver for each in accept for waiver in each)),
            spark,
            fail_on_data_loss,
            via=_make_start_file(via, start_file, start_form, start_key, named=lambda: policy().via),
            windows=WindowChoice(appends_windows, window_ms, clock_skew_ms, max_replay, output_mode, event_time),
            conf=make_conf(
                shuffle_partitions,
                state_store,
                changelog=None if changelog is None else changelog == "on",
                others=parse_conf_words(conf),
            ),
            takes_any_number=takes_any_number or (via is not None and policy().takes_any_number),
        )
        return command(*arguments, target=resolve_target(text, config), wanted=wanted, **others)

    decorated: Any = add_evidence_options(with_options)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_PLACES = (
    "stable_lag",
    "batch",
    "at",
    "at_time_ms",
    "earliest",
    "latest",
    "at_sink",
    "offset_columns",
    "at_last_commit",
    "margin",
    "only",
    "source",
)
"""Names of the options that say where a query is to start from."""


def _make_start_choice(given: dict[str, Any]) -> StartChoice:
    """Where a query is to start from.

    Raises:
        UsageError: a margin without a time.
    """
    from lastgood.observe.positions import MARGIN_MS, StartChoice

    margin = given.pop("margin")
    if margin is not None and not given["at_last_commit"]:
        raise UsageError(
            "a margin is kept before a commit of the table", subject="--margin", expected="--at-last-commit"
        )
    return StartChoice(**given, margin_ms=MARGIN_MS if margin is None else margin)
