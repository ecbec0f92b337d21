"""Finding runs: what is read, and that nothing is dropped without a word."""

import json
import shutil

import pytest

from clop.errors import UsageError
from clop.report.runs import Runs


def test_agents_classifiers_and_benchmarks_are_found_below_a_folder(tmp_path, write_agent, write_classifier):
    write_agent(tmp_path / "runs" / "a", method="clop(alpha=0.3)", seed=4)
    write_classifier(tmp_path / "vision" / "b")
    (tmp_path / "layer.json").write_text(json.dumps({"kind": "bench layer", "metrics": {}}))
    (tmp_path / "other.json").write_text("[1, 2]")
    found = Runs.find([tmp_path])
    (run,) = found.agents
    assert (run.game, run.seed, run.variant, run.scale) == (
        *("bigfish", 4, "clop(alpha=0.3)", "procgen-easy: impala, easy, 200 levels"),
    )
    assert [run.summary.label for run in found.classifiers] == ["plain"]
    assert list(found.benchmarks) == [tmp_path / "layer.json"]
    assert Runs.find(path for path in [tmp_path]) == found  # paths may come one by one
    assert found.problems == ()
    assert Runs.find([tmp_path / "runs" / "a", tmp_path]).agents == found.agents  # named twice, found once


def test_the_stages_of_a_run_that_grew_are_in_order(tmp_path, write_agent):
    write_agent(tmp_path / "a", steps=3000, train=9.0, test=6.0, earlier=[(1000, 3.0, 2.0), (2000, 5.0, 4.0)])
    (run,) = Runs.find([tmp_path]).agents
    assert [(s.env_steps, s.train.mean, s.test.mean, s.gap) for s in run.stages] == [
        *((1000, 3.0, 2.0, 1.0), (2000, 5.0, 4.0, 1.0), (3000, 9.0, 6.0, 3.0)),
    ]
    assert run.at(2000) is run.stages[1]
    assert run.at(2500) is None


def test_unfinished_damaged_and_doubled_runs_are_reported(tmp_path, write_agent, write_classifier):
    """Fails for each kind that is dropped without a word."""
    write_agent(tmp_path / "good")
    write_agent(tmp_path / "half", seed=1, finished=False, curve=[(4096, 1.0, None)])
    write_agent(tmp_path / "cut", seed=2)
    (tmp_path / "cut" / "summary.json").write_text('{"version": 2, "env_')
    write_agent(tmp_path / "old", seed=3)
    (tmp_path / "old" / "config.json").write_text('{"version": 1, "kind": "agent"}')
    write_agent(tmp_path / "bare", seed=4)
    values = json.loads((tmp_path / "bare" / "summary.json").read_text())
    del values["test"]
    (tmp_path / "bare" / "summary.json").write_text(json.dumps(values))
    shutil.copytree(tmp_path / "good", tmp_path / "copy")
    write_classifier(tmp_path / "vision")
    (tmp_path / "vision" / "summary.json").unlink()
    found = Runs.find([tmp_path])
    kinds = {problem.path.name: (problem.kind, problem.text) for problem in found.problems}
    assert kinds["half"] == ("unfinished", "at 4096 of 1000000 steps")
    assert kinds["vision"] == ("unfinished", "at 0 of 10 epochs")
    assert kinds["cut"][0] == "damaged"
    assert "summary.json cannot be read" in kinds["cut"][1]
    assert kinds["old"][0] == "damaged"
    assert "format 1" in kinds["old"][1]
    assert kinds["bare"][0] == "damaged"
    assert kinds["bare"][1].endswith("missing 1 required positional argument: 'test'")
    (one,) = {"good", "copy"} & kinds.keys()
    assert kinds[one][0] == "duplicate"
    assert len(found.agents) == 1
    assert len(kinds) == 6


