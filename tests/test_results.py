"""What is committed under ``results`` comes from recorded runs, and the README and the pages show the same numbers."""

import json
import re
import statistics
from pathlib import Path

import pytest

from clop import demo
from clop.bench.time_to_return import Point, Row
from clop.experiments.record import RunRecord
from clop.experiments.run_folder import RunFolder
from clop.experiments.summaries import FORMAT_VERSION, AgentSummary, EvaluationSummary, VisionSummary
from clop.experiments.vision import changed, label, read_summary
from clop.report.coverage import cases, coverage
from clop.report.published import read_table, supervised
from clop.report.vision import read_runs, table
from clop.rl.config import TrainConfig
from clop.rl.methods import METHODS
from clop.vision.train import VisionConfig

ROOT = Path(__file__).parents[1]
README, METHODS_PAGE, SPEED, RESULTS, STATISTICS = (
    (ROOT / page).read_text()
    for page in ("README.md", "docs/methods.md", "docs/speed.md", "docs/results.md", "docs/statistics.md")
)
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


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=named)
def test_what_a_page_links_to_is_there(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)  # brackets in code are no links
    links = re.findall(r"\]\(([^)#]+)[)#]", text)
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


def test_the_readme_links_to_every_page():
    assert not [page.name for page in (ROOT / "docs").glob("*.md") if f"](docs/{page.name})" not in README]


def test_the_readme_is_short():
    """Long tables go to the pages."""
    assert len(README.splitlines()) <= 135


def cells_of(text):
    return {tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if "|" in line}


def test_the_page_of_speeds_has_those_of_the_records():
    """Fails for a table that was left behind when its record was made anew."""
    cells = cells_of(SPEED)
    rows = {row["what"]: row for row in RunRecord.read(ROOT / "results/bench/vision.json").metrics["rows"]}
    for name, row in rows.items():
        compared = ("", "", "")
        if row["ratio"]:
            compared = (row["baseline"], f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["quartiles"]))
        assert (name, f"{row['images_per_second']:.0f}", *compared, share(row)) in cells
    costs = {}
    for row in RunRecord.read(ROOT / "results/bench/augment.json").metrics["rows"]:
        costs.setdefault(row["method"], []).extend([row["ratio"], row["paper_ratio"]])
    for method, ratios in costs.items():
        if method != "plain":
            assert (method, *("N/A" if ratio is None else f"{ratio:.2f}" for ratio in ratios)) in cells


def rows_under(page, heading):
    """The rows of the first table under a heading of the page of methods, without its head."""
    _, _, text = page.partition(f"\n# {heading}\n")
    lines = text[text.index("\n|") + 1 :].split("\n\n")[0].splitlines()
    return {tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]}


def line(*cells):
    return f"| {' | '.join(cells)} |"


def cost_rows():
    """Of each method that was timed."""
    rows = {}
    for row in RunRecord.read(ROOT / "results/bench/methods.json").metrics["rows"]:
        passes = f"{row['passes']['both']} + {row['passes']['forward']}"
        quartiles = "{:.2f} to {:.2f}".format(*row["quartiles"])
        measured = (f"{row['explained']:.2f}", f"{row['ratio']:.2f}", quartiles, f"{row['excess']:.2f}")
        rows[row["method"]] = (row["method"], passes, *measured)
    return rows


def assert_table(page, heading, rows):
    """Each of these rows is in the table, and no other: a number comes from a record.

    A method without a record may have a row that says so, and need not: contributing one takes neither runs nor rows.
    """
    shown = rows_under(page, heading)
    missing = [line(*row) for row in rows.values() if row not in shown]
    others = [
        line(*row)
        for row in shown - set(rows.values())
        if row[0] not in METHODS.keys() - rows.keys() or row[1] != "not measured yet" or any(row[2:])
    ]
    assert not missing, f"add to the table under {heading} in docs/methods.md: {missing}"
    assert not others, f"nothing recorded says what the table under {heading} in docs/methods.md says: {others}"


