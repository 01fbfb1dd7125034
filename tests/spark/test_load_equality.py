"""What a load writes is what Spark's own reader makes of the same files, whatever the chunks are."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import LIBRARIES, Sparks

from lastgood.load.encoding import ENCODING
from lastgood.load.input_files import look_at_file
from lastgood.load.specification import LoadFormat, LoadSpec, ParseMode
from lastgood.load.unpacking import locate_index, unpack_files
from lastgood.sources.files.folders import escape_pattern
from lastgood.storage.reading import open_storage, parse_location
from lastgood.supervise.load_driver import LoadQuestion, LoadSink

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("load_app.py")
COLUMNS = "id bigint, at timestamp, name string, amount double, day date, price decimal(10,2), is_new boolean"
MARKED = f"{COLUMNS}, _corrupt_record string"


@dataclass(frozen=True)
class Case:
    """A file, and how it is read."""

    content: bytes
    form: str = "csv"
    schema: str | None = COLUMNS
    options: dict[str, str] = field(default_factory=dict)
    infers: bool = False
    packing: str | None = None
    """`gz` or `bz2`."""
    stem: str = ""
    """With which the names of its files begin."""


ROW = b"1,2026-03-01T10:00:00Z,a b,1.5,2026-03-01,10.25,true"
OBJECT = b'{"id":1,"at":"2026-03-01T10:00:00Z","name":"a","amount":1.5,"day":"2026-03-01","price":10.25,"is_new":true}'
PACKING: dict[str | None, Callable[[bytes], bytes]] = {None: bytes, "gz": gzip.compress, "bz2": bz2.compress}
CASES = {
    "plain": Case(b"\n".join([ROW] * 7) + b"\n"),
    "no line end at the end": Case(b"\n".join([ROW] * 3)),
    "carriage returns": Case(b"\r\n".join([ROW] * 5) + b"\r\n"),
    "lone carriage returns": Case(b"\r".join([ROW] * 5)),
    "all line ends": Case(ROW + b"\r\n" + ROW + b"\n" + ROW + b"\r" + ROW + b"\n\n\r\n\r\r" + ROW),
    "blank lines": Case(b"\n \n\t\n" + ROW + b"\n\x01\n\x0b\n\xc2\xa0\n\xe3\x80\x80\n" + ROW + b"\n\n"),
    "line ends of Unicode": Case("\u2028\n \x85\n\t\u2029\n1,,a\u2028\n".encode() + ROW),
    "line ends of Unicode and objects": Case("\u2028\n \x85\n".encode() + OBJECT, "jsonl", MARKED),
    "byte order mark": Case(b"\xef\xbb\xbf" + ROW + b"\n" + ROW + b"\n"),
    "header": Case(b"id,at,name,amount,day,price,is_new\n" + ROW + b"\n", options={"header": "true"}),
    "header behind blanks": Case(b"\xef\xbb\xbf\n \nid,at,name\n" + ROW + b"\n" + ROW, options={"header": "true"}),
    "header and comments": Case(
        b"#x\n #y\nid,at\n#z\n" + ROW + b"\n #no\n" + ROW, options={"header": "true", "comment": "#"}
    ),
    "only a header": Case(b"id,at,name\n", options={"header": "true"}),
    "empty": Case(b""),
    "packed": Case(b"id,at\r\n" + b"\r\n".join([ROW] * 40), options={"header": "true"}, packing="gz"),
    "packed by bzip2": Case(b"id,at\r\n" + b"\r\n".join([ROW] * 20_000), options={"header": "true"}, packing="bz2"),
    "packed and empty": Case(b"", packing="gz"),
    "packed and empty, with a header": Case(b"", options={"header": "true"}, packing="gz"),
    "packed objects": Case(b"\n".join([OBJECT] * 5), "jsonl", packing="gz"),
    "packed, and found out": Case(b"id,v\n1,1.5\n", schema=None, options={"header": "true"}, infers=True, packing="gz"),
    "quotes": Case(b'1,,"a,b",1.5\n2,,"a ""b""",1\n3,,a"b,2\n4,,"open,3\n5,,"a" b,1\n6,,"a\\"b",1\n7,,"",\n8,,\'\',\n'),
    "quotes over lines": Case(b'1,,"a\nb",1.5\n2,,c,1\n'),
    "other signs": Case(b"1|x|'a|b'|1,5\n2|y|'a~'b'|2\n", options={"sep": "|", "quote": "'", "escape": "~"}),
    "tabs, spelled": Case(b"1\t\ta\t1.5\n2\t2026-03-01\tb\n", options={"sep": "\\t"}),
    "a name that other files begin with": Case(
        b"ORCID,name\n1,a\n", schema="ORCID int, name string", options={"header": "true"}
    ),
    "two signs": Case(b"1||x||a|b||1.5\n", options={"sep": "||"}),
    "blanks": Case(b" 1 , , a ,1.5 , 2026-03-01 ,1.1,true \n"),
    "blanks left out": Case(
        b" 1 , , a , 1.5 \n", options={"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}
    ),
    "too few and too many": Case(b"1\n1,,\n" + ROW + b",more,and more\n,,,,,,,\n,\n"),
    "not what the schema says": Case(
        b"x,no,a,b,c,d,e\n1.0,2026,,1e5,2026-13-01,1.234,yes\n99999999999999999999,,,,,,\n"
    ),
    "marked": Case(b"x,no,a,b,c,d,e\n" + ROW + b"\n1\n1,,,,,,,,,\n", schema=MARKED),
    "marked under another name": Case(
        b"x,no\n" + ROW + b"\n",
        schema=f"{COLUMNS}, bad string",
        options={"columnNameOfCorruptRecord": "bad"},
    ),
    "nulls": Case(b"1,,NULL,NULL\n2,,,\n3,,null,NaN\n4,,x,Inf\n5,,y,-Infinity\n", options={"nullValue": "NULL"}),
    "empty values": Case(b'1,,"",\n2,,,\n', options={"emptyValue": "e", "nullValue": "n"}),
    "numbers": Case(
        b"+1,,,+1.5,,-.5,TRUE\n0x1F,,,1d,,1e2,False\n-0,,,-0.0,,00.10,T\n 1,,,1_0,,1,1\n1L,,,1f,,1.005,0\n"
    ),
    "times": Case(
        b"1,2026-03-01,,,2026-3-1\n2,2026-03-01 10:00,,,2026-03-01T10\n3,2026-03-01T10:00:00.123456+02:00,,,1-1-1\n"
    ),
    "times of a form": Case(
        b"1,01/03/2026 10h,,,01.03.26\n", options={"timestampFormat": "dd/MM/yyyy HH'h'", "dateFormat": "dd.MM.yy"}
    ),
    "not UTF-8": Case(b"1,,\xff\xfe,1\n2,,\xe4\xf6,2\n", schema=MARKED),
    "Latin-1": Case(
        b"n\xe4me,\xa7\n\xa0\n1,,\xe4\xf6\x85\xff,1\n" + ROW + b"\n2,," + bytes(range(128, 256)) + b",2\nx,\xdf",
        schema=MARKED,
        options={"header": "true", "encoding": "iso-8859-1"},
    ),
    "Latin-1 behind a byte order mark": Case(b"\xef\xbb\xbf1,,\xe4\n", options={"charset": "ISO-8859-1"}),
    "names in Latin-1": Case(
        b"\xa7 no\nid,n\xe4me\n\xa7\n1,\xe4\n",
        schema=None,
        options={"header": "true", "encoding": "ISO-8859-1", "comment": "\xa7"},
    ),
    "signs in Latin-1": Case(
        b"1\xa7\xa7\xb4a\xa7b\xb4\xa71\n", options={"encoding": "ISO-8859-1", "sep": "\xa7", "quote": "\xb4"}
    ),
    "ASCII that is none": Case(b"1,,\xe4\xf6a,1\n2,,b,2\n", options={"encoding": "US-ASCII"}),
    "UTF-8 as it is told": Case("1,,ä,1\n".encode() + b"2,,\xff\n", options={"encoding": "UTF-8"}),
    "control characters": Case(bytes(each for each in range(1, 32) if each not in (10, 13)) + b"\n1,,a\x00b,1\n"),
    "found out": Case(b"id,v,t\n1,1.5,2026-03-01\n2,,\nx,2,\n", schema=None, options={"header": "true"}, infers=True),
    "texts": Case(b"id,v,v\n1,1.5,2\n", schema=None, options={"header": "true"}),
    "a long line": Case(ROW + b"\n1,," + b"x" * 70_000 + b",1\n" + ROW),
    "wide": Case(
        b",".join(b"%d" % each for each in range(300)), schema=", ".join(f"c{each} int" for each in range(300))
    ),
    "lines": Case(b"a\r\n\n b \rc\xff\n\xef\xbb\xbfd", "text", None),
    "lines with a byte order mark": Case(b"\xef\xbb\xbfa\nb", "text", None),
    "objects": Case(b"\n".join([OBJECT] * 5), "jsonl"),
    "objects and blanks": Case(b"\n \n" + OBJECT + b"\r\n\t\n\x0b\n" + OBJECT + b"\n", "jsonl"),
    "broken objects": Case(OBJECT + b'\n{"id":\nno\n{"id":"x","amount":"1"}\n{}\nnull\n1\n"a"\n', "jsonl", MARKED),
    "several objects in a line": Case(OBJECT + b" " + OBJECT + b"\n" + OBJECT + b",\n", "jsonl", MARKED),
    "nested": Case(
        b'{"a":{"b":[1,2,{"c":3}],"d":{"x y":1}}}\n{"a":{"b":[]}}\n',
        "jsonl",
        "a struct<b:array<string>,d:map<string,int>>",
    ),
    "found out, with names that are patterns": Case(b'{"a":1}\n{"b":2}\n', "jsonl", None, stem="a[1]{b,c}*? %20\\"),
    "found out of objects": Case(b'{"a":1,"b":{"c d":[1.5]}}\n{"a":"x"}\n', "jsonl", None),
    "byte order mark of objects": Case(b"\xef\xbb\xbf" + OBJECT + b"\n" + OBJECT, "jsonl"),
    "twice the same name": Case(b'{"id":1,"id":2,"ID":3}\n', "jsonl"),
}


