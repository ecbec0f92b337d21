"""The paper's experiments as named sweeps."""

import pytest

from clop.errors import UsageError
from clop.experiments.sweep.check import check_jobs
from clop.experiments.sweep.named import NAMES, SCALES, named_sweep

MEASURED = {f"table{number}" for number in (1, 2, 3, *range(6, 18))} | {
    f"figure{number}" for number in (4, 5, 7, 10, 11, 12, 13, 14)
}
"""All that hold a measurement; the others are settings, diagrams and pictures."""


def test_every_table_and_figure_with_a_measurement_is_covered():
    assert {part for name in NAMES for part in named_sweep(name).covers} == MEASURED


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_every_run_of_every_sweep_could_be_started(name, scale):
    """Fails for a method that cannot be composed, a slot that an encoder has not, an image too small for a network."""
    jobs = named_sweep(name, scale).jobs()
    check_jobs(jobs)
    assert len({(job.id, job.total) for job in jobs}) == len(jobs)


def test_the_sizes_are_those_of_the_paper():
    easy = named_sweep("paper-easy").jobs()
    assert len(easy) == 16 * 8 * 5
    assert {job.config["total_timesteps"] for job in easy} == {25_000_000}
    hard = named_sweep("paper-hard").jobs()
    assert {(job.config["distribution_mode"], job.config["num_levels"]) for job in hard} == {("hard", 500)}
    (mnist,) = {(job.config["epochs"], job.config["train_images"]) for job in named_sweep("paper-mnist-usps").jobs()}
    assert mnist == (30, None)


def test_the_small_sweeps_are_others_and_small():
    assert named_sweep("paper-easy", "small").name == "paper-easy-small"
    assert max(job.config["total_timesteps"] for job in named_sweep("paper-hard", "small").jobs()) == 1_000_000


def test_names_are_suggested():
    with pytest.raises(UsageError, match=r"unknown sweep 'paper-esy'; did you mean 'paper-easy'\?"):
        named_sweep("paper-esy")
    with pytest.raises(UsageError, match=r"unknown scale 'tiny'"):
        named_sweep("paper-easy", "tiny")
