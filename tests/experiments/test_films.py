"""Films for the page: one agent of each method, side by side, in both formats, and not twice."""

import json

import numpy as np
import pytest

from clop.experiments import films
from clop.rl.envs.backends import installed_backends
from clop.rl.envs.spec import Episodes

pytestmark = pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="needs procgen-mirror")


@pytest.fixture
def filmed(monkeypatch):
    """What was asked to be filmed, in place of the films."""
    calls = []

    def watch_together(agents, levels, path, config, *, backend, progress):
        calls.append((list(agents), levels.game, path.name, config.saliency))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"film")
        ones = np.ones(1)
        return {label: Episodes(ones, 7 * ones, ones, ones, ones > 0) for label in agents}

    monkeypatch.setattr(films, "watch_together", watch_together)
    return calls


def test_runs_on_the_same_levels_are_filmed_side_by_side_in_both_formats_and_once(tiny_runs, tmp_path, filmed):
    """Fails if a second page films everything again, or a method is shown twice."""
    out = tmp_path / "videos"
    written = films.film_runs([tiny_runs[0].parent], out)
    assert [path.name for path in written] == ["bigfish-50-levels.webm", "bigfish-50-levels.mp4"]
    assert filmed == [(["ppo", "clop"], "bigfish", path.name, "policy") for path in written]
    about = json.loads((out / "bigfish-50-levels.json").read_text())
    assert about["caption"] == "bigfish, unseen levels. Returns: ppo: 7; clop: 7."
    assert about["runs"] == {"ppo": str(tiny_runs[1]), "clop": str(tiny_runs[0])}
    assert films.film_runs([tiny_runs[0].parent], out) == []
    assert len(filmed) == 2


def test_runs_without_weights_are_not_filmed(tmp_path, filmed):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    assert films.film_runs([tmp_path], tmp_path / "videos") == []
    assert filmed == []
