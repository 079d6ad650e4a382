"""Every field of a scenario can be an axis, and none is ignored.

Each leaf field of each variant is set to another value: the numbers must change, or the scenario
must be refused. A new field makes the first test fail until another value is given for it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from simspec.core.errors import SimspecError
from simspec.core.registry import PluginConfig
from simspec.core.yamlio import load_yaml, parse, parse_mapping
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS
from simspec.scenarios.build import build
from simspec.scenarios.closed_form import estimate
from simspec.scenarios.run import simulate_scenario
from simspec.scenarios.schema import ScenarioConfig
from simspec.serving.speculation._base import SPECULATIONS
from simspec.sweeps.grid import expand
from simspec.sweeps.schema import SweepConfig
from simspec.workloads._base import ARRIVALS, LENGTHS
from tests.scenarios.field_tables import (
    BASE,
    CLIENT_FILES,
    CLIENTS,
    LABELS,
    LOG,
    LOG_TEXT,
    NOT_OF_A_CLOSED_FORM,
    OF_NO_LAYER,
    OTHER,
    OTHER_OF,
    TORN_LOG,
    TRACE,
    TRACE_TEXT,
    VARIANTS,
)
from tests.sweeps.factory import write_sweep


def leaves(config: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all fields, those of models inside included."""
    for name in type(config).model_fields:
        if name == "name" and isinstance(config, PluginConfig):
            continue
        value = getattr(config, name)
        dotted = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            if isinstance(value, PluginConfig):
                yield dotted
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted


def scenario(variant: str) -> ScenarioConfig:
    return parse_mapping(VARIANTS[variant], ScenarioConfig, variant)


CASES = sorted(
    (variant, field)
    for variant in VARIANTS
    for field in leaves(scenario(variant))
    # What is the same section in several variants is tried once.
    if (variant == "base" or VARIANTS[variant].get(key := field.split(".")[0]) != BASE.get(key))
    # Where numbers were measured is a label to a method without an exit layer.
    and (
        VARIANTS[variant]["acceptance"] != OF_NO_LAYER or not field.endswith("reference_exit_layer")
    )
    # Alone it is about requests beyond the model's context, which no variant sends; those are
    # in test_report.py.
    and (field != "workload.over_context" or "over_context" in VARIANTS[variant]["workload"])
)


BEFORE: dict[str, Any] = {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / LOG).write_text(LOG_TEXT)
    (tmp_path / TORN_LOG).write_text(LOG_TEXT.replace("\n", "\ntorn\n", 1))
    (tmp_path / TRACE).write_text(TRACE_TEXT)
    (tmp_path / CLIENTS).mkdir()
    for name, text in CLIENT_FILES.items():
        (tmp_path / CLIENTS / name).write_text(text)
    (tmp_path / "other.jsonl").write_text('{"accepted": [3, 2, 1, 0, 1, 0]}\n')
    (tmp_path / "other.csv").write_text(LOG_TEXT.replace(",4", ",14"))
    return tmp_path


def with_field(folder: Path, variant: str, field: str, value: Any) -> tuple[Any, Any]:
    """Return the scenario with a field set by an axis, and where it was written."""
    path = write_sweep(
        folder, scenario=VARIANTS[variant], grid={field: [value]}, sweep={"baseline": False}
    )
    document = load_yaml(path)
    (point,) = expand(parse(document, SweepConfig), document)
    return point.config, point.place


def other(folder: Path, variant: str, field: str) -> tuple[Any, Any]:
    value = OTHER_OF.get((variant, field), OTHER.get(field, "another"))
    return with_field(folder, variant, field, value)


def unchanged(folder: Path, variant: str) -> tuple[Any, Any]:
    seed = VARIANTS[variant]["simulation"]["seed"]
    return with_field(folder, variant, "simulation.seed", seed)


def simulated(config: Any, place: Any) -> dict[str, Any]:
    return simulate_scenario(config, build(config, place), place).as_dict()


def in_closed_form(config: Any, place: Any) -> dict[str, Any]:
    """Return the numbers of the closed form, without what only repeats the scenario."""
    told = {"acceptance", "dtype", "engine", "hardware", "kv_dtype", "method_options"}
    told |= {"model", "tp"}
    found = estimate(build(config, place), 4, 200)
    return {key: value for key, value in found.items() if key not in told}


def refusal(make: Callable[[], Any]) -> str | None:
    """Return the sentence with which ``make`` refuses, or None."""
    try:
        make()
    except SimspecError as error:
        return str(error)
    return None


def test_another_value_is_known_for_every_field() -> None:
    """The tables above cover every field of a scenario and of every plug-in it can name."""
    assert {field for _, field in CASES} == set(OTHER) | LABELS
    for registry, section in (
        (METHODS, "method"),
        (ACCEPTANCE_MODELS, "acceptance"),
        (ARRIVALS, "workload.arrivals"),
        (LENGTHS, "workload.lengths"),
        (SPECULATIONS, "speculation"),
    ):
        used = set()
        for data in VARIANTS.values():
            value: Any = data
            for key in section.split("."):
                value = (value or {}).get(key)
            used |= {value["name"]} if value else set()
        if section == "speculation":
            used.add("fixed")
        assert used == set(registry.names()), f"no variant with some {registry.kind}"


@pytest.mark.parametrize(("variant", "field"), [case for case in CASES if case[1] not in LABELS])
def test_every_field_changes_the_simulation_or_is_refused(
    folder: Path, variant: str, field: str
) -> None:
    """A field on an axis moves some number, or one sentence says why it cannot."""
    if variant not in BEFORE:
        BEFORE[variant] = simulated(*unchanged(folder, variant))
    after: dict[str, Any] = {}
    sentence = refusal(lambda: after.update(simulated(*other(folder, variant, field))))
    if sentence is None:
        assert after != BEFORE[variant]
    else:
        assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    ("variant", "field"),
    [
        (variant, field)
        for variant, field in CASES
        if field.split(".")[0]
        not in {"workload", "slo", "simulation", "replicas", "router", "disaggregation"}
        and field not in LABELS | NOT_OF_A_CLOSED_FORM
        # A pool given in blocks does not depend on how many may run.
        and (variant, field) != ("swap", "scheduler.max_num_seqs")
        # What follows a load is refused by an estimate of one batch.
        and "speculation" not in VARIANTS[variant]
    ],
)
def test_every_field_of_a_deployment_changes_the_closed_form_or_is_refused(
    folder: Path, variant: str, field: str
) -> None:
    """The same for ``simspec estimate``, at a batch of 4 and a prompt of several chunks."""
    before = in_closed_form(*unchanged(folder, variant))
    after: dict[str, Any] = {}
    sentence = refusal(lambda: after.update(in_closed_form(*other(folder, variant, field))))
    if sentence is None:
        assert after != before
    else:
        assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize("field", ["name", "description"])
def test_labels_of_a_scenario_are_no_axes(folder: Path, field: str) -> None:
    """What changes no number cannot be varied."""
    assert "only a label" in str(refusal(lambda: other(folder, "base", field)))


def test_the_source_of_an_acceptance_is_printed(folder: Path) -> None:
    """The one text that moves no number is in the sentence every report prints."""
    config, place = unchanged(folder, "base")
    acceptance = config.acceptance.model_copy(update={"source": "another"})
    process = build(config.model_copy(update={"acceptance": acceptance}), place).acceptance
    assert process is not None
    assert "source: another" in process.describe()