def test_the_page_of_speeds_has_those_of_the_encoders():
    """Fails for a table or a sentence that was left behind when the record was made anew."""
    cells, record = cells_of(SPEED), RunRecord.read(ROOT / "results/bench/train-encoders.json")
    for row in record.metrics["rows"]:
        if row["kind"] != "bare":
            shares = (row["share_of_bare"], row["share_of_lone"], row["share_of_peak"])
            texts = ["" if share is None else f"{share:.0%}" for share in shares]
            assert (row["what"], f"{row['steps_per_second']:.0f}", *texts, f"{row['memory_gb']:.2f}") in cells
    again = [RunRecord.read(ROOT / f"results/bench/{name}.json") for name in ("train-impala", "train-encoders-zen4")]
    for ratio in (ratio for each in (record, *again) for ratio in each.metrics["ratios"].values()):
        assert f" {ratio:.2f} times " in " ".join(SPEED.split())
    peer = RATIO_OF_THE_README.search(" ".join(README.split()))
    assert peer is not None
    found = record.metrics["ratios"]
    impala = "clop impala, 2 processes{} / Stable-Baselines3 impala, 2 threads"
    assert [float(ratio) for ratio in peer.groups()] == [
        round(found[impala.format(convolutions)], 2) for convolutions in ("", ", winograd")
    ]


def test_the_page_of_speeds_has_the_times_to_a_return():
    """Fails for a row that was left behind when the record was made anew."""
    cells, record = cells_of(SPEED), RunRecord.read(ROOT / "results/bench/return.json")
    for values in record.metrics["rows"]:
        tests = [Point(**test) for test in values["tests"]]
        row = Row(values["what"], [float(score) for score in values["seconds_to"]], tests)
        times = map(row.time_text, row.scores)
        rest = (str(row.last.steps), f"{row.steps_per_second:.0f}", f"{row.last.test_return:.2f}")
        assert (row.what, *times, *rest) in cells


def test_the_page_of_speeds_has_those_of_evaluations():
    """Fails for a row or a sentence that was left behind when the record was made anew."""
    cells, metrics = cells_of(SPEED), RunRecord.read(ROOT / "results/bench/evaluate.json").metrics
    for row in metrics["rows"]:
        where = (row["game"], row["protocol"], row["layers"], str(row["processes"]))
        measured = (f"{row['seconds']:.1f}", f"{row['frames'] / row['seconds']:.0f}", f"{row['speed']:.2f}")
        assert (*where, *measured) in cells
    text = " ".join(SPEED.split())
    alone = [row["speed"] for row in metrics["rows"] if (row["protocol"], row["layers"]) == ("clop-v1", "ours")]
    assert "One process is {:.2f} and {:.2f} times as fast".format(*alone) in text
    assert "are {:.2f} and {:.2f} times as fast as one".format(*metrics["scaling"].values()) in text


RATIO_OF_THE_README = re.compile(
    r"makes ([\d.]+) times the steps of Stable-Baselines3 with the same network, and ([\d.]+) times with Winograd's"
)


