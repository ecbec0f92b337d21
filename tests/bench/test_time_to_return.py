"""The race to a return: who has arrived, who is given up, and whose time counts."""

import pytest

from clop.bench import time_to_return
from clop.bench.time_to_return import (
    QUICK,
    Lead,
    Point,
    Row,
    Settings,
    contestants,
    has_reached,
    lead_of_quick,
    measure,
    run,
    train_and_test,
)
from clop.errors import UsageError
from clop.experiments.agents import AgentWork
from clop.rl.config import TrainConfig
from clop.rl.evaluate import evaluate
from clop.rl.protocols import EvalConfig

TINY = {"num_envs": 2, "num_steps": 4, "num_minibatches": 1, "update_epochs": 1}


def points(*returns, seconds=10.0):
    return [Point(100 * k, seconds * k, value) for k, value in enumerate(returns, 1)]


def row(what, reached, seconds):
    """A learner whose last two tests say whether it has reached 5."""
    value = 6.0 if reached else 1.0
    return Row(what, [5.0], [Point(50, seconds / 2, value), Point(100, seconds, value)])


@pytest.fixture
def race(monkeypatch):
    """Runs the benchmark with learners whose tests are agreed on, by name; the last is at the end of their runs."""
    asked = []

    def start(tests, **settings):
        class Stub:
            def __init__(self, name, body, threads):
                asked.append((name, threads))
                self.points = iter(tests.get(name, points(0.0)))
                self.last = tests.get(name, points(0.0))[-1]

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def turn(self):
                point = next(self.points)
                return point, point == self.last

        monkeypatch.setattr(time_to_return, "OwnProcess", Stub)
        return {row.what: row for row in measure(Settings(**settings))}

    start.asked = asked
    return start


def test_the_mean_of_two_tests_has_to_be_there():
    """Fails if one lucky test is enough, or if all tests count."""
    assert not has_reached(points(9.0), 5.0)
    assert not has_reached(points(0.0, 9.0), 5.0)
    assert has_reached(points(0.0, 4.0, 6.0), 5.0)
    assert not has_reached(points(9.0, 9.0, 0.0), 5.0)


def test_the_clock_stops_where_the_score_is_reached(race):
    rows = race({QUICK: points(1.0, 4.0, 6.0, 9.0)})
    assert (rows[QUICK].last.steps, rows[QUICK].last.seconds, rows[QUICK].time_text(5.0)) == (300, 30.0, "30")
    assert rows[QUICK].steps_per_second == 10


def test_of_several_scores_each_has_its_time_and_the_highest_ends_the_race(race):
    """Fails if the first score ends it, or if a score that was lost again later does not count."""
    rows = race({QUICK: points(3.0, 3.0, 1.0, 1.0, 5.0, 5.0, 9.0)}, reach="5, 3")
    assert rows[QUICK].asdict()["seconds_to"] == {"3": 20.0, "5": 60.0}
    assert len(rows[QUICK].tests) == 6


def test_a_hopeless_learner_is_given_up(race):
    """After its minutes, or when its run ends; fails if it goes on to its end in spite of the limit."""
    tests = {QUICK: points(*[0.0] * 9, seconds=60.0), "clop, procgen-easy": points(0.0, 0.0, seconds=60.0)}
    rows = race(tests, minutes=3.0)
    assert (len(rows[QUICK].tests), rows[QUICK].time_text(5.0)) == (3, "not in 3 min")
    easy = rows["clop, procgen-easy"]
    assert (len(easy.tests), easy.seconds_to(5.0)) == (2, None)


def test_one_after_the_other_with_as_many_processes_as_threads(race):
    race({}, processes=4)
    assert race.asked == [
        (QUICK, 1),
        ("clop, procgen-easy", 1),
        ("Stable-Baselines3, CnnPolicy", 4),
        ("Stable-Baselines3, impala", 4),
    ]
    assert [c.config.processes for c in contestants(Settings(processes=4))][:2] == [4, 4]


def test_all_learn_on_the_same_levels():
    """Fails if procgen-easy keeps its 200 levels or a learner its game."""
    learners = contestants(Settings(game="fruitbot", num_levels=7, method="clop"))
    assert {(c.config.game, c.config.num_levels) for c in learners} == {("fruitbot", 7)}
    assert len({c.config.levels for c in learners}) == 1
    assert [c.config.method for c in learners] == ["clop", "clop", "ppo", "ppo"]
    assert [c.sb3_encoder for c in learners] == [None, None, "nature", "impala"]
    assert len(contestants(Settings(without_sb3=True))) == 2


def test_the_lead_is_over_the_best_of_the_others():
    """One that has not arrived is a bound; fails if our own other preset counts, or if a loser that gave up early is
    taken for the best."""
    ours, cnn, impala = row(QUICK, True, 100.0), "Stable-Baselines3, CnnPolicy", "Stable-Baselines3, impala"
    easy = row("clop, procgen-easy", True, 10.0)
    assert lead_of_quick([ours, easy, row(cnn, True, 500.0), row(impala, False, 300.0)], 5.0) == Lead(cnn, 5.0, False)
    bound = lead_of_quick([ours, easy, row(cnn, False, 1200.0), row(impala, False, 1300.0)], 5.0)
    assert bound == Lead(cnn, 12.0, True)
    assert bound.text == "at least 12.0"
    assert lead_of_quick([row(QUICK, False, 100.0), row(cnn, True, 500.0)], 5.0) is None
    assert lead_of_quick([ours, easy], 5.0) is None


