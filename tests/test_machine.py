"""What the package says of the machine it runs on."""

import subprocess
import sys

import numpy as np
import pytest

_SCRIPT = """
import os, sys
import numpy as np
from clop.machine import peak_memory_gb
before = peak_memory_gb()
kept = np.ones(40 * 2**20)  # 0.31 GB
alone = peak_memory_gb() - before
there, here = os.pipe()
go_on, wait = os.pipe()
if os.fork() == 0:
    os.write(here, str(peak_memory_gb() - before).encode())
    os.read(go_on, 1)  # the pages are shared as long as both processes live
    os._exit(0)
other = float(os.read(there, 99))
own = peak_memory_gb() - before
os.write(wait, b"!")
print(alone, own + other)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages are shared")
def test_memory_that_two_processes_share_counts_once():
    """Fails for the resident size, by which the array would count in both, and for the peak that getrusage tells, which
    a new program inherits from the one that started it."""
    larger = np.ones(200 * 2**20)
    ended = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    alone, together = map(float, ended.stdout.split())
    assert alone == pytest.approx(0.3125, abs=0.05)
    assert together < 1.5 * alone
    assert larger[0] == 1
