"""One thread for each test process: pytest runs two of them, and threads that wait for a busy core spin."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # also for the processes that tests start

import torch

torch.set_num_threads(1)
