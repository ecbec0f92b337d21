"""The paper's experiments as named sweeps, at full size and at one that a CPU can afford.

Full size is the paper's text: OpenAI's settings, 25 M steps on 200 easy levels or 200 M on 500 hard ones, 5 and 3
seeds; ``--preset authors-easy`` and ``authors-hard`` give those of its code. Small is the preset ``quick``, a million
steps on 50 levels, and a part of the images. The paper leaves open the values of alpha in Figure 5 and the legend of
Figure 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from clop.augment import AUGMENTATIONS, CLOP_CODE
from clop.errors import UsageError, unknown_name
from clop.experiments.sweep.grids import AgentGrid, ClassifierGrid, Sweep
from clop.rl.games import GAMES

SCALES = ("full", "small")
_ALL = tuple(GAMES)
_THREE = ("bigfish", "dodgeball", "chaser")  # the games of Figures 5 and 7
_EASY = ("ppo", "mixreg", "rand_fm", "ucb_drac", "ibac_sni", "rad", "idaac", "clop")
_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # the paper does not name those of Figure 5
_PIXELS = tuple(  # with the constants of the paper's code where it has them
    f"rad(aug={name}, constants=clop)" if name in CLOP_CODE else f"rad(aug={name})"
    for name in AUGMENTATIONS
    if name != "rotation"  # a small tilt, of classifiers
)
_ABLATIONS = ("ppo", "clop", "clop(local=false)", "clop(channel_consistent=false)")
_CLASSIFIERS = ("plain", "dropout", "batch_norm", "clop")
_TIMED = ("plain", "crop", "rotation", "cutout", "clop")

_SMALL_AGENTS: Mapping[str, Any] = MappingProxyType({"total_timesteps": 1_000_000, "num_levels": 50})
_SMALL_CLASSIFIERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "mnist-usps": {"train_images": 10_000, "epochs": 10},
        "imagenette": {"network": "vgg9", "image_size": 64, "train_images": 2000, "epochs": 30},
        "imagewoof": {"network": "vgg9", "image_size": 64, "train_images": 2000, "epochs": 30},
        "stl10": {"image_size": 64, "train_images": 2000, "epochs": 30},
        "imagenet": {"network": "vgg9", "image_size": 64, "train_images": 20_000, "epochs": 10},
    }
)


def _agents(games: Sequence[str], methods: Sequence[str], seeds: int = 5, *, hard: bool = False) -> AgentGrid:
    return AgentGrid(tuple(games), tuple(methods), tuple(range(seeds)), "procgen-hard" if hard else "procgen-easy")


def _classifiers(task: str, methods: Sequence[str], seeds: int, **settings: Any) -> ClassifierGrid:
    return ClassifierGrid(task, tuple(methods), tuple(range(seeds)), settings)


_FULL = (
    Sweep(
        "paper-easy",
        (_agents(_ALL, _EASY),),
        "all games, easy: CLOP beside PPO, mixreg, Rand+FM, UCB-DrAC, IBAC-SNI, RAD and IDAAC",
        ("table2", "table3", *(f"table{number}" for number in range(10, 17)), "figure10", "figure11"),
    ),
    Sweep(
        "paper-hard",
        (
            _agents(("miner", "chaser", "dodgeball"), ("ppo", "clop", "dropout", *_PIXELS), 3, hard=True),
            _agents(_ALL, ("ppo", "mixreg", "clop"), 3, hard=True),
        ),
        "hard: CLOP beside dropout and all pixel augmentations in three games, beside mixreg in all",
        ("figure4", "table17", "figure12"),
    ),
    Sweep(
        "paper-alpha",
        (_agents(_THREE, ("ppo", *(f"clop(alpha={alpha})" for alpha in _ALPHAS))),),
        "values of alpha in three games",
        ("figure5",),
    ),
    Sweep(
        "paper-ablation",
        (
            _agents(_THREE, (*_ABLATIONS, "clop(slot=block1)", "clop(slot=block2)", "clop(critic=same)")),
            _agents(_ALL, _ABLATIONS),
        ),
        "CLOP without locality, without channel consistency, elsewhere, and on the critic too",
        ("figure7", "figure13"),
    ),
    Sweep(
        "paper-depth",
        (
            _agents(_THREE, ("clop", "clop(slot=block1)", "clop(slot=block2)", "clop(slot=block3)")),
            _classifiers("mnist-usps", ("clop(slot=stage1)", "clop(slot=stage2)", "clop"), 20),
            _classifiers("stl10", ("clop(slot=stage1)", "clop(slot=stage2)", "clop(slot=stage3)", "clop"), 10),
        ),
        "CLOP after earlier stages, in agents and in classifiers",
        ("figure14",),
    ),
    Sweep(
        "paper-critic",
        (_agents(_THREE, ("ppo", "clop", "clop(critic=same)", "clop(critic=independent)")),),
        "CLOP on the actor alone, or on the critic too",
    ),
    Sweep(
        "paper-idaac",
        (_agents(_ALL, ("idaac", "clop", "idaac+clop")),),
        "CLOP with IDAAC in all games",
        ("table9",),
    ),
    Sweep(
        "paper-mnist-usps",
        (_classifiers("mnist-usps", _CLASSIFIERS, 20),),
        "from MNIST to USPS",
        ("table1",),
    ),
    Sweep(
        "paper-imagenette",
        (_classifiers("imagenette", (*_CLASSIFIERS, "mixup"), 10),),
        "Imagenette with VGG11",
        ("table1", "table8"),
    ),
    Sweep(
        "paper-imagewoof",
        (_classifiers("imagewoof", (*_CLASSIFIERS, "mixup"), 10),),
        "Imagewoof with VGG11",
        ("table8",),
    ),
    Sweep("paper-stl10", (_classifiers("stl10", (*_CLASSIFIERS, "mixup"), 10),), "STL-10 with VGG9", ("table8",)),
    Sweep("paper-imagenet", (_classifiers("imagenet", ("plain", "clop"), 1),), "ImageNet with VGG16"),
    Sweep(
        "paper-cost",
        (
            _agents(("jumper", "caveflyer"), ("ppo", "clop"), 1),
            _agents(("jumper", "caveflyer"), ("ppo", "clop"), 1, hard=True),
            _classifiers("mnist-usps", _TIMED, 1, epochs=1),
            _classifiers("imagenette", (*_TIMED, "random_conv"), 1, epochs=1),
        ),
        "what CLOP costs: seconds of training in two games, and of one epoch of two data sets",
        ("table6", "table7"),
    ),
)
NAMES = tuple(sweep.name for sweep in _FULL)


def named_sweep(name: str, scale: str = "full") -> Sweep:
    """One of the paper's experiments."""
    if scale not in SCALES:
        raise UsageError(unknown_name("scale", scale, SCALES))
    found = next((sweep for sweep in _FULL if sweep.name == name), None)
    if found is None:
        raise UsageError(f"{unknown_name('sweep', name, NAMES)} (a sweep of your own is a file that ends in .toml)")
    return found if scale == "full" else _small(found)


def _small(sweep: Sweep) -> Sweep:
    """The same methods with few steps, levels, images and seeds; a name of its own, since other runs belong to it."""
    grids: list[AgentGrid | ClassifierGrid] = []
    for grid in sweep.grids:
        if isinstance(grid, AgentGrid):
            mode = {"distribution_mode": "hard"} if grid.preset == "procgen-hard" else {}
            methods = tuple(_SMALL_SLOTS.get(method, method) for method in grid.methods)
            small = {**_SMALL_AGENTS, **mode}
            grids.append(replace(grid, methods=methods, seeds=grid.seeds[:3], preset="quick", settings=small))
        else:
            settings = {**_SMALL_CLASSIFIERS[grid.task], **grid.settings}
            grids.append(replace(grid, seeds=grid.seeds[:5], settings=settings))
    return replace(sweep, name=f"{sweep.name}-small", grids=tuple(grids))


_SMALL_SLOTS = {  # the encoder small has other stages than IMPALA
    "clop(slot=block1)": "clop(slot=conv1)",
    "clop(slot=block2)": "clop(slot=conv2)",
    "clop(slot=block3)": "clop(slot=conv3)",
}
