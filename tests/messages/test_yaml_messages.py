"""Whole messages about YAML files: the line, the field, what is wrong, what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from simspec.core.errors import ConfigError, ProfileError
from simspec.core.yamlio import load_yaml, loads_yaml, parse, parse_mapping


class Memory(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    bandwidth_gb_s: float = Field(gt=0)
    capacity_gb: float = Field(default=80.0, gt=0, le=1000)


class Profile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    memory: Memory
    mode: Literal["graph", "eager"] = "graph"
    layers: int = Field(default=32, ge=1)
    threshold: float = Field(default=0.5, ge=0, lt=1)
    k: int | list[Annotated[int, Field(ge=1, le=16)]] = 4
    table: dict[int, float] = {}
    pair: tuple[float, float] = (0.0, 1.0)
    captured: bool = True
    label: str = Field(default="x", min_length=1, max_length=5)
    seed: int | None = None
    free: float = 0.0

    @model_validator(mode="after")
    def _layers_match_label(self) -> Profile:
        if self.label == "tiny" and self.layers > 2:
            raise ValueError("'tiny' has at most 2 layers; set layers to 1 or 2")
        return self


GOOD = "memory: {bandwidth_gb_s: 3350}\n"

NOT_YAML = {
    "duplicate": ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: given twice, first on line 1; keep one"),
    "nested duplicate": (
        "m:\n  x: 1\n  'x': 2\n",
        "f.yaml:3: m.x: given twice, first on line 2; keep one",
    ),
    "nan": ("a:\n- .nan\n", "f.yaml:2: a.0: .nan is not a usable number; give a finite one"),
    "infinity": ("a: -.inf\n", "f.yaml:1: a: -.inf is not a usable number; give a finite one"),
    "overflow": ("a: 1e999\n", "f.yaml:1: a: 1e999 is not a usable number; give a finite one"),
    "large integer": (
        "a: 9223372036854775808\n",
        "f.yaml:1: a: 9223372036854775808 is too large; integers reach 9223372036854775807",
    ),
    "thousands of digits": (
        "a: " + "1" * 5000,
        "f.yaml:1: a: 11111111111111111111… is too large; integers reach 9223372036854775807",
    ),
    "deep by aliases": (
        "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40,
        "f.yaml:1: nested more than 50 levels deep; flatten it",
    ),
    "tab": ("a:\n\tb: 1\n", "f.yaml:2: a tab is used for indentation; use spaces"),
    "empty": ("", "f.yaml: the file is empty; write at least one field"),
    "only comments": ("# a: 1\n\n", "f.yaml: the file is empty; write at least one field"),
    "list": (
        "# note\n- a\n- b\n",
        "f.yaml:2: the top level is a list of 2, not a mapping; write 'field: value' lines",
    ),
    "text": (
        "just words\n",
        "f.yaml:1: the top level is 'just words', not a mapping; write 'field: value' lines",
    ),
    "two documents": (
        "a: 1\n---\nb: 2\n",
        "f.yaml:2: holds more than one YAML document; keep one and drop the '---'",
    ),
    "open quote": (
        "a: 1\nb: 'x\nc: 2\n",
        "f.yaml:2: a quote or bracket opened here is not closed; close it",
    ),
    "open bracket": (
        "a: 1\nb: [1, 2\nc: 3\n",
        "f.yaml:2: a list or mapping opened here is not closed; add a ',' or the bracket",
    ),
    "two colons": (
        "a: b: c\n",
        "f.yaml:1: a ':' is not allowed here; check the line above and the indentation, "
        "or quote the value",
    ),
    "no colon": (
        "a: 1\nb\n",
        "f.yaml:2: a line without ':' among the fields; write 'field: value'",
    ),
    "no name": (": 1\n", "f.yaml:1: a field name is missing before ':'; write one"),
    "empty name": ("'': 1\n", "f.yaml:1: a field name is missing before ':'; write one"),
    "list as name": (
        "? [a]\n: 1\n",
        "f.yaml:1: a field name is a list or mapping; use plain text",
    ),
    "reserved": (
        "a: 1\nb: @x\n",
        "f.yaml:2: a value starts with a reserved character; put it in quotes",
    ),
    "indentation": (
        "a:\n    b: 1\n  c: 2\n",
        "f.yaml:3: the indentation does not match the lines above; align it",
    ),
    "python tag": (
        "a: !!python/object/apply:os.system ['x']\n",
        "f.yaml:1: a: the tag '!!python/object/apply:os.system' is not allowed; write plain values",
    ),
    "own tag": ("a: !x 1\n", "f.yaml:1: a: the tag '!x' is not allowed; write plain values"),
    "wrong tag": ("a: !!int x\n", "f.yaml:1: a: 'x' does not fit its tag !!int; drop the tag"),
    "unknown alias": (
        "a: *b\n",
        "f.yaml:1: an alias (*name) without its anchor (&name); define it above",
    ),
    "anchor twice": (
        "a: &x 1\nb: &x 2\n",
        "f.yaml:2: an anchor (&name) is defined twice; give each its own name",
    ),
    "alias of itself": (
        "a: &x [*x]\n",
        "f.yaml:1: a.0: an alias refers to itself; write the value out",
    ),
    "merge of a number": (
        "a:\n  <<: 3\n",
        "f.yaml:2: a: '<<' merges mappings only; give an alias of a mapping",
    ),
    "control character": (
        "a: 1\nb: \x01\n",
        "f.yaml:2: control character U+0001 is not allowed; remove it",
    ),
    "no character": (
        '"\\U00110000": 1\n',
        "f.yaml: an escape like \\UXXXXXXXX names no character",
    ),
    "half a character": (
        'a: "\\ud800"\n',
        "f.yaml:1: a: an escape like \\uD800 is half a character; remove it",
    ),
    "deep brackets": (
        "a: " + "[" * 100_000,
        "f.yaml:1: nested more than 50 levels deep; close the brackets or flatten it",
    ),
    "YAML 2": (
        "%YAML 2.0\n---\na: 1\n",
        "f.yaml:1: not valid YAML (found incompatible YAML document (version 1.* is required)); "
        "check the syntax of this line",
    ),
}


@pytest.mark.parametrize(("text", "message"), NOT_YAML.values(), ids=NOT_YAML.keys())
def test_text_that_is_not_strict_yaml(text: str, message: str) -> None:
    """Each way to break the file has its own sentence with the line."""
    with pytest.raises(ConfigError) as caught:
        loads_yaml(text, "f.yaml")
    assert str(caught.value) == message


def test_alias_bomb() -> None:
    """Nine lines that would unfold to a billion values are refused at once."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ConfigError) as caught:
        loads_yaml("\n".join(lines), "f.yaml")
    assert str(caught.value) == (
        "f.yaml:1: more than 100000 values once aliases are expanded; use fewer"
    )