def milliseconds(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def test_the_pages_have_the_times_of_the_layer():
    """Fails for a row that no record has, and for one that was left behind."""
    rows = {
        (
            *(row["what"], milliseconds(row["ours_ms"]), row["baseline"], milliseconds(row["baseline_ms"])),
            f"{row['ratio']:.2f}",
        )
        for row in RunRecord.read(ROOT / "results/bench/layer.json").metrics["rows"]
    }
    head = ("what", "ours, ms", "baseline", "baseline, ms", "ours / baseline")
    assert rows == rows_after(SPEED, head)
    assert rows_after(README, head)
    assert rows_after(README, head) <= rows


def test_the_page_of_speeds_has_the_time_of_a_report():
    """Fails for a table that was left behind, and for one that does not say how busy the machine was."""
    record = RunRecord.read(ROOT / "results/bench/report.json")
    rows = record.metrics["rows"]
    assert rows_after(SPEED, ("what", "measured", "bar")) == {
        (row["what"], f"{row['value']:.{0 if row['unit'].startswith('of') else 2}f} {row['unit']}", row["bar"])
        for row in rows
    }
    assert f"load of {', '.join(f'{one:.1f}' for one in record.metrics['load'])} before" in " ".join(SPEED.split())
    assert rows[-1]["unit"] == f"of {rows[-1]['value']}", "a report was not the same to the byte"


def test_the_page_of_speeds_has_the_older_record_of_impala():
    first, second = (
        {row["what"]: row for row in RunRecord.read(ROOT / f"results/bench/train-{shape}.json").metrics["rows"]}
        for shape in ("64x256", "64x64")
    )
    head = ("learner", "64×256: steps/s", "share of peak", "memory, GB", "64×64: steps/s", "share of peak")
    assert rows_after(SPEED, head) == {
        (
            *(name, f"{row['steps_per_second']:.0f}", share(row), f"{row['memory_gb']:.2f}"),
            *(f"{second[name]['steps_per_second']:.0f}", share(second[name])),
        )
        for name, row in first.items()
    }


def share(row):
    return "" if row["share_of_peak"] is None else f"{row['share_of_peak']:.0%}"


def rows_after(page, head):
    """The rows of the table with these columns."""
    lines = page.splitlines()
    (start,) = [i for i, text in enumerate(lines) if tuple(cell.strip() for cell in text.strip("|").split("|")) == head]
    found = set()
    for text in lines[start + 2 :]:
        if not text.startswith("|"):
            break
        found.add(tuple(cell.strip() for cell in text.strip("|").split("|")))
    return found


def test_the_page_of_results_has_the_evaluations_on_starpilot():
    head = ("seed, steps", "train levels", "OpenAI", "test levels", "OpenAI")
    expected = set()
    for path in (ROOT / "results/agents").rglob("evaluations/clop-v1-train-*.json"):
        steps = int(path.stem.rpartition("step")[2])
        seed = json.loads((path.parents[1] / "config.json").read_text())["config"]["seed"]
        ends = [json.loads(Path(str(path).replace("-train-", f"-{split}-")).read_text()) for split in ("train", "test")]
        train, test = (f"{end['mean']:.2f} ± {end['standard_error']:.2f}" for end in ends)
        expected.add((f"{seed}, {steps:,}".replace(",", " ").replace("  ", ", "), train, "7.3", test, "6.6"))
    assert rows_after(RESULTS, head) == expected
    logs = {
        split: statistics.mean(
            float(row["mean_return"])
            for row in read_table("openai_ppo_easy_curves")
            if (row["game"], row["split"], row["steps"]) == ("starpilot", split, "1000000")
        )
        for split in ("train", "test")
    }
    assert logs == {"train": pytest.approx(7.3, abs=0.25), "test": pytest.approx(6.6, abs=0.25)}


CLASSIFIERS = {
    ("plain", "plain"): "plain",
    ("mixup", "mixup"): "mixup",
    ("dropout", "dropout(style=dense)"): "dropout, in the dense part",
    ("dropout", "dropout"): "dropout, of channels of the last map",
    ("batch_norm", "batch_norm"): "batch norm",
    ("clop", "clop"): "CLOP(0.9)",
    ("clop", "clop(per_sample=True)"): "CLOP(0.9), a permutation for each image",
    ("clop", "clop(slot=stage2)"): "CLOP(0.9) after the second stage",
    ("clop", "clop(slot=stage1)"): "CLOP(0.9) after the first stage",
}


def accuracies(folder):
    """By the name on a page: accuracies of the seeds, and the published one if it stands beside them."""
    groups, _ = read_runs("mnist-usps", [ROOT / "results/vision" / folder])
    published = supervised("mnist-usps")
    return {
        CLASSIFIERS[group.method, group.label]: (
            group.test("usps"),
            str(published[group.method].test) if group.method in published else "",
        )
        for group in groups
    }


def test_the_pages_have_the_accuracies_on_usps():
    """Fails for a table that was left behind, and for a published number beside a variant that the paper lacks."""
    small = set()
    for name, (values, paper) in accuracies("mnist-usps-small").items():
        beside = "" if name.startswith("CLOP(0.9)") and name != "CLOP(0.9)" else paper
        small.add((name, f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}", beside))
    head = ("method", "test on USPS, %", "paper, at its scale")
    assert rows_after(RESULTS, head) == small
    assert rows_after(README, head) < small
    assert {row[0] for row in rows_after(README, head)} >= {"plain", "batch norm", "CLOP(0.9)"}
    whole = {(name, f"{values[0]:.1f}", paper) for name, (values, paper) in accuracies("mnist-usps").items()}
    assert rows_after(RESULTS, ("method", "test on USPS, %, one run", "paper, 20 runs")) == whole


def test_the_page_of_results_has_the_accuracies_on_imagenette():
    groups, _ = read_runs("imagenette", [ROOT / "results/vision/imagenette"])
    names = {"plain": "plain", "dropout": "dropout, in the dense part", "batch_norm": "batch norm", "clop": "CLOP(0.7)"}
    published = supervised("imagenette")
    head = ("method", "test, %, one run of 6 epochs", "train, %", "paper: test, %, at its scale")
    assert rows_after(RESULTS, head) == {
        (
            *(names[group.method], f"{group.test('imagenette')[0]:.1f}", f"{group.runs[0].train_accuracy:.1f}"),
            str(published[group.method].test),
        )
        for group in groups
    }


def test_the_page_of_statistics_has_the_coverage_of_the_record():
    record = json.loads((ROOT / "results/statistics/coverage.json").read_text())
    head = ("interval", "3 seeds", "5 seeds", "10 seeds")
    assert rows_after(STATISTICS, head) == {
        (name, *(f"{100 * shares[n]:.1f} %" for n in ("3", "5", "10"))) for name, shares in record["coverage"].items()
    }
    quick = "one game, mean, Student"
    assert coverage(quick, cases()[quick], 3) == record["coverage"][quick]["3"]


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "search").glob("*/summary.json")), ids=named)
def test_the_page_of_quick_has_the_runs_of_the_search(path):
    summary, name = json.loads(path.read_text()), path.parent.name
    ends = [f"{summary[split]['mean']:.2f} ± {summary[split]['standard_error']:.2f}" for split in ("train", "test")]
    row = (summary["game"], str(summary["env_steps"]), *ends, f"[{name}](../results/search/{name})")
    assert row in {cells[1:] for cells in cells_of((ROOT / "docs/quick.md").read_text())}


