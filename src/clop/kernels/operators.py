"""The layer's operators as PyTorch sees them: ``torch.ops.clop.draw``, ``draw_for`` and ``permute``.

Registered operators keep a compiled graph whole: the compiler sees their shapes (the fake rules) and their gradient,
not their insides. The draws are known to it as random, so that no pass merges two of them or repeats one in the
backward; they name a device, though it is always the CPU, since activation checkpointing asks for one.
"""

import functools
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

_library = torch.library.Library("clop", "DEF")
_library.define(
    "draw(SymInt[] size, SymInt samples, SymInt channels, float alpha, str variant, bool local, *, "
    "Generator? generator=None, Device device) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_library.define(
    "draw_for(int layer, SymInt[] size, SymInt samples, SymInt channels, *, Device device) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_library.define(
    "permute(Tensor x, Tensor permutations, bool inverse=False) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)


class Layer(Protocol):
    """What ``draw_for`` reads off a layer at each call."""

    alpha: float
    variant: str
    local: bool
    generator: Generator | None


_layers: weakref.WeakValueDictionary[int, Layer] = weakref.WeakValueDictionary()
_keys = itertools.count(1)


def register(layer: Layer) -> int:
    """A number by which a compiled graph refers to a layer.

    Settings baked into a graph would mean a new compilation for each new alpha, and the compiler does not take a
    generator at all; a number it takes.
    """
    key = next(_keys)
    _layers[key] = layer
    return key


@functools.cache
def _drawing() -> Any:
    from clop.kernels import draw  # numba's import takes as long as all else here, and evaluation never needs it

    return draw


@functools.cache
def _moving() -> Any:
    from clop.kernels import move

    return move


class _Seed(threading.local):
    """A place to draw seeds to, for each thread: a new tensor for each would take twice as long."""

    def __init__(self) -> None:
        with torch.inference_mode(False):  # or nothing could be written to it outside of that mode
            self.word = torch.empty((), dtype=torch.int64, device="cpu")


_seed = _Seed()
_SEEDS = -(2**63), 2**63 - 1
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_is_tracing: Callable[[], bool] = torch._C._is_tracing


def traced() -> bool:
    """Whether somebody looks on who must see operators: a compiler, a tracer, or a mode as that of fake tensors."""
    return torch.compiler.is_compiling() or _dispatch_modes() > 0 or _is_tracing()


def draw(
    size: Sequence[int],
    samples: int,
    channels: int,
    alpha: float,
    variant: str = "paper",
    local: bool = True,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Permutations of the positions of a map, int64 of shape (samples, channels, positions); always on the CPU."""
    if transforms_active():  # which refuse to write to what was there before
        seed = torch.randint(*_SEEDS, (), generator=generator, device="cpu")
    else:
        seed = _seed.word.random_(*_SEEDS, generator=generator)
    return torch.from_numpy(_drawing().draw(seed.item(), tuple(size), (samples, channels), alpha, variant, local))


def _draw_for(layer: int, size: Sequence[int], samples: int, channels: int, *, device: Any) -> Tensor:
    settings = _layers[layer]
    return draw(size, samples, channels, settings.alpha, settings.variant, settings.local, settings.generator)


@functools.cache
def _keep_draws_apart() -> None:
    """Tell the pass that merges equal operations that these are random: it reads a list of its own, not the tag."""
    from torch._functorch import compile_utils  # slow to import; whoever traces has it already

    getattr(compile_utils, "rand_ops", []).extend((torch.ops.clop.draw, torch.ops.clop.draw_for))


def _fake_draw(size: Sequence[int], samples: int, channels: int) -> Tensor:
    _keep_draws_apart()
    return torch.empty(samples, channels, math.prod(size), dtype=torch.int64, device="cpu")


_library.impl("draw", draw, "CompositeExplicitAutograd")
_library.impl("draw_for", _draw_for, "CompositeExplicitAutograd")
torch.library.register_fake("clop::draw", lambda *arguments, **_: _fake_draw(*arguments[:3]))
torch.library.register_fake("clop::draw_for", lambda *arguments, **_: _fake_draw(*arguments[1:]))


def _channels_innermost(x: Tensor) -> bool:
    return not x.is_contiguous() and x.movedim(1, -1).is_contiguous()


def _permute_cpu(x: Tensor, permutations: Tensor, inverse: bool = False) -> Tensor:
    move = _moving().permute
    if x.is_conj() or x.is_neg():  # views that hold other bytes than their values
        x = x.resolve_conj().resolve_neg()
    if x.is_contiguous():
        return move(x, permutations, inverse)
    return _in_format_of(x, permutations, lambda x: move(x, permutations, inverse))


def _permute_anywhere(x: Tensor, permutations: Tensor, inverse: bool = False) -> Tensor:
    """The same with torch's own operations, for any device; both tensors are there already and nothing waits for it."""
    if inverse:
        permutations = permutations.argsort(-1)

    def move(x: Tensor) -> Tensor:
        if x.is_contiguous():
            flat = x.flatten(2)  # (N, C, positions)
            return flat.gather(2, permutations.expand_as(flat)).view_as(x)
        flat = x.flatten(2).movedim(1, -1)  # (N, positions, C), contiguous
        return flat.gather(1, permutations.movedim(1, -1).expand_as(flat)).movedim(-1, 1).unflatten(2, x.shape[2:])

    return _in_format_of(x, permutations, move)


def _in_format_of(x: Tensor, permutations: Tensor, move: Callable[[Tensor], Tensor]) -> Tensor:
    """Move dense maps: channels innermost if they are so already and move together, else outermost."""
    if not _channels_innermost(x):
        return move(x.contiguous())
    if permutations.shape[1] == 1:
        return move(x)
    return torch.empty_like(x).copy_(move(x.contiguous()))


def _fake_permute(x: Tensor, permutations: Tensor, inverse: bool = False) -> Tensor:
    kept = x.is_contiguous() or _channels_innermost(x)
    return torch.empty_like(x) if kept else torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
    _, permutations, ctx.inverse = inputs
    ctx.save_for_backward(permutations)
    ctx.save_for_forward(permutations)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    (permutations,) = ctx.saved_tensors
    again = permute if torch.is_grad_enabled() or traced() or transforms_active() else _Permute.forward
    return again(gradient, permutations, not ctx.inverse), None, None


class _Permute(torch.autograd.Function):
    """The operator for tensors that are really there, without the dispatcher, whose way through Python costs more than
    moving a small map; and for the transforms of ``torch.func``."""

    @staticmethod
    def forward(x: Tensor, permutations: Tensor, inverse: bool) -> Tensor:
        return (_permute_cpu if x.is_cpu else _permute_anywhere)(x, permutations, inverse)

    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (permutations,) = ctx.saved_tensors
        return permute(tangent, permutations, ctx.inverse)

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], x: Tensor, permutations: Tensor, inverse: bool
    ) -> tuple[Tensor, int]:
        x = x.movedim(dims[0], 0) if dims[0] is not None else x.expand(info.batch_size, *x.shape)
        if dims[1] is not None:
            permutations = permutations.movedim(dims[1], 0)
        permutations = permutations.expand(*x.shape[:2], *permutations.shape[-2:]).flatten(0, 1)
        return permute(x.flatten(0, 1), permutations.contiguous(), inverse).unflatten(0, x.shape[:2]), 0