def change(path, *names, to):
    """Write a value into a JSON file."""
    values = json.loads(path.read_text())
    place = values
    for name in names[:-1]:
        place = place[name]
    place[names[-1]] = to
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "config.json").unlink(), "config.json cannot be read"),
        (lambda run: (run / "metrics.jsonl").write_text('{"env_\n{}\n'), "metrics.jsonl cannot be read"),
        (lambda run: (run / "metrics.jsonl").write_bytes(b"\xff\n"), "metrics.jsonl cannot be read"),
        (lambda run: (run / "metrics.jsonl").write_text('{"episodic_return": 1.0}\n'), "lacks 'env_steps'"),
        (lambda run: change(run / "summary.json", "test", "mean", to=float("nan")), "test.mean is nan"),
        (lambda run: change(run / "summary.json", "test", "mean", to="5"), "test.mean is '5', expected a number"),
        (lambda run: change(run / "summary.json", "train", "success_rate", to=None), "train.success_rate is None"),
        (lambda run: change(run / "summary.json", "env_steps", to="5"), "env_steps is '5', expected an int"),
        (lambda run: change(run / "config.json", "config", "seed", to=None), "seed is None, expected an int"),
        (lambda run: change(run / "summary.json", "game", to="maze"), "'bigfish' and summary.json 'maze': of two runs"),
    ],
)
def test_an_agent_that_cannot_go_into_a_table_is_said_to_be_damaged(tmp_path, write_agent, damage, said):
    """Fails for what ends in a stack trace, in a table as nan, or nowhere."""
    write_agent(tmp_path / "good", curve=[(1000, 1.0, None)])
    damage(write_agent(tmp_path / "bad", seed=1, curve=[(1000, 1.0, None)]))
    found = Runs.find([tmp_path])
    assert [run.path.name for run in found.agents] == ["good"]
    (problem,) = found.problems
    assert (problem.path.name, problem.kind) == ("bad", "damaged")
    assert said in problem.text


@pytest.mark.parametrize(
    ("names", "value", "said"),
    [
        (("test_accuracy",), {}, "test_accuracy is empty"),
        (("test_accuracy", "usps"), "x", "test_accuracy of usps is 'x', expected a number"),
        (("running_accuracy",), None, "running_accuracy is None, expected a number"),
    ],
)
def test_a_classifier_that_cannot_go_into_a_table_is_said_to_be_damaged(tmp_path, write_classifier, names, value, said):
    change(write_classifier(tmp_path / "bad") / "summary.json", *names, to=value)
    (problem,) = Runs.find([tmp_path]).problems
    assert (problem.kind, problem.text) == ("damaged", said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "bench augment", "metr', "Unterminated string"),
        ('{"kind": "bench augment", "metrics": {"rows": [{"method": "crop"}]}}', "lacks 'dataset' in a row"),
        ('{"kind": "saliency", "metrics": {}}', "lacks 'networks'"),
    ],
)
def test_a_record_that_cannot_be_read_is_said_to_be_damaged(tmp_path, text, said):
    (tmp_path / "record.json").write_text(text)
    (problem,) = Runs.find([tmp_path]).problems
    assert (problem.path.name, problem.kind) == ("record.json", "damaged")
    assert said in problem.text


def test_a_path_that_is_not_there_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="nowhere does not exist"):
        Runs.find([tmp_path / "nowhere"])


def test_a_long_curve_is_thinned_but_keeps_its_tests_and_its_end(tmp_path, write_agent):
    """A run of the paper's length has 1526 iterations; a line that was cut off by a kill is not part of it."""
    curve = [(i * 100, float(i), 7.0 if i == 501 else None) for i in range(1, 1501)]
    write_agent(tmp_path / "a", curve=curve)
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 1501, "env_')
    (run,) = Runs.find([tmp_path]).agents
    assert 300 < len(run.curve) <= 401
    assert run.curve[-1].env_steps == 150_000
    assert [(p.env_steps, p.test_return) for p in run.curve if p.test_return is not None] == [(50_100, 7.0)]
