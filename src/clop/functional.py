"""CLOP as pure functions: draw permutations, and swap the positions of feature maps by them."""

import math
import numbers
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from clop.errors import unknown_name
from clop.kernels import operators

VARIANTS = ("paper", "raster", "clamp")


def clop(
    x: Tensor,
    alpha: float,
    training: bool = True,
    *,
    variant: str = "paper",
    local: bool = True,
    channel_consistent: bool = True,
    per_sample: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    r"""Swap neighbouring positions of feature maps, the same way in every channel.

    The positions of the map are visited once each in a uniformly random order; with probability :math:`\alpha` a
    visited position trades places with one of its direct neighbours, drawn uniformly among those inside the map.
    Swaps act on the already permuted map, so a value may travel further than one step:

    .. math:: y_{n,c,k} = x_{n,c,\sigma(k)}, \quad \sigma \text{ a permutation of the positions.}

    One :math:`\sigma` is drawn per call and shared by all samples and channels. Values move and never change; the
    gradient moves back.

    Args:
        x: Feature maps, of any dtype and memory format; the result has the same.
        alpha: Probability that a visited position swaps, in [0, 1].
        training: If false, or if alpha is 0, ``x`` itself is returned and no randomness is used.
        variant: Which rule is followed. ``"paper"`` is the one above. ``"raster"`` is what the authors' code does: two
            sweeps in raster order with alpha / 2, steps along the flattened map that wrap over row ends, position 0
            never a target. ``"clamp"`` is the version commented out there: the paper's, except that a neighbour drawn
            outside the map means no swap.
        local: If false, the partner of a swap is any other position (the paper's first ablation).
        channel_consistent: If false, each channel has its own permutation (the second).
        per_sample: If true, each sample has its own permutation.
        generator: Source of randomness, on the CPU; torch's default CPU generator if not given. Activation
            checkpointing replays the default one only, so do not give another where it is used.

    Shape:
        - x and the result: :math:`(N, C, H, W)`, or :math:`(N, C, L)` or :math:`(N, C, D, H, W)`

    Example:
        >>> x = torch.arange(6.0).view(1, 1, 2, 3)
        >>> clop(x, alpha=0.5, generator=torch.Generator().manual_seed(0))
        tensor([[[[3., 4., 5.],
                  [0., 2., 1.]]]])

    Bertoin and Rachelson (2022), Figure 1.
    """
    alpha = check_alpha(alpha)
    check_variant(variant)
    check_generator(generator)
    check_maps(x)
    if not training or alpha == 0:
        return x
    shape = permutations_shape(x, channel_consistent, per_sample)
    if not operators.traced():
        return operators.swap(x, *shape, alpha, variant, local, generator)
    if generator is not None and torch.compiler.is_compiling():
        raise ValueError("a compiled call of clop cannot take a generator; give it to a CLOP layer, which can")
    draw = torch.ops.clop.draw
    permutations = draw(x.shape[2:], *shape, alpha, variant, local, generator=generator, device="cpu")
    return operators.permute(x, permutations)


def sample_permutation(
    size: Sequence[int],
    alpha: float,
    *,
    num: int | None = None,
    variant: str = "paper",
    local: bool = True,
    generator: Generator | None = None,
) -> Tensor:
    """Draw the permutation that :func:`clop` applies: ``y[k] = x[p[k]]`` over row-major positions.

    Args:
        size: Extent of the map, ``(H, W)``, ``(L,)`` or ``(D, H, W)``.
        alpha: Probability that a visited position swaps, in [0, 1]; at 0 no randomness is used.
        num: How many permutations; if not given, one without the leading dimension.
        variant: As for :func:`clop`.
        local: As for :func:`clop`.
        generator: As for :func:`clop`.

    Returns:
        int64 on the CPU, of shape ``(positions,)`` or ``(num, positions)``.

    Example:
        >>> sample_permutation((2, 3), alpha=0.5, generator=torch.Generator().manual_seed(0))
        tensor([3, 4, 5, 0, 2, 1])
    """
    size, alpha = check_size(size), check_alpha(alpha)
    check_variant(variant)
    check_generator(generator)
    if num is not None and (not isinstance(num, int) or isinstance(num, bool) or num < 0):
        raise ValueError(f"num is a number of permutations, expected an integer of at least 0, got {num!r}")
    count = 1 if num is None else num
    if alpha == 0:
        permutations = torch.arange(math.prod(size), device="cpu").repeat(count, 1)
    else:
        permutations = operators.draw(size, count, 1, alpha, variant, local, generator)
    return permutations.view(-1) if num is None else permutations.view(num, math.prod(size))


def permutations_shape(x: Tensor, channel_consistent: bool, per_sample: bool) -> tuple[int, int]:
    """How many permutations a call needs: one or one for each sample, times one or one for each channel."""
    return x.shape[0] if per_sample else 1, 1 if channel_consistent else x.shape[1]


def check_alpha(alpha: object) -> float:
    """``alpha`` as a float, or an error if it is no probability."""
    if type(alpha) is float and 0 <= alpha <= 1:  # the usual case, and the fastest to tell
        return alpha
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real):
        raise TypeError(f"alpha is a probability, expected a number in [0, 1], got {alpha!r}")
    if not 0 <= float(alpha) <= 1:  # not so for NaN either
        raise ValueError(f"alpha is a probability and must lie in [0, 1], got {alpha}")
    return float(alpha)


def check_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise ValueError(unknown_name("variant", variant, VARIANTS))


def check_generator(generator: Generator | None) -> None:
    if generator is None:
        return
    if not isinstance(generator, Generator):
        raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}")
    if generator.device.type != "cpu":
        raise ValueError(
            f"permutations are drawn on the CPU whatever the device of the maps; expected a CPU generator, got one on "
            f"{generator.device}: use torch.Generator()"
        )


def check_size(size: Sequence[int]) -> tuple[int, ...]:
    if isinstance(size, int):
        raise TypeError(f"size is the extent of a map, expected (H, W), (L,) or (D, H, W), got {size}; write ({size},)")
    size = tuple(size)
    if not 1 <= len(size) <= 3 or any(not isinstance(extent, int) or extent < 1 for extent in size):
        raise ValueError(
            f"size is the extent of a map, expected (H, W), (L,) or (D, H, W) of at least 1 each, got {size}"
        )
    return size


def check_maps(x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"clop expects feature maps as a tensor, got {type(x).__name__}")
    if not 3 <= x.dim() <= 5:
        hint = "; apply it before flattening" if x.dim() == 2 else ""
        raise ValueError(
            f"clop expects feature maps of shape (N, C, H, W), (N, C, L) or (N, C, D, H, W), got {tuple(x.shape)}{hint}"
        )
