"""`lastgood run`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lastgood.cli.evidence import tell_passwords
from lastgood.cli.once import CommandTaking, take_command
from lastgood.cli.output import format_option, make_console, print_json
from lastgood.cli.said import list_options_said
from lastgood.errors import UsageError, format_command_line
from lastgood.settings.policy import CODE_CHANGES, STATE_LOSSES
from lastgood.visible import join_words, take_excerpt, take_first_lines

if TYPE_CHECKING:
    from lastgood.diagnosis.findings import Finding
    from lastgood.settings.config import Pipeline
    from lastgood.supervise.prepared import Prepared


@click.command(cls=CommandTaking, options_metavar="[OPTIONS]")
@click.argument("names", nargs=-1, metavar="[NAME | -- COMMAND...]")
@click.option(
    "--config", type=click.Path(path_type=Path), default=Path("lastgood.toml"), show_default=True, help="The pipelines."
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="LOCATION",
    help="With -- COMMAND: the checkpoint location of its query; once for each query.",
)
@click.option(
    "--sink",
    metavar="LOCATION",
    help="With one --checkpoint: where its query writes, a Delta table or a folder with _spark_metadata. So repairs"
    " are exactly once where they can be.",
)
@click.option("--kafka", metavar="SERVERS", help="With --checkpoint: bootstrap.servers of the sources.")
@click.option(
    "--source-replays",
    is_flag=True,
    help="With -- COMMAND: sources that cannot be asked (Kinesis, Event Hubs, one of your own) serve their ranges"
    " again.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check configuration, command, Python, Java, and Kafka's retention against max_downtime; start nothing.",
)
@click.option(
    "--no-agent", is_flag=True, help="Leave the driver uninstrumented: then only its log and checkpoint tell of it."
)
@click.option(
    "--restart-only", is_flag=True, help="Never look at a checkpoint before a start, nor repair it: only start again."
)
@click.option("--first-start", is_flag=True, help="The queries have never run: do not warn where nobody can tell that.")
@click.option(
    "--go-on",
    is_flag=True,
    help="You have looked: start the queries as they stand, however often they failed or long they were down.",
)
@click.option(
    "--on-code-change",
    type=click.Choice(CODE_CHANGES),
    help="Code that keeps other state than the checkpoint holds: recompute makes the state anew, for windows that are"
    " as long as before; start does not hold the code against the checkpoint. As on_code_change of the policy.",
)
@click.option(
    "--on-state-loss",
    type=click.Choice(STATE_LOSSES),
    help="State that cannot be loaded, where nothing else is exact: rebuild has the command run the batches again that"
    " made it, beside the checkpoint and without a sink. As on_state_loss of the policy.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="A second driver waits, warm, before its first query, and takes over when the first is dead. What the"
    " application does before that is done twice. As standby of the pipeline.",
)
@click.option(
    "--class-archive",
    is_flag=True,
    help="Archive Spark's classes in idle time, once, beside the running command: the next start takes them from there,"
    " and less time. As class_archive of the pipeline.",
)
@click.option(
    "--restart-in-session",
    is_flag=True,
    help="A query that fails beside others is started again in their driver, if it can be as it stands and has come"
    " further since it began. As restart_in_session of the pipeline.",
)
@click.option("--show-output", is_flag=True, help="Show what the command prints, on standard error.")
@click.option(
    "--show-data",
    is_flag=True,
    help="Leave rows of the data in the line that is shown and written down of a failure; else they are cut. As"
    " show_data of the policy.",
)
@format_option
@click.pass_context
def run(
    ctx: click.Context,
    names: tuple[str, ...],
    *,
    config: Path,
    checkpoints: tuple[str, ...],
    sink: str | None,
    kafka: str | None,
    source_replays: bool,
    check: bool,
    no_agent: bool,
    restart_only: bool,
    first_start: bool,
    go_on: bool,
    on_code_change: str | None,
    on_state_loss: str | None,
    standby: bool,
    class_archive: bool,
    restart_in_session: bool,
    show_output: bool,
    show_data: bool,
    output_format: str,
) -> int:
    r"""Start a command, watch it and its checkpoint, start it again when it dies.

    \b
    lastgood run -- spark-submit orders.py            a command
    lastgood run --checkpoint s3a://lake/chk/orders --sink s3a://lake/orders -- spark-submit orders.py
    lastgood run orders                               [pipeline.orders] of lastgood.toml
    lastgood run                                      the only pipeline there

    Before each start the query is looked at. Where Spark's own restart is right, it is started at once; a repair
    that costs nothing, or what accept in lastgood.toml allows, is carried out; anything else waits for a person,
    with the plan saved. Later restarts wait longer each time; a new committed batch resets the count. Ctrl-C and
    SIGTERM are passed on; whatever the command started ends with it.

    Without a policy in lastgood.toml nothing is accepted beyond Spark's own restart; a batch that fails three times, or
    for ten minutes, is planned anew; after five restarts without a new batch it stops, until you say --go-on; and a
    command that runs and commits nothing is left alone. The logs are mirrored beside the checkpoint; state is not.

    With ledger = "URL" in lastgood.toml, or in LASTGOOD_LEDGER, the history is kept in that database as well; nothing
    waits for it.

    Exit codes: 0 the command ended with 0; 3 a person is needed; 71 it failed too often without progress; 72 it
    cannot be started; 73 another lastgood holds the checkpoint; 130, 143 stopped by Ctrl-C, SIGTERM.
    """
    from lastgood.operations.run import prepare, supervise

    pipeline = _choose_pipeline(names, take_command(ctx), config, _Told(checkpoints, sink, kafka, source_replays))
    tell_passwords(() if sink is None else (sink,))
    if show_data:
        pipeline = replace(pipeline, policy=replace(pipeline.policy, show_data=True))
    if on_code_change is not None:
        pipeline = replace(pipeline, policy=replace(pipeline.policy, on_code_change=on_code_change))
    if on_state_loss is not None:
        pipeline = replace(pipeline, policy=replace(pipeline.policy, on_state_loss=on_state_loss))
    pipeline = replace(
        pipeline,
        standby=standby or pipeline.standby,
        class_archive=class_archive or pipeline.class_archive,
        restart_in_session=restart_in_session or pipeline.restart_in_session,
    )
    prepared = prepare(pipeline, agent=not no_agent, repairs=not restart_only, first_start=first_start, go_on=go_on)
    if check:
        _print_check(prepared, output_format)
        return 0
    show = sys.stderr.buffer if show_output else None
    if output_format == "json":
        return supervise(prepared, tell=lambda event: print_json(event.to_json()), show=show)
    from lastgood.cli.timeline import open_timeline

    with open_timeline(make_console(), live=not show_output) as listen:
        return supervise(prepared, tell=listen, show=show)


_RESTARTS = "where it can be started as it stands, and has committed a batch since it began"
_ARCHIVE = (
    "made once, beside the running command, with the least priority: some 180 MB in your cache; not where a folder on"
    " the class path holds files"
)


class _Told(NamedTuple):
    """What goes with -- COMMAND alone."""

    checkpoints: tuple[str, ...]
    sink: str | None
    kafka: str | None
    source_replays: bool


def _choose_pipeline(names: tuple[str, ...], command: tuple[str, ...] | None, config: Path, told: _Told) -> Pipeline:
    from lastgood.settings.config import Config, choose_pipeline, make_pipeline_of_command

    if command is not None:
        if names:
            raise UsageError(
                "a pipeline's name and a command exclude each other",
                found=f"{' '.join(names)} -- {' '.join(command)}",
                expected="lastgood run NAME, or lastgood run -- COMMAND",
            )
        if not command:
            raise UsageError("there is no command after --", expected="lastgood run -- COMMAND [ARG ...]")
        if told.sink is not None and len(told.checkpoints) != 1:
            raise UsageError(
                "--sink tells where the query of one checkpoint writes",
                found=f"{len(told.checkpoints)} checkpoints",
                expected="one --checkpoint; several queries go into a lastgood.toml",
            )
        return make_pipeline_of_command(
            command, told.checkpoints, told.sink, told.kafka, source_replays=told.source_replays
        )
    if len(names) > 1:
        raise UsageError(
            "a command follows two dashes",
            found=format_command_line("run", *names),
            next=format_command_line("run", *list_options_said(), "--", *names),
        )
    if told.source_replays:
        raise UsageError("--source-replays goes with -- COMMAND", expected=f"source_replays = true in {config}")
    for name, value in zip(("checkpoint", "sink", "kafka"), told[:3], strict=True):
        if value:
            raise UsageError(
                f"--{name} goes with -- COMMAND",
                expected=f"{name} = … in {config}",
                next=format_command_line("run", *list_options_said(), "--", "COMMAND"),
            )
    return choose_pipeline(Config(config), names[0] if names else None)


def _describe_fact(prepared: Prepared, label: str, fact: Any) -> str:
    if label == "standby":
        return _describe_standby(prepared)
    if label == "class_archive":
        return _ARCHIVE if fact else "-"
    if label == "restart_in_session":
        return _RESTARTS if fact else "-"
    return fact if isinstance(fact, str) else join_words(fact or ["-"])


def _describe_standby(prepared: Prepared) -> str:
    if not prepared.pipeline.standby:
        return "-"
    memory = prepared.pipeline.standby_memory
    if memory is None:
        held = "as much memory as the first"
    else:
        held = f"at most {memory / 1e6:,.0f} MB"
    return (
        f"a second driver, with {held}, as many cores, of which it uses little while it waits, and executors of its own"
        " where they are not threads of it; what the application does before its first start() is done twice, and"
        " beside the first driver"
    )


def _print_check(prepared: Prepared, output_format: str) -> None:
    from lastgood.observe.retention import ask_retention

    facts = prepared.to_json()
    warnings: list[Finding] = []
    unknowns: list[str] = []
    for target in prepared.targets.values():
        found = ask_retention(target)
        warnings += found.warnings
        if found.unknown is not None:
            unknowns.append(f"max_downtime against retention: {found.unknown}")
    if output_format == "json":
        print_json(facts | {"findings": [finding.to_json() for finding in warnings], "unknowns": unknowns})
        return
    out = make_console()
    for label, fact in facts.items():
        out.print(f"{label.removeprefix('class_'):<12} {_describe_fact(prepared, label, fact)}")
    part = take_excerpt(warnings)
    for finding in part.shown:
        out.print(f"{'warning':<12} {finding.condition.name} {finding.subject}: {finding.effect}")
        out.print(f"{'next':<12} {finding.next}")
    for line in part.more:
        out.print(f"{'warning':<12} {line}")
    for unknown in take_first_lines(unknowns):
        out.print(f"{'not known':<12} {unknown}")
    out.print("Nothing has been started.")
