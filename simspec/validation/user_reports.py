"""What users reported, as cases: a setup, what simspec should say, and what it says.

Each expectation names a figure of a setup (:mod:`simspec.validation._report_quantities`), or its
ratio to that of another, and the range that the report gives for it. One that names no figure is
about something simspec does not compute yet, and says so. The cases are
``simspec/validation/data/user_reports.yaml``; facts with their sources, and nothing is fitted to
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from simspec.core.yamlio import load_yaml, parse
from simspec.scenarios.schema import StrictModel
from simspec.validation._report_quantities import QUANTITIES, SLOW, SetupConfig

CASES = Path(__file__).parent / "data" / "user_reports.yaml"

Verdict: TypeAlias = Literal["holds", "lower", "higher", "not judged"]


class ExpectationConfig(StrictModel):
    """One figure that a report lets expect."""

    says: str = Field(min_length=1)
    """The expectation in words, with its unit."""
    quantity: str | None = None
    """Figure by name; none where simspec computes no such thing."""
    of: str = ""
    """Name of the setup."""
    over: str = ""
    """Another setup: the expectation is about the ratio."""
    low: float | None = None
    high: float | None = None
    because: str = ""
    """Why it is missed or not judged."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        bounds = self.low is not None or self.high is not None
        if (self.quantity is None) == bounds or bool(self.of) != bounds:
            raise ValueError("an expectation with a quantity needs a setup and a bound")
        if self.quantity is None and not self.because:
            raise ValueError("an expectation without a quantity says why; add because")
        if self.quantity is not None and self.quantity not in QUANTITIES:
            known = ", ".join(sorted(QUANTITIES))
            raise ValueError(f"unknown quantity {self.quantity!r}; choices: {known}")
        return self

    def verdict(self, value: float | None) -> Verdict:
        """Return where the obtained value lies; NaN is lower than everything."""
        if value is None:
            return "not judged"
        if self.high is not None and value > self.high:
            return "higher"
        return "holds" if self.low is None or value >= self.low else "lower"


class ReportConfig(StrictModel):
    """One public report."""

    id: str = Field(pattern=r"^R\d\d$")
    title: str = Field(min_length=1)
    source: str = Field(min_length=1)
    observed: str = Field(min_length=1)
    """What was measured, in words and numbers."""
    setups: dict[str, SetupConfig] = Field(default_factory=dict)
    expectations: tuple[ExpectationConfig, ...] = Field(min_length=1)

    @field_validator("setups", mode="before")
    @classmethod
    def _inherited(cls, setups: Any) -> Any:
        if not isinstance(setups, Mapping):
            return setups
        whole: dict[str, Any] = {}
        for name, setup in setups.items():
            if not isinstance(setup, Mapping):
                return setups
            base = setup.get("like")
            if base is not None and base not in whole:
                raise ValueError(f"no setup {base!r} before {name!r}")
            own = {key: value for key, value in setup.items() if key != "like"}
            whole[name] = {**whole[base], **own} if base is not None else own
        return whole

    @model_validator(mode="after")
    def _knows_its_setups(self) -> Self:
        for expectation in self.expectations:
            for name in (expectation.of, expectation.over):
                if name and name not in self.setups:
                    raise ValueError(f"no setup {name!r} in {self.id}")
        return self


class ReportsConfig(StrictModel):
    """All of them."""

    reports: tuple[ReportConfig, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """One expectation with what simspec says."""

    report: ReportConfig
    expectation: ExpectationConfig
    obtained: float | None
    verdict: Verdict


def load_reports(path: Path = CASES) -> tuple[ReportConfig, ...]:
    """Return the cases, checked.

    Raises
    ------
    ConfigError
        A field is wrong, with file and line.
    """
    return parse(load_yaml(path), ReportsConfig).reports


def judge(reports: tuple[ReportConfig, ...], *, slow: bool = True) -> Iterator[Judged]:
    """Yield every expectation with its verdict.

    Parameters
    ----------
    reports : tuple of ReportConfig
        The cases.
    slow : bool
        Whether those that simulate are judged too; they are left away otherwise.
    """
    for report in reports:
        for expectation in report.expectations:
            if expectation.quantity in SLOW and not slow:
                continue
            value = _obtained(report, expectation)
            yield Judged(report, expectation, value, expectation.verdict(value))


def _obtained(report: ReportConfig, expectation: ExpectationConfig) -> float | None:
    if expectation.quantity is None:
        return None
    figure = QUANTITIES[expectation.quantity]
    value = figure(report.setups[expectation.of])
    return value / figure(report.setups[expectation.over]) if expectation.over else value
