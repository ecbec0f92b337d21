"""The figure of agents shows each run once, under a name that tells it from the others."""

import pytest

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.report import agents
from clop.report.figures import Curve, learning_curves


@pytest.fixture
def make_run(tmp_path):
    def make(name, methods=(), seed=0, game="bigfish", rows=2, num_levels=5):
        config = {"game": game, "preset_name": "quick", "total_timesteps": 1000, "num_levels": num_levels, "seed": seed}
        run = RunFolder.create(tmp_path / name, "agent", config | {"methods": dict.fromkeys(methods)})
        for number in range(rows):
            test = {"test_return": 5.0 + number} if number else {}
            run.log({"iteration": number + 1, "env_steps": 500 * (number + 1), "episodic_return": float(number)} | test)
        result = {"mean": 2.0, "standard_error": 0.5}
        run.write_summary({"train": result, "test": result | {"mean": 1.0}, "notes": {f"{name}.settings": "best: x 1"}})
        return run.path

    return make


@pytest.fixture
def drawn(monkeypatch):
    """What the figure was made of."""
    calls, draw = [], agents.learning_curves
    monkeypatch.setattr(agents, "learning_curves", lambda *arguments: calls.append(arguments) or draw(*arguments))
    return calls


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([{"name": "a"}, {"name": "b", "methods": ["clop"]}], ["ppo", "clop"]),
        ([{"name": "a"}, {"name": "b", "seed": 3}], ["ppo, seed 0", "ppo, seed 3"]),
        ([{"name": "a"}, {"name": "b"}], ["a", "b"]),
        ([{"name": "a", "methods": ["rad", "clop"]}], ["rad+clop"]),
    ],
    ids=["by method", "by seed", "by folder", "composed"],
)
def test_runs_are_told_apart_by_method_then_seed_then_folder(make_run, drawn, tmp_path, runs, names):
    agents.plot_runs([make_run(**run) for run in runs], tmp_path / "curves.png")
    ((_, curves, _),) = drawn
    assert [curve.name for curve in curves] == names
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_on_all_levels_is_not_said_to_have_none(make_run, drawn, tmp_path):
    agents.plot_runs([make_run("a", num_levels=0)], tmp_path / "curves.png")
    ((title, _, _),) = drawn
    assert "1 000 steps, all training levels, seed 0" in title


def test_a_curve_has_the_runs_numbers_and_the_title_its_scale(make_run, drawn, tmp_path):
    agents.plot_runs([make_run("a")], tmp_path / "curves.png")
    ((title, (curve,), _),) = drawn
    assert title == "bigfish, preset quick: 1 000 steps, 5 training levels, seed 0"
    assert curve.training == [(500, 0.0), (1000, 1.0)]
    assert curve.tests == [(1000, 6.0)]
    assert curve.final == {"train": (2.0, 0.5), "test": (1.0, 0.5)}
    assert curve.notes == ["a.settings best: x 1"]


def test_one_figure_is_of_one_game_and_of_runs_that_have_begun(make_run, tmp_path):
    with pytest.raises(UsageError, match="one game, got runs on bigfish, maze"):
        agents.plot_runs([make_run("a"), make_run("b", game="maze")], tmp_path / "curves.png")
    with pytest.raises(UsageError, match="has no metrics yet"):
        agents.plot_runs([make_run("c", rows=0)], tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def test_many_curves_have_a_panel_each_beside_the_first():
    """Fails when a panel is empty, or shows a method without what it is compared with."""
    names = ["ppo", "clop", "rad", "drac", "daac", "idaac"]
    curves = [
        Curve(name, [(0, 0.0), (10, number)], [], {"test": (number, 0.1)}, [f"note {name}"])
        for number, name in enumerate(names)
    ]
    figure = learning_curves("six", curves, {"published": (10, 3.0)})
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title().splitlines() for axes in panels] == [
        [name, f"{number}.00 ± 0.10 test"] for number, name in enumerate(names) if number
    ]
    for number, axes in enumerate(panels, start=1):
        ends = [line.get_ydata()[-1] for line in axes.get_lines() if len(line.get_xdata()) == 2]
        assert {0, number} <= set(ends)
        assert "published: 3" in [line.get_label() for line in axes.get_lines()]
    for shown in (figure, learning_curves("few", curves[-2:])):
        assert "note daac; note idaac" in shown.get_supxlabel()


def test_a_note_of_two_runs_is_shown_once():
    curves = [Curve(f"idaac, seed {seed}", [(0, 0.0)], notes=["idaac.settings best"]) for seed in range(2)]
    assert learning_curves("two", curves).get_supxlabel() == "idaac.settings best"
