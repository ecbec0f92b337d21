"""Training a classifier in a folder, through the command line: interrupted at any moment, it goes on as if not."""

import dataclasses
import json
import os
import shutil
import signal

import pytest
import torch

from clop.cli import main
from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder, read_checkpoint
from clop.experiments.summaries import FORMAT_VERSION, VisionSummary
from clop.experiments.vision import label, load_task, read_config, run
from clop.vision.methods import METHODS, Clop, Dropout
from clop.vision.train import Trainer, VisionConfig, paper_config

DEVICES = "cpu or cuda" if torch.cuda.is_available() else "cpu, since torch finds no GPU here"
TINY = ["--image-size", "16", "--epochs", "2", "--train-images", "150", "--batch-size", "32", "--test-every", "2"]


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    """Two batches a part, so three parts an epoch."""
    make = Trainer.__init__

    def init(self, *arguments, **named):
        make(self, *arguments, **named)
        self.part = 2

    monkeypatch.setattr(Trainer, "__init__", init)


def vision(out, *more, task="digits"):
    return ["vision", task, *TINY, "--out", str(out), *more]


def stop_after(monkeypatch, iteration, number=signal.SIGINT):
    """The signal comes in the middle of the part after so many."""
    train = Trainer._train

    def interrupted(self, order):
        if self.iteration == iteration:
            os.kill(os.getpid(), number)
        return train(self, order)

    monkeypatch.setattr(Trainer, "_train", interrupted)
    return lambda: monkeypatch.setattr(Trainer, "_train", train)


def test_a_run_leaves_settings_metrics_weights_events_and_a_summary(tmp_path, capsys):
    assert main(vision(tmp_path / "run", "--method", "clop+mixup", "--clop.alpha", "0.3")) == 0
    folder = RunFolder.open(tmp_path / "run", "vision")
    assert VisionConfig.fromdict(folder.config).methods["clop"] == Clop(alpha=0.3)
    rows = folder.metrics()
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["images"] == 300
    assert [("test_accuracy_filled" in row) for row in rows] == [False] * 5 + [True]
    summary = folder.summary
    assert summary["label"] == "clop(alpha=0.3)+mixup"
    assert summary["scale"] == "small_cnn, 150 of 1198 images of digits, 16 px, 2 epochs, batches of 32"
    assert summary["test_accuracy"]["filled"] == rows[-1]["test_accuracy_filled"]
    assert summary["running_accuracy"] == rows[-1]["running_accuracy"]
    assert summary["slot"] == "stage3"
    assert summary["version"] == 2
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    printed = capsys.readouterr().out
    assert "in evaluation mode" in printed
    assert "running in training mode" in printed
    assert summary["scale"] in printed


