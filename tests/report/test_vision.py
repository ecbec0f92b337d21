"""Tables of runs: ours beside published, each with its scale, losses like wins."""

import dataclasses
import json

import pytest
from PIL import Image

from clop.errors import UsageError
from clop.experiments.summaries import FORMAT_VERSION, VisionSummary
from clop.report import figures
from clop.report.vision import accuracy_figure, depth_figure, read_runs, table

SMALL = "small_cnn, 10000 of 60000 images of mnist, 32 px, 10 epochs"


def write_run(folder, label, seed, test, task="mnist-usps", slot=None, **more):
    """A run as it would be written; of ``more``, fields of the summary go there and others to the settings."""
    folder.mkdir(parents=True)
    method, _, setting = label.rstrip(")").partition("(")
    summary = VisionSummary(
        task=task,
        method=method,
        changed={method: dict([setting.split("=")])} if setting else {},
        label=label,
        network="small_cnn",
        source="mnist",
        train_images=10_000,
        scale=SMALL,
        slot=slot,
        seed=seed,
        running_accuracy=98.0,
        train_accuracy=99.0,
        test_accuracy={"usps": test},
        images_per_second=100.0,
        seconds=1.0,
        peak_memory_gb=1.0,
    )
    known = {field.name for field in dataclasses.fields(summary)}
    summary = dataclasses.replace(summary, **{name: value for name, value in more.items() if name in known})
    config = {"task": task, "epochs": 10, "seed": seed, "threads": 1, "data": None, "test_every": 1, "methods": {}}
    config |= {name: value for name, value in more.items() if name not in known}
    about = {"version": FORMAT_VERSION, "kind": "vision", "config": config}
    (folder / "config.json").write_text(json.dumps(about))
    (folder / "summary.json").write_text(json.dumps(summary.asdict()))


@pytest.fixture
def runs(tmp_path):
    for seed, (plain, clop) in enumerate([(75.0, 86.0), (73.0, 88.0), (74.0, 87.0)]):
        write_run(tmp_path / "plain" / f"seed-{seed}", "plain", seed, plain)
        write_run(tmp_path / "clop" / f"seed-{seed}", "clop", seed, clop, slot="stage3")
    return tmp_path


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header, _, *rest = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rest]


def test_a_row_has_ours_and_the_papers_each_with_its_scale(runs):
    """Mean and standard deviation by hand: 74 and 1. Fails with the population's, 0.8."""
    groups, unfinished = read_runs("mnist-usps", [runs / "plain", runs / "clop" / "seed-0", runs / "clop" / "seed-1"])
    assert unfinished == []
    plain, clop = rows(table("mnist-usps", groups))
    assert plain["test on usps, %"] == "74.0 ± 1.0"
    assert plain["runs"] == "3"
    assert plain["scale"] == SMALL
    assert plain["paper: test, %"] == "81.6 ± 1.2"
    assert plain["paper: scale"] == "small_cnn, 60000 images, 32 px, 30 epochs, 20 runs"
    assert clop["test on usps, %"] == "87.0 ± 1.4"
    assert clop["paper: test, %"] == "91.2 ± 2.4"
    assert (clop["train, %"], clop["running, %"]) == ("99.0 ± 0.0", "98.0 ± 0.0")


def test_a_variant_has_no_published_number(tmp_path):
    """The paper's CLOP stands at the last map: its accuracy in another slot would be a false comparison. Dropout
    has two readings, of the paper's text and of its code, and one number for both."""
    for label in ("clop(slot=stage1)", "dropout", "dropout(style=dense)", "dropout(style=channel)"):
        write_run(tmp_path / label, label, 0, 80.0)
    found = rows(table("mnist-usps", read_runs("mnist-usps", [tmp_path])[0]))
    texts = {row["method"]: row["paper: test, %"] for row in found}
    assert texts["clop(slot=stage1)"] == ""
    assert texts["dropout"] == texts["dropout(style=channel)"] == texts["dropout(style=dense)"] != ""


def test_what_is_known_of_a_published_number_is_said(tmp_path):
    """The paper's dropout is not the one of its text, and its mixup saw clean images."""
    for number, label in enumerate(("plain", "dropout")):
        write_run(tmp_path / label, label, 0, 80.0)
        text = table("mnist-usps", read_runs("mnist-usps", [tmp_path])[0])
        assert text.count("its code drops channels") == number
    write_run(tmp_path / "stl10" / "mixup", "mixup", 0, 80.0, task="stl10")
    assert "forgets the images" in table("stl10", read_runs("stl10", [tmp_path / "stl10"])[0])


