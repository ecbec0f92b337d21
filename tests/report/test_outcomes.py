"""Gaps, efficiency, and returns at equal training return, worked by hand."""

import pytest

from clop.errors import UsageError
from clop.report.build import TABLES, build
from clop.report.efficiency import (
    common_training_return,
    curve_of,
    return_at,
    steps_to,
    unseen_at_training_return,
)
from clop.report.outcomes import cells, compare, compare_all, gap_percent_of_train, percent_change
from clop.report.runs import Runs


@pytest.fixture
def agents(tmp_path, write_agent):
    for seed, (train, test) in enumerate([(10.0, 4.0), (12.0, 5.0), (14.0, 6.0)]):
        write_agent(tmp_path / f"p{seed}", method="ppo", seed=seed, train=train, test=test)
        write_agent(tmp_path / f"c{seed}", method="clop", seed=seed, train=train - 2, test=test + 3)
    return {cell.variant: cell for cell in cells(Runs.find([tmp_path]).agents)}


def test_gaps_of_all_three_kinds(agents):
    """Absolute, relative to train and relative to PPO, as in the paper's Tables 10, 12 and 16."""
    ppo, clop = agents["ppo"], agents["clop"]
    assert ppo.estimate("gap").value == pytest.approx(7.0)
    assert clop.estimate("gap").value == pytest.approx(2.0)
    assert gap_percent_of_train(ppo).value == pytest.approx(100 * (5 - 12) / 12)
    assert percent_change(clop, ppo, "gap").value == pytest.approx(100 * (2 - 7) / 7)
    assert percent_change(clop, ppo, "test").value == pytest.approx(100 * (8 - 5) / 5)
    assert clop.estimate("ratio").value == pytest.approx((7 / 8 + 8 / 10 + 9 / 12) / 3)
    assert clop.estimate("test_success").value == 50.0


def test_there_is_no_percentage_of_a_return_that_is_not_positive(tmp_path, write_agent):
    """Fails for −50 % where CLOP is better by a half: fruitbot starts below zero."""
    for seed in range(3):
        write_agent(tmp_path / f"p{seed}", "fruitbot", "ppo", seed, -1.0, -2.0)
        write_agent(tmp_path / f"c{seed}", "fruitbot", "clop", seed, -1.0, -1.0)
    clop, ppo = cells(Runs.find([tmp_path]).agents)
    assert percent_change(clop, ppo, "test") is None
    assert gap_percent_of_train(clop) is None
    assert percent_change(clop, ppo, "gap").value == pytest.approx(-100)
    assert percent_change(ppo, clop, "gap") is None
    out = tmp_path / "out"
    report = build([tmp_path], out, ["table15", "outcomes"])
    assert "| n/a |" in " ".join((out / "tables/table15.md").read_text().split())
    table = TABLES["outcomes"](report.runs)
    assert {row.values["test / train"].value for row in table.rows} == {None}


def test_the_gap_of_a_run_belongs_to_the_run(agents):
    """Fails if the ± of train and test are added up: the gaps are 6, 7, 8 although returns spread by 2 and 1."""
    gap = agents["ppo"].estimate("gap")
    assert gap.high - gap.low == pytest.approx(2 * 4.3027 / 3**0.5, abs=1e-3)
    assert gap.n == 3


def test_a_comparison_has_differences_and_the_probability_of_improvement(agents):
    found = compare(agents["clop"], agents["ppo"])
    assert found.differences["test"].value == pytest.approx(3.0)
    assert found.differences["test"].excludes(0)
    assert found.differences["train"].value == pytest.approx(-2.0)
    assert found.improvement.value == 1.0
    boot = found.bootstrap("test")
    assert boot.value == pytest.approx(3.0)
    assert found.differences["test"].low < boot.low < 3.0 < boot.high < found.differences["test"].high
    with pytest.raises(UsageError, match="there is no test at equal training return of clop and ppo on bigfish"):
        found.bootstrap("test at equal training return")
    assert found.at_equal_training is None  # these runs have neither curves nor earlier stages


