"""For tests that set the number of threads."""

import pytest
import torch


@pytest.fixture
def restored_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
