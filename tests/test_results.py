"""What is committed under ``results`` comes from recorded runs, and the README shows the same numbers."""

import json
import re
import statistics
from pathlib import Path

import pytest

from clop import demo
from clop.experiments.record import RunRecord
from clop.experiments.run_folder import RunFolder
from clop.experiments.summaries import FORMAT_VERSION, VisionSummary
from clop.experiments.vision import changed, label, read_summary
from clop.report.vision import read_runs, table
from clop.rl.methods import METHODS
from clop.vision.train import VisionConfig

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
METHODS_PAGE = (ROOT / "docs/methods.md").read_text()
CONFIGS = sorted((ROOT / "results").rglob("config.json"))
RECORDS = sorted((ROOT / "results" / "bench").glob("*.json"))


def named(path):
    return str(path.relative_to(ROOT))


def assert_can_be_traced(commit, command):
    """A changed checkout has no commit that gives the code back, and a path of one machine means nothing on another."""
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert command.startswith(("clop ", "python -m clop "))
    assert not re.search(r"(^|[\s=])/", command)


def test_there_are_results():
    assert RECORDS
    assert CONFIGS


@pytest.mark.parametrize("path", RECORDS, ids=named)
def test_a_record_says_what_was_run_where_and_how(path):
    record = RunRecord.read(path)
    assert_can_be_traced(record.commit, record.command)
    assert record.ended == "complete"
    assert record.metrics
    assert record.machine["processor"]


@pytest.mark.parametrize("path", CONFIGS, ids=named)
def test_a_run_came_to_its_end_and_has_its_metrics(path):
    config = json.loads(path.read_text())
    assert_can_be_traced(config["commit"], config["command"])
    assert isinstance(config["config"]["seed"], int)
    summary = json.loads(path.with_name("summary.json").read_text())
    assert summary["ended"] == "complete"
    if path.parent.parent.name != "digits":  # the demo left no metrics when these were run
        rows = [json.loads(line) for line in path.with_name("metrics.jsonl").read_text().splitlines()]
        assert rows


def test_what_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert not [link for link in links if "://" not in link and not (ROOT / link).exists()]


def cells_of(text):
    return {tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if "|" in line}


def test_the_readme_has_the_speeds_of_the_records():
    """Fails for a table that was left behind when its record was made anew."""
    cells = cells_of(README)
    rows = {row["what"]: row for row in RunRecord.read(ROOT / "results/bench/vision.json").metrics["rows"]}
    for name, row in rows.items():
        compared = ("", "", "")
        if row["ratio"]:
            compared = (row["baseline"], f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["quartiles"]))
        assert (name, f"{row['images_per_second']:.0f}", *compared) in cells
    costs = {}
    for row in RunRecord.read(ROOT / "results/bench/augment.json").metrics["rows"]:
        costs.setdefault(row["method"], []).extend([row["ratio"], row["paper_ratio"]])
    for method, ratios in costs.items():
        if method != "plain":
            assert (method, *("N/A" if ratio is None else f"{ratio:.2f}" for ratio in ratios)) in cells


def test_the_page_of_methods_has_the_costs_of_the_record():
    """Fails for a table that was left behind, for a method that was not timed, and for one that got too slow."""
    cells = cells_of(METHODS_PAGE)
    rows = RunRecord.read(ROOT / "results/bench/methods.json").metrics["rows"]
    assert {row["method"] for row in rows} == set(METHODS)
    for row in rows:
        passes = f"{row['passes']['both']} + {row['passes']['forward']}"
        quartiles = "{:.2f} to {:.2f}".format(*row["quartiles"])
        measured = (f"{row['explained']:.2f}", f"{row['ratio']:.2f}", quartiles, f"{row['excess']:.2f}")
        assert (row["method"], passes, *measured) in cells
        assert row["excess"] <= 1.15


