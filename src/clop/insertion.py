"""Put a CLOP into a network somebody else wrote."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clop.errors import unknown_name
from clop.layer import CLOP

Model = TypeVar("Model", bound=nn.Module)

_CHILD = "clop"
_GUESSED_SIZES = (224, 96, 84, 64, 32, 28)


def insert(model: Model, alpha: float, *, after: str | None = None, example: Tensor | None = None) -> Model:
    """Put a :class:`~clop.CLOP` after the deepest feature map of a CNN, or after a named submodule.

    The layer becomes a child, named ``clop``, of the module whose output it permutes. No other name and no key of the
    ``state_dict`` changes, so older checkpoints load as before.

    The place, the last map with more than one position, is found by running the model in evaluation mode on
    ``example``. It is refused if nothing after it notices a permutation, as is the case before a global average pool.

    Args:
        model: The network, changed in place.
        alpha: Probability that a visited position swaps.
        after: Name of a submodule, as in ``model.named_modules()``; trusted if there is no example.
        example: A batch such as the model takes. If neither this nor ``after`` is given, black images of a few usual
            sizes are tried.

    Returns:
        The model.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
        >>> insert(model, alpha=0.5)[1]
        ReLU(
          (clop): CLOP(alpha=0.5)
        )
    """
    layer = CLOP(alpha)
    modules = dict(model.named_modules())
    if any(isinstance(module, CLOP) for module in modules.values()):
        raise ValueError("the model has a CLOP already; set its alpha instead of inserting another")
    if after is not None and after not in modules:
        raise ValueError(unknown_name("submodule", after, filter(None, modules)))
    if after is None or example is not None:
        after = _find(model, after, _guess_example(model) if example is None else example)
    host = modules[after]
    host.add_module(_CHILD, layer.train(host.training))
    if type(host).forward is not nn.Sequential.forward:  # a Sequential runs its new last child by itself
        host.register_forward_hook(_run_child)
    return model


def _run_child(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """The hook; a plain function, so that a copy of the module runs the child of the copy."""
    return module.get_submodule(_CHILD)(output)


@dataclass(frozen=True)
class _Map:
    """A feature map that a module returned."""

    name: str
    tensor: Tensor
    version: int  # counts changes in place: an in-place ReLU returns its input, changed

    @property
    def is_final(self) -> bool:
        return self.tensor._version == self.version

    @property
    def positions(self) -> int:
        return math.prod(self.tensor.shape[2:])


def _find(model: nn.Module, after: str | None, example: Tensor) -> str:
    """The name of the module to follow, or a ValueError that says why there is none and what to do."""
    maps, calls = _feature_maps(model, example)
    if not maps:
        raise ValueError(
            f"no submodule returns a feature map of more than one position for an input of shape {tuple(example.shape)}"
        )
    if after is None:
        last = maps[-1]
        deepest = [found.name for found in maps if found.tensor is last.tensor and found.is_final] or [last.name]
        after = next((name for name in deepest if calls[name] == 1), deepest[0])
    elif after not in {found.name for found in maps}:
        raise ValueError(
            f"{after!r} returns no feature map of more than one position; the deepest is that of {maps[-1].name!r}"
        )
    if calls[after] > 1:
        raise ValueError(
            f"{after!r} runs {calls[after]} times in one pass, and a CLOP after it would too; call a CLOP where you "
            f"want it in the model's forward, or name another place{_instead(model, maps, calls, after, example)}"
        )
    if not _has_effect(model, after, example):
        raise ValueError(
            f"a CLOP after {after!r} would do nothing: what follows takes all positions alike, as a global average "
            f"pool does, and a mean does not see a permutation; put it further up"
            f"{_instead(model, maps, calls, after, example)}"
        )
    return after


def _instead(model: nn.Module, maps: list[_Map], calls: Counter[str], refused: str, example: Tensor) -> str:
    """A suggestion: the deepest larger map, before the last block, or else the deepest other that works."""
    size = next(found.positions for found in reversed(maps) if found.name == refused)
    deepest_first = maps[::-1]
    candidates = sorted(deepest_first, key=lambda found: found.positions <= size)
    for name in dict.fromkeys(found.name for found in candidates if found.name not in ("", refused)):
        if calls[name] == 1 and _has_effect(model, name, example):
            return f", such as after={name!r}"
    return ""


def _feature_maps(model: nn.Module, example: Tensor) -> tuple[list[_Map], Counter[str]]:
    """The maps of one pass in the order they were returned, inner modules first, and how often each module ran."""
    maps: list[_Map] = []
    calls: Counter[str] = Counter()

    def record(name: str, output: Any) -> None:
        calls[name] += 1
        if _is_map(output):
            maps.append(_Map(name, output, output._version))

    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: record(name, output))
        for name, module in model.named_modules()
    ]
    with _quietly(model, hooks):
        model(example)
    return maps, calls


def _has_effect(model: nn.Module, name: str, example: Tensor) -> bool:
    """Whether anything after the module, maps apart, changes when the positions of its output are put in reverse."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(example.shape, generator=generator).to(example.device)  # a constant image would hide the change
    example = noise.to(example.dtype) if example.is_floating_point() else (noise * 256).to(example.dtype)

    def run(reverse: bool) -> list[Tensor]:
        seen: list[Tensor] = []
        reached = False

        def see(values: Any) -> None:
            if reached:
                seen.extend(
                    v.double() for v in values if isinstance(v, Tensor) and v.is_floating_point() and not _is_map(v)
                )

        def reach(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            nonlocal reached
            reached = True
            return output.flatten(2).flip(-1).view_as(output) if reverse else output

        hooks = [module.register_forward_pre_hook(lambda _, inputs: see(inputs)) for module in model.modules()]
        hooks.append(model.get_submodule(name).register_forward_hook(reach))
        with _quietly(model, hooks):
            output = model(example)
        seen.extend(
            t.double() for t in (output if isinstance(output, (tuple, list)) else [output]) if isinstance(t, Tensor)
        )
        return seen

    pairs = zip(run(reverse=False), run(reverse=True), strict=True)
    return any((a - b).abs().max() > 1e-4 * a.abs().max() for a, b in pairs if a.numel())


def _is_map(value: Any) -> bool:
    return isinstance(value, Tensor) and 3 <= value.dim() <= 5 and math.prod(value.shape[2:]) > 1


@contextmanager
def _quietly(model: nn.Module, hooks: list[Any]) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module has its own mode back and the hooks are gone."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for hook in hooks:
            hook.remove()


def _guess_example(model: nn.Module) -> Tensor:
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    if first is not None:
        for size in _GUESSED_SIZES:
            example = torch.zeros(
                1, first.in_channels, size, size, device=first.weight.device, dtype=first.weight.dtype
            )
            try:
                with _quietly(model, []):
                    model(example)
            except Exception:  # whatever a foreign model raises for an input it does not take
                continue
            return example
    raise ValueError(
        "cannot guess what the model takes; give insert an example of its input, or name a submodule with after="
    )