def test_the_table_says_who_has_arrived(monkeypatch):
    rows = [row(QUICK, True, 100.0), row("Stable-Baselines3, impala", False, 1200.0)]
    monkeypatch.setattr(time_to_return, "measure", lambda settings, report: rows)
    result = run(Settings())
    assert "| clop, quick               |           100 |   100 |       1 |             6.00 |" in result.text()
    assert "not in 20 min" in result.text()
    assert result.text().endswith("at least 12.0 times as long as clop, quick")
    metrics = result.metrics()
    assert metrics["lead"] == {"5": {"over": "Stable-Baselines3, impala", "ratio": 12.0, "at_least": True}}
    assert metrics["rows"][0]["tests"][-1] == {"steps": 100, "seconds": 100.0, "test_return": 6.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minutes": 0.0}, "minutes must be positive"),
        ({"reach": "3;5"}, "reach: expected returns with commas between them, got '3;5'"),
        ({"game": "starpilt"}, "did you mean 'starpilot'"),
        ({"method": "clopp"}, "did you mean 'clop'"),
        ({"processes": 3}, "processes=3 does not divide num_envs=64"),
    ],
)
def test_nonsense_is_refused_before_the_first_has_trained(settings, message):
    with pytest.raises(UsageError, match=message):
        Settings(**settings)


def work_of(kind, config):
    if kind == "clop":
        return AgentWork(config)
    pytest.importorskip("stable_baselines3")
    from clop.bench.sb3 import SB3Work

    return SB3Work(config, "nature")


@pytest.mark.parametrize("kind", ["clop", "sb3"])
def test_a_turn_ends_with_a_test_whose_time_does_not_count(kind, monkeypatch):
    """Tests fall on the first rollout at or beyond a multiple, and the last on the end of the run; fails if the time of
    a test is in the seconds, or if a learner is tested by a protocol of its own."""
    config = TrainConfig.preset("quick", "fruitbot", num_levels=5, total_timesteps=40, ppo=TINY)
    work = work_of(kind, config)
    tested = []

    def protocol(agent, levels, evaluation, *, backend):
        before = work.seconds
        result = evaluate(agent, levels, evaluation, backend=backend)
        assert work.seconds == before
        tested.append((work.done, levels, evaluation))
        return result

    monkeypatch.setattr(time_to_return, "evaluate", protocol)
    turns = [train_and_test(work, config, 20, 2) for _ in range(2)]
    assert [(point.steps, finished) for point, finished in turns] == [(24, False), (40, True)]
    assert [point.seconds for point, _ in turns] == sorted(point.seconds for point, _ in turns)
    assert turns[-1][0].seconds == work.seconds > 0
    assert tested == [(steps, config.levels, EvalConfig(episodes=2)) for steps in (24, 40)]


def test_processes_other_than_the_first_train_and_do_not_test(monkeypatch):
    monkeypatch.setattr(time_to_return, "evaluate", None)
    config = TrainConfig.preset("quick", "fruitbot", num_levels=5, ppo=TINY)
    point, _ = train_and_test(AgentWork(config), config, 8, 2, is_first=False)
    assert point.steps == 8


def test_the_policy_of_stable_baselines_acts_as_it_would_itself():
    """Fails for channels in the wrong place or bytes that are not scaled."""
    pytest.importorskip("stable_baselines3")
    import torch

    config = TrainConfig.preset("quick", "fruitbot", num_levels=5, ppo=TINY)
    work = work_of("sb3", config)
    work.step()
    frames = work.model.get_env().reset()  # as it hands them to its policy
    agent = work.agent()
    with agent.playing(0):
        logits = agent(torch.from_numpy(frames).permute(0, 2, 3, 1)).known_logits
    greedy, _ = work.model.predict(frames, deterministic=True)
    assert logits.argmax(-1).tolist() == greedy.tolist()
    with torch.no_grad():
        _, log_probs, _ = work.model.policy.evaluate_actions(torch.from_numpy(frames), torch.from_numpy(greedy))
    assert torch.allclose(logits.log_softmax(-1).max(-1).values, log_probs, atol=1e-6)


@pytest.mark.slow
def test_our_learner_races_in_two_processes(monkeypatch):
    """With the real processes, at a tiny size."""
    quick = TrainConfig.preset("quick", "fruitbot", num_levels=5, processes=2, ppo=TINY)
    monkeypatch.setattr(time_to_return, "contestants", lambda settings: [time_to_return.Contestant(QUICK, quick)])
    (found,) = measure(Settings(game="fruitbot", reach="-100", test_every=8, test_episodes=2))
    assert found.seconds_to(-100.0) == found.last.seconds
    assert [point.steps for point in found.tests] == [8, 16]
