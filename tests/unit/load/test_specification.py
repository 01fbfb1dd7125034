"""Which load it is: found again by its files, refused where something is another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lastgood.errors import UsageError
from lastgood.load.going_on import go_on
from lastgood.load.specification import (
    InputChangedError,
    InputFile,
    LoadDiffersError,
    LoadFormat,
    LoadSpec,
    ParseMode,
    choose_form,
    name_load,
    require_known_options,
)

FILE = InputFile("/in/a.csv", 100, 1, "head", "tail", 0, is_ended=True)
SPEC = LoadSpec(
    table="delta:/t",
    form=LoadFormat.CSV,
    schema="a int",
    infers=False,
    options={"header": "true"},
    mode=ParseMode.PERMISSIVE,
    files=(replace(FILE, location="/in/0.csv"), FILE),
)


def test_the_same_load_goes_on_with_what_spark_found_out() -> None:
    begun = replace(SPEC, columns="{}")
    assert go_on(begun, SPEC) == begun
    assert LoadSpec.from_json(begun.to_json()) == begun


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"table": "delta:/u"}, "the table delta:/u"),
        ({"form": LoadFormat.JSONL}, "files of jsonl"),
        ({"schema": None}, "the schema as Spark finds it"),
        ({"infers": True}, "--infer-schema"),
        ({"options": {}}, "the options none"),
        ({"mode": ParseMode.FAILFAST}, "the mode failfast"),
        ({"files": SPEC.files[:1]}, "the files /in/0.csv"),
    ],
)
def test_another_load_is_refused_and_told(other: dict[str, object], found: str) -> None:
    with pytest.raises(LoadDiffersError) as refused:
        go_on(SPEC, replace(SPEC, **other))  # type: ignore[arg-type]
    assert refused.value.found == found


def test_columns_may_be_others_where_that_is_asked_for_and_nothing_else_is() -> None:
    begun = replace(SPEC, columns="{}", columns_at_first=1)
    asked = replace(SPEC, schema="a int, b int", infers=True)
    assert go_on(begun, asked, evolves=True) == replace(asked, columns="{}", columns_at_first=1)
    with pytest.raises(LoadDiffersError) as refused:
        go_on(begun, asked)
    assert refused.value.next is not None
    assert "--evolve added to the same command" in refused.value.next
    with pytest.raises(LoadDiffersError) as refused:
        go_on(begun, replace(asked, mode=ParseMode.FAILFAST), evolves=True)
    assert "--evolve" not in str(refused.value.next)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"size": 90}, "90 bytes, 100 when it was read"),
        ({"head": "x"}, "its beginning is another"),
        ({"tail": "x"}, "its end is another"),
        ({"modified_ms": 2}, "it was written since"),
        ({"size": 110, "tail": "x"}, "110 bytes, 100 when it was read"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_file_that_was_changed_is_refused_and_told(change: dict[str, object], found: str, number: int) -> None:
    files = list(SPEC.files)
    files[number] = replace(files[number], **change)  # type: ignore[arg-type]
    with pytest.raises(InputChangedError) as refused:
        go_on(SPEC, replace(SPEC, files=tuple(files)), follows_growth=True)
    assert (refused.value.subject, refused.value.found) == (files[number].location, found)


def test_a_last_file_that_has_grown_is_followed_where_that_is_asked() -> None:
    grown = replace(FILE, size=150, tail="other", modified_ms=2)
    asked = replace(SPEC, files=(SPEC.files[0], grown))
    assert go_on(SPEC, asked, continued={FILE.location}, follows_growth=True).files == asked.files
    with pytest.raises(InputChangedError) as refused:
        go_on(SPEC, asked, continued={FILE.location})
    assert "--follow-growth" in (refused.value.next or "")
    half = replace(SPEC, files=(SPEC.files[0], replace(FILE, is_ended=False)))
    with pytest.raises(InputChangedError, match="not what it was") as refused:
        go_on(half, asked, continued={FILE.location}, follows_growth=True)
    assert "no line end" in (refused.value.found or "")


def test_bytes_are_counted_over_all_files() -> None:
    assert (SPEC.size, SPEC.count_bytes_before(1, 40), SPEC.end) == (200, 140, (1, 100))


def test_the_same_files_have_the_same_name() -> None:
    assert name_load(["/in/my orders.csv"], "t") == name_load(["/in/my orders.csv"], "t")
    assert name_load(["/in/my orders.csv"], "t").startswith("my-orders-")
    assert len({name_load(["/in/a.csv"], "t"), name_load(["/in/a.csv"], "u"), name_load(["/in/b.csv"], "t")}) == 3


def test_how_files_are_written_is_told_by_their_names_or_asked_for() -> None:
    assert choose_form(["/a.csv", "/b.CSV"], None) is LoadFormat.CSV
    assert choose_form(["/a.csv.gz", "/b.csv"], None) is LoadFormat.CSV
    assert choose_form(["/a"], "text") is LoadFormat.TEXT
    with pytest.raises(UsageError, match="not known"):
        choose_form(["/a.csv"], "xml")
    for names in (["/a.csv", "/a.jsonl"], ["/a"], ["/a.json"], ["/a.gz"]):
        with pytest.raises(UsageError, match="not known by their names"):
            choose_form(names, None)


def test_options_are_those_that_are_known() -> None:
    assert require_known_options(LoadFormat.CSV, {"HEADER": "true"}) == {"header": "true"}
    for options in ({"lineSep": "x"}, {"enforceSchema": "false"}, {"header": "true", "Header": "false"}):
        with pytest.raises(UsageError):
            require_known_options(LoadFormat.CSV, options)
    with pytest.raises(UsageError, match="text"):
        require_known_options(LoadFormat.TEXT, {"header": "true"})


def test_a_file_of_a_folder_that_came_late_or_again_is_known() -> None:
    names = ("b", "d", "c", "b", "a", "e", "d")
    files = tuple(replace(SPEC.files[0], location=f"/in/{each}.csv") for each in names)
    came = [each.value for each in replace(SPEC, folder="/in", files=files).list_arrivals()]
    assert came == ["in_order", "in_order", "late", "again", "late", "in_order", "again"]
    assert {each.value for each in replace(SPEC, files=files).list_arrivals()} == {"in_order"}
