"""What the pages show works: their Python runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_examples_of_the_python_page_run_one_after_another(tmp_path):
    """Fails for an example whose names or arguments are no longer those of the package."""
    pytest.importorskip("gymnasium")
    shown = blocks("docs/python.md")
    assert len(shown) >= 6
    (game,) = (block for block in shown if "class Corridor" in block)
    (tmp_path / "corridor.py").write_text(f"import numpy as np\n{game}")
    (tmp_path / "page.py").write_text("\n".join(shown))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "runs" / "corridor" / "summary.json").exists()


def test_the_examples_of_the_page_of_statistics_run():
    """Fails for an example whose names or arguments are no longer those of the package."""
    (shown,) = blocks("docs/statistics.md")
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "starpilot clop" in done.stdout
