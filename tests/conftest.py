"""For all tests: how to compare states; and one thread for each process, since pytest runs two of them, and threads
that wait for a busy core spin."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # also for the processes that tests start

import pytest
import torch

torch.set_num_threads(1)


def assert_same_state(left, right, where="state"):
    """The same to the bit, down to every tensor and name."""
    assert type(left) is type(right), where
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same_state(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for k, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same_state(a, b, f"{where}[{k}]")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    else:
        assert left == right, where


@pytest.fixture(name="assert_same_state")
def _assert_same_state():
    return assert_same_state