def test_the_page_of_methods_has_the_times_of_augmentations():
    cells = cells_of(METHODS_PAGE)
    record, costs = (RunRecord.read(ROOT / f"results/bench/{name}.json") for name in ("pixels", "methods"))
    assert record.machine["processor"] == costs.machine["processor"], "the page says that they are the same"
    for row in record.metrics["rows"]:
        times = [f"{row[name]:.1f}" for name in ("ours_ms", "baseline_ms")]
        assert (row["what"], times[0], row["baseline"], times[1], f"{row['ratio']:.2f}") in cells


def curve(name):
    """The running returns of a run, and its row on the page of methods."""
    folder = ROOT / "results" / "curves" / name
    returns = [json.loads(line)["episodic_return"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last_quarter = statistics.mean(returns[-(len(returns) // 4) :]) if len(returns) > 1 else None
    ends = [json.loads((folder / "summary.json").read_text())[levels] for levels in ("train", "test")]
    row = (
        "" if last_quarter is None else f"{last_quarter:.2f}",
        *(f"{end['mean']:.2f} ± {end['standard_error']:.2f}" for end in ends),
    )
    return last_quarter, ends[0]["mean"], row


@pytest.mark.parametrize("method", ["ppo", *METHODS, "idaac+clop", "rad+clop", "mixreg+clop", "drac+clop"])
def test_every_method_was_seen_learning(method):
    """Fails for a method that was not run, was run at another scale than the figure says, or did not learn."""
    config = json.loads((ROOT / "results" / "curves" / method / "config.json").read_text())["config"]
    assert list(config["methods"]) == ([] if method == "ppo" else method.split("+"))
    assert [config[name] for name in ("game", "preset", "steps", "seed")] == ["starpilot", "quick", 100_000, 0]
    last_quarter, *_ = curve(method)
    _, untrained, _ = curve("untrained")
    assert last_quarter > 1.5 * untrained


def test_the_page_of_methods_has_the_returns_of_the_runs():
    cells = cells_of(METHODS_PAGE)
    runs = [path.parent.name for path in CONFIGS if path.parent.parent.name == "curves"]
    assert len(runs) > len(METHODS)
    for name in runs:
        shown = "untrained network" if name == "untrained" else name.replace("-seed", ", seed ")
        assert (shown, *curve(name)[2]) in cells


VISION_CONFIGS = [path for path in CONFIGS if {"vision", "digits"} & set(path.relative_to(ROOT).parts)]


@pytest.mark.parametrize("path", VISION_CONFIGS, ids=named)
def test_a_run_of_a_classifier_is_of_the_present_format(path):
    """Fails for a file that was left behind when a setting got another name, and for a text of other settings."""
    about = json.loads(path.read_text())
    assert about["version"] == FORMAT_VERSION
    config = VisionConfig.fromdict(about["config"])
    assert config.asdict() == about["config"]
    summary = VisionSummary.fromdict(json.loads(path.with_name("summary.json").read_text()), path)
    assert (summary.task, summary.method, summary.network, summary.seed) == (
        *(config.task, config.method, config.network, config.seed),
    )
    assert (summary.label, summary.changed) == (label(config), changed(config))


def test_the_readme_has_the_table_of_the_digits():
    """Fails for a table made by hand or before the last run."""
    folder = ROOT / "results" / "digits"
    found = {name: folder / f"digits-{name}" for name in ("plain", "dropout", "batch_norm", "clop")}
    summaries = {name: read_summary(RunFolder.open(path, "vision")) for name, path in found.items()}
    text = demo.table(summaries, RunFolder.open(found["plain"], "vision").config["epochs"])
    assert (folder / "digits.md").read_text() == text
    assert text.partition("\n\n")[2] in README


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "vision").glob("*.md")), ids=named)
def test_a_table_of_classifiers_is_that_of_the_runs_beside_it(path):
    """Fails for a table made by hand or before the last run."""
    folder = path.with_suffix("")
    task = json.loads(next(folder.rglob("config.json")).read_text())["config"]["task"]
    groups, unfinished = read_runs(task, [folder])
    assert not unfinished
    assert path.read_text() == table(task, groups)
