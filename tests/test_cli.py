"""The command line: it teaches, it tells mistakes in one sentence, and its commands leave what they say."""

import json
import re
import subprocess
import sys

import pytest
import torch
from PIL import Image

from clop import demo_agent, doctor
from clop.cli import main
from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.experiments.run_folder import RunFolder
from clop.rl.methods import METHODS


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    commands = re.findall(r"^    (\w+) ", text, re.MULTILINE)
    assert {*commands} == {
        *("doctor", "picture", "bench", "demo", "vision", "methods"),
        *("train", "evaluate", "watch", "plot"),
    }


def test_methods_are_listed_with_their_settings_and_a_misspelt_one_is_told(capsys):
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in METHODS)
    assert main(["methods", "clop"]) == 0
    told = capsys.readouterr().out
    assert "--clop.alpha (default: auto) Probability of a swap" in told
    assert "--[no-]clop.channel-consistent (default: True) Whether all channels are permuted alike" in told
    assert main(["methods", "clpo"]) == 2
    assert "did you mean 'clop'?" in capsys.readouterr().err


def test_an_anchor_of_a_figure_that_is_no_number_is_told(tmp_path, capsys):
    assert main(["plot", "run", "--out", str(tmp_path / "a.png"), "--anchor", "OpenAI", "many", "1"]) == 2
    assert "--anchor takes a name, a number of steps and a return" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demoo"], "clop: unknown command 'demoo'; did you mean 'demo'?"),
        ([], "clop: the following arguments are required: command; see clop --help"),
        (["picture"], "clop: the following arguments are required: --out; see clop picture --help"),
        (
            ["picture", "--out", "x.png", "--alpha", "nan"],
            "clop: argument --alpha: expected a probability in [0, 1], got 'nan'; see clop picture --help",
        ),
        (["picture", "no.jpg", "--out", "x.png"], "clop: no image at no.jpg"),
        (
            ["picture", "--out", "x.xyz"],
            "clop: cannot write a picture as '.xyz'; expected .png, .jpg or .webp",
        ),
        (
            ["demo", "--epochs", "0"],
            "clop: argument --epochs: expected an integer of at least 1, got '0'; see clop demo --help",
        ),
        (["bench", "layers"], "clop: unknown benchmark 'layers'; did you mean 'layer'?"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.strip() == sentence
    assert captured.out == ""


def test_a_picture_of_any_image_is_written(tmp_path, capsys):
    source, target = tmp_path / "wide.jpg", tmp_path / "new" / "out.png"
    Image.new("RGB", (300, 150), (200, 30, 30)).save(source)
    assert main(["picture", str(source), "--out", str(target), "--size", "32"]) == 0
    with Image.open(target) as picture:
        assert picture.width > 6 * 200
    assert str(target) in capsys.readouterr().out


def test_a_file_that_is_no_image_is_told_apart_from_a_missing_one(tmp_path, capsys):
    (tmp_path / "text.png").write_text("not an image")
    assert main(["picture", str(tmp_path / "text.png"), "--out", str(tmp_path / "x.png")]) == 2
    assert "is no image that can be read" in capsys.readouterr().err


def test_doctor_says_what_works_and_what_to_install(capsys, monkeypatch):
    assert main(["doctor", "--json"]) == 0
    parts = {part["name"]: part for part in json.loads(capsys.readouterr().out)["parts"]}
    assert parts["layer"]["works"]
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert main(["doctor"]) == 0
    missing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("missing")]
    assert any('pip install "clop[vision]"' in line for line in missing)


def test_doctor_notices_a_kernel_that_changes_values(monkeypatch):
    """Fails when only the sum is looked at, which a mean in every place keeps."""
    monkeypatch.setattr(doctor, "clop", lambda x, alpha: torch.full_like(x, x.mean().item()))
    (layer,) = (part for part in doctor.examine() if part.name == "layer")
    assert not layer.works


def test_a_seed_that_torch_does_not_take_is_told(tmp_path, capsys):
    assert main(["picture", "--out", str(tmp_path / "a.png"), "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "clop: seed must be at least 0 and below 2^63, got -1\n"


def test_the_module_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "clop", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("clop ")


def test_bench_layer_prints_a_record(capsys):
    assert main(["bench", "layer", "--json", "--rounds", "1"]) == 0
    record = RunRecord(**json.loads(capsys.readouterr().out))
    rows = record.metrics["rows"]
    assert {row["baseline"] for row in rows} >= {"two clones", "Dropout2d", "plain-Python layer"}
    assert all(row["ratio"] == row["ours_ms"] / row["baseline_ms"] for row in rows)


def test_demo_leaves_table_figure_and_runs_and_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    """Fails if a second call trains again, or takes runs of other settings for its own."""
    out = tmp_path / "demo"
    monkeypatch.setattr("clop.demo_agent.run", lambda *_: "an agent")
    assert main(["demo", "--out", str(out), "--epochs", "1"]) == 0
    assert "clop(0.6)" in capsys.readouterr().out
    assert "one seed (0)" in (out / "digits.md").read_text()
    with Image.open(out / "digits.png") as figure:
        assert figure.width > 500
    run = RunFolder.open(out / "digits-clop", "vision")
    assert run.config["methods"]["clop"]["alpha"] == 0.6
    assert 0 < run.summary["test_accuracy"]["filled"] <= 100
    (run.path / "summary.json").unlink()
    trained = []
    monkeypatch.setattr(
        "clop.experiments.vision.VisionWork", lambda config, *_: trained.append(config.method) or _Stop.now()
    )
    with pytest.raises(_Stop):
        main(["demo", "--out", str(out), "--epochs", "1"])
    assert trained == ["clop"]
    assert main(["demo", "--out", str(out), "--epochs", "2"]) == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_leaves_an_agent_its_curve_and_a_video_and_goes_on_where_it_stopped(tmp_path, capfd):
    """Fails if a second call trains again, or if one that was killed after training starts over."""
    pytest.importorskip("av")
    out = tmp_path / "demo"
    told = demo_agent.run(out, 2048, 3, 2)
    assert "on unseen ones (2 episodes each, clop-v1)" in told
    assert "$ clop train bigfish --method clop --preset quick --steps 2048" in capfd.readouterr().err
    with Image.open(out / "bigfish.png") as figure:
        assert figure.width > 500
    assert (out / "bigfish.mp4").stat().st_size > 10_000
    (out / "bigfish.mp4").unlink()
    assert demo_agent.run(out, 2048, 3, 2) == told
    again = capfd.readouterr().err
    assert "$ clop watch" in again
    assert "$ clop train" not in again
    with pytest.raises(UsageError, match="other settings"):
        demo_agent.run(out, 4096, 3, 2)


class _Stop(Exception):  # noqa: N818
    @classmethod
    def now(cls):
        raise cls
