"""What is stored or printed goes through `lastgood.values`; what does not is named here, in lists that only shrink."""

from __future__ import annotations

import ast
from collections import Counter

from modules import nodes, parse_modules

OUTSIDE = ("lab", "spark/agent", "ledger/migrations")
"""What only tests and the demo start, what runs in the user's own process and may import nothing, generated history."""

HAND_WRITTEN = {
    "bundle/tree.py:BundleTree",
    "demo/events.py:Scene",
    "errors.py:LastgoodError",
    "errors.py:OtherWay",
    "failures/classify.py:Failure",
    "journal/to_sign.py:ToSign",
    "planning/goals/kind.py:Goal",
    "planning/goals/values.py:FreshGoal",
    "records/record.py:Record",
    "sources/kafka/facts.py:KafkaFacts",
    "supervise/events.py:Event",
    "values.py:JsonValue",
}
"""Classes with a `to_json` of their own. Most are views, which reckon what they print; none is read back but the facts
about Kafka, which people write by hand as well."""

FOREIGN = {
    "bundle/stand_ins.py": 1,  # Spark's
    "failures/log_entries.py": 2,  # of drivers and schedulers
    "checkpoint/lines.py": 1,  # Spark's
    "failures/log_facts.py": 2,  # Spark's
    "process/child.py": 1,  # of our own guard, by a pipe
    "process/driver.py": 1,  # of a Python that is asked, by a pipe
    "recovery/prover.py": 1,  # of a Spark that was asked
    "spark/audit_job.py": 2,  # runs on Spark, alone
    "spark/event_time_job.py": 1,  # runs on Spark, alone
    "spark/proof_job.py": 4,  # runs on Spark, alone
    "storage/gcs.py": 2,  # Google's
    "supervise/silent_driver.py": 1,  # of our own agent, in a folder of this run alone
}
"""Where JSON is read that lastgood did not write, or that a process of its own has just told it."""


def trees() -> dict[str, ast.Module]:
    return {name: tree for name, tree in parse_modules().items() if not name.startswith(OUTSIDE)}


def methods(tree: ast.Module, name: str) -> set[str]:
    classes = nodes(tree, ast.ClassDef)
    return {each.name for each in classes for one in each.body if isinstance(one, ast.FunctionDef) and one.name == name}


def calls(tree: ast.Module) -> int:
    found = [each.func for each in nodes(tree, ast.Call)]
    attributes = [each for each in found if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
    return sum(each.value.id == "json" and each.attr in ("load", "loads", "JSONDecoder") for each in attributes)


def test_no_class_writes_its_json_by_hand_but_those_that_still_do() -> None:
    assert {f"{name}:{cls}" for name, tree in trees().items() for cls in methods(tree, "to_json")} == HAND_WRITTEN


def test_json_is_read_by_the_codec_but_where_it_is_foreign() -> None:
    found = Counter({name: calls(tree) for name, tree in trees().items()})
    assert +found == +Counter({**FOREIGN, "notes.py": 2})  # a lenient and a strict one


def test_no_class_reads_its_json_by_hand() -> None:
    found = {f"{name}:{cls}" for name, tree in trees().items() for cls in methods(tree, "from_json")}
    assert found == {"values.py:JsonValue"}