def test_the_page_of_methods_has_the_costs_of_the_record():
    """Fails for a table that was left behind, and for numbers of a method that was not timed."""
    rows = cost_rows()
    assert rows.keys() <= METHODS.keys()
    assert_table(METHODS_PAGE, "What they cost", rows)


def test_no_method_that_was_timed_is_slower_than_its_passes_explain():
    for row in RunRecord.read(ROOT / "results/bench/methods.json").metrics["rows"]:
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


RUNS = [path.parent.name for path in CONFIGS if path.parent.parent.name == "curves"]
BASE_AND_TOGETHER = ("ppo", "idaac+clop", "rad+clop", "mixreg+clop", "drac+clop")


@pytest.mark.parametrize("method", [*BASE_AND_TOGETHER, *METHODS])
def test_every_method_that_was_run_was_seen_learning(method):
    """Fails for a method that was run at another scale than the figure says, or did not learn."""
    if method not in RUNS:
        pytest.skip(f"{method}: not measured yet")
    config = json.loads((ROOT / "results" / "curves" / method / "config.json").read_text())["config"]
    assert list(config["methods"]) == ([] if method == "ppo" else method.split("+"))
    scale = ("game", "preset_name", "total_timesteps", "seed")
    assert [config[name] for name in scale] == ["starpilot", "quick", 100_000, 0]
    last_quarter, *_ = curve(method)
    _, untrained, _ = curve("untrained")
    assert last_quarter > 1.5 * untrained


def learning_rows():
    """Of each run."""
    rows = {}
    for name in RUNS:
        shown = "untrained network" if name == "untrained" else name.replace("-seed", ", seed ")
        rows[name] = (shown, *curve(name)[2])
    return rows


def test_the_page_of_methods_has_the_returns_of_the_runs():
    """Fails for a table that was left behind, and for numbers of a method that was not run."""
    rows = learning_rows()
    assert rows.keys() >= set(BASE_AND_TOGETHER)
    assert_table(METHODS_PAGE, "Seen learning", rows)


def test_a_method_without_a_record_takes_no_row_and_has_no_numbers(monkeypatch):
    """Nobody has to train or time a method to contribute it, or to type that it was not; no numbers are made up for it.

    Fails for a method whose file has to be followed by rows, and for rows that are let through unread.
    """
    monkeypatch.setitem(METHODS, "shy", METHODS["weight_decay"])
    for heading, rows, made_up in (
        ("What they cost", cost_rows(), ("shy", "3 + 0", "1.00", "1.01", "1.00 to 1.02", "1.01")),
        ("Seen learning", learning_rows(), ("shy", "3.10", "2.90 ± 0.30", "2.80 ± 0.20")),
    ):

        def page(*more, heading=heading):
            head = re.search(rf"\n# {heading}\n.*?--:? *\|\n", METHODS_PAGE, re.DOTALL).end()
            return METHODS_PAGE[:head] + "".join(f"{line(*row)}\n" for row in more) + METHODS_PAGE[head:]

        empty = [""] * (len(made_up) - 2)
        assert_table(page(), heading, rows)
        assert_table(page(("shy", "not measured yet", *empty)), heading, rows)
        for wrong in (made_up, ("shy", "not measured yet", *made_up[2:]), ("drac", "not measured yet", *empty)):
            with pytest.raises(AssertionError, match=rf"nothing recorded says .* {wrong[0]}"):
                assert_table(page(wrong), heading, rows)
        with pytest.raises(AssertionError, match=r"add to the table .*\| drac "):
            assert_table(re.sub(r"\n\| drac .*", "", page()), heading, rows)
    with pytest.raises(pytest.skip.Exception, match="shy: not measured yet"):
        test_every_method_that_was_run_was_seen_learning("shy")


AGENT_CONFIGS = [path for path in CONFIGS if {"agents", "curves"} & set(path.relative_to(ROOT).parts)]


