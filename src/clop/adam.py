"""PyTorch's Adam without PyTorch's compiler.

The methods of torch's optimisers are wrapped so that ``torch.compile`` leaves them alone, and a wrapper imports the
whole compiler when it is first called: 1.5 s at the start of every run. Nothing here compiles an optimiser.
"""

import inspect

import torch


class Adam(torch.optim.Adam):
    """``torch.optim.Adam``, to the bit: the same methods, called without what is wrapped around them."""

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))  # what its wrapper does besides
