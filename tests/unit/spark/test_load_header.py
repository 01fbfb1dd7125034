from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import BooleanType, DataType, DateType, DoubleType, LongType, StringType, StructField, StructType

from lastgood.load.input_files import look_at_file
from lastgood.load.specification import LoadFormat
from lastgood.spark.load_header import find_false_header
from lastgood.storage.reading import open_storage, parse_location

TYPED: dict[str, DataType] = {"id": LongType(), "name": StringType(), "day": DateType(), "is_new": BooleanType()}
YEARS: dict[str, DataType] = {"name": StringType(), "2020": DoubleType(), "y2021": DoubleType()}


def find(file: Path, content: bytes, columns: dict[str, DataType], **options: str) -> str | None:
    file.write_bytes(content)
    location = parse_location(str(file))
    told = {"header": "true", **options}
    looked = look_at_file(open_storage(location), location, LoadFormat.CSV, told)
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    return find_false_header([looked], schema, told, "UTC")


@pytest.mark.parametrize(
    ("content", "columns", "options", "line"),
    [
        (b"1,a,2026-03-01,true\n2,b,,\n", TYPED, {}, "1,a,2026-03-01,true"),
        (b'\xef\xbb\xbf\n \n#x\n1,"a, b",,\n', TYPED, {"comment": "#"}, '1,"a, b",,'),
        (b"1;a;2026-03-01;true\r\n2;b;;\r\n", TYPED, {"sep": ";"}, "1;a;2026-03-01;true"),
        (b"1,a\xe4,,\r2,b,,\r", TYPED, {"encoding": "ISO-8859-1"}, "1,aä,,"),
        (b"1,a,,", TYPED, {}, "1,a,,"),
        (b"1||a||2026-03-01||true\n", TYPED, {"sep": "||"}, "1||a||2026-03-01||true"),
        (b"1\ta\t\t\n", TYPED, {"sep": "\\t"}, "1\ta\t\t"),
        ("\ufeff1,ä,,\n2,b,,\n".encode("utf-16-le"), TYPED, {"encoding": "UTF-16"}, "1,ä,,"),
        (b"x,2020,2021\n", YEARS, {}, "x,2020,2021"),
    ],
)
def test_a_record_is_told_where_a_header_should_be(
    tmp_path: Path, content: bytes, columns: dict[str, DataType], options: dict[str, str], line: str
) -> None:
    file = tmp_path / "in.csv"
    assert find(file, content, columns, **options) == f"{file}: {line}"


@pytest.mark.parametrize(
    ("content", "columns", "options"),
    [
        (b"id,name,day,is_new\n1,a,,\n", TYPED, {}),
        (b"number,who,when,new\n1,a,,\n", TYPED, {}),
        (b"1,name,day,is_new\n", TYPED, {}),
        (b"1,a\n", TYPED, {}),
        (b"a,b\n", {"a": StringType(), "b": StringType()}, {}),
        (b",,,\n", TYPED, {}),
        (b"", TYPED, {}),
        (b"name,2020,2021\n", {**YEARS, "y2021": StringType()}, {}),
        (b"1,a,2026-03-01,true\n", TYPED, {"header": "false"}),
    ],
)
def test_names_are_none_nor_is_what_nobody_can_tell(
    tmp_path: Path, content: bytes, columns: dict[str, DataType], options: dict[str, str]
) -> None:
    assert find(tmp_path / "in.csv", content, columns, **options) is None
