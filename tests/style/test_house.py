"""The order of the house, told by the syntax of its modules: what `import-linter` does not see.

Where an exception stands here it may go, and none may come.
"""

from __future__ import annotations

import ast
import collections
import functools
import importlib.machinery
import importlib.util
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from modules import SOURCE, nodes, parse_modules

from lastgood.checkpoint import source_offsets
from lastgood.cli.main import VERBS
from lastgood.sinks.kinds import ABSENT, SINK_KINDS, UNRECOGNISED
from lastgood.steps.kinds import list_step_kinds
from lastgood.steps.step import Step

TOOLS = Path(__file__).parents[2] / "tools"
HOMES = ("sinks/", "sources/", "testing/")
"""Where a kind may be called by its name; doubles stand for one kind each."""
SINKS = frozenset({*SINK_KINDS, ABSENT, UNRECOGNISED})
OFFSETS = frozenset(
    each.kind for each in vars(source_offsets).values() if isinstance(each, type) and hasattr(each, "to_text")
)
KINDS = SINKS | OFFSETS
NAMED_BY_KIND = re.compile(r"_?is_(delta|iceberg|fence|file_sink|kafka|kinesis)(_sink|_source|_table)?")
CALLED_KIND = re.compile(r"(\w+_)?kinds?")
STEPS = frozenset((step.__module__, step.__name__) for step in (Step, *(each.step for each in list_step_kinds())))

LINES_MAX = 200
"""Of a verb."""


def elsewhere() -> Iterator[tuple[str, ast.Module]]:
    """The modules that are no home of a kind."""
    return ((name, tree) for name, tree in parse_modules().items() if not name.startswith(HOMES))