def test_merge_bomb() -> None:
    """Merge keys count against the same limit as aliases."""
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: {i}" for i in range(100)) + "}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 100000 values once aliases are expanded"):
        loads_yaml("\n".join(lines), "f.yaml")


NOT_THE_MODEL = {
    "unknown field": (
        GOOD + "mod: eager\n",
        "f.yaml:2: mod: unknown field; did you mean 'mode'? (choices: captured, free, k, label, "
        "layers, memory, mode, pair, seed, table, threshold)",
    ),
    "misspelled unit": (
        "memory:\n  bandwidth_gbs: 3350\n",
        "f.yaml:2: memory.bandwidth_gbs: unknown field; did you mean 'bandwidth_gb_s'? "
        "(choices: bandwidth_gb_s, capacity_gb)",
    ),
    "another unit": (
        "memory:\n  bandwidth_tb_s: 3.35\n",
        "f.yaml:2: memory.bandwidth_tb_s: unknown field; did you mean 'bandwidth_gb_s'? "
        "(the unit is part of the name; choices: bandwidth_gb_s, capacity_gb)",
    ),
    "no unit": (
        "memory:\n  bandwidth: 3350\n",
        "f.yaml:2: memory.bandwidth: unknown field; did you mean 'bandwidth_gb_s'? "
        "(the unit is part of the name; choices: bandwidth_gb_s, capacity_gb)",
    ),
    "unit in value": (
        "memory:\n  bandwidth_gb_s: 3.35 TB/s\n",
        "f.yaml:2: memory.bandwidth_gb_s: '3.35 TB/s' is not a number; the unit GB/s stands in "
        "the name, write 3350: give a number above 0",
    ),
    "wrong unit in value": (
        "memory:\n  bandwidth_gb_s: 80 GB\n",
        "f.yaml:2: memory.bandwidth_gb_s: '80 GB' is not a number; the unit GB/s stands in "
        "the name: give a number above 0",
    ),
    "unit without one in the name": (
        GOOD + "threshold: 40 %\n",
        "f.yaml:2: threshold: '40 %' is not a number; give a number of at least 0 and below 1",
    ),
    "letters without a unit in the name": (
        GOOD + "free: 3 parts\n",
        "f.yaml:2: free: '3 parts' is not a number; write the number without a unit: give a number",
    ),
    "missing section": (
        "# nothing\nmode: eager\n",
        "f.yaml:2: memory: is missing; give the fields bandwidth_gb_s, capacity_gb",
    ),
    "missing field": (
        "mode: eager\nmemory:\n  capacity_gb: 80\n",
        "f.yaml:2: memory.bandwidth_gb_s: is missing; give a number above 0",
    ),
    "empty value": (
        "memory:\n  bandwidth_gb_s:\n",
        "f.yaml:2: memory.bandwidth_gb_s: has no value; give a number above 0",
    ),
    "negative": (
        "memory:\n  bandwidth_gb_s: -3350\n",
        "f.yaml:2: memory.bandwidth_gb_s: -3350 is out of range; give a number above 0",
    ),
    "above the range": (
        "memory: {bandwidth_gb_s: 1e3, capacity_gb: 1e9}\n",
        "f.yaml:1: memory.capacity_gb: 1000000000.0 is out of range; "
        "give a number above 0 and of at most 1000",
    ),
    "mapping wanted": (
        "memory: 80\n",
        "f.yaml:1: memory: 80 is not a mapping; give the fields bandwidth_gb_s, capacity_gb",
    ),
    "choice": (
        GOOD + "mode: grph\n",
        "f.yaml:2: mode: 'grph' is not a valid choice; did you mean 'graph'? "
        "(choices: eager, graph)",
    ),
    "choice of another type": (
        GOOD + "mode: 3\n",
        "f.yaml:2: mode: 3 is not a valid choice; choices: graph, eager",
    ),
    "fraction": (
        GOOD + "layers: 2.5\n",
        "f.yaml:2: layers: 2.5 is not a whole number; give a whole number of at least 1",
    ),
    "true is no number": (
        GOOD + "layers: true\n",
        "f.yaml:2: layers: true is not a number; give a number",
    ),
    "nan in words": (
        GOOD + "free: nan\n",
        "f.yaml:2: free: 'nan' is not a usable number; give a finite one",
    ),
    "union of number and list": (
        GOOD + "k: many\n",
        "f.yaml:2: k: 'many' is not a whole number or a list; "
        "give a whole number, or a list (a whole number from 1 to 16 each)",
    ),
    "bad item of a union": (
        GOOD + "k:\n- 1\n- 17\n",
        "f.yaml:4: k.1: 17 is out of range; give a whole number from 1 to 16",
    ),
    "key of a table": (
        GOOD + "table:\n  2: 0.5\n  two: 0.5\n",
        "f.yaml:4: table.two: the key 'two' is not a whole number; use a whole number as key",
    ),
    "value of a table": (
        GOOD + "table:\n  2: half\n",
        "f.yaml:3: table.2: expected a number, found 'half'",
    ),
    "short pair": (
        GOOD + "pair: [1]\n",
        "f.yaml:2: pair.1: is missing; give a number",
    ),
    "long pair": (
        GOOD + "pair: [1, 2, 3]\n",
        "f.yaml:2: pair: a list of 3 is too long; give at most 2 items",
    ),
    "flag": (
        GOOD + "captured: maybe\n",
        "f.yaml:2: captured: expected true or false, found 'maybe'",
    ),
    "number as text": (
        GOOD + "label: 12\n",
        "f.yaml:2: label: 12 is not text; put it in quotes",
    ),
    "empty text": (
        GOOD + "label: ''\n",
        "f.yaml:2: label: '' is too short; give at least 1 character",
    ),
    "long text": (
        GOOD + "label: " + "a" * 60 + "\n",
        f"f.yaml:2: label: '{'a' * 39}…' is too long; give at most 5 characters",
    ),
    "optional number": (
        GOOD + "seed: x\n",
        "f.yaml:2: seed: expected a whole number, found 'x'",
    ),
    "rule of the model": (
        GOOD + "label: tiny\n",
        "f.yaml:1: 'tiny' has at most 2 layers; set layers to 1 or 2",
    ),
    "several": (
        "memory: {bandwidth_gb_s: 0}\nk: x\nlayers: 0\nmode: no\n",
        "f.yaml:1: memory.bandwidth_gb_s: 0 is out of range; give a number above 0 "
        "(and 3 more: line 2 k; line 3 layers; line 4 mode)",
    ),
    "very many": (
        GOOD + "k: [0, 0, 0, 0, 0, 0, 0, 0]\n",
        "f.yaml:2: k.0: 0 is out of range; give a whole number from 1 to 16 (and 7 more: "
        "line 2 k.1; line 2 k.2; line 2 k.3; line 2 k.4; line 2 k.5; 2 elsewhere)",
    ),
    "strange name": (
        GOOD + '"?\\n!": 1\n',
        "f.yaml:2: ?\\n!: unknown field; choices: captured, free, k, label, layers, memory, "
        "mode, pair, seed, table, threshold",
    ),
}


