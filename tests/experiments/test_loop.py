"""The loop under every run: whatever comes between, the run goes on bit for bit; a state is taken only to be kept."""

import os
import signal
import threading

import pytest
import torch

from clop.errors import DivergedError, UsageError
from clop.experiments import loop
from clop.experiments.loop import run_to_end
from clop.experiments.run_folder import RunFolder, read_checkpoint

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STEPS = 6


class Walk:
    """A random walk: the weight moves in place, by what the generator draws."""

    title, unit, total = "a walk", "steps", STEPS

    def __init__(self, during=None):
        self.weight, self.generator = torch.zeros(3), torch.Generator().manual_seed(0)
        self.done, self.states = 0, 0
        self.during = during or {}
        """What happens in the middle of a step, by its number from 1."""

    @property
    def finished(self):
        return self.done >= STEPS

    def step(self):
        draw = torch.randn(3, generator=self.generator)
        self.during.get(self.done + 1, lambda: None)()
        self.weight += draw
        self.done += 1
        return {"iteration": self.done, "first": self.weight[0].item()}

    def progress(self):
        return {}

    def events(self, row):
        return {"charts/first": row["first"]}

    def state(self):
        self.states += 1
        return {"model": {"weight": self.weight}, "generator": self.generator.get_state(), "iteration": self.done}

    def load(self, state):
        self.weight.copy_(state["model"]["weight"])
        self.generator.set_state(state["generator"])
        self.done = state["iteration"]


def interrupt(number=signal.SIGINT, times=1):
    def send():
        for _ in range(times):
            os.kill(os.getpid(), number)

    return send


@pytest.fixture
def make(tmp_path):
    """A folder for a run; at the end of a test the handlers of signals are those from before."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield lambda name: RunFolder.create(tmp_path / name, "agent", {})
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.fixture
def undisturbed(make):
    walk, folder = Walk(), make("whole")
    run_to_end(walk, folder)
    return walk.state(), folder.metrics()


def last(folder):
    return read_checkpoint(folder.path / "checkpoints" / "last.pt")


def assert_goes_on_as(folder, undisturbed, same):
    walk = Walk()
    run_to_end(walk, folder)
    same((walk.state(), folder.metrics()), undisturbed)


@pytest.mark.parametrize(("seconds", "states"), [(600, 1), (0, STEPS)], ids=["at the end", "after each step"])
def test_a_state_is_taken_only_when_it_is_written(make, seconds, states):
    """Fails if the state of every step is copied or gathered, in case the run is interrupted in the next."""
    walk, folder = Walk(), make("run")
    run_to_end(walk, folder, seconds)
    assert walk.states == states
    assert last(folder)["iteration"] == STEPS


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_lets_the_step_end_and_saves_the_state_after_it(
    make, undisturbed, assert_same_state, number, capsys
):
    """Fails if the state is that of the step before, or of the middle of this one."""
    walk, folder = Walk({3: interrupt(number)}), make("run")
    with pytest.raises(UsageError, match=r"^stopped after 3 steps; go on with: clop train --resume .*run$"):
        run_to_end(walk, folder)
    assert walk.states == 1
    assert "a walk stops after this step; once more to stop at once" in capsys.readouterr().err
    assert_same_state(last(folder), {**walk.state()})
    assert folder.metrics() == undisturbed[1][:3]
    assert_goes_on_as(folder, undisturbed, assert_same_state)


@pytest.mark.parametrize(("seconds", "saved"), [(0, 2), (600, 0)], ids=["with a checkpoint", "with none"])
def test_a_second_interrupt_stops_at_once_and_the_run_goes_on_from_the_last_checkpoint(
    make, undisturbed, assert_same_state, seconds, saved
):
    walk, folder = Walk({3: interrupt(times=2)}), make("run")
    with pytest.raises(
        UsageError, match=rf"^stopped at once; the last checkpoint is after {saved} steps, go on with: clop train"
    ):
        run_to_end(walk, folder, seconds)
    assert walk.done == 2, "the step at hand did not come to its end"
    assert_goes_on_as(folder, undisturbed, assert_same_state)


def test_a_game_that_catches_all_errors_does_not_keep_a_second_interrupt_from_stopping(make):
    def careless():
        try:
            interrupt(times=2)()
        except Exception:
            pytest.fail("the interrupt was taken for an error of the game")

    with pytest.raises(UsageError, match="stopped at once"):
        run_to_end(Walk({3: careless}), make("run"))


def test_a_second_interrupt_does_not_cost_the_checkpoint_that_is_being_written(
    make, undisturbed, assert_same_state, monkeypatch
):
    """Who presses twice, and a system that does. Fails if writing is broken off, which loses up to ten minutes."""
    save, folder = RunFolder.save, make("run")

    def impatient(self, *arguments):
        interrupt()()
        return save(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", impatient)
        with pytest.raises(UsageError, match=r"^stopped after 3 steps"):
            run_to_end(Walk({3: interrupt()}), folder)
    assert last(folder)["iteration"] == 3
    assert_goes_on_as(folder, undisturbed, assert_same_state)


def test_an_interrupt_in_the_last_step_is_no_mistake(make, undisturbed, assert_same_state):
    walk, folder = Walk({STEPS: interrupt()}), make("run")
    run_to_end(walk, folder)
    assert_same_state((walk.state(), folder.metrics()), undisturbed)


def test_an_interrupt_in_the_middle_of_a_line_of_progress_is_heeded(make, monkeypatch):
    """A handler that prints while another line is being printed raises; fails if that ends the run."""

    def reentrant(*_, **__):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(loop, "print", reentrant, raising=False)
    with pytest.raises(UsageError, match="stopped after 3 steps"):
        run_to_end(Walk({3: interrupt()}), make("run"))


def test_a_run_that_diverges_keeps_its_last_checkpoint(make, undisturbed):
    """The state at hand is no longer a number: fails if it is saved over the last one that was."""

    def diverge():
        raise DivergedError("the loss is no longer a number")

    walk, folder = Walk({4: diverge}), make("run")
    with pytest.raises(UsageError, match=r"^the loss is no longer a number; .*run holds the state after 3 steps; try"):
        run_to_end(walk, folder, 0)
    assert last(folder)["iteration"] == 3
    assert walk.states == 3
    assert folder.metrics() == undisturbed[1][:3]


def test_a_mistake_of_ours_is_not_taken_for_one_of_the_user(make):
    def mistake():
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run_to_end(Walk({4: mistake}), make("run"))


def test_outside_the_main_thread_a_run_works_as_well(make, undisturbed, assert_same_state):
    """Python hands signals to the main thread alone, and lets no other set handlers."""
    walk, folder = Walk(), make("run")
    thread = threading.Thread(target=run_to_end, args=(walk, folder))
    thread.start()
    thread.join()
    assert_same_state((walk.state(), folder.metrics()), undisturbed)


def test_other_processes_leave_interrupts_to_the_first(make):
    """torchrun interrupts all of them: fails if one ends before its part of the state is gathered."""
    walk = Walk({3: interrupt(times=2), 4: interrupt(signal.SIGTERM)})
    run_to_end(walk, None)
    assert walk.finished
    assert walk.states == 0
