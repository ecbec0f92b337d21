"""Seeds that have nothing to do with each other."""

import numpy as np


def mixed(*numbers: int) -> int:
    """A seed of its own for each combination, as of a run's seed and a purpose."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