@pytest.mark.parametrize(("text", "message"), NOT_THE_MODEL.values(), ids=NOT_THE_MODEL.keys())
def test_data_that_do_not_fit_the_model(text: str, message: str) -> None:
    """Each kind of mistake names line, field and value, and says what is allowed."""
    with pytest.raises(ConfigError) as caught:
        parse(loads_yaml(text, "f.yaml"), Profile)
    assert str(caught.value) == message


def test_part_of_a_document_keeps_its_full_path() -> None:
    """A mistake in a nested part is named from the top of the file."""
    document = loads_yaml("scenario:\n  memory:\n    bandwidth_gb_s: x\n", "f.yaml")
    with pytest.raises(ConfigError) as caught:
        parse(document, Profile, base=["scenario"])
    assert str(caught.value) == (
        "f.yaml:3: scenario.memory.bandwidth_gb_s: 'x' is not a number; give a number above 0"
    )
    with pytest.raises(ConfigError) as caught:
        parse(document, Profile, base=["scenarios"])
    assert str(caught.value) == "f.yaml:1: scenarios: is missing; add it"


def test_data_without_a_file() -> None:
    """Options of a command are named by where they come from."""
    with pytest.raises(ConfigError) as caught:
        parse_mapping({"memory": {"bandwidth_gb_s": -1}, "k": 0.5}, Profile, "command line")
    assert str(caught.value) == (
        "command line: memory.bandwidth_gb_s: -1 is out of range; give a number above 0 "
        "(and 1 more: k)"
    )