def test_of_a_finished_run_the_weights_are_kept_and_not_what_the_optimiser_knows(tmp_path):
    assert main(vision(tmp_path / "run")) == 0
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*.pt"))) == 1
    state = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.pt")
    assert set(state) == {"model", "iteration"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("iteration", [1, 4])
def test_an_interrupted_run_goes_on_bit_for_bit(iteration, number, tmp_path, capsys, monkeypatch):
    """In the first epoch and in the second; fails if the order of images or a draw is lost."""
    settings = ["--method", "crop+clop+dropout"]
    assert main(vision(tmp_path / "whole", *settings)) == 0
    go_on = stop_after(monkeypatch, iteration, number)
    assert main(vision(tmp_path / "run", *settings)) == 2
    images = {1: 128, 4: 278}[iteration]  # the part at hand comes to its end
    assert (
        f"stopped after {images} images; go on with: clop vision --resume {tmp_path / 'run'}" in capsys.readouterr().err
    )
    go_on()
    assert main(["vision", "--resume", str(tmp_path / "run")]) == 0
    for name in ("metrics.jsonl",):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()
    whole, run = (read_checkpoint(tmp_path / n / "checkpoints" / "last.pt")["model"] for n in ("whole", "run"))
    assert all(torch.equal(whole[name], run[name]) for name in whole)


def test_a_run_that_diverges_keeps_the_state_before_it(tmp_path, capsys, monkeypatch):
    train = Trainer._train

    def diverging(self, order):
        if self.iteration == 2:
            self.model.head.bias.data.fill_(float("nan"))
        return train(self, order)

    monkeypatch.setattr(Trainer, "_train", diverging)
    assert main(vision(tmp_path / "run", "--checkpoint-minutes", "0")) == 2
    told = "the loss is no longer a number after 128 images"
    assert f"{told}; {tmp_path / 'run'} holds the state after 128 images" in capsys.readouterr().err
    state = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.pt")
    assert state["iteration"] == 2
    assert all(torch.isfinite(value).all() for value in state["model"].values())


def test_several_seeds_print_their_table_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch):
    command = vision(tmp_path / "runs", "--seeds", "3", "--seed", "1")
    go_on = stop_after(monkeypatch, 4)
    assert main(command) == 2
    go_on()
    capsys.readouterr()
    trained = []
    make = Trainer.__init__
    monkeypatch.setattr(
        Trainer, "__init__", lambda self, config, *a: trained.append(config.seed) or make(self, config, *a)
    )
    assert main(command) == 0
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["seed-1", "seed-2", "seed-3"]
    table = capsys.readouterr().out
    assert "±" in table
    assert "| plain  |" in table
    assert trained == [1, 2, 3]
    assert main(command) == 0, "a third time: nothing is left to do"
    assert trained == [1, 2, 3]
    assert main(vision(tmp_path / "runs", "--seeds", "3", "--seed", "1", "--learning-rate", "0.1")) == 2
    assert "holds a run with other settings" in capsys.readouterr().err
    assert main(["vision", "--resume", str(tmp_path / "runs")]) == 0


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_command_goes_on_and_another_is_refused(tmp_path, capsys, monkeypatch):
    """Fails if a run is trained twice, or if settings are taken for those of another run."""
    go_on = stop_after(monkeypatch, 4)
    assert main(vision(tmp_path / "run")) == 2
    go_on()
    assert main(vision(tmp_path / "run")) == 0
    assert main(vision(tmp_path / "whole")) == 0
    assert (
        files(tmp_path / "run")[tmp_path / "run" / "metrics.jsonl"]
        == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    )
    before = files(tmp_path / "run")
    monkeypatch.setattr(Trainer, "__init__", lambda *_: pytest.fail("there is nothing left to train"))
    capsys.readouterr()
    assert main(vision(tmp_path / "run")) == 0
    assert "% on filled" in capsys.readouterr().out
    assert main(vision(tmp_path / "run", "--learning-rate", "0.1", "--seed", "1")) == 2
    assert capsys.readouterr().err == (
        f"clop: {tmp_path / 'run'} holds a run with other settings (learning_rate, seed); name another folder\n"
    )
    assert files(tmp_path / "run") == before


