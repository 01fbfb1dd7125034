from __future__ import annotations

from lastgood.failures.failure_class import FailureClass, Rule, compile_any_of


def rule(conditions: tuple[str, ...] = (), classes: tuple[str, ...] = (), *text: str) -> Rule:
    found = compile_any_of(*text) if text else None
    return Rule("r", FailureClass.UNKNOWN, "because", "source", conditions=conditions, classes=classes, text=found)


def fits(one: Rule, class_name: str = "", condition: str | None = None, message: str = "") -> bool:
    return one.fits(class_name=class_name, condition=condition, message=message)


def test_condition_fits_with_all_that_stand_below_it() -> None:
    one = rule(("A.B",))
    assert fits(one, condition="A.B")
    assert fits(one, condition="A.B.C")
    assert not fits(one, condition="A.BC")
    assert not fits(one, condition="A")
    assert not fits(one)


def test_class_and_text_must_both_fit() -> None:
    one = rule((), ("E",), "lost", "gone")
    assert fits(one, "E", message="all is gone")
    assert not fits(one, "E", message="all is well")
    assert not fits(one, "F", message="all is gone")
    assert fits(rule((), ("E",)), "E")
    assert fits(rule((), (), "gone"), "F", message="gone")


def test_rule_with_a_condition_and_a_text_fits_by_either() -> None:
    one = rule(("A",), (), "gone")
    assert fits(one, condition="A")
    assert fits(one, condition="B", message="gone")
    assert not fits(one, condition="B")


def test_rule_without_anything_fits_wherever_it_stands() -> None:
    assert fits(rule(), "Any", "ANY", "any")


def test_class_values_are_what_the_json_says() -> None:
    assert {each.value for each in FailureClass} == {each.name.lower() for each in FailureClass}
