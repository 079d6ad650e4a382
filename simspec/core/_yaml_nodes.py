"""YAML text to plain data, with the line of every value.

The scalars follow the YAML 1.2 core schema, so ``1e9`` is a number and ``on``, ``off``,
``yes``, ``no`` and ``2024-01-01`` are text. Keys are always text. Refused: tags that build
objects, duplicate keys, NaN and infinity, and whatever grows without bound when read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
FieldPath: TypeAlias = tuple[str | int, ...]

MAX_DEPTH = 50
"""Levels of nesting; no configuration comes near."""
MAX_VALUES = 100_000
"""Values after aliases are expanded."""
MAX_INTEGER = 2**63 - 1
"""What NumPy's largest integers hold."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN)"
    ),
    "merge": re.compile("<<"),
}


class YamlProblem(Exception):
    """The text is not acceptable; the caller adds the file name.

    Parameters
    ----------
    problem : str
        What is wrong and what would be right.
    line : int or None
        Counted from 1.
    path : tuple
        Field path, empty when the place has none.
    """

    def __init__(self, problem: str, line: int | None, path: FieldPath = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.path = path


class _Resolver(BaseResolver):
    """The scalars of the YAML 1.2 core schema."""


for _name, _pattern in _SCALARS.items():
    _Resolver.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern.pattern})\Z"), None)