def is_called_kind(node: ast.expr) -> bool:
    """Whether something is called a kind, such as `sink.kind`, `kind` or `told["kind"]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return CALLED_KIND.fullmatch(name) is not None
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return CALLED_KIND.fullmatch(name) is not None
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return CALLED_KIND.fullmatch(name) is not None
    return False


def strings(node: ast.AST) -> set[str]:
    """The texts that stand in an expression."""
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def is_of_one_kind(node: ast.expr) -> bool:
    """Whether it is a kind by its name: a text, several, or the constant of a class or of a line of the table."""
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr="kind" | "name"):
            return owner[0].isupper()
        case ast.Name(id=name):
            return name in {each.upper() for each in SINKS}
    return bool(strings(node) & KINDS)


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What a module calls by a name once for all."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def asked_by_name(tree: ast.Module) -> Iterator[int]:
    """Lines that go by which kind something is."""
    named = {name for name, value in constants(tree).items() if strings(value) & KINDS}

    def is_named(node: ast.expr) -> bool:
        return is_of_one_kind(node) or (isinstance(node, ast.Name) and node.id in named)

    for node in nodes(tree, ast.Compare, ast.Match, ast.Subscript, ast.Call):
        match node:
            case ast.Compare(left=left, comparators=others):
                each = [left, *others]
                if any(map(is_called_kind, each)) and any(map(is_named, each)):
                    yield node.lineno
            case ast.Match(subject=subject, cases=cases) if is_called_kind(subject):
                yield from (case.pattern.lineno for case in cases if strings(case.pattern) & KINDS)
            case ast.Subscript(value=value, slice=index) if is_called_kind(index) and is_named(value):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[index, *_]):
                if is_called_kind(index) and is_named(value):
                    yield node.lineno


def named_by_kind(tree: ast.Module) -> Iterator[str]:
    """Names such as `is_delta`."""
    for node in nodes(tree, ast.FunctionDef, ast.Name, ast.arg):
        match node:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                if NAMED_BY_KIND.fullmatch(name):
                    yield name


def test_no_kind_of_sink_or_source_is_asked_by_its_name_outside_its_home() -> None:
    assert [(name, line) for name, tree in elsewhere() for line in asked_by_name(tree)] == []


def test_nothing_is_named_after_one_kind_outside_its_home() -> None:
    assert [(name, each) for name, tree in elsewhere() for each in named_by_kind(tree)] == []


def test_detector_sees_each_way_to_ask_by_name() -> None:
    """What the two tests above look for, each once: a detector that sees nothing proves nothing."""
    ways = (
        'sink.kind == "delta"',
        '"file" != sink.kind',
        'sink.kind in ("delta", "file")',
        "sink.kind == DeltaSink.kind",
        "sink.kind == DELTA_SINK.name",
        "sink.kind is ABSENT",
        'told["kind"] == "fence"',
        'told.get("kind") == "kafka"',
        '_MARKED = ("delta", "iceberg")\nsink.kind in _MARKED',
        '_NAMES = {"delta": 1}\n_NAMES[sink.kind]',
        '_NAMES = {"delta": 1}\n_NAMES.get(sink.kind)',
        'match sink.kind:\n    case "delta" | "file":\n        pass',
    )
    assert [len(set(asked_by_name(ast.parse(way)))) for way in ways] == [1] * len(ways)
    assert not list(asked_by_name(ast.parse('location.scheme == "file"\nstep.kind == other.kind\nkind == "lost"')))
    assert list(named_by_kind(ast.parse("is_delta = 1"))) == ["is_delta"]


def asks_for_a_step(tree: ast.Module) -> Iterator[int]:
    """Lines that ask of a step which one it is, where that is not at home."""
    imported = {
        each.asname or each.name
        for node in nodes(tree, ast.ImportFrom)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if (node.module, each.name) in STEPS
    }
    for node in nodes(tree, ast.Call, ast.MatchClass):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, wanted]):
                if imported & {each.id for each in ast.walk(wanted) if isinstance(each, ast.Name)}:
                    yield node.lineno
            case ast.MatchClass(cls=ast.Name(id=name)) if name in imported:
                yield node.lineno


def test_no_step_is_asked_which_one_it_is() -> None:
    assert [(name, line) for name, tree in parse_modules().items() for line in asks_for_a_step(tree)] == []
    seen = "from lastgood.planning.steps import FileStep\nisinstance(step, FileStep)"
    assert list(asks_for_a_step(ast.parse(seen))) == [2]


def test_no_name_of_a_public_class_means_two_things() -> None:
    homes = collections.defaultdict(list)
    for name, tree in parse_modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


NO_VERBS = frozenset(
    """
    about above after again against along apart around as aside at away back before behind below beside between
    beyond by down during early else ever for from here in into just late least less like more most near never not
    nothing now of off on once one only onto other out over past per since so some still such than that then there
    through till to together too toward twice under unless until up upon via when where while why with within
    without

    been begun bound broken brought built cast caught chosen done drawn driven found gone got grown had heard held
    hidden kept known laid led left lent lost made meant met paid proven said seen sent shown sold spent stood stuck
    sunk taken taught thought told torn understood unproven unread unseen untold went were withdrawn won worn
    written wrote
    """.split()  # noqa: SIM905 - words, not lines
)
"""Prepositions, adverbs, and participles that are not told by their ending."""
PARTICIPLE = re.compile(r"\w+(ed|ing|en)")
IMPERATIVES = frozenset({"bring", "embed", "feed", "flatten", "listen", "need", "open", "ping", "seed", "shorten"})
"""Verbs that only look like a participle."""


@functools.cache
def figures() -> ModuleType:
    """The program `tools/house`, whose list of verbs is the only one."""
    loader = importlib.machinery.SourceFileLoader("figures_of_the_house", str(TOOLS / "house"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Path and syntax of every function of a module."""
    for name, tree in parse_modules().items():
        yield from ((name, node) for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_no_verb(word: str) -> bool:
    """Whether a word is a preposition, an adverb or a participle."""
    return word in NO_VERBS or (PARTICIPLE.fullmatch(word) is not None and word not in IMPERATIVES)


def test_no_function_is_named_by_a_participle_or_a_preposition() -> None:
    """What it does stands first: `find_lost`, not `lost`; `drop_batches_before`, not `without_batches_before`.

    `to_json` and `from_json` are what every library calls the two ways.
    """
    named = {
        f"{path}: {node.name}"
        for path, node in functions()
        if not node.name.endswith(("to_json", "from_json")) and is_no_verb(node.name.lstrip("_").split("_")[0])
    }
    assert named == set(), "name it by a verb: docs/why/words.md says which verb means what"
    for seen in ("told", "went", "begun", "lifted", "foreseen", "marking", "of", "without", "unread"):
        assert is_no_verb(seen), seen


def test_each_function_begins_with_a_verb_of_the_list() -> None:
    """One verb that is there already is better than a new one for the same; the list is that of `tools/house`.

    A verb of the command line is called by its name, also where that is no verb in English; and `lastgood.spark.state`
    and `chunks` are what applications ask for by these names.
    """
    named = {f"{path}: {node.name}" for path, node in functions() if not figures().is_named_by_verb(node)}
    known = {"operations/status.py: status", "session/loading.py: chunks", "spark/state_frame.py: state"}
    assert named == known, "a new verb has its line in VERBS of tools/house"
    assert [verb for verb in figures().VERBS if is_no_verb(verb)] == []
    used = {node.name.lstrip("_").split("_")[0] for _, node in functions()}
    assert figures().VERBS - used == set(), "verbs of the list that no function uses"


def test_each_file_of_operations_is_a_verb() -> None:
    files = {file.stem for file in (SOURCE / "operations").iterdir() if file.suffix == ".py"} - {"__init__"}
    assert files - set(VERBS) == set()


def test_verbs_are_short() -> None:
    lengths = {file.name: file.read_text().count("\n") for file in (SOURCE / "operations").glob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


@pytest.mark.parametrize("room", ["query", "failures", "diagnosis", "planning", "ladder"])
def test_pure_room_loads_no_storage_and_no_sink(room: str) -> None:
    """What `import-linter` is told to pass over, what a kind of sink does, is loaded by nobody who asks what it is."""
    names = [
        f"lastgood.{name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
        for name in parse_modules()
        if name.startswith(f"{room}/")
    ]
    impure = ("lastgood.storage.", "lastgood.sinks.changes", "fsspec", "sqlite3")
    pure = ("lastgood.storage.location", "lastgood.storage.clouds")
    code = "\n".join(["import sys", *(f"import {name}" for name in names), "print(*sys.modules)"])
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = shown.stdout.split()
    assert f"lastgood.{room}" in loaded
    assert [name for name in loaded if name.startswith(impure) and name not in pure] == []
    assert [
        name for name in loaded if name.startswith("lastgood.sinks.") and name.endswith((".sink", ".carrying"))
    ] == []


def test_one_module_reads_the_configuration() -> None:
    reading = set()
    for name, tree in parse_modules().items():
        for node in nodes(tree, ast.Import, ast.ImportFrom):
            match node:
                case ast.Import(names=names) if any(each.name == "tomllib" for each in names):
                    reading.add(name)
                case ast.ImportFrom(module="tomllib"):
                    reading.add(name)
    assert reading == {"settings/config.py"}


FOLDED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CHOICES_MAX = 17
"""Conditional expressions per 1,000 lines."""
UNARGUED = ("testing/",)
"""Doubles do on demand what a real part does."""
TAKES_AWAY = frozenset(
    {"_rename", "_unlink", "kill", "killpg", "release", "rm_file", "rmtree", "take_down", "terminate", "unlink"}
)
"""Calls after which something is gone: a file, a process, what keeps others away."""
ARGUED_ABOVE = 4
"""Within so many lines above such a call begins, or ends, the comment that says why it is safe."""


def parts_of(statement: ast.stmt) -> list[ast.AST]:
    """What a statement evaluates itself: of a compound one its head."""
    match statement:
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head) | ast.Match(subject=head):
            return [head]
        case ast.With(items=items):
            return [item.context_expr for item in items]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Try():
            return []
    return [statement]


def choices(node: ast.AST) -> int:
    """How many conditional expressions it holds."""
    return sum(isinstance(each, ast.IfExp) for each in ast.walk(node))


def folded(tree: ast.Module) -> Iterator[str]:
    """What holds a statement that chooses twice, or chooses for each of several things: a function, by its name."""
    functions = list(nodes(tree, ast.FunctionDef))
    lines = {each.lineno for each in nodes(tree, ast.IfExp)}
    choosing = [each for each in nodes(tree, ast.stmt) if lines.intersection(range(each.lineno, each.end_lineno + 1))]
    for statement in choosing:
        inside = [each for part in parts_of(statement) for each in ast.walk(part)]
        chosen_for_each = any(isinstance(each, FOLDED) and choices(each) for each in inside)
        if chosen_for_each or sum(isinstance(each, ast.IfExp) for each in inside) > 1:
            around = [each for each in functions if each.lineno <= statement.lineno <= each.end_lineno]
            yield max(around, key=lambda each: each.lineno).name if around else f"line {statement.lineno}"


def takes_away(call: ast.Call) -> bool:
    """Whether something is gone after it that was there before."""
    match call:
        case ast.Call(func=ast.Name(id=name)):
            return name in TAKES_AWAY
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if owner in {"os", "sa"}:
            return name in TAKES_AWAY | {"delete", "remove", "rename", "replace"}
        case ast.Call(func=ast.Attribute(attr="replace" | "rename"), args=[_], keywords=[]):
            return True  # of a path: a text has two arguments, a time has keywords
        case ast.Call(func=ast.Attribute(value=owner, attr="remove")):
            return ast.unparse(owner).endswith(("storage", "_target", "self", "open_writable(self.location)"))
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in TAKES_AWAY
    return False


def unargued(name: str, tree: ast.Module) -> Iterator[int]:
    """Lines that take something away, with no comment beside them."""
    calls = [each for each in nodes(tree, ast.Call) if takes_away(each)]
    if not calls:
        return
    text = (SOURCE / name).read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    for call in calls:
        if not commented.intersection(range(call.lineno - ARGUED_ABOVE, call.end_lineno + 1)):
            yield call.lineno


def test_no_statement_chooses_twice_or_for_each_of_several_things() -> None:
    """One idea a line: an early return, an `if`, a named value or a small function says what is chosen."""
    assert [(name, each) for name, tree in parse_modules().items() for each in folded(tree)] == []


def test_choices_within_a_line_stay_few() -> None:
    chosen = sum(len(list(nodes(tree, ast.IfExp))) for tree in parse_modules().values())
    lines = sum((SOURCE / name).read_text().count("\n") for name in parse_modules())
    assert chosen / lines * 1000 < CHOICES_MAX


def test_what_takes_something_away_has_a_comment_beside_it_that_argues_why_that_is_safe() -> None:
    assert [
        (name, line)
        for name, tree in parse_modules().items()
        if not name.startswith(UNARGUED)
        for line in unargued(name, tree)
    ] == []


def test_detectors_see_what_is_folded_and_what_takes_something_away() -> None:
    """Each once: a detector that sees nothing proves nothing."""
    ways = (
        "x = f(a if b else c, d if e else g)",
        "x = [a if b else c for a in d]",
        "x = {a: (b if c else d) for a in e}",
        "x = sum(a if b else 0 for a in d)",
    )
    assert [way for way in ways if not list(folded(ast.parse(way)))] == []
    assert not list(folded(ast.parse("x = a if b else c")))
    calls = (
        "os.unlink(name)",
        "os.kill(pid, signum)",
        "path.replace(other)",
        "os.replace(old, new)",
        "shutil.rmtree(folder)",
        "self._storage.remove(file)",
        "connection.execute(sa.delete(table))",
        "lease.release()",
        "take_down(room, seal)",
    )
    seen = [call for call in calls if any(takes_away(node) for node in nodes(ast.parse(call), ast.Call))]
    assert seen == list(calls)
    assert not any(takes_away(node) for node in nodes(ast.parse("text.replace('a', 'b'); names.remove(a)"), ast.Call))
