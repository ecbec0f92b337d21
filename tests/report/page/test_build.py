"""The page as a file: what stands on it, that every link leads somewhere, and what it refuses."""

import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from clop.cli import main
from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.report.page.build import MODULES, bundle, write_page
from clop.report.page.png import png

CURVE = [(k * 100_000, k / 2, k / 3 if k % 5 == 0 else None) for k in range(1, 11)]


@pytest.fixture
def runs(tmp_path, write_agent, write_classifier):
    """Two methods with three seeds, a classifier, a run that has not ended and one that is damaged."""
    folder = tmp_path / "runs"
    for seed in range(3):
        write_agent(folder / f"ppo-{seed}", "bigfish", "ppo", seed, 5, 3 + seed, curve=CURVE)
        write_agent(folder / f"clop-{seed}", "bigfish", "clop", seed, 5, 4 + seed, curve=CURVE)
    write_agent(folder / "open", "chaser", "ppo", finished=False, curve=CURVE[:3])
    write_classifier(folder / "plain", "plain", 0, 80.5)
    (write_agent(folder / "bad", "maze", "ppo") / "summary.json").write_text("{")
    return folder


def read(paths, out):
    return write_page(paths, out).path.read_text(encoding="utf-8")


def texts(html):
    """What is read, without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_means_and_intervals_over_seeds_stand_beside_the_published_numbers(runs, tmp_path):
    html = read([runs], tmp_path / "site")
    row = next(row for row in re.findall(r"<tr>.*?</tr>", html) if '<th scope="row">clop</th>' in row)
    assert "clop 3 1 000 000 5.00 [5.00, 5.00] 5.00 [2.52, 7.48] 0.00" in texts(row)
    assert "19.2 ± 4.6" in row  # the paper's


def test_what_is_in_no_table_is_stated_with_the_reason(runs, tmp_path):
    """Fails if an unfinished or damaged run vanishes without a word."""
    shown = texts(read([runs], tmp_path / "site"))
    assert "unfinished at 300000 of 1000000 steps" in shown
    assert re.search(r"bad damaged summary.json cannot be read", shown)


def test_every_link_leads_to_a_place_on_the_page_and_no_place_is_there_twice(runs, tmp_path):
    """Fails if a table gains a number whose runs are listed nowhere."""
    html = read([runs], tmp_path / "site")
    places = re.findall(r'\bid="([^"]+)"', html)
    assert len(places) == len(set(places))
    targets = set(re.findall(r'href="#([^"]+)"', html))
    assert len(targets) > 10
    assert targets <= set(places)


def test_a_number_leads_to_command_commit_machine_and_seed(runs, tmp_path):
    html = read([runs], tmp_path / "site")
    row = next(row for row in re.findall(r"<tr>.*?</tr>", html) if '<th scope="row">clop</th>' in row)
    place = re.search(r'href="#(cell-\w+)"', row)[1]
    found = re.search(rf'<details id="{place}".*?</details>', html, re.DOTALL)[0]
    for part in ("clop train bigfish", "000000000", "made up", "clop-2"):
        assert part in found
    assert re.findall(r'<th scope="row">(\d)</th>', found) == ["0", "1", "2"]


def test_names_are_text_and_not_html(tmp_path, write_agent):
    """Fails if a folder or a command with brackets becomes a part of the page."""
    folder = tmp_path / "runs"
    write_agent(folder / "<img src=x>", "bigfish", "ppo", curve=CURVE)
    html = read([folder], tmp_path / "site")
    assert "<img src=x>" not in html
    assert "&lt;img src=x&gt;" in html


def test_the_same_runs_give_the_same_bytes(runs, tmp_path):
    assert read([runs], tmp_path / "a") == read([runs], tmp_path / "b")


def test_without_a_run_there_is_still_the_layer(tmp_path):
    html = read([], tmp_path / "site")
    assert 'id="layer-alpha"' in html
    assert 'id="results"' not in html


def test_videos_are_copied_with_their_captions_and_those_of_the_page_itself_stay(runs, tmp_path):
    for name in ("both.mp4", "both.webm", "alone.webm"):
        (runs / name).write_bytes(name.encode())
    (runs / "both.json").write_text('{"caption": "on the same level"}')
    out = tmp_path / "site"
    for _ in range(2):  # the second time the page finds its own copies beside the others
        html = read([runs], out)
        assert html.count("<video") == 2
        assert "on the same level" in html
        assert html.index("both.webm") < html.index("both.mp4")  # browsers take the first that they can play
        assert (out / "videos" / "both.mp4").read_bytes() == b"both.mp4"


def test_figures_of_a_report_are_copied_and_shown(runs, tmp_path):
    """Fails if any folder called figures is taken for a report's."""
    for folder in (tmp_path / "report", tmp_path / "other"):
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / f"{folder.name}.svg").write_text("<svg/>")
    (tmp_path / "report" / "tables").mkdir()
    html = read([runs, tmp_path / "report", tmp_path / "other"], tmp_path / "site")
    assert '<img src="figures/report.svg"' in html
    assert "other.svg" not in html
    assert (tmp_path / "site" / "figures" / "report.svg").read_text() == "<svg/>"


def test_the_page_of_a_sweep_within_its_folder_leaves_itself_out(runs):
    (runs / "film.mp4").write_bytes(b"film")
    out = runs / "page"
    assert read([runs], out) == read([runs], out)


