"""Tables of runs: ours beside published, each with its scale, losses like wins."""

import json

import pytest
from PIL import Image

from clop.errors import UsageError
from clop.report import figures
from clop.report.vision import accuracy_figure, depth_figure, read_runs, table

SMALL = "small_cnn, 10000 of 60000 images of mnist, 32 px, 10 epochs"


def write_run(folder, label, seed, test, scale=SMALL, task="mnist-usps", position=None, **more):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"kind": "vision", "config": {"task": task}}))
    summary = {
        "method": label.split("(")[0],
        "label": label,
        "scale": scale,
        "position": position,
        "seed": seed,
        "running_accuracy": 98.0,
        "train_accuracy": 99.0,
        "test_accuracy_usps": test,
    }
    (folder / "summary.json").write_text(json.dumps(summary | more))


@pytest.fixture
def runs(tmp_path):
    for seed, (plain, clop) in enumerate([(75.0, 86.0), (73.0, 88.0), (74.0, 87.0)]):
        write_run(tmp_path / "plain" / f"seed-{seed}", "plain", seed, plain)
        write_run(tmp_path / "clop" / f"seed-{seed}", "clop", seed, clop, position=3)
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
    """The paper's CLOP stands at the last map: its accuracy beside another place would be a false comparison. Dropout
    has two readings, of the paper's text and of its code, and one number for both."""
    for label in ("clop(position=1)", "dropout", "dropout(style=channel)"):
        write_run(tmp_path / label, label, 0, 80.0)
    found = rows(table("mnist-usps", read_runs("mnist-usps", [tmp_path])[0]))
    texts = {row["method"]: row["paper: test, %"] for row in found}
    assert texts["clop(position=1)"] == ""
    assert texts["dropout"] == texts["dropout(style=channel)"] != ""


def test_what_is_known_of_a_published_number_is_said(tmp_path):
    """The paper's dropout is not the one of its text, and its mixup saw clean images."""
    for number, label in enumerate(("plain", "dropout")):
        write_run(tmp_path / label, label, 0, 80.0)
        text = table("mnist-usps", read_runs("mnist-usps", [tmp_path])[0])
        assert text.count("its code drops channels") == number
    write_run(tmp_path / "stl10" / "mixup", "mixup", 0, 80.0, task="stl10")
    assert "forgets the images" in table("stl10", read_runs("stl10", [tmp_path / "stl10"])[0])


def test_scales_are_not_mixed(runs):
    write_run(runs / "large", "plain", 0, 81.0, scale="small_cnn, 60000 images of mnist, 32 px, 30 epochs")
    plain = [row for row in rows(table("mnist-usps", read_runs("mnist-usps", [runs])[0])) if row["method"] == "plain"]
    assert [row["runs"] for row in plain] == ["3", "1"]


def test_a_loss_is_told_like_a_win(runs):
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
    write_run(runs / "clop(position=1)", "clop(position=1)", 0, 76.0, position=1)
    groups, _ = read_runs("mnist-usps", [runs])
    with pytest.raises(UsageError, match=r"cannot write a figure as 'xyz'; expected such as \.png"):
        accuracy_figure("mnist-usps", groups, tmp_path / "bars.xyz")
    accuracy_figure("mnist-usps", groups, tmp_path / "bars.png")
    depth_figure("mnist-usps", groups, tmp_path / "depth.png")
    for name in ("bars", "depth"):
        with Image.open(tmp_path / f"{name}.png") as figure:
            assert figure.width > 500
    with pytest.raises(UsageError, match="needs runs of CLOP at two positions"):
        depth_figure("mnist-usps", [group for group in groups if group.position != 1], tmp_path / "x.png")
    write_run(runs / "large", "plain", 0, 81.0, scale="large")
    with pytest.raises(UsageError, match="runs at one scale, got 2"):
        accuracy_figure("mnist-usps", read_runs("mnist-usps", [runs])[0], tmp_path / "x.png")


def test_the_last_stage_named_or_not_is_one_place_of_the_depth_curve(runs, tmp_path, monkeypatch):
    """Fails if runs of the one take the place of the other's."""
    write_run(runs / "named", "clop(position=3)", 7, 60.0, position=3)
    write_run(runs / "moved", "clop(position=2)", 0, 80.0, position=2)
    drawn, draw = [], figures.depth_curve
    monkeypatch.setattr(figures, "depth_curve", lambda title, places, plain: drawn.append(places) or draw("", places))
    depth_figure("mnist-usps", read_runs("mnist-usps", [runs])[0], tmp_path / "depth.png")
    assert {place: sorted(values) for place, values in drawn[0].items()} == {3: [60.0, 86.0, 87.0, 88.0], 2: [80.0]}
