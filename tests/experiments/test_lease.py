"""One process at a time writes in a run's folder, and a dead one does not keep it."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from clop.experiments import lease
from clop.experiments.lease import HeldError, Lease


def test_a_second_taker_is_refused_and_learns_who_holds_it(tmp_path):
    Lease.take(tmp_path)
    with pytest.raises(HeldError, match=f"is being written by process {os.getpid()} on "):
        Lease.take(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lease.json"]


def test_a_lease_that_was_given_back_can_be_taken(tmp_path):
    Lease.take(tmp_path).give_back()
    assert not list(tmp_path.iterdir())
    Lease.take(tmp_path).check()


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_at_once(tmp_path):
    """Fails if a killed run could go on only after a minute."""
    code = f"from pathlib import Path; from clop.experiments.lease import Lease; Lease.take(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "lease.json").exists()
    Lease.take(tmp_path).check()


def on_another_machine(path):
    owner = json.loads(path.read_text())
    path.write_text(json.dumps(owner | {"host": "elsewhere", "pid": 1}))


def test_the_lease_of_another_machine_ends_when_it_is_silent_for_long(tmp_path):
    """Fails if its process is looked for here, or if a lease never ends."""
    lost = Lease.take(tmp_path)
    on_another_machine(lost.path)
    with pytest.raises(HeldError, match="on elsewhere"):
        Lease.take(tmp_path)
    past = time.time() - lease.EXPIRES - 5
    os.utime(lost.path, (past, past))
    Lease.take(tmp_path).check()
    with pytest.raises(HeldError, match="lost its folder"):
        lost.check()


def test_one_that_lost_its_lease_does_not_remove_that_of_the_next(tmp_path):
    lost = Lease.take(tmp_path)
    on_another_machine(lost.path)
    os.utime(lost.path, (0, 0))
    found = Lease.take(tmp_path)
    lost.give_back()
    found.check()


def test_a_heartbeat_keeps_it_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT", 0.01)
    held = Lease.take(tmp_path)
    os.utime(held.path, (0, 0))
    with held.beating():
        end = time.monotonic() + 60
        while held.path.stat().st_mtime < 1:
            assert time.monotonic() < end, "it does not beat"
            time.sleep(0.01)
    os.utime(held.path, (0, 0))
    time.sleep(0.1)
    assert held.path.stat().st_mtime == 0, "it beats on after its end"


def _take(folder, start, results, over):
    start.wait()
    try:
        Lease.take(folder)
        results.put("taken")
        over.wait()  # stay alive while the others try
    except HeldError:
        results.put("refused")


@pytest.mark.parametrize("dead", [False, True])
def test_of_many_that_want_a_folder_at_once_one_gets_it(tmp_path, dead):
    """Fails if taking over a dead lease is not atomic."""
    if dead:
        on_another_machine(Lease.take(tmp_path).path)
        os.utime(tmp_path / "lease.json", (0, 0))
    context = multiprocessing.get_context("fork")
    start, results, over = context.Event(), context.Queue(), context.Event()
    takers = [context.Process(target=_take, args=(tmp_path, start, results, over)) for _ in range(8)]
    for taker in takers:
        taker.start()
    start.set()
    outcomes = [results.get(timeout=300) for _ in takers]
    over.set()
    for taker in takers:
        taker.join()
    assert outcomes.count("taken") == 1


def test_a_damaged_lease_ends_too(tmp_path):
    (tmp_path / "lease.json").write_text("{")
    os.utime(tmp_path / "lease.json", (0, 0))
    Lease.take(tmp_path).check()