def test_profile_errors_keep_their_class() -> None:
    """A loader of profiles gets its own class of error from every stage."""
    with pytest.raises(ProfileError):
        load_yaml(Path("nowhere") / "x.yaml", error=ProfileError)
    with pytest.raises(ProfileError):
        loads_yaml("", "x.yaml", error=ProfileError)
    with pytest.raises(ProfileError):
        parse(loads_yaml("a: 1", "x.yaml"), Profile, error=ProfileError)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with three YAML files, so that names in messages are short."""
    monkeypatch.chdir(tmp_path)
    for name in ("h100_sxm.yaml", "a100.yaml", "notes.txt"):
        (tmp_path / name).write_text(GOOD)
    (tmp_path / "sub").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("h100_sx.yaml", "h100_sx.yaml: no such file; did you mean 'h100_sxm.yaml'?"),
        ("b200.json", "b200.json: no such file; choices there: a100.yaml, h100_sxm.yaml"),
        ("sub/x.yaml", "sub/x.yaml: no such file; it holds no .yaml file"),
        ("gone/x.yaml", "gone/x.yaml: no such file; there is no folder 'gone' either"),
        ("sub", "sub: is a folder; give a YAML file (it holds no .yaml file)"),
        (".", ".: is a folder; give a YAML file (choices there: a100.yaml, h100_sxm.yaml)"),
        (
            "h100_sxm.yaml/x",
            "h100_sxm.yaml/x: cannot be read (Not a directory); give the path of a YAML file",
        ),
        (
            "a\0b",
            "a\\x00b: cannot be read (embedded null byte); give the path of a YAML file",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_file_that_cannot_be_read(path: str, message: str) -> None:
    """A wrong path says what is there instead."""
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    assert str(caught.value) == message


@pytest.mark.usefixtures("folder")
def test_file_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read says so."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # The superuser may read every file, so its mode alone would not do.
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ConfigError) as caught:
        load_yaml("secret.yaml")
    assert str(caught.value) == "secret.yaml: may not be read; check its permissions"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: caf\xe9\n", "f.yaml:2: byte 0xe9 is not UTF-8 text; save it as UTF-8"),
        ("a: 1\n".encode("utf-16"), "f.yaml:1: is UTF-16 text; save it as UTF-8"),
        (b"\x00\x01\x02", "f.yaml:1: control character U+0000 is not allowed; remove it"),
        (b"a: 1\n" * 250_000, "f.yaml: is larger than 1000 kB; give a configuration file"),
    ],
    ids=["latin-1", "utf-16", "binary", "huge"],
)
def test_file_that_is_not_text(folder: Path, content: bytes, message: str) -> None:
    """Bytes that are no configuration are refused with the reason."""
    (folder / "f.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_yaml("f.yaml")
    assert str(caught.value) == message
