"""Which layers a kernel may compute in torch's place, one by itself or two in one pass, and torch's own gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def watched(*modules: nn.Module) -> bool:
    """Whether somebody wants to see, or does in another way, what goes in and out of a layer."""
    return _watched_all() or any(_watched(module) for module in modules)


_watched_all = getattr(torch.nn.modules.module, "_has_any_global_hook", lambda: True)


def _watched(module: nn.Module) -> bool:
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or "forward" in vars(module) or module._compiled_call_impl is not None


def plain(convolution: nn.Conv2d, inputs: int, stride: int) -> bool:
    """Whether a convolution has 3×3 windows, a border of zeros, a bias and weights that are floats on a CPU."""
    weight, bias = convolution.weight, convolution.bias
    return (
        weight.shape[1:] == (inputs, 3, 3)
        and convolution.groups == 1
        and convolution.stride == (stride, stride)
        and convolution.padding == convolution.dilation == (1, 1)
        and convolution.padding_mode == "zeros"
        and bias is not None
        and all(type(each) in (Tensor, nn.Parameter) and each.is_cpu for each in (weight, bias))
        and weight.dtype == bias.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )


def by_outputs(weight: Tensor) -> Any:
    """Weights of a convolution as (3, 3, inputs, outputs).

    In that order in memory too: often it is another, and a view would be read in the wrong one.
    """
    return weight.detach().permute(2, 3, 1, 0).contiguous().numpy()


def gradients_by_torch(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], wanted: Sequence[bool], gradient: Tensor
) -> list[Tensor | None]:
    """Of what a function makes of its inputs, where a kernel's own would not do: to be differentiated again, or for
    somebody who looks on."""
    again = torch.is_grad_enabled()
    if not again:
        inputs = [each.detach().requires_grad_() for each in inputs]
    with torch.enable_grad():
        y = function(*inputs)
    learning = [each for each, needed in zip(inputs, wanted, strict=True) if needed]
    found = iter(torch.autograd.grad(y, learning, gradient, create_graph=again))
    return [next(found) if needed else None for needed in wanted]