def _plain(x: Tensor) -> bool:
    """Whether the compiled loop can read maps as they are, and moving them needs nothing of autograd's."""
    return (
        x.is_cpu and x.is_contiguous() and type(x) is Tensor and not (transforms_active() or x.is_conj() or x.is_neg())
    )


class _Swap(torch.autograd.Function):
    """A draw and the move by it, for maps that are plain: with less of Python in between, which a small map feels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: tuple[Any, ...]) -> Tensor:
        permutations = draw(x.shape[2:], *how)
        ctx.save_for_backward(permutations)
        ctx.save_for_forward(permutations)
        return _moving().permute(x, permutations, False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (permutations,) = ctx.saved_tensors
        if _plain(gradient) and not (torch.is_grad_enabled() or traced()):
            return _moving().permute(gradient, permutations, True), None
        return permute(gradient, permutations, True), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return permute(tangent, *ctx.saved_tensors)


_library.impl("permute", _permute_anywhere, "CompositeExplicitAutograd")
_library.impl("permute", _permute_cpu, "CPU")
torch.library.register_fake("clop::permute", _fake_permute)
torch.library.register_autograd("clop::permute", _backward, setup_context=_save)

# Function.apply inspects a signature at each call, 40 µs; its base class does not, and serves without transforms.
_apply = super(torch.autograd.Function, _Permute).apply
_swap: Callable[..., Tensor] = super(torch.autograd.Function, _Swap).apply
transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def permute(x: Tensor, permutations: Tensor, inverse: bool = False) -> Tensor:
    """Move positions by permutations (N or 1, C or 1, positions): ``y[k] = x[p[k]]``; ``inverse`` undoes that."""
    if not x.is_cpu:
        permutations = permutations.to(x.device, non_blocking=True)
    if traced() or type(x) is not Tensor:
        return torch.ops.clop.permute(x, permutations, inverse)
    apply: Callable[..., Tensor] = _Permute.apply if transforms_active() else _apply
    return apply(x, permutations, inverse)


def swap(x: Tensor, *how: Any) -> Tensor:
    """Move positions by permutations drawn for it, as :func:`draw` after the size; only where nothing is traced."""
    return _swap(x, how) if _plain(x) else permute(x, draw(x.shape[2:], *how))
