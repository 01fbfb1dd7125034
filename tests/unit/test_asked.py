from __future__ import annotations

import shlex

import click
import pytest

from lastgood import asked
from lastgood.asked import Asked
from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.main import VERBS, lastgood
from lastgood.errors import LastgoodError
from lastgood.observe.evidence import EvidenceOptions

QUERY = Asked(
    "/lake/my chk",
    ("--sink", "delta:/lake/t", "--kafka", "b:9092", "--topic", "clicks"),
    ("--spark", "4.0", "--fail-on-data-loss", "false"),
    ("duplicates",),
    ("--goal", "reposition", "--earliest"),
    "other.toml",
    ("--max-downtime", "3d"),
)


@click.command()
@add_evidence_options
def bare() -> None:
    pass


def options_of(verb: str) -> set[str]:
    command = lastgood.get_command(click.Context(lastgood), verb)
    assert command is not None
    return {name for option in command.params for name in option.opts}


EVIDENCE = {name for option in bare.params for name in option.opts}


@pytest.mark.parametrize("verb", VERBS)
def test_a_printed_command_carries_what_its_verb_takes_and_nothing_else(verb: str) -> None:
    options = options_of(verb)
    assert (verb in asked.LOOKING) == (options >= EVIDENCE)
    assert (verb in asked.PREDICTING) == (options >= {"--spark", "--fail-on-data-loss"})
    assert (verb in asked.FORESEEING) == ("--max-downtime" in options)
    assert (verb in asked.PAYING) == ("--accept" in options)
    assert (verb in asked.ALLOWED) == ("--policy" in options)
    assert (verb in asked.BY_ID) == (options >= {"--checkpoint"} and options.isdisjoint({"--config", "--to"}))


def test_compared_is_what_verify_takes_of_the_evidence() -> None:
    assert options_of("verify") & EVIDENCE == asked.COMPARED


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_named_is_what_apply_and_undo_take_of_the_evidence(verb: str) -> None:
    assert options_of(verb) & EVIDENCE == asked.NAMED[verb]


def test_a_repair_is_ended_with_what_was_named() -> None:
    assert QUERY.make_undo_command("7f3a", None, asked.DEAD).endswith("--sink delta:/lake/t")
    assert QUERY.make_apply_command("plan.json", "--kafka", "c:9092") == (
        "lastgood apply plan.json --kafka c:9092 --sink delta:/lake/t"
    )


def test_every_word_that_was_said_is_said_again() -> None:
    words = shlex.split(QUERY.command("plan", "--goal", "replan"))
    assert words[:5] == ["lastgood", "plan", "/lake/my chk", "--goal", "replan"]
    assert " ".join(words[5:]) == (
        "--spark 4.0 --fail-on-data-loss false --sink delta:/lake/t --kafka b:9092 --topic clicks --accept duplicates"
    )
    assert QUERY.command("recover").endswith("--accept duplicates --policy other.toml")
    assert QUERY.command("diagnose").endswith("--topic clicks --max-downtime 3d")
    assert QUERY.command("backup list") == "lastgood backup list '/lake/my chk'"
    assert QUERY.command("undo", "7f3a") == "lastgood undo 7f3a --checkpoint '/lake/my chk' --sink delta:/lake/t"
    assert QUERY.command("report", "7f3a").endswith("--sink delta:/lake/t --kafka b:9092 --topic clicks")


def test_a_price_that_is_named_is_the_whole_price() -> None:
    assert QUERY.command("plan", "--accept", "duplicates,loss").count("--accept") == 1


def test_the_same_again_keeps_goal_and_place() -> None:
    told = QUERY.make_plan_command("--kafka", "c:9092")
    assert "--goal reposition --earliest --kafka c:9092" in told
    assert told.count("--kafka") == 1  # what is said anew counts, and nothing is said twice


def test_verify_takes_evidence_only_where_it_compares() -> None:
    assert QUERY.command("verify") == "lastgood verify '/lake/my chk'"
    assert QUERY.command("verify", "--data").endswith("--data --sink delta:/lake/t --kafka b:9092")


def test_without_a_target_it_is_about_a_location() -> None:
    assert Asked().about("/chk").command("status") == "lastgood status /chk"
    assert QUERY.about("/chk") is QUERY


def test_the_application_is_started_on_its_checkpoint_with_what_run_takes() -> None:
    said = ("--sink", "/lake/my orders", "--topic", "orders", "--kafka", "b:9092", "--source-replays")
    line = Asked(evidence=said).make_run_command("/lake/chk")
    wanted = "--checkpoint /lake/chk --sink '/lake/my orders' --kafka b:9092 --source-replays -- COMMAND"
    assert line == f"lastgood run {wanted}"
    assert Asked("orders.clicks", said).make_run_command("/lake/chk") == "lastgood run orders"
    two = Asked(evidence=("--sink", "a", "--sink", "b")).make_run_command("/lake/chk")
    assert two == "lastgood run --checkpoint /lake/chk -- COMMAND"


def test_relative_place_is_taken_for_no_option_and_for_no_secret() -> None:
    words = EvidenceOptions(sinks=("--sink/t", "token=5/t")).words()
    told = Asked("-old/chk", words).command("plan")
    assert told == "lastgood plan ./-old/chk --sink ./--sink/t --sink ./token=5/t"
    error = LastgoodError("it is so", subject="/lake/token=5/chk", next=Asked("/lake/token=5/chk").command("status"))
    assert error.subject == "/lake/token=***"
    assert error.next == "lastgood status /lake/token=5/chk"
