"""The plan's questions: what was planned, what was run, and what decides.

``python tests/report/test_evidence.py`` writes the tables and figures of ``docs/evidence.md`` anew after new runs.
"""

import json
import re
import tomllib
from pathlib import Path

import pytest

from clop.experiments.sweep.grids import seeds_of
from clop.report.evidence import (
    EVIDENCE_TABLES,
    QUESTIONS,
    TASKS,
    agents,
    block_text,
    classifier_decisions,
    decisions,
    in_short,
    learning,
    not_made,
    verdict,
)
from clop.report.evidence_figures import EVIDENCE_FIGURES
from clop.report.figures import save
from clop.report.runs import Runs
from clop.report.stats import Estimate

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence.md"
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- (evidence-[a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def with_tables(text):
    """The page with each block between its marks made from the records."""
    runs = Runs.find([ROOT / "results"])
    return _BLOCK.sub(lambda block: block[1] + block_text(EVIDENCE_TABLES[block[2]](runs)) + block[4], text)


def with_short_table(text):
    """The README with its table of agents made from the records."""
    before, rest = text.split("<!-- evidence in short -->\n")
    _, after = rest.split("<!-- end -->", 1)
    return f"{before}<!-- evidence in short -->\n{in_short(Runs.find([ROOT / 'results']))}<!-- end -->{after}"


def test_the_readme_has_the_table_of_the_records():
    assert with_short_table(README.read_text()) == README.read_text()


def test_the_page_has_the_tables_of_the_records():
    """Fails if a run was added and the page was not written anew."""
    text = PAGE.read_text()
    assert {block[2] for block in _BLOCK.finditer(text)} == set(EVIDENCE_TABLES)
    assert with_tables(text) == text


def test_the_page_shows_every_figure():
    text = PAGE.read_text()
    for figure in EVIDENCE_FIGURES:
        assert f"(../results/evidence/{figure.name}.png)" in text
        assert (ROOT / f"results/evidence/{figure.name}.png").is_file()


def test_the_questions_are_those_of_the_sweep():
    """Fails if the tables ask for other games, levels, steps, methods or seeds than the registered runs have."""
    sweep = tomllib.loads((ROOT / "results/evidence/evidence.toml").read_text())
    assert _planned(sweep) == [_asked(question) for question in QUESTIONS if question.required]
    asked = {(t.task, t.images, t.epochs, _plain(method), t.seeds) for t in TASKS for method in t.methods}
    wanted = {
        (
            grid["task"],
            grid.get("settings", {}).get("train_images", 60_000),
            _epochs(grid),
            _plain(method),
            grid["seeds"],
        )
        for grid in sweep["classifiers"]
        for method in grid["methods"]
    }
    assert wanted <= asked
    exist = {method for *_, method, _ in asked - wanted}  # which were run before the plan
    assert exist <= {"plain", "clop", "dropout", "batch_norm"}


def test_the_questions_of_the_amendment_are_those_of_its_sweep():
    """Fails if seeds that suggested a question are among those that answer it."""
    sweep = tomllib.loads((ROOT / "results/evidence/acting.toml").read_text())
    named = ("acting", "entropy")
    assert _planned(sweep) == [_asked(question) for question in QUESTIONS if question.name in named]
    assert _planned(sweep)[0][-2] == (2, 3, 4)


def test_the_sweep_that_goes_on_has_the_plans_next_questions_in_its_order():
    """Fails if it asks for other games, levels, steps or methods, or for seeds that were not registered."""
    sweep = tomllib.loads((ROOT / "results/evidence/more.toml").read_text())
    named = ("control", "the paper's levels", "more seeds")
    asked = [_asked(question) for question in QUESTIONS if question.name in named]
    for (*planned, seeds, changes), (*question, registered, others) in zip(_planned(sweep), asked, strict=True):
        assert (planned, changes) == (question, others)
        assert set(seeds) <= set(registered)
        assert seeds[-1] == registered[-1]


def _planned(sweep):
    return [
        (game, levels, settings["total_timesteps"], tuple(grid["methods"]), seeds_of(grid["seeds"]), _changes(settings))
        for grid in sweep["agents"]
        for settings in [grid["settings"]]
        for game in grid["games"]
        for levels in _list(settings["num_levels"])
    ]


def _changes(settings):
    return ", ".join(f"{name} {value:g}" for name, value in settings.items() if name.startswith("ppo."))


def _asked(question):
    seeds = tuple(range(question.first_seed, question.seeds))
    return question.game, question.levels, question.steps, question.methods, seeds, question.changes


def _list(value):
    return value if isinstance(value, list) else [value]


def _epochs(grid):
    return grid.get("settings", {}).get("epochs", 30)


def _plain(method):
    return method.lower()


def test_verdicts_are_those_of_the_plan():
    assert verdict(Estimate(1.0, 0.1, 2.0, 3)) == "reproduced"
    assert verdict(Estimate(-1.0, -2.0, -0.1, 3)) == "contradicted"
    assert verdict(Estimate(1.0, 0.0, 2.0, 3)) == "undecided"
    assert verdict(Estimate(1.0, None, None, 2)) == "too few seeds"


@pytest.fixture
def runs(tmp_path, write_agent):
    def write(method, seed, test, game="bigfish", steps=1_003_520, **changes):
        settings = {"preset": "quick", "steps": steps, "num_levels": 50, "eval_episodes": 1024} | changes
        path = tmp_path / f"{game}{method}{seed}{len(changes)}{steps}"
        write_agent(path, game, method, seed, 3.0, test, **settings)

    for seed, test in enumerate([1.0, 1.1, 1.2, 1.3, 1.4]):
        write("ppo", seed, test)
        write("clop", seed, test + 1)
    write("clop_consistency", 0, 4.0)
    write("ppo", 5, 9.0)  # a seed that was not planned
    write("ppo", 0, 9.0, eval_episodes=256)  # not evaluated as planned
    write("clop", 0, 9.0, num_levels=200)
    write("ppo", 0, 9.0, steps=2_000_000 - 4096)
    return Runs.find([tmp_path])


def test_a_question_takes_the_runs_that_were_planned_for_it_and_no_others(runs):
    rows = {row.labels: row for row in agents(runs).rows}
    ppo = rows["main", "bigfish", "ppo"]
    assert ppo.values["test"].value == pytest.approx(1.2)
    assert ppo.values["test"].n == 5
    assert (ppo.seeds, ppo.command) == ("5 of 5", "")
    dodgeball = rows["main", "dodgeball", "ppo"]
    assert (dodgeball.values, dodgeball.seeds) == ({}, "0 of 3")
    assert "evidence.toml" in dodgeball.command
    assert rows["main, longer", "bigfish", "ppo"].values == {}
    assert ("more seeds", "dodgeball", "ppo") not in rows  # not required, and not run


def test_what_was_planned_and_not_run_is_listed(runs):
    """Fails if an optional question without runs is passed over, or one that has all of them is named."""
    rows = {row.labels: row.seeds for row in not_made(runs).rows}
    assert ("main", "bigfish", "ppo") not in rows
    assert rows["noise", "bigfish", "clop_consistency"] == "1 of 2"
    assert rows["control", "jumper", "clop"] == "0 of 3"
    assert rows["alpha", "bigfish", "clop(alpha=1)"] == "0 of 2"


def test_what_decides_has_the_interval_and_the_verdict(runs):
    rows = {row.labels[:3]: row for row in decisions(runs).rows}
    main = rows["main", "bigfish", "clop − ppo"]
    assert main.labels[3] == "reproduced"
    assert main.values["test"].value == pytest.approx(1.0)
    assert 0.7 < main.values["test"].low < 0.85
    assert main.values["gap"].value == pytest.approx(-1.0)
    assert rows["main", "dodgeball", "clop − ppo"].labels[3] == "not run"
    noise = rows["noise", "bigfish", "clop_consistency − clop"]
    assert (noise.labels[3], noise.values["test"].low) == ("too few seeds", None)


def test_a_question_that_two_seeds_suggested_is_answered_by_the_others(tmp_path, write_agent):
    """Fails if the seeds that were known count, or if PPO without the entropy bonus counts as PPO."""

    def write(method, seed, test, **changes):
        settings = {"preset": "quick", "steps": 1_003_520, "num_levels": 50, "eval_episodes": 1024} | changes
        write_agent(tmp_path / f"{method}{seed}{len(changes)}", "bigfish", method, seed, 3.0, test, **settings)

    for seed in range(5):
        write("ppo", seed, 1.0 + seed / 10)
    for seed, test in enumerate([9.0, 9.0, 2.0, 2.1, 2.2]):
        write("clop(rollout_mode=eval)", seed, test)
    for seed in range(3):
        write("ppo", seed, 2.0 + seed / 10, **{"ppo.ent_coef": 0.0})
    found = Runs.find([tmp_path])
    returns = {(row.labels[0], row.labels[2], row.scale): row.values for row in agents(found).rows if row.values}
    plain = "quick: small, easy, 50 levels"
    assert returns["acting", "clop(rollout_mode=eval)", plain]["test"].value == pytest.approx(2.1)
    assert returns["main", "ppo", plain]["test"].value == pytest.approx(1.2)
    assert returns["entropy", "ppo", f"{plain}; ppo.ent_coef 0"]["test"].value == pytest.approx(2.1)
    rows = {row.labels[:3]: row for row in decisions(found).rows}
    assert rows["acting", "bigfish", "clop(rollout_mode=eval) − ppo"].labels[3] == "reproduced"
    control = rows["acting", "bigfish", "clop(rollout_mode=eval) − ppo, ppo.ent_coef 0"]
    assert control.labels[3] == "undecided"
    assert control.values["test"].value == pytest.approx(0.0)


def test_how_agents_learn_is_read_from_the_end_of_a_stage(runs, tmp_path):
    """Fails if the metrics of a run that has grown since are those of its first stage, or early ones count too."""
    path = tmp_path / "bigfishclop_consistency001003520"
    lines = [{"env_steps": 4096 * i, "entropy": 2.0 if i > 233 else 9.0} for i in range(1, 246)]
    lines.append({"env_steps": 2_000_000, "entropy": 5.0})
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = {row.labels: row for row in learning(runs).rows}
    values = rows["noise", "bigfish", "clop_consistency"].values
    assert values["entropy"].value == 2.0
    assert values["KL"].value is None  # which this run has not logged


def test_the_short_table_has_both_methods_and_their_difference(runs):
    header, _, row = in_short(runs).splitlines()
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "bigfish, 50 levels, 1 M steps",
        "3.00 / 1.20",
        "3.00 / 2.20",
        decisions(runs).rows[0].values["test"].text(2),
        "5",
    ]
    assert "PPO" in header


def test_scarce_data_is_decided_by_the_difference_of_gains(tmp_path, write_classifier):
    """Fails if the gain with few images alone decides."""
    for images, epochs, gain in ((500, 200, 5.0), (10_000, 10, 12.0)):
        for seed in range(5):
            for method in ("plain", "clop"):
                test = 60.0 + seed / 10 + (gain if method == "clop" else 0.0)
                path = tmp_path / f"{images}{method}{seed}"
                write_classifier(path, method, seed, test, train_images=images, epochs=epochs, scale=f"{images} images")
    row = classifier_decisions(Runs.find([tmp_path])).rows[-1]
    assert row.labels[3] == "contradicted"
    assert row.values["test, points"].value == pytest.approx(-7.0)


def test_a_figure_has_the_seeds_of_both_methods_and_what_they_did(runs):
    """Fails if a question is drawn twice, a seed is missing, or the two kinds of levels change places."""
    (figure,) = next(figure for figure in EVIDENCE_FIGURES if figure.name == "evidence-gaps").draw(runs)
    (axes,) = (axes for axes in figure.axes if axes.get_visible())
    assert axes.get_title() == "bigfish, 50 levels\n1 M steps; 5 seeds"
    drawn = [line for line in axes.lines if len(line.get_ydata())]
    lines = [tuple(line.get_ydata()) for line in drawn if line.get_color() != "black"]
    assert [tuple(line.get_ydata()) for line in drawn if line.get_color() == "black"] == [(1, 1)]  # blind play
    assert len(lines) == 2 * (5 + 1)
    assert lines[0] == (3.0, 1.0)  # trained, unseen


def test_variants_are_drawn_beside_what_they_are_compared_with(runs):
    """Fails if a seed is missing, the two kinds of levels change places, or a method is drawn for each comparison."""
    (figure,) = next(figure for figure in EVIDENCE_FIGURES if figure.name == "evidence-variants").draw(runs)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["ppo\nseeds 0, 1, 2, 3, 4", "clop\nseeds 0, 1, 2, 3, 4", "clop_consistency\nseed 0"]
    rows = [[], [], []]
    for line in axes.lines:
        if line.get_color() == "black" and line.get_linestyle() == "None" and len(line.get_ydata()):
            rows[round(line.get_ydata()[0])].append(line.get_xdata()[0])
    assert rows == [[1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 2.4], [4.0]]  # unseen


def test_beside_openais_are_the_longest_runs_of_a_game(tmp_path, write_agent):
    """One to 2 M beside two to 1 M; fails if its seed counts twice, or if it is cut off where the others end."""
    for seed, steps in ((0, 1_003_520), (1, 1_003_520), (0, 2_002_944)):
        settings = {"preset": "quick", "steps": steps, "num_levels": 50, "eval_episodes": 1024}
        write_agent(tmp_path / f"{seed}-{steps}", "bigfish", "ppo", seed, 3.0, 1.0, **settings)
    (figure,) = next(f for f in EVIDENCE_FIGURES if f.name == "evidence-openai").draw(Runs.find([tmp_path]))
    assert "1 seed" in figure.get_suptitle()
    assert max(x for axes in figure.axes for line in axes.lines for x in line.get_xdata()) >= 2_002_944


def test_without_runs_nothing_is_drawn():
    for figure in EVIDENCE_FIGURES:
        assert list(figure.draw(Runs())) == []


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
    README.write_text(with_short_table(README.read_text()))
    for figure in EVIDENCE_FIGURES:
        for drawn in figure.draw(Runs.find([ROOT / "results"])):
            save(drawn, ROOT / f"results/evidence/{figure.name}.png")
