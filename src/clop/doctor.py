"""``clop doctor``: what is installed, which parts work here, and what to install for those that do not."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from clop import machine
from clop.functional import clop


@dataclass(frozen=True)
class Part:
    """A part of the package and whether it works on this machine."""

    name: str
    works: bool
    detail: str


def examine() -> list[Part]:
    """Try every part."""
    return [
        _attempt("layer", _layer),
        _attempt("layer on CUDA", _cuda),
        _modules("pictures (clop picture)", {"PIL": "pillow"}, extra="picture"),
        _modules(
            "vision (clop demo, clop vision)",
            {"PIL": "pillow", "pooch": "pooch", "sklearn": "scikit-learn", "matplotlib": "matplotlib"},
            extra="vision",
        ),
        _attempt("agents on Procgen (clop train)", _procgen),
        _modules("agents on other games", {"gymnasium": "gymnasium"}, extra="gymnasium"),
        _modules("MiniGrid's games", {"minigrid": "minigrid"}),
        _modules("videos (clop watch)", {"PIL": "pillow", "av": "av"}, extra="rl"),
        _modules("TensorBoard events", {"tensorboardX": "tensorboardX"}, extra="rl"),
        _modules(
            "agents for other programs (clop export)",
            {"onnx": "onnx", "onnxscript": "onnxscript", "onnxruntime": "onnxruntime", "safetensors": "safetensors"},
            extra="export",
        ),
        _modules("Stable-Baselines3 (clop.sb3)", {"stable_baselines3": "stable-baselines3"}, extra="sb3"),
        _modules("reports (clop report)", {"scipy": "scipy", "matplotlib": "matplotlib"}, extra="report"),
    ]


def _attempt(name: str, check: Callable[[], str]) -> Part:
    try:
        return Part(name, True, check())
    except Exception as error:  # the report is about whatever goes wrong
        return Part(name, False, str(error) or type(error).__name__)


def _layer() -> str:
    x = torch.arange(6.0).view(1, 1, 2, 3)
    if not torch.equal(clop(x, 1.0).flatten().sort().values, x.flatten()):
        raise RuntimeError("the kernel returned other values than it was given; please report this")
    from clop.kernels.move import openmp_team

    threads = torch.get_num_threads() if openmp_team() else 1
    return f"numba {machine.version('numba')}, {threads} {'threads' if threads > 1 else 'thread'}"


def _procgen() -> str:
    from clop.rl.envs.backends import PROCGEN, choose_backend, installed_backends
    from clop.rl.envs.levels import LevelSet

    with LevelSet("bigfish", num_levels=1).open(1, seed=0) as games:
        games.step([games.spec.noop])
    used, installed = choose_backend("auto", "bigfish"), installed_backends()
    others = ", ".join(f"{name} {installed[name]}" for name in PROCGEN if name != used and name in installed)
    return f"{used} {installed[used]}" + (f"; also installed: {others}" if others else "")


def _cuda() -> str:
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device; the layer runs on the CPU")
    clop(torch.zeros(1, 1, 2, 3, device="cuda"), 1.0)
    return torch.cuda.get_device_name()


def _modules(name: str, packages: dict[str, str], extra: str | None = None) -> Part:
    """A part that works if these modules, from these packages, can be imported."""
    missing = []
    for module, package in packages.items():
        try:
            importlib.import_module(module)
        except ImportError:
            missing.append(package)
    if missing:
        return Part(name, False, f'pip install "clop[{extra}]"' if extra else f"pip install {' '.join(missing)}")
    return Part(name, True, ", ".join(f"{package} {machine.version(package)}" for package in packages.values()))