SINKS = {
    "file": {"format": "parquet", "widening": {}, "marking": None},
    "delta": {"format": "delta", "widening": {}, "marking": ("txnAppId", "txnVersion")},
}
WAYS = {"file": ("4.2.0", "file"), "delta": ("4.2.0", "delta"), "Spark 4.3": ("4.3.0", "file")}
"""Spark and sink; of Spark 4.3 there is no Delta yet."""


def compare_load(
    sparks: Sparks,
    folder: Path,
    files: list[Path],
    mode: ParseMode,
    chunk: int,
    zone: str = "UTC",
    way: str = "file",
    *,
    twins: Sequence[Path] = (),
    read_with: Mapping[str, str] | None = None,
    **asked: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the job of a load has told of these files; the rows of its table, and those of Spark's own reader.

    Of their twins, if there are any, which have the same text, with options of its own, if it has any.
    """
    version, kind = WAYS[way]
    form, locations = LoadFormat(asked["form"]), [parse_location(str(each)) for each in files]
    looked = tuple(look_at_file(open_storage(each), each, form, asked["options"]) for each in locations)
    table = folder / f"table-{chunk}"
    spec = LoadSpec(
        table=f"{kind}:{table}",
        form=form,
        schema=asked["schema"],
        infers=asked["infers"],
        options=asked["options"],
        mode=mode,
        files=looked,
    )
    spec = unpack_files(spec, lambda _: None)
    asking = LoadQuestion(
        spec=spec,
        checkpoint=str(folder / f"chk-{chunk}"),
        chunk=chunk,
        sink=LoadSink(kind=kind, location=str(table), **SINKS[kind]),
        evolves=False,
    )
    question = asking.to_question()
    spark = sparks.of(version)
    try:
        told = spark.call(APP, "run", question=question, zone=zone, libraries=LIBRARIES)
    finally:
        for each in spec.files:
            locate_index(each).unlink(missing_ok=True)
    names = [escape_pattern(str(each)) for each in twins or files]
    if read_with is not None:
        asked["options"] = read_with
    return told, spark.call(APP, "read", question=question, files=names, mode=mode.value, zone=zone, **asked)


@pytest.fixture
def compare(sparks: Sparks, tmp_path: Path) -> Any:
    def compared(case: Case, mode: ParseMode, chunk: int, way: str = "file") -> tuple[dict[str, Any], dict[str, Any]]:
        files = []
        for number, content in enumerate([case.content, case.content[: len(case.content) // 2]]):
            file = tmp_path / ".".join([f"{case.stem}{chunk}-{number}", case.form, *filter(None, [case.packing])])
            file.write_bytes(PACKING[case.packing](content))
            files.append(file)
        asked = {"form": case.form, "schema": case.schema, "options": case.options, "infers": case.infers}
        return compare_load(sparks, tmp_path, files, mode, chunk, way=way, **asked)

    return compared


def encode_twice(folder: Path, case: Case, encoding: str, chunk: int) -> tuple[list[Path], list[Path]]:
    """The files of a case, and its half, in an encoding, and in UTF-8."""
    text = case.content.decode()
    files, twins = [], []
    for number, some in enumerate([text, text[: len(text) // 2]]):
        for found, name in ((files, encoding), (twins, "UTF-8")):
            file = folder / ".".join([f"{name}{chunk}-{number}", case.form, *filter(None, [case.packing])])
            file.write_bytes(PACKING[case.packing](some.encode(name)))
            found.append(file)
    return files, twins


def is_utf8(case: Case) -> bool:
    """Whether a case is CSV in UTF-8, without a byte order mark, whose records are lines."""
    try:
        text = case.content.decode()
    except UnicodeDecodeError:
        return False
    told = {*case.options} & {*ENCODING, "multiLine"}
    return case.form == "csv" and not told and not text.startswith("\ufeff")


NAMES_OF_SOME = ("header and comments", "broken objects", "packed", "Latin-1")


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ParseMode)
@pytest.mark.parametrize("way", ["file", "Spark 4.3"])
def test_rows_are_those_of_sparks_own_reader(compare: Any, way: str, name: str, mode: ParseMode) -> None:
    require_same_rows(compare, CASES[name], mode, way)


@pytest.mark.proof
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.form == "csv" and case.schema])
@pytest.mark.parametrize("mode", ParseMode)
def test_rows_that_tasks_write_into_a_delta_table_are_too(compare: Any, name: str, mode: ParseMode) -> None:
    require_same_rows(compare, CASES[name], mode, "delta")


@pytest.mark.parametrize("name", NAMES_OF_SOME)
def test_so_are_some_of_them(compare: Any, name: str) -> None:
    require_same_rows(compare, CASES[name], ParseMode.PERMISSIVE)


@pytest.mark.proof
@pytest.mark.parametrize("way", ["file", "delta"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(case.content.splitlines()) <= 12])
def test_so_they_are_where_each_record_is_a_chunk(compare: Any, name: str, way: str) -> None:
    require_same_rows(compare, CASES[name], ParseMode.PERMISSIVE, way, [1])


@pytest.mark.proof
@pytest.mark.parametrize(
    ("encoding", "mode", "way"),
    [
        ("UTF-16", ParseMode.PERMISSIVE, "file"),
        ("UTF-16LE", ParseMode.DROPMALFORMED, "delta"),
        ("UTF-16BE", ParseMode.FAILFAST, "file"),
    ],
)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if is_utf8(case)])
def test_text_of_two_bytes_is_read_as_in_utf8(
    sparks: Sparks, tmp_path: Path, name: str, encoding: str, mode: ParseMode, way: str
) -> None:
    require_rows_of_twin(sparks, tmp_path, CASES[name], encoding, mode, way)


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE"])
def test_so_spark_reads_it_where_it_reads_a_file_whole(sparks: Sparks, tmp_path: Path, encoding: str) -> None:
    """As long as no line is blank, and no record has more than one."""
    text = '\ufeffid,name,at\r\n1,日本,2026-03-01\r\n2,"\U0001f600, ""x""",\r\n3,\u0d00\u0a00,x\r\n'
    case = Case(text.encode(), schema="id int, name string, at date", options={"header": "true"})
    files, _ = encode_twice(tmp_path, case, encoding, 1)
    options = {**case.options, "encoding": encoding}
    told, found = compare_load(
        sparks,
        tmp_path,
        files[:1],
        ParseMode.PERMISSIVE,
        1,
        read_with={**options, "multiLine": "true"},
        form="csv",
        schema=case.schema,
        options=options,
        infers=False,
    )
    assert (told["error"], found["error"]) == (None, None)
    assert found["loaded"] == found["expected"]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16BE"])
def test_so_is_some_of_it(sparks: Sparks, tmp_path: Path, encoding: str) -> None:
    text = "\ufeffid,name\r\n" + "1,日本\u0a0a\u4e00\r\n2,\U0001f600\n3,\u0d00\u0a00\r" * 20
    case = Case(text.encode(), schema=None, options={"header": "true"})
    require_rows_of_twin(sparks, tmp_path, case, encoding)


def require_rows_of_twin(
    sparks: Sparks,
    folder: Path,
    case: Case,
    encoding: str,
    mode: ParseMode = ParseMode.PERMISSIVE,
    way: str = "file",
) -> None:
    options = case.options | {"encoding": encoding}
    for chunk in (1 << 20, max(2, len(case.content) // 3), 1):
        if chunk == 1 and len(case.content.splitlines()) > 12:
            continue
        files, twins = encode_twice(folder, case, encoding, chunk)
        asked = {"form": case.form, "schema": case.schema, "options": options, "infers": case.infers}
        asked |= {"way": way, "twins": twins, "read_with": case.options}
        told, found = compare_load(sparks, folder, files, mode, chunk, **asked)
        assert (told["error"] is None) == (found["error"] is None), (chunk, told, found)
        if found["error"] is None:
            assert found["loaded"] == found["expected"], (chunk, told, found)


def require_same_rows(compare: Any, case: Case, mode: ParseMode, way: str = "file", chunks: Sequence[int] = ()) -> None:
    for chunk in chunks or (1 << 20, max(2, len(case.content) // 3)):
        told, found = compare(case, mode, chunk, way)
        assert (told["error"] is None) == (found["error"] is None), (chunk, told, found)
        if found["error"] is None:
            assert found["loaded"] == found["expected"], (chunk, found)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case(OBJECT + b'\n[{"id":1}]\n', "jsonl"), "a line is a JSON array"),
        (Case(OBJECT + b'\n{"name":"\xff"}\n', "jsonl"), "a line is not UTF-8"),
        (Case(b'1,,"a\xef\xbf\xbfb"\n'), "a record has U+FFFF"),
    ],
)
def test_load_ends_where_the_two_parsers_of_spark_differ(compare: Any, case: Case, why: str) -> None:
    told, _ = compare(case, ParseMode.PERMISSIVE, 1 << 20)
    assert why in told["error"]
