"""`report`, as a person calls it after the night."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.cli.main import main
from lastgood.journal.incident import Attempt, ComingBack, Incident, describe_way_back
from lastgood.journal.incidents import Incidents, locate_incident
from lastgood.operations.backup import create
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder

ID = "20261121-002300-0001"
DEAD = "--driver-is-dead"
Said = tuple[int, str, str]
Call = Callable[..., Said]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """A verb in this process: exit code, stdout, stderr."""

    def run(*words: object) -> Said:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    """Seven batches are committed, an eighth is planned."""
    built = CheckpointBuilder(tmp_path / "chk")
    built.run(7)
    built.plan()
    return built


def told(said: Said, code: int = 0) -> dict[str, Any]:
    assert said[0] == code, said
    found: dict[str, Any] = json.loads(said[1])
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def incident(query: CheckpointBuilder, **others: Any) -> Incident:
    attempt = Attempt(at_ms=STARTED_MS + 100, did="restart", because="Spark runs batch 7 again", seconds=0.2)
    fields: dict[str, Any] = {
        "cause": {"exit_code": 1, "error": "Boom | `x`\nand <b>", "condition": "KAFKA_DATA_LOSS", "log": "/var/log/x"},
        "attempts": (attempt,),
        "outcome": "open",
        **others,
    }
    found = Incident(
        id=ID,
        checkpoint=str(query.folder),
        pipeline="orders",
        failed_at_ms=STARTED_MS,
        position={"planned": 7, "committed": 6},
        **{"first_batch": None, "rerun": None, "first_batch_at_ms": None, "promise": None, **fields},
    )
    Incidents(LocalWriter(), parse_location(str(query.folder))).write(found)
    return found


def applied(call: Call, query: CheckpointBuilder) -> str:
    """The plan of batch 7 is dropped by hand; the id of that."""
    plan = told(
        call("plan", query.folder, "--goal", "replan", "--accept", "duplicates", "-o", "plan.json", "--format", "json")
    )
    assert call("apply", "plan.json", DEAD)[0] == 0
    recovery: str = plan["recovery"]
    return recovery


def test_incident_that_is_open_is_told_as_open_and_nothing_is_changed(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    before = files(query.folder.parent)
    code, out, _ = call("report", ID, "--checkpoint", query.folder)
    assert code == 0
    assert out.startswith(f"# Incident {ID}: orders\n\n**Open: no new batch has been committed yet.**\n")
    assert "No new batch has been committed yet that could keep it." in out
    assert files(query.folder.parent) == before


def test_promise_of_an_open_incident_is_looked_up_by_the_report(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    query.commit()
    before = files(query.folder.parent)
    found = told(call("report", "last", "--checkpoint", query.folder, "--format", "json"))
    assert (found["outcome"], found["first_batch"], found["rerun"]) == ("recovered", 7, True)
    assert found["promise"]["state"] == "kept"
    assert found["back_after_seconds"] == (found["first_batch_at_ms"] - STARTED_MS) / 1000
    assert [turn["what"] for turn in found["timeline"]] == [
        "KAFKA_DATA_LOSS: Boom | `x`\nand <b>",
        "started again: Spark runs batch 7 again",
        "batch 7, which ran again, was committed",
    ]
    assert files(query.folder.parent) == before


@pytest.mark.parametrize("way", ["cold", "archive", "standby", "session"])
def test_status_and_report_tell_how_it_came_back_and_what_took_how_long(
    call: Call, query: CheckpointBuilder, way: str
) -> None:
    query.commit()
    back = ComingBack(way=way, noticed_seconds=0.5, process_at_ms=STARTED_MS + 1_000, query_at_ms=STARTED_MS + 4_000)
    at_ms = STARTED_MS + 5_500
    found = incident(query, outcome="recovered", first_batch=7, rerun=True, first_batch_at_ms=at_ms, back=back)
    assert {"noticed", "judged", "started", "first batch"} <= found.parts.keys()
    for words in (("status", query.folder), ("report", ID, "--checkpoint", query.folder)):
        _, out, _ = call(*words)
        assert describe_way_back(way, found.parts) in " ".join(out.split())


def test_broken_promise_is_the_exit_code(call: Call, query: CheckpointBuilder, tmp_path: Path) -> None:
    incident(query)
    query.commit()
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(7):
        (log / str(number)).write_bytes(b"v1")
    code, out, _ = call("report", ID, "--checkpoint", query.folder, "--sink", "file:sink")
    assert code == 1
    assert "**Broken.**" in out
    assert "shows batch 6 as the newest, and batch 7 is committed" in out


def test_what_was_looked_up_before_is_not_looked_up_again(call: Call, query: CheckpointBuilder) -> None:
    kept = incident(query)
    Incidents(LocalWriter(), parse_location(kept.checkpoint)).write(
        replace(kept, promise={"state": "broken", "because": ["it was otherwise"]}, outcome="recovered", first_batch=7)
    )
    query.commit()
    code, out, _ = call("report", ID, "--checkpoint", query.folder)
    assert code == 1
    assert "- it was otherwise" in out


def test_markdown_quotes_what_an_error_holds(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    _, out, _ = call("report", ID, "--checkpoint", query.folder)
    assert "- error: `` Boom \\| `x` and <b> ``" in out
    rows = [line for line in out.splitlines() if line.startswith("| 2026")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [5, 5]
    assert "Boom \\| \\`x\\` and \\<b\\>" in rows[0]


def test_recovery_that_was_made_by_hand_has_its_page(call: Call, query: CheckpointBuilder) -> None:
    recovery = applied(call, query)
    found = told(call("report", recovery, "--format", "json"))  # this machine remembers where it was
    assert (found["by_hand"], found["id"], found["outcome"]) == (True, recovery, "open")
    assert [each["stage"] for each in found["recoveries"][0]["stages"]] == ["begun", "applying", "applied", "closed"]
    assert found["recoveries"][0]["proof"] == "--driver-is-dead was given"
    assert found["plan"]["sources"][0]["duplicated"] == {"orders": {"0": [[35, 40]], "1": [[35, 40]]}}
    assert "after" not in found["plan"]["steps"][0]
    _, out, _ = call("report", recovery)
    assert out.startswith(f"# Recovery {recovery}: chk\n")
    assert "| 0 (kafka) | written twice | orders/0 | [35, 40) | at most 5 |" in out
    undo = f"lastgood undo {recovery} --driver-is-dead --checkpoint {query.folder}"
    assert f"`{undo}`, as long as the query has not gone on." in out
    assert "- accepted: duplicates" in out
    assert "--driver-is-dead was given" in out


def test_recovery_by_hand_is_held_against_what_followed(call: Call, query: CheckpointBuilder) -> None:
    recovery = applied(call, query)
    (query.folder / "commits/7").write_bytes((query.folder / "commits/6").read_bytes())  # it used up its number
    found = told(call("report", recovery, "--format", "json"))
    assert (found["outcome"], found["first_batch"], found["rerun"]) == ("recovered", 7, True)
    assert found["promise"]["state"] == "kept"
    assert found["promise"]["because"][-1] == "batch 7 had nothing to read"
    assert "has gone on since" in call("report", recovery)[1]


def test_recovery_that_was_taken_back_is_told_so(call: Call, query: CheckpointBuilder) -> None:
    recovery = applied(call, query)
    assert call("undo", recovery, DEAD)[0] == 0
    found = told(call("report", "last", "--checkpoint", query.folder, "--format", "json"))
    assert (found["outcome"], found["recoveries"][0]["undo"]) == ("undone", None)
    assert "every byte was put back as it was" in call("report", recovery)[1]


def test_after_a_later_recovery_nobody_can_tell(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    query.commit()
    query.plan()
    recovery = applied(call, query)
    found = told(call("report", ID, "--checkpoint", query.folder, "--format", "json"))
    assert found["promise"] == {"state": "unknown", "because": [f"recovery {recovery} has changed the logs since"]}


def test_recovery_of_an_incident_is_told_as_that_incident(call: Call, query: CheckpointBuilder) -> None:
    recovery = applied(call, query)
    incident(
        query,
        attempts=(Attempt(at_ms=STARTED_MS + 9, did="repair", because="it was stuck", seconds=0.5, recovery=recovery),),
    )
    for wanted in (recovery, ID):
        found = told(call("report", wanted, "--checkpoint", query.folder, "--format", "json"))
        assert (found["id"], found["by_hand"], len(found["recoveries"])) == (ID, False, 1)


def test_last_is_whatever_came_last(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    recovery = applied(call, query)  # today, which is later
    assert told(call("report", "last", "--checkpoint", query.folder, "--format", "json"))["id"] in (ID, recovery)
    newer = replace(incident(query), id="29991231-235959-0001")
    Incidents(LocalWriter(), parse_location(newer.checkpoint)).write(newer)
    assert told(call("report", "last", "--checkpoint", query.folder, "--format", "json"))["id"] == newer.id


def test_lost_ranges_are_named_for_the_owner_of_the_producer(call: Call, query: CheckpointBuilder) -> None:
    source = {
        "index": 0,
        "kind": "kafka",
        "reread": {},
        "lost": {"orders": {"0": [[35, 38]]}},
        "duplicated": {},
        "bound": True,
    }
    plan = {"goal": "reposition", "guarantee": "lossy", "sources": [source], "sinks": [], "steps": [], "rests_on": []}
    stop = Attempt(
        at_ms=STARTED_MS + 9, did="stop", because="nobody accepted loss", seconds=0, plan=plan, file="/p.json"
    )
    incident(query, attempts=(stop,), outcome="person")
    found = told(call("report", ID, "--checkpoint", query.folder, "--format", "json"))
    assert found["lost"] == [
        {
            "topic": "orders",
            "partition": 0,
            "from": 35,
            "to": 38,
            "bound": True,
            "written_after_ms": None,
            "written_before_ms": None,
        }
    ]
    _, out, _ = call("report", ID, "--checkpoint", query.folder)
    assert "| orders | 0 | 35 to 37 | at most 3 | not known |" in out
    assert "As was noted down then, the plan waits for a person in `/p.json`." in out
    assert "**A person is needed.**" in out


def test_report_is_saved_where_it_is_wanted(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    code, out, _ = call("report", ID, "--checkpoint", query.folder, "-o", "incident.md")
    assert (code, out) == (0, "The report is saved: incident.md\nNothing has been changed.\n")
    assert Path("incident.md").read_text().startswith(f"# Incident {ID}")
    refused = told(call("report", ID, "--checkpoint", query.folder, "-o", "no/such.md", "--format", "json"), 2)
    assert refused["error"]["sentence"] == "the report cannot be saved"


def test_damaged_incident_is_told_with_its_file(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    file = Path(locate_incident(parse_location(str(query.folder)), ID).path)
    file.write_bytes(file.read_bytes()[:-40])
    error = told(call("report", "last", "--checkpoint", query.folder, "--format", "json"), 37)["error"]
    assert (error["condition"], error["subject"]) == ("INCIDENT_DAMAGED", str(file))
    recovery = applied(call, query)
    assert told(call("report", recovery, "--format", "json"))["by_hand"] is True


def test_configuration_knows_where_incidents_are(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    config = f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{query.folder}"\n'
    Path("lastgood.toml").write_text(config)
    for words in ((ID,), ("last",), ("last", "--checkpoint", "orders")):
        assert told(call("report", *words, "--format", "json"))["id"] == ID


def test_last_of_several_names_those_that_may_be_meant(call: Call) -> None:
    named = [f'[pipeline.{name}]\ncommand = ["true"]\ncheckpoint = "/chk/{name}"\n' for name in ("orders", "clicks")]
    Path("lastgood.toml").write_text("".join(named))
    error = told(call("report", "last", "--format", "json"), 2)["error"]
    assert error["found"] == "/chk/orders, /chk/clicks"
    assert error["next"] == "lastgood report last --checkpoint /chk/orders"


@pytest.mark.parametrize(
    ("words", "code", "condition"),
    [
        (("last",), 2, "USAGE"),
        (("./chk",), 2, "USAGE"),
        ((ID,), 56, "RECOVERY_UNKNOWN"),
        ((ID, "--checkpoint", "chk"), 56, "RECOVERY_UNKNOWN"),
        (("last", "--checkpoint", "chk"), 56, "RECOVERY_UNKNOWN"),
        (("../../etc/passwd", "--checkpoint", "chk"), 56, "RECOVERY_UNKNOWN"),
        ((ID, "--checkpoint", "xyz://a"), 13, "LOCATION_INVALID"),
    ],
)
def test_what_cannot_be_found_is_a_clear_error(
    call: Call, query: CheckpointBuilder, words: tuple[str, ...], code: int, condition: str
) -> None:
    assert query.planned == 7
    assert told(call("report", *words, "--format", "json"), code)["error"]["condition"] == condition


def test_status_shows_the_last_incident(call: Call, query: CheckpointBuilder) -> None:
    assert told(call("status", query.folder, "--format", "json"))["last_incident"] is None
    kept = incident(query)
    _, out, _ = call("status", query.folder)
    assert "KAFKA_DATA_LOSS: Boom" in out
    assert f"lastgood report {ID} --checkpoint {query.folder}" in out
    done = replace(kept, first_batch=7, first_batch_at_ms=STARTED_MS + 43_000, promise={"state": "kept", "because": []})
    Incidents(LocalWriter(), parse_location(kept.checkpoint)).write(replace(done, outcome="recovered"))
    _, out, _ = call("status", query.folder)
    assert "started again; back after 43 s with batch 7; promise kept" in out
    shown = told(call("status", query.folder, "--format", "json"))["last_incident"]
    assert (shown["id"], shown["promise"], shown["back_after_seconds"]) == (ID, "kept", 43.0)


def test_status_says_everything_else_where_the_last_incident_is_damaged(call: Call, query: CheckpointBuilder) -> None:
    incident(query)
    file = Path(locate_incident(parse_location(str(query.folder)), ID).path)
    file.write_bytes(b"")
    code, out, _ = call("status", query.folder)
    assert code == 0
    assert f"the last one cannot be told: this is no incident, or not a whole one ({file})" in out
    shown = told(call("status", query.folder, "--format", "json"))
    assert shown["last_incident"]["error"]["condition"] == "INCIDENT_DAMAGED"
    assert shown["last_committed"] == 6


def test_backup_beside_is_not_taken_for_an_incident(call: Call, query: CheckpointBuilder) -> None:
    create(resolve_target(str(query.folder)))
    assert told(call("status", query.folder, "--format", "json"))["last_incident"] is None
