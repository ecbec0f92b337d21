"""Adam as TensorFlow has it, for comparisons with logs that were made with it."""

import math
from collections.abc import Iterable
from typing import Any

from torch import nn

from clop.adam import Adam


class TensorFlowAdam(Adam):
    r"""Adam whose epsilon is added to the second moment before the correction of its bias:

    .. math:: \theta \mathrel{-}= \eta\, \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}\, \frac{m}{\sqrt{v} + \epsilon}.

    That is PyTorch's step with the epsilon :math:`\epsilon / \sqrt{1 - \beta_2^t}`, so PyTorch's kernels take it.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float, eps: float) -> None:
        super().__init__(params, lr, eps=eps)
        for group in self.param_groups:  # part of the state, as all of a group is
            group["epsilon"], group["steps"] = eps, 0

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["steps"] += 1
            _, beta2 = group["betas"]
            group["eps"] = group["epsilon"] / math.sqrt(1 - beta2 ** group["steps"])
        return super().step(closure)


ADAMS: dict[str, type[Adam]] = {"torch": Adam, "tf": TensorFlowAdam}
"""By the name that the settings give them."""
