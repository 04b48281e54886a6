"""Fresh cases on the real library: they train, and what they give can tell right from wrong."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from d3bot.engine.jobs import Job
from d3bot.engine.pool import Pool
from d3bot.frameworks import render, script_env
from d3bot.generate import fresh_cases
from d3bot.spec import Build, Case, Setting

CASES = fresh_cases("torch", 11, 36)


@pytest.fixture(scope="module")
def pool(torch_build: Build) -> Iterator[Pool]:
    with Pool(torch_build, script_env("torch"), 1) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_reference_trains(case: Case, pool: Pool, tmp_path: Path) -> None:
    script = render(case, Setting.parse("fsdp2(world=2)"), "doc")
    path = tmp_path / "trial.py"
    path.write_text(script.text)
    outcome = pool.run(Job(path, "reference", "torch", parts=script.parts))
    assert outcome.ok, outcome.ranks[0].error
    arrays = outcome.ranks[0].arrays
    assert arrays is not None
    assert all(np.isfinite(array).all() for array in arrays.values())
    first_grads = [array for name, array in arrays.items() if name.startswith("step 0 grad ")]
    # A step inside the backward pass leaves no gradient to look at.
    assert case.in_backward or any(np.abs(array).max(initial=0) > 0 for array in first_grads)
    predictions = [array for name, array in arrays.items() if name.startswith("predict")]
    assert predictions
    assert all(np.ptp(array, axis=0).max() > 0 for array in predictions)  # the rows differ: the input matters