def test_a_folder_of_something_else_is_refused_and_missing_data_leaves_none(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    assert main(vision(tmp_path / "mine")) == 2
    assert "nothing in it will be overwritten" in capsys.readouterr().err
    assert main(vision(tmp_path / "other", "--data", str(tmp_path / "none"), task="imagenet")) == 2
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digts"], "clop: unknown task 'digts'; did you mean 'digits'?"),
        ([], "clop: which task? for example: clop vision digits --method clop"),
        (["digits", "--method", "clopp"], "clop: unknown method 'clopp'; did you mean 'clop'?"),
        (
            ["digits", "--position", "2"],
            "clop: --clop.slot is a setting of clop, which is not active here; add it with --method clop",
        ),
        (
            ["digits", "--method", "clop", "--mixup.beta", "1"],
            "clop: --mixup.beta is a setting of mixup, which is not active here; add it with --method mixup",
        ),
        (
            ["digits", "--method", "clop", "--position", "4"],
            "clop: clop.slot must be one of stage1, stage2, stage3 in small_cnn, got 'stage4'",
        ),
        (
            ["digits", "--method", "clop", "--clop.alpha", "2"],
            "clop: clop.alpha is a probability and must lie in [0, 1], got 2.0",
        ),
        (
            ["--resume", "x", "--epochs", "3"],
            "clop: a run goes on with the settings it began with; leave out --epochs with --resume",
        ),
        (
            ["digits", "--resume", "x"],
            "clop: a run goes on with the settings it began with; leave out digits with --resume",
        ),
        (["--resume", "x"], "clop: x holds no run: it has no config.json"),
        (["digits", "--method", ""], "clop: unknown method ''; expected one of " + ", ".join(["plain", *METHODS])),
        (
            ["digits", "--method", "clop", "--position", "2", "--clop.slot", "stage1"],
            "clop: --position is an old name of --clop.slot; leave out one of them",
        ),
        (["digits", "--device", "cudaa"], f"clop: --device: expected {DEVICES}, got 'cudaa'"),
        (["digits", "--seed", "-1"], "clop: seed must be at least 0 and below 2^63, got -1"),
        (
            ["digits", "--seed", "9" * 20],
            f"clop: argument --seed: expected an integer, got '{'9' * 20}'; see clop vision --help",
        ),
        (
            ["digits", "--learning-rate", "nan"],
            "clop: argument --learning-rate: expected a number, got 'nan'; see clop vision --help",
        ),
        (["digits", "--seeds", "0"], "clop: --seeds: expected a number of at least 1, got 0"),
        (["table", "digits"], "clop: the following arguments are required: RUNS; see clop vision table --help"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(arguments, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["vision", *arguments]) == 2
    assert capsys.readouterr().err.strip() == sentence
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(vision(tmp_path / "file" / "run")) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].endswith(": Not a directory")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_function_call_is_a_run_and_finds_its_images_where_they_are_now(tmp_path, monkeypatch):
    """Fails if a run that was begun elsewhere cannot go on, if images that were loaded already are loaded again, and if
    the run of a part of a data set is returned to whom asks for the whole of it."""
    config = paper_config("digits", image_size=16, epochs=1, train_images=64, data=str(tmp_path / "old"))
    task = load_task(config)
    summary = run(config, tmp_path / "run", task=task)
    assert summary == VisionSummary.fromdict(RunFolder.open(tmp_path / "run", "vision").summary, tmp_path)
    assert (summary.train_images, summary.source, summary.changed) == (64, "digits", {})
    asked = []
    monkeypatch.setattr("clop.experiments.vision.load_task", lambda config, data: asked.append(data) or task)
    assert run(config, tmp_path / "run", data=tmp_path / "new") == summary
    assert asked == [], "a run that has ended needs no images"
    (tmp_path / "run" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # as if it had been killed at once
    (tmp_path / "run" / "checkpoints").mkdir()
    run(config, tmp_path / "run", data=tmp_path / "new")
    assert asked == [tmp_path / "new"]
    with pytest.raises(UsageError, match=r"other settings \(data\)"):
        run(dataclasses.replace(config, data=None), tmp_path / "run")


@pytest.mark.parametrize("old", [["--position", "2"], ["--clop.position", "2"]])
def test_old_names_of_the_slot_still_work(old, tmp_path):
    assert main(vision(tmp_path / "run", "--method", "clop", *old)) == 0
    assert read_config(tmp_path / "run").methods["clop"] == Clop(slot="stage2")
    assert RunFolder.open(tmp_path / "run", "vision").summary["label"] == "clop(slot=stage2)"


@pytest.mark.parametrize("settings", [{}, {"config": {"task": "digits"}}])
def test_a_run_without_its_settings_is_called_damaged(settings, tmp_path, capsys):
    about = {"version": FORMAT_VERSION, "kind": "vision"} | settings
    (tmp_path / "config.json").write_text(json.dumps(about))
    assert main(["vision", "--resume", str(tmp_path)]) == 2
    assert "config.json is damaged, or of another version of clop" in capsys.readouterr().err


def test_a_second_signal_does_not_cost_the_checkpoint(tmp_path, capsys, monkeypatch):
    """Fails if a signal in the middle of writing stops it."""
    save = RunFolder.save

    def impatient(self, *arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return save(self, *arguments)

    stop_after(monkeypatch, 1)
    monkeypatch.setattr(RunFolder, "save", impatient)
    assert main(vision(tmp_path / "run")) == 2
    assert "stopped after 128 images; go on with" in capsys.readouterr().err
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "last.pt")["iteration"] == 2


@pytest.mark.parametrize("where", ["__init__", "result"])
def test_who_interrupts_before_or_after_the_loop_is_shown_how_to_go_on(where, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, where, interrupted)
        assert main(vision(tmp_path / "run")) == 2
    assert f"go on with: clop vision --resume {tmp_path / 'run'}" in capsys.readouterr().err
    assert main(["vision", "--resume", str(tmp_path / "run")]) == 0


def test_a_run_of_another_kind_is_not_gone_on_with(tmp_path, capsys):
    RunFolder.create(tmp_path / "agent", "agent", {})
    assert main(["vision", "--resume", str(tmp_path / "agent")]) == 2
    assert "holds a run of kind 'agent', expected 'vision'" in capsys.readouterr().err


def test_a_label_names_what_is_not_the_papers():
    def config(**methods):
        return VisionConfig("digits", "small_cnn", 32, 1, methods=methods)

    assert label(config()) == "plain"
    assert label(config(clop=Clop())) == "clop"
    assert label(config(clop=Clop(slot="stage2", per_sample=True))) == "clop(per_sample=True, slot=stage2)"
    assert label(config(dropout=Dropout(style="dense"), clop=Clop())) == "dropout(style=dense)+clop"
    assert label(config(clop=Clop(alpha=0.9, slot="stage3"), dropout=Dropout(p=0.9))) == "clop+dropout", "spelt out"
    assert label(config(dropout=Dropout(style="channel"))) == "dropout", "spelt out"
    assert label(config(clop=Clop(alpha=0.7, slot="stage1"))) == "clop(alpha=0.7, slot=stage1)"
    assert label(config(dropout=Dropout(style="dense", p=0.3))) == "dropout(style=dense, p=0.3)"
    vgg = VisionConfig("imagenette", "vgg9", 96, 1, methods={"dropout": Dropout(style="dense")})
    assert label(vgg) == "dropout", "the place depends on the network"


def test_runs_that_learn_otherwise_are_not_averaged(tmp_path, capsys):
    """Fails if a learning rate of 0.5 counts as another seed of the paper's."""
    assert main(vision(tmp_path / "runs" / "a")) == 0
    assert main(vision(tmp_path / "runs" / "b", "--learning-rate", "0.01")) == 0
    capsys.readouterr()
    assert main(["vision", "table", "digits", str(tmp_path / "runs")]) == 0
    scales = [
        line.split("|")[-2].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| plain")
    ]
    assert [scale.split("epochs")[1] for scale in scales] == [", batches of 32", ", batches of 32, learning rate 0.01"]


def test_initial_weights_that_are_not_the_papers_are_recorded_and_shown(tmp_path, capsys):
    """Fails if such runs are averaged with the paper's, or if the record does not say which they are."""
    assert main(vision(tmp_path / "runs" / "a")) == 0
    assert main(vision(tmp_path / "runs" / "b", "--dense-init", "torchvision")) == 0
    configs = [RunFolder.open(tmp_path / "runs" / name, "vision").config for name in ("a", "b")]
    assert [config["dense_init"] for config in configs] == ["pytorch", "torchvision"]
    capsys.readouterr()
    assert main(["vision", "table", "digits", str(tmp_path / "runs")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| plain")]
    assert ["dense layers as in torchvision" in line for line in lines] == [False, True]


def test_a_record_without_a_setting_is_refused(tmp_path, capsys):
    """VGGs of earlier versions had other initial weights and did not say so: the default of today would be wrong."""
    assert main(vision(tmp_path / "run")) == 0
    path = tmp_path / "run" / "config.json"
    about = json.loads(path.read_text())
    del about["config"]["dense_init"]
    path.write_text(json.dumps(about))
    assert main(["vision", "--resume", str(tmp_path / "run")]) == 2
    assert "of another version of clop: VisionConfig lacks dense_init" in capsys.readouterr().err


def test_a_table_leaves_out_what_has_not_ended(tmp_path, capsys, monkeypatch):
    assert main(vision(tmp_path / "done")) == 0
    stop_after(monkeypatch, 1)
    assert main(vision(tmp_path / "stopped", "--method", "clop")) == 2
    capsys.readouterr()
    assert main(["vision", "table", "digits", str(tmp_path), "--out", str(tmp_path / "table.md")]) == 0
    captured = capsys.readouterr()
    assert f"{tmp_path / 'stopped'} has not come to its end and is left out" in captured.err
    assert captured.out == (tmp_path / "table.md").read_text()
    assert "clop" not in captured.out
    assert json.loads((tmp_path / "done" / "summary.json").read_text())["scale"] in captured.out
