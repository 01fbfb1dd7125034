from __future__ import annotations

import importlib.machinery
import importlib.util
import shlex
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from lastgood.errors import LastgoodError, format_command_line

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("reference", str(ROOT / "tools" / "reference"))
    spec = importlib.util.spec_from_loader("reference", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_condition_is_the_name_of_one_error(reference: ModuleType) -> None:
    counted = Counter(error.condition for error in reference.error_classes())
    assert [condition for condition, times in counted.items() if times > 1] == []


def test_every_exit_code_but_usage_means_one_thing(reference: ModuleType) -> None:
    counted = Counter(error.exit_code for error in reference.error_classes() if error.exit_code != 2)
    assert [code for code, times in counted.items() if times > 1] == []


def test_the_documented_pages_are_those_of_the_classes(reference: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["reference", "--check"])
    assert reference.main() == 0


def test_facts_stand_in_the_order_in_which_they_are_read() -> None:
    error = LastgoodError("it is so", subject="a", found="b", expected="c", effect="d", next="e")
    assert list(error.facts().items()) == [
        ("where", "a"),
        ("found", "b"),
        ("expected", "c"),
        ("effect", "d"),
        ("next", "e"),
    ]
    assert LastgoodError("it is so").facts() == {}


def test_json_has_every_field_also_the_unknown_ones() -> None:
    assert LastgoodError("it is so").to_json() == {
        "condition": "INTERNAL",
        "sentence": "it is so",
        "subject": None,
        "found": None,
        "expected": None,
        "effect": None,
        "next": None,
        "alternatives": [],
    }


def test_a_command_can_be_pasted_whatever_its_words_hold() -> None:
    line = format_command_line("inspect", "/lake/my orders", "--batch", 7, "--sink", "$HOME/'x'")
    assert line.startswith("lastgood inspect '/lake/my orders' --batch 7 --sink ")
    assert shlex.split(line) == ["lastgood", "inspect", "/lake/my orders", "--batch", "7", "--sink", "$HOME/'x'"]