def stated_in(values, record):
    """Of some settings those that a record states too. One that clop got after the run has the default of today, which
    leaves a run as it was; methods have no such settings, and are read whole or not at all."""
    kept = {name: value for name, value in values.items() if name in record}
    return kept | {group: stated_in(values[group], record[group]) for group in ("network", "ppo") if group in kept}


@pytest.mark.parametrize("path", AGENT_CONFIGS, ids=named)
def test_a_run_of_an_agent_is_of_the_present_format(path):
    """Fails for a file that was left behind when a setting got another name, and for a summary of other settings."""
    about = json.loads(path.read_text())
    assert about["version"] == FORMAT_VERSION
    config = TrainConfig.fromdict(about["config"])
    assert stated_in(config.asdict(), about["config"]) == about["config"]
    values = json.loads(path.with_name("summary.json").read_text())
    summary = AgentSummary.fromdict(values, path)
    assert summary.asdict() == values
    assert (summary.game, summary.method, summary.preset_name, summary.seed) == (
        *(config.game, config.method, config.preset_name, config.seed),
    )
    assert summary.env_steps == config.iterations * config.ppo.batch_size
    for split, result in (("train", summary.train), ("test", summary.test)):
        assert (result.game, result.distribution_mode, result.split) == (config.game, config.distribution_mode, split)


@pytest.mark.parametrize("path", sorted((ROOT / "results/agents").rglob("evaluations/*.json")), ids=named)
def test_an_evaluation_of_an_agent_is_of_the_present_format(path):
    values = json.loads(path.read_text())
    result = EvaluationSummary(**{name: values[name] for name in values if name not in ("method", "notes", "device")})
    assert path.name.startswith(f"{result.protocol}-{result.split}-{result.episodes}-seed{result.seed}-")


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


def test_the_page_of_results_has_the_table_of_the_digits():
    """Fails for a table made by hand or before the last run."""
    folder = ROOT / "results" / "digits"
    found = {name: folder / f"digits-{name}" for name in ("plain", "dropout", "batch_norm", "clop")}
    summaries = {name: read_summary(RunFolder.open(path, "vision")) for name, path in found.items()}
    text = demo.table(summaries, RunFolder.open(found["plain"], "vision").config["epochs"])
    assert (folder / "digits.md").read_text() == text
    assert text.partition("\n\n")[2] in RESULTS


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "vision").glob("*.md")), ids=named)
def test_a_table_of_classifiers_is_that_of_the_runs_beside_it(path):
    """Fails for a table made by hand or before the last run."""
    folder = path.with_suffix("")
    task = json.loads(next(folder.rglob("config.json")).read_text())["config"]["task"]
    groups, unfinished = read_runs(task, [folder])
    assert not unfinished
    assert path.read_text() == table(task, groups)


def test_the_page_of_recipes_has_the_parity_of_the_exports():
    """Fails for a table that was left behind, and for a record of an export that does not act as its agent."""
    head = ("agent", "to", "frames", "largest difference of a logit", "of a value", "other greedy actions")
    rows = set()
    for path in (ROOT / "results/export").glob("*.json"):
        record = json.loads(path.read_text())
        assert_can_be_traced(record["commit"], record["command"])
        assert record["machine"]["processor"]
        assert record["passed"]
        agent, to = record["agent"], record["format"]
        assert path.stem == f"{agent['game']}-{agent['method']}-{to}"
        assert (agent["preset"], agent["seed"], agent["env_steps"]) == ("quick", 0, 303_104)  # as the page says
        differences = (f"{record[name]:.2g}" for name in ("logits_difference", "value_difference"))
        rows.add(
            (
                agent["method"],
                to,
                f"{record['frames']:,}".replace(",", " "),
                *differences,
                str(record["greedy_differences"]),
            )
        )
    assert len(rows) == 4
    assert rows_after((ROOT / "docs/recipes.md").read_text(), head) == rows


def test_the_page_of_sweeps_shows_its_records():
    """Fails if chaos or overhead were recorded anew and the page was not."""
    page = (ROOT / "docs/sweeps.md").read_text()
    rows = [
        {row["what"]: row for row in RunRecord.read(ROOT / f"results/bench/{name}.json").metrics["rows"]}
        for name in ("sweep", "sweep-ray")
    ]
    for local, ray in zip(*(each.values() for each in rows), strict=True):
        what = local["what"].removesuffix(" on local")
        cells = [f"{row['value']:.{0 if row['unit'] == 'of 8' else 2}f} {row['unit']}".strip() for row in (local, ray)]
        assert f"| {what} | {' | '.join(cells)} |" in page
