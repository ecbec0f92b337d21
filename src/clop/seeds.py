"""Seeds that have nothing to do with each other."""

import numpy as np
import torch

from clop.errors import UsageError


def mixed(*numbers: int) -> int:
    """A seed of its own for each combination, as of a run's seed and a purpose."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """NumPy's, with a seed drawn from torch's: for laws that torch draws with its global generator alone, as Beta's."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))


def check_seed(seed: int) -> None:
    """A :class:`UsageError` for a seed that torch or NumPy would not take."""
    if not 0 <= seed < 2**63:
        raise UsageError(f"seed must be at least 0 and below 2^63, got {seed}")