def test_mistakes_are_told(tmp_path):
    with pytest.raises(UsageError, match="nowhere does not exist; expected a run"):
        write_page([tmp_path / "nowhere"], tmp_path / "site")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file; name another with --out"):
        write_page([], tmp_path / "file")


def test_the_command_names_the_file_to_open(runs, tmp_path, capsys):
    assert main(["page", str(runs), "--out", str(tmp_path / "site")]) == 0
    told = capsys.readouterr().out
    assert told == f"wrote the page of 7 runs; open {(tmp_path / 'site' / 'index.html').resolve()}\n"


def test_scripts_are_one_module_without_imports():
    """Fails if a module is forgotten, or two of them use one name, which a browser would refuse."""
    text = bundle()
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
    assert {"draw", "startLayer", "startCurves", "startClaims"} <= set(names)
    assert len(MODULES) == 5


def test_a_png_is_read_back_as_it_was(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    path.write_bytes(png(pixels))
    with Image.open(path) as image:
        assert np.array_equal(np.asarray(image), pixels)


def test_the_page_of_a_thousand_runs_stays_small(tmp_path, write_agent):
    """Estimated from 60 runs drawn at the detail that 1120 would have."""
    from clop.report.page import results
    from clop.report.runs import Runs

    rng = np.random.default_rng(0)
    for k in range(60):
        method = ("ppo", "clop", "rad", "drac")[k % 4]
        curve = [(s * 62_500, float(rng.normal()), float(rng.normal()) if s % 20 == 0 else None) for s in range(1, 401)]
        game = ("bigfish", "chaser", "maze")[k // 4 % 3]
        write_agent(tmp_path / str(k), game, method, k // 12, steps=25_000_000, curve=curve)
    agents = Runs.find([tmp_path]).agents
    assert len(agents) == 60
    fine = len(results.section(agents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "_BUDGET", results._BUDGET * 60 // 1120)
        coarse = len(results.section(agents))
    assert coarse < fine / 2
    assert coarse * 1120 / 60 < 1_000_000


@pytest.mark.parametrize("name", ["clop.report.page.build"])
def test_the_page_needs_no_torch(name, tmp_path):
    """Fails if a page can be made only where something can be trained."""
    code = f"""
import sys, types
from pathlib import Path
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("no torch here")
sys.meta_path.insert(0, NoTorch())
import importlib.util
package = types.ModuleType("clop")  # without its own __init__, which is the layer
package.__path__, package.__version__ = [{str(__import__("clop").__path__[0])!r}], "0"
sys.modules["clop"] = package
from {name} import write_page
print(write_page([], Path({str(tmp_path)!r})).path)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def saliency_record(run):
    numbers = {"mean": 0.5, "low": 0.4, "high": 0.6}
    labels = ("clop", "clop(local=False)", "ppo", "random weights")
    networks = [
        {"label": label, "seed": seed, "run": f"elsewhere/{run}" if label == "clop" else "", "empty": 0.0}
        | {"entropy": numbers | {"mean": 0.5 + 0.01 * seed}, "half_mass": numbers, "map": [8, 8]}
        for label in labels
        for seed in range(3)
    ]
    metrics = {"frames": 1000, "levels": 90, "source": "bigfish, test levels", "networks": networks}
    return RunRecord("saliency", {"target": "logit"}, metrics, "complete", "clop saliency", "1" * 40, "2026", 1.0, {})


def test_records_of_measurements_are_on_the_page_and_decide_claims(runs, tmp_path):
    """Fails if the page has runs alone: a claim that a record decides was called not tested."""
    saliency_record("clop-0").write(runs / "looks.json")
    for paths in ([runs], [runs, runs / "looks.json"]):
        html = read(paths, tmp_path / "site")
        places, targets = (set(re.findall(rf'\b{name}="#?([^"]+)"', html)) for name in ("id", "href"))
        assert targets <= places | {each for each in targets if "/" in each}
        shown = texts(html)
        assert "1000 frames of 90 levels" in shown
        assert "entropy of the heat: clop(local=False) − clop" in shown
        section = html[html.index('<section id="saliency">') :]
        place = re.search(r'<a href="#(run-\w+)"><code>elsewhere/clop-0', section)[1]
        assert re.search(rf'<tr id="{place}">', html)  # the run itself, which the page has too


def test_videos_lead_to_their_runs(runs, tmp_path):
    (runs / "both.webm").write_bytes(b"film")
    (runs / "both.json").write_text('{"caption": "Returns: 3, 4.", "runs": {"PPO": "runs/ppo-0", "other": "gone"}}')
    html = read([runs], tmp_path / "site")
    caption = re.search(r"<figcaption>(Returns.*?)</figcaption>", html)[1]
    place = re.search(r'Runs: <a href="#(run-\w+)">PPO</a>\.', caption)[1]
    assert f'<tr id="{place}">' in html


def test_the_plan_is_on_the_page_of_its_runs_alone(runs, tmp_path, write_agent):
    assert 'id="evidence-decisions"' not in read([runs], tmp_path / "site")
    for method in ("ppo", "clop"):
        settings = {"preset": "quick", "steps": 1_003_520, "num_levels": 50, "eval_episodes": 1024}
        write_agent(runs / f"planned-{method}", "bigfish", method, 0, **settings)
    html = read([runs], tmp_path / "site")
    assert 'id="evidence-decisions"' in html
    assert html.count("clop sweep run results/evidence/evidence.toml") <= 4  # once for each table, not for each row
