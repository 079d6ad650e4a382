"""Records keep every row and every number."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from simspec.serving.records import RequestRecords, RowBuffer, StepRecords
from simspec.serving.simulate import simulate
from tests.serving.fakes import poisson, setup


@pytest.mark.parametrize("num_rows", [0, 1, 4095, 4096, 4097, 10_000])
def test_rows_come_back_in_order(num_rows: int):
    """Packing in chunks loses nothing."""
    buffer = RowBuffer(3)
    for i in range(num_rows):
        buffer.append((i, 2.0 * i, -i))
    columns = buffer.columns()
    assert columns.shape == (3, num_rows)
    assert columns[0].tolist() == list(range(num_rows))
    assert columns[2].tolist() == [-i for i in range(num_rows)]


def test_counts_are_integers_and_times_are_floats():
    """Each column has the type its field declares."""
    run = simulate(setup(poisson(10, 5.0, prompt_len=10, output_len=5), max_draft=2))
    for table in (run.requests, run.steps):
        assert isinstance(table, RequestRecords | StepRecords)
        for column in fields(table):
            dtype = np.int64 if column.type == "IntArray" else np.float64
            assert getattr(table, column.name).dtype == dtype, column.name


def test_requests_are_in_order_of_their_id():
    """Whatever the order in which they finished."""
    load = poisson(30, 50.0, prompt_len=10, output_len=5)
    longer = [replace(r, output_len=5 + (7 * r.request_id) % 30) for r in load]
    run = simulate(setup(longer))
    assert run.requests.request_id.tolist() == list(range(30))


def test_the_digest_sees_every_number():
    """Any change to any column or fact changes the digest."""
    run = simulate(setup(poisson(10, 5.0, prompt_len=10, output_len=5), max_draft=2))
    digests = {run.digest()}
    for name, table in (("requests", run.requests), ("steps", run.steps)):
        for column in fields(table):
            values = getattr(table, column.name).copy()
            # What did not happen has no time, and NaN + 1 is NaN.
            values.flat[0] = np.nan_to_num(values.flat[0]) + 1
            changed = replace(table, **{column.name: values})
            digests.add(replace(run, **{name: changed}).digest())
    digests.add(replace(run, end_s=run.end_s + 1).digest())
    digests.add(replace(run, refusals={3: "too long"}).digest())
    assert len(digests) == 1 + len(fields(RequestRecords)) + len(fields(StepRecords)) + 2
