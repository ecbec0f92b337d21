"""Who may import whom: the layer needs torch, numpy and numba; reports need neither rl nor vision."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import clop

SOURCE = Path(clop.__file__).parent


@functools.cache
def imported(file: Path) -> set[str]:
    """All modules a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def importers(module: str) -> set[str]:
    return {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if any(name == module or name.startswith(f"{module}.") for name in imported(file))
    }


def test_asking_for_the_layer_loads_torch_and_numpy_only():
    """Fails if an extra, or numba's slow import, is loaded before it is needed."""
    heavy = ("numba", "PIL", "sklearn", "matplotlib", "onnx", "procgen", "clop.vision", "clop.cli")
    code = f"import sys, clop; clop.CLOP, clop.insert; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("matplotlib", {"report/figures.py"}),
        ("argparse", {"cli"}),
        ("clop.cli", {"__main__.py", "cli"}),
        ("envpool", {"rl/envs/envpool.py"}),
        ("stable_baselines3", {"sb3.py", "bench/sb3.py", "bench/contestants.py"}),
        ("kornia", {"bench/pixels.py"}),
        ("pooch", {"vision/download.py"}),
        ("tensorboardX", {"experiments/trackers.py"}),
        ("wandb", {"experiments/trackers.py"}),
        ("huggingface_hub", {"experiments/hub.py"}),
        ("scipy", {"report/stats.py", "report/efficiency.py"}),
    ],
)
def test_few_files_import(module, allowed):
    assert {name for name in importers(module) if name.split("/")[0] not in allowed} <= allowed


@pytest.mark.parametrize(
    ("package", "must_not_import"),
    [
        ("report", ("clop.vision",)),
        ("vision", ("clop.rl", "clop.report", "clop.experiments")),
        ("rl", ("clop.vision", "clop.report")),
        ("experiments", ("clop.report",)),
    ],
)
def test_imports_go_one_way(package, must_not_import):
    for module in must_not_import:
        assert not {name for name in importers(module) if name.startswith(f"{package}/")}


def test_reports_take_from_rl_the_ranges_of_games_alone():
    found = {
        name for file in (SOURCE / "report").rglob("*.py") for name in imported(file) if name.startswith("clop.rl")
    }
    assert {name for name in found if not name.startswith("clop.rl.games")} == set()


def test_a_report_needs_no_torch(tmp_path):
    """Fails if reading runs comes to need it: a table can be made where nothing can be trained."""
    code = f"""
import sys, types
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("no torch here")
sys.meta_path.insert(0, NoTorch())
package = types.ModuleType("clop")  # without its own __init__, which is the layer
package.__path__, package.__version__ = [{str(SOURCE)!r}], "0"
sys.modules["clop"] = package
from clop.report.runs import Runs
from clop.report.scores import Scores
from clop.report.outcomes import cells
Runs.find([{str(tmp_path)!r}])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_of_rl_the_public_names_alone_come_from_the_experiments_and_only_when_asked_for():
    """Fails for a second way back, and if the score ranges of games, which reports read, come to need torch."""
    found = {name for name in importers("clop.experiments") if name.startswith("rl/")}
    assert found <= {"rl/__init__.py"}  # where they are named for type checkers
    code = "import sys, clop.rl; print([name for name in sys.modules if name.startswith(('clop.rl.', 'clop.exp'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_layer_imports_nothing_from_the_experiments():
    layer = {"functional.py", "layer.py", "insertion.py"} | {
        f"kernels/{name}.py" for name in ("draw", "move", "shuffle", "operators", "jit")
    }
    for module in ("clop.vision", "clop.rl", "clop.report", "clop.experiments"):
        assert not importers(module) & layer


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["bench", "--help"], ["evaluate", "--help"]])
def test_help_needs_no_torch(words):
    """Fails if asking what clop can do takes the seconds that torch takes to load."""
    code = f"""
import sys
from clop.cli import main
try:
    main({words!r})
except SystemExit:
    print([name for name in ("torch", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_public_names_are_there_without_their_modules():
    """Fails if a name is known to type checkers only, or if a module of the same name takes its place."""
    import clop.functional
    import clop.insertion

    assert {name: getattr(clop, name).__name__ for name in clop.__all__} == {name: name for name in clop.__all__}
    assert set(clop.__all__) <= set(dir(clop))
    with pytest.raises(AttributeError, match="has no attribute 'clopp'"):
        clop.clopp  # noqa: B018
