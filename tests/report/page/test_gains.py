"""What the first screen says: CLOP against none, with the interval that decides, and the comparison with most seeds."""

import re

import pytest

from clop.report.page.build import write_page
from clop.report.page.gains import agent_gains, classifier_gains
from clop.report.runs import Runs


def write_pair(write_agent, folder, game, gain, seeds=3, **settings):
    for seed in range(seeds):
        for method, more in (("ppo", 0.0), ("clop", gain)):
            path = folder / f"{game}-{method}-{seed}-{len(settings)}"
            write_agent(path, game, method, seed, 6.0, 2.0 + 0.1 * seed + more, **settings)


def test_the_interval_decides_from_three_seeds_on(tmp_path, write_agent):
    """Fails if a difference within chance is called better, or one of two seeds is."""
    for game, gain, seeds in (("bigfish", 1.0, 3), ("maze", -1.0, 3), ("heist", 0.05, 3), ("jumper", 5.0, 2)):
        write_pair(write_agent, tmp_path, game, gain, seeds)
    found = {gain.what: gain for gain in agent_gains(Runs.find([tmp_path]).agents)}
    verdicts = {name: gain.verdict for name, gain in found.items()}
    assert verdicts == {"bigfish": "better", "maze": "worse", "heist": "undecided", "jumper": "too few seeds"}
    assert list(found)[-1] == "jumper"  # the one with fewest seeds
    assert found["bigfish"].difference.value == pytest.approx(1.0)
    assert found["bigfish"].percent.value == pytest.approx(100 / 2.1)


def test_only_runs_at_one_scale_and_after_the_same_steps_are_compared(tmp_path, write_agent):
    """Fails if CLOP on 200 levels stands against PPO on 50."""
    write_agent(tmp_path / "a", "bigfish", "ppo", 0, num_levels=50)
    write_agent(tmp_path / "b", "bigfish", "clop", 0, num_levels=200)
    write_agent(tmp_path / "c", "bigfish", "clop", 1, num_levels=50, steps=2_000_000)
    assert agent_gains(Runs.find([tmp_path]).agents) == []


def test_a_number_below_zero_has_no_percentage(tmp_path, write_agent):
    write_agent(tmp_path / "a", "bigfish", "ppo", 0, test=-2.0)
    write_agent(tmp_path / "b", "bigfish", "clop", 0, test=3.0)
    (gain,) = agent_gains(Runs.find([tmp_path]).agents)
    assert gain.percent is None
    assert "+5.00" in write_page([tmp_path], tmp_path / "site").path.read_text(encoding="utf-8")


def test_the_papers_alpha_is_preferred_and_another_is_better_than_none(tmp_path, write_classifier):
    for name, method, test in (("a", "plain", 70.0), ("b", "clop", 80.0), ("c", "clop(alpha=0.1)", 90.0)):
        write_classifier(tmp_path / name, method, 0, test)
    (gain,) = classifier_gains(Runs.find([tmp_path]).classifiers)
    assert gain.difference.value == pytest.approx(10.0)
    (tmp_path / "b" / "summary.json").unlink()
    found = classifier_gains(Runs.find([tmp_path]).classifiers)
    assert [gain.difference.value for gain in found] == [pytest.approx(20.0)]


def test_every_test_set_is_compared_and_the_one_least_like_training_comes_first(tmp_path, write_classifier):
    """Fails if only images like those of training count, where CLOP may lose what it gains elsewhere."""
    for method, like, unlike in (("plain", 96.0, 44.0), ("clop", 89.0, 62.0)):
        tests = {"centred": like, "filled": unlike}
        write_classifier(tmp_path / method, method, 0, 0.0, task="digits", test_accuracy=tests)
    found = classifier_gains(Runs.find([tmp_path]).classifiers)
    assert [(gain.measured, gain.difference.value) for gain in found] == [
        ("accuracy on filled", pytest.approx(18.0)),
        ("accuracy on centred", pytest.approx(-7.0)),
    ]


def test_the_first_screen_has_the_comparisons_with_most_seeds(tmp_path, write_agent, write_classifier):
    """Fails if a lucky single run is put in front."""
    write_pair(write_agent, tmp_path, "bigfish", 0.5)
    write_pair(write_agent, tmp_path, "heist", 9.0, seeds=1)
    for seed in range(3):
        write_classifier(tmp_path / f"plain-{seed}", "plain", seed, 70.0 + seed)
        write_classifier(tmp_path / f"clop-{seed}", "clop", seed, 80.0 + seed)
    html = write_page([tmp_path], tmp_path / "site").path.read_text(encoding="utf-8")
    header = html[html.index("<header>") : html.index("</header>")]
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", header))
    assert "bigfish, return on unseen levels +24 % CLOP is better" in words
    assert "+10.0 points" in words
    assert "heist" not in words
    assert "of 226" in words
    assert 'data-outcome="too few seeds"' in html  # of heist, in the table below