def test_the_bootstrap_can_be_had_for_one_game_too(agents):
    boot, student = agents["ppo"].estimate("test", "bootstrap"), agents["ppo"].estimate("test")
    assert boot.value == student.value
    assert boot.high - boot.low < student.high - student.low
    with pytest.raises(UsageError, match="unknown interval 'studnet'; did you mean 'student'"):
        agents["ppo"].estimate("test", "studnet")


def test_only_runs_at_one_scale_and_number_of_steps_are_compared(tmp_path, write_agent):
    write_agent(tmp_path / "a", method="ppo", steps=2000, earlier=[(1000, 3.0, 2.0)])
    write_agent(tmp_path / "b", method="clop", steps=1000)
    write_agent(tmp_path / "c", method="clop", steps=2000, num_levels=50)
    every = cells(Runs.find([tmp_path]).agents)
    (found,) = compare_all(every, "clop")
    assert (found.cell.env_steps, found.base.estimate("train").value) == (1000, 3.0)
    with pytest.raises(UsageError, match="one game, scale and number of steps"):
        compare(every[0], every[-1])


def test_return_at_steps_and_steps_to_a_return():
    curve = [(100.0, 1.0), (200.0, 3.0), (300.0, 2.0), (400.0, 6.0)]
    assert return_at(curve, 150) == 2.0
    assert return_at(curve, 99) is None
    assert return_at(curve, 401) is None
    assert steps_to(curve, 1.0) == 100.0
    assert steps_to(curve, 7.0) is None
    assert steps_to([], 1.0) is None
    # The best rising curve has 2.5 at 200 and 300, so 3 is reached after 300 and not on the peak at 200.
    assert steps_to(curve, 3.0) == pytest.approx(300 + 100 * 0.5 / 3.5)


def test_unseen_levels_at_equal_training_return(tmp_path, write_agent):
    """A slow learner is read where its training return is that of the other, not at the same steps.

    Fails if ends are compared: there the slow one is behind on unseen levels, 4 to 5, and here it is ahead.
    """
    write_agent(tmp_path / "fast", method="ppo", steps=2000, train=12.0, test=5.0, earlier=[(1000, 4.0, 3.0)])
    write_agent(tmp_path / "slow", method="clop", steps=2000, train=6.0, test=4.0, earlier=[(1000, 2.0, 2.0)])
    fast, slow = (Runs.find([tmp_path / name]).agents[0] for name in ("fast", "slow"))
    assert common_training_return([fast, slow], "evaluations") == 6.0
    assert unseen_at_training_return(fast, 6.0, "evaluations") == pytest.approx(3.0 + 2.0 * 2 / 8)
    assert unseen_at_training_return(slow, 6.0, "evaluations") == 4.0
    assert unseen_at_training_return(slow, 7.0, "evaluations") is None
    found = {c.cell.env_steps: c for c in compare_all(cells([fast, slow]), "clop")}[2000]
    assert found.source == "evaluations"
    assert [one.value for one in found.at_equal_training] == pytest.approx([4.0, 3.5, 0.5])
    assert found.bootstrap("test at equal training return").value == pytest.approx(0.5)


def test_without_stages_the_running_return_and_the_tests_on_the_way_are_taken(tmp_path, write_agent):
    fast = [(100 * i, float(i), i / 2) for i in range(1, 11)]
    slow = [(100 * i, i / 2, i / 2) for i in range(1, 11)]
    write_agent(tmp_path / "fast", method="ppo", steps=1000, train=10.0, test=5.0, curve=fast)
    write_agent(tmp_path / "slow", method="clop", steps=1000, train=5.0, test=5.0, curve=slow)
    every = cells(Runs.find([tmp_path]).agents)
    (found,) = compare_all(every, "clop")
    assert found.source == "running"
    assert found.training_return == 5.0
    assert [one.value for one in found.at_equal_training] == pytest.approx([5.0, 2.5, 2.5])
    (run,) = (cell.runs[0] for cell in every if cell.variant == "clop")
    assert curve_of(run, "test")[-1] == (1000.0, 5.0)