def test_scales_are_not_mixed(runs):
    """Fails if runs are grouped by the text of their scale, which is for display."""
    write_run(runs / "large", "plain", 0, 81.0, epochs=30)
    plain = [row for row in rows(table("mnist-usps", read_runs("mnist-usps", [runs])[0])) if row["method"] == "plain"]
    assert sorted(row["runs"] for row in plain) == ["1", "3"]


def test_a_reworded_text_does_not_divide_runs(runs):
    """Of the same settings, by another version that words its labels and scales otherwise."""
    write_run(runs / "reworded", "plain", 7, 80.0, scale="a small CNN")
    path = runs / "reworded" / "summary.json"
    path.write_text(path.read_text().replace('"label": "plain"', '"label": "no method"'))
    groups, _ = read_runs("mnist-usps", [runs])
    assert sorted(len(group.runs) for group in groups) == [3, 4]


def test_threads_folders_and_tests_do_not_divide_runs_and_images_do(runs):
    """Fails if runs on two machines count as two experiments, or a part of a data set as the whole of it."""
    write_run(runs / "same", "plain", 7, 80.0, threads=4, data="/elsewhere", test_every=3, train_images=10_000)
    write_run(runs / "part", "plain", 8, 80.0, train_images=200, source="mnist-subset")
    groups, _ = read_runs("mnist-usps", [runs])
    assert sorted(len(group.runs) for group in groups) == [1, 3, 4]


def test_a_summary_of_another_format_is_refused_in_one_sentence(runs):
    """The first format stated none."""
    path = runs / "plain" / "seed-0" / "summary.json"
    for version, shown in ((None, 1), (3, 3)):
        values = json.loads(path.read_text()) | {"version": version}
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
        with pytest.raises(UsageError, match=rf"^{path} is of format {shown} and this clop reads format 2; use"):
            read_runs("mnist-usps", [runs])


def test_a_loss_is_reported_like_a_win(runs):
    groups, _ = read_runs("mnist-usps", [runs])
    assert f"Best on usps ({SMALL}): clop with 87.0." in table("mnist-usps", groups)
    write_run(runs / "better", "mixup", 0, 90.0)
    groups, _ = read_runs("mnist-usps", [runs])
    assert "mixup with 90.0; CLOP does not win here." in table("mnist-usps", groups)


def test_a_run_counts_once(runs):
    with pytest.raises(UsageError, match="one run twice"):
        read_runs("mnist-usps", [runs, runs / "plain"])


def test_runs_of_other_tasks_and_folders_without_runs_are_refused(runs, tmp_path):
    write_run(tmp_path / "other", "plain", 0, 50.0, task="stl10")
    with pytest.raises(UsageError, match="holds a run on stl10, expected one on mnist-usps"):
        read_runs("mnist-usps", [tmp_path / "other"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no run"):
        read_runs("mnist-usps", [tmp_path / "empty"])


def test_the_figures_are_drawn(runs, tmp_path):
    write_run(runs / "clop(slot=stage1)", "clop(slot=stage1)", 0, 76.0, slot="stage1")
    groups, _ = read_runs("mnist-usps", [runs])
    with pytest.raises(UsageError, match=r"cannot write a figure as 'xyz'; expected such as \.png"):
        accuracy_figure("mnist-usps", groups, tmp_path / "bars.xyz")
    accuracy_figure("mnist-usps", groups, tmp_path / "bars.png")
    depth_figure("mnist-usps", groups, tmp_path / "depth.png")
    for name in ("bars", "depth"):
        with Image.open(tmp_path / f"{name}.png") as figure:
            assert figure.width > 500
    with pytest.raises(UsageError, match="needs runs of CLOP in two slots"):
        depth_figure(
            "mnist-usps", [group for group in groups if group.label != "clop(slot=stage1)"], tmp_path / "x.png"
        )
    write_run(runs / "large", "plain", 0, 81.0, epochs=30, scale="large")
    with pytest.raises(UsageError, match="runs at one scale, got 2"):
        accuracy_figure("mnist-usps", read_runs("mnist-usps", [runs])[0], tmp_path / "x.png")


def test_the_last_stage_named_or_not_is_one_slot_of_the_depth_curve(runs, tmp_path, monkeypatch):
    """Fails if runs of the one take the place of the other's."""
    write_run(runs / "named", "clop(slot=stage3)", 7, 60.0, slot="stage3")
    write_run(runs / "moved", "clop(slot=stage2)", 0, 80.0, slot="stage2")
    drawn, draw = [], figures.depth_curve
    monkeypatch.setattr(figures, "depth_curve", lambda title, stages, plain: drawn.append(stages) or draw("", stages))
    depth_figure("mnist-usps", read_runs("mnist-usps", [runs])[0], tmp_path / "depth.png")
    assert {stage: sorted(values) for stage, values in drawn[0].items()} == {3: [60.0, 86.0, 87.0, 88.0], 2: [80.0]}