class _NodeReader(Reader, Scanner, Parser, Composer, _Resolver):
    """PyYAML up to its nodes, with a cap on nesting."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Resolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise YamlProblem(
                f"nested more than {MAX_DEPTH} levels deep; close the brackets or flatten it",
                mark.line + 1,
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def read_yaml(text: str) -> tuple[Plain, dict[FieldPath, int]]:
    """Return the data of one YAML document and the line of every field.

    Raises
    ------
    YamlProblem
        The text is not one acceptable YAML document.
    """
    root = _compose(text)
    if root is None:
        raise YamlProblem("the file is empty; write at least one field", None)
    converter = _Converter()
    data = converter.convert(root, ())
    return data, converter.positions


def _compose(text: str) -> Node | None:
    try:
        root: Node | None = _NodeReader(text).get_single_node()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = f"U+{ord(text[error.position]):04X}"
        raise YamlProblem(f"control character {code} is not allowed; remove it", line) from error
    except yaml.MarkedYAMLError as error:
        raise _syntax_problem(error, text) from error
    except (ValueError, OverflowError) as error:
        # PyYAML lets chr() fail on "\U00110000" in double quotes.
        raise YamlProblem("an escape like \\UXXXXXXXX names no character", None) from error
    return root


_HINTS = (
    ("'\\t' that cannot start", "a tab is used for indentation; use spaces"),
    ("a single document", "holds more than one YAML document; keep one and drop the '---'"),
    (
        "mapping values are not allowed",
        "a ':' is not allowed here; check the line above and the indentation, or quote the value",
    ),
    ("undefined alias", "an alias (*name) without its anchor (&name); define it above"),
    ("duplicate anchor", "an anchor (&name) is defined twice; give each its own name"),
    ("but found ':'", "a field name is missing before ':'; write one"),
    ("that cannot start any token", "a value starts with a reserved character; put it in quotes"),
    ("expected <block end>", "the indentation does not match the lines above; align it"),
)
_BEGUN_EARLIER = (
    ("could not find expected ':'", "a line without ':' among the fields; write 'field: value'"),
    ("end of stream", "a quote or bracket opened here is not closed; close it"),
    ("expected ',' or", "a list or mapping opened here is not closed; add a ',' or the bracket"),
)
"""Here the place where it began helps, not the place where the reader gave up."""


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> YamlProblem:
    mark = error.problem_mark or error.context_mark
    said = " ".join(f"{error.context or ''} {error.problem or ''}".split())
    sentence = next((hint for clue, hint in _HINTS if clue in said), None)
    if sentence is None:
        sentence = next((hint for clue, hint in _BEGUN_EARLIER if clue in said), None)
        if sentence is not None:
            mark = error.context_mark or mark
    if sentence is None:
        sentence = f"not valid YAML ({said}); check the syntax of this line"
    return YamlProblem(sentence, None if mark is None else min(mark.line, text.count("\n")) + 1)


@dataclass
class _Converter:
    """Nodes to plain data; counts what it makes so that aliases cannot explode."""

    positions: dict[FieldPath, int] = field(default_factory=dict)
    num_values: int = 0
    open_nodes: set[int] = field(default_factory=set)

    def convert(self, node: Node, path: FieldPath) -> Plain:
        """Return the value of a node; ``path`` is where it stands."""
        line = node.start_mark.line + 1
        self.positions.setdefault(path, line)
        self.num_values += 1
        if self.num_values > MAX_VALUES:
            raise YamlProblem(
                f"more than {MAX_VALUES} values once aliases are expanded; use fewer", line
            )
        if id(node) in self.open_nodes:
            raise YamlProblem("an alias refers to itself; write the value out", line, path)
        if len(path) > MAX_DEPTH:
            raise YamlProblem(f"nested more than {MAX_DEPTH} levels deep; flatten it", line)
        if isinstance(node, ScalarNode):
            return _scalar(node, path)
        self.open_nodes.add(id(node))
        try:
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [self.convert(item, (*path, i)) for i, item in enumerate(node.value)]
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, path)
        finally:
            self.open_nodes.discard(id(node))
        raise _bad_tag(node, path)

    def _mapping(self, node: MappingNode, path: FieldPath) -> dict[str, Plain]:
        entries: dict[str, Node] = {}
        merged: list[tuple[Node, Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged.append((key_node, value_node))
                continue
            key = _key(key_node, path)
            line = key_node.start_mark.line + 1
            if key in entries:
                first = self.positions[(*path, key)]
                raise YamlProblem(
                    f"given twice, first on line {first}; keep one", line, (*path, key)
                )
            entries[key] = value_node
            self.positions[(*path, key)] = line
        data = {key: self.convert(value, (*path, key)) for key, value in entries.items()}
        for key_node, value_node in merged:
            for key, value in self._merge_source(key_node, value_node, path).items():
                data.setdefault(key, value)
        return data

    def _merge_source(self, key: Node, value: Node, path: FieldPath) -> dict[str, Plain]:
        """Return the fields a ``<<`` brings in; of several mappings the first one wins."""
        sources = value.value if isinstance(value, SequenceNode) else [value]
        fields: dict[str, Plain] = {}
        for source in sources:
            # Under its own path first: the fields may lose against explicit ones.
            inner = _Converter(num_values=self.num_values, open_nodes=self.open_nodes)
            data = inner.convert(source, path)
            self.num_values = inner.num_values
            if not isinstance(data, dict):
                raise YamlProblem(
                    "'<<' merges mappings only; give an alias of a mapping",
                    key.start_mark.line + 1,
                    path,
                )
            for name, field_value in data.items():
                fields.setdefault(name, field_value)
            for place, line in inner.positions.items():
                self.positions.setdefault(place, line)
        return fields


def _key(node: Node, path: FieldPath) -> str:
    line = node.start_mark.line + 1
    if not isinstance(node, ScalarNode):
        raise YamlProblem("a field name is a list or mapping; use plain text", line, path)
    if not node.tag.startswith(_TAG) or node.tag[len(_TAG) :] not in (*_SCALARS, "str"):
        raise _bad_tag(node, path)
    if not node.value:
        raise YamlProblem("a field name is missing before ':'; write one", line, path)
    return _text(node, path)


def _scalar(node: ScalarNode, path: FieldPath) -> Plain:
    line = node.start_mark.line + 1
    kind = node.tag.removeprefix(_TAG)
    text = _text(node, path)
    if kind in ("str", "merge"):
        return text
    if kind not in _SCALARS:
        raise _bad_tag(node, path)
    if not _SCALARS[kind].fullmatch(text):
        raise YamlProblem(f"{text[:40]!r} does not fit its tag !!{kind}; drop the tag", line, path)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    return _number(text, kind, line, path)


def _number(text: str, kind: str, line: int, path: FieldPath) -> int | float:
    if kind == "float":
        word = text.lower().lstrip("+-")
        value = float(text) if word not in (".inf", ".nan") else math.nan
        if not math.isfinite(value):
            raise YamlProblem(f"{text[:40]} is not a usable number; give a finite one", line, path)
        return value
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # The length first: converting thousands of digits is slow and Python refuses it.
    number = int(text, base) if len(text) <= 70 else MAX_INTEGER + 1
    if abs(number) > MAX_INTEGER:
        raise YamlProblem(
            f"{text[:20]}{'…' * (len(text) > 20)} is too large; integers reach {MAX_INTEGER}",
            line,
            path,
        )
    return number


def _text(node: ScalarNode, path: FieldPath) -> str:
    text = str(node.value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise YamlProblem(
            "an escape like \\uD800 is half a character; remove it",
            node.start_mark.line + 1,
            path,
        ) from error
    return text


def _bad_tag(node: Node, path: FieldPath) -> YamlProblem:
    tag = str(node.tag).replace(_TAG, "!!")[:40]
    return YamlProblem(
        f"the tag {tag!r} is not allowed; write plain values", node.start_mark.line + 1, path
    )
