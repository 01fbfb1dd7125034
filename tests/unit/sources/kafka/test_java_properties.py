from __future__ import annotations

import pytest

from lastgood.sources.kafka.java_properties import JaasEntry, PropertiesError, parse_jaas, parse_properties


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b", {"a": "b"}),
        (b"a b", {"a": "b"}),
        (b"a = b ", {"a": "b "}),
        (b"a \t=\t b=c:d", {"a": "b=c:d"}),
        (b"a = = b", {"a": "= b"}),
        (b"a", {"a": ""}),
        (b"= b", {"": "b"}),
        (b"# x\n! y=z\n  # w\n\n \t \na=b", {"a": "b"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a=x\\\n   y\\\n\tz\nb=1", {"a": "xyz", "b": "1"}),
        (b"a=x\\\n# no comment", {"a": "x# no comment"}),
        (b"# comment \\\na=b", {"a": "b"}),
        (b"a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        (b"a=x\\\\\\\n  y", {"a": "x\\y"}),
        (b"a=x\\", {"a": "x"}),
        (b"a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        (b'a=\\t\\n\\r\\f\\"\\q', {"a": '\t\n\r\f"q'}),
        (b"a=\\u00e4\\u20AC", {"a": "ä€"}),
        (b"a=\\ud83d\\ude00", {"a": "😀"}),
        (b"a=\xe4", {"a": "ä"}),
        (b"", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(raw: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(raw) == expected


def test_broken_unicode_escape_is_an_error_that_shows_no_value() -> None:
    with pytest.raises(PropertiesError) as raised:
        parse_properties(b"a=b\npassword=secret\\u12zz")
    assert raised.value.found == "in line 2: \\u without four hexadecimal digits"
    assert "secret" not in str(raised.value.to_json())


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            'x.Plain required username="alice" password="alice-secret";',
            {"username": "alice", "password": "alice-secret"},
        ),
        ("x.Plain Required username='a' password='it\"s';", {"username": "a", "password": 'it"s'}),
        (r'x.Plain required password="a\"b\\c\t\101\0\8";', {"password": 'a"b\\c\tA\x008'}),
        ("x.Plain required a=b-c_d$e.f;", {"a": "b-c_d$e.f"}),
        ('x.Plain\n required /* a="1" */ b="2" // c="3"\n d="4" / e="5"\n;', {"b": "2", "d": "4"}),
        ("x.Plain required;", {}),
        ('x.Plain required a="ä;=";', {"a": "ä;="}),
    ],
)
def test_login_is_read_as_kafka_reads_it(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == JaasEntry("x.Plain", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x.Plain",
        'x.Plain username="geheim";',
        'x.Plain required username="geheim"',
        'x.Plain required username="geheim;',
        "x.Plain required username;",
        "x.Plain required username=;",
        "x.Plain required username=4711geheim;",
        'x.Plain required username="geheim"; y.Plain required;',
        'x.Plain required = "geheim";',
        "x.Plain required username=!geheim;",
    ],
)
def test_login_that_is_none_is_an_error_that_shows_no_value(text: str) -> None:
    with pytest.raises(PropertiesError) as raised:
        parse_jaas(text)
    assert "geheim" not in f"{raised.value!r} {raised.value.to_json()}"


def test_options_of_a_login_are_not_shown() -> None:
    assert "geheim" not in repr(parse_jaas('x.Plain required password="geheim";'))
