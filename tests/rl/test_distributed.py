"""Two processes that learn together do what one would do with all their transitions.

Run as a script, this file starts those processes.
"""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from clop import shared_mean
from clop.distributed import Workers, run_together
from clop.errors import UsageError
from clop.rl.methods.base import Method, Phase
from clop.rl.reward_norm import RewardNormaliser
from clop.rl.settings import NetworkConfig

STEPS, ENVS = 4, 4  # of both processes together
SHIFT = 5.0  # how much larger the second's advantages are
SETTINGS = {"num_steps": STEPS, "max_grad_norm": 1e9, "micro_batch": 4, "network": NetworkConfig(norm="none")}
PHASE = Phase("ppo", "all", 1, 1, policy_coef=1.0, vf_coef=0.5, ent_coef=0.01)


class Watching(Method):
    """Keeps the advantages that the forward passes see."""

    def __init__(self):
        self.advantages = []

    def views(self, batch, phase, ctx):
        self.advantages.append(batch.advantages)
        return super().views(batch, phase, ctx)


def fill(learner, envs):
    """The columns of these envs out of a rollout that is the same in all processes."""
    generator, kept = torch.Generator().manual_seed(0), learner.rollout
    kept.obs.copy_(
        torch.randint(0, 256, (STEPS, ENVS, 64, 64, 3), generator=generator, dtype=torch.uint8)[:, envs],
    )
    kept.actions.copy_(torch.randint(0, 15, (STEPS, ENVS), generator=generator)[:, envs])
    for name in ("log_probs", "values", "returns", "advantages"):
        getattr(kept, name).copy_(torch.randn(STEPS, ENVS, generator=generator)[:, envs])
    kept.log_probs.sub_(3)
    kept.advantages.add_(SHIFT * (torch.arange(ENVS)[envs] >= ENVS // 2))


def flat_gradient(learner):
    return torch.cat([p.grad.flatten() for p in learner.model.parameters()])


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.model.parameters()])


def one_step(make_learner, noise_games, envs, **settings):
    """The gradient of one step on these envs, the advantages it saw and the weights it left."""
    method = Watching()
    learner = make_learner(method, noise_games(len(envs)), num_envs=ENVS, **(SETTINGS | settings))
    fill(learner, envs)
    learner._step(torch.arange(len(learner.rollout)), PHASE, learner.context())
    return {
        "gradient": flat_gradient(learner),
        "advantages": torch.cat(method.advantages).view(STEPS, len(envs)),
        "weights": weights(learner),
    }


def normalised_rewards(envs):
    """Two rollouts of these envs, whose rewards differ between the envs, and the moments they leave."""
    generator = torch.Generator().manual_seed(1)
    rewards = torch.rand(2, STEPS, ENVS, generator=generator, dtype=torch.float64) * torch.arange(1, ENVS + 1) ** 2
    dones = torch.rand(2, STEPS, ENVS, generator=generator) < 0.3
    normaliser = RewardNormaliser(len(envs))
    scaled = [normaliser(r[:, envs].numpy(), d[:, envs].numpy()) for r, d in zip(rewards, dones, strict=True)]
    return {
        "rewards": torch.stack([torch.from_numpy(part) for part in scaled]),
        "moments": [normaliser.mean, normaliser.variance, normaliser.count],
    }


def whole_rollout_normalised(make_learner, noise_games, envs):
    """The advantages of these envs as an update sees them that normalises over the rollout."""
    settings = SETTINGS | {"advantage_norm": "batch", "advantage_std": "unbiased"}
    learner = make_learner(games=noise_games(len(envs)), num_envs=ENVS, **settings)
    fill(learner, envs)
    learner.update()
    return learner.rollout.advantages


def whole_iterations(make_learner, noise_games, rank):
    """Two iterations with games of one's own, in training mode with batch norm."""
    settings = {"num_envs": ENVS, "num_steps": STEPS, "num_minibatches": 2, "mode": "train"}
    learner = make_learner(games=noise_games(ENVS // 2, seed=rank), network=NetworkConfig(norm="block"), **settings)
    start = weights(learner)
    for _ in range(2):
        metrics, _ = learner.iterate()
    return {
        "metrics": metrics,
        "start": start,
        "end": weights(learner),
        "buffers": [buffer.clone() for buffer in learner.model.buffers()],
        "frames": learner.rollout.obs.clone(),
        "actions": learner.rollout.actions.clone(),
        "env_steps": learner.env_steps,
    }


def gradient_means(workers):
    """Of noise in three parameters, one of them channels-last: through shared memory, by gloo, and by gloo because the
    first process has no memory to share, or the second cannot open it."""
    generator = torch.Generator().manual_seed(workers.rank)
    shapes = [(5, 3, 3, 3), (1000,), (64, 65)]  # an odd number in all, which two processes cannot halve
    noise = [torch.randn(shape, generator=generator) * 10.0**scale for scale, shape in enumerate(shapes)]
    noise[0] = noise[0].contiguous(memory_format=torch.channels_last)

    def mean():
        parameters = [nn.Parameter(torch.zeros_like(part)) for part in noise]
        for parameter, part in zip(parameters, noise, strict=True):
            parameter.grad = part.clone()
        one = Workers()
        for group in (parameters, parameters[:1], parameters):  # of a mean that is everywhere already it is the same
            one.average_gradients(group)
        return [parameter.grad for parameter in parameters], set(map(type, one._shared.values()))

    def broken(*_, **__):
        raise OSError("no memory")

    expected = [workers.sum(part.clone(memory_format=torch.contiguous_format)) / workers.size for part in noise]
    means, ways = {"gloo": expected}, {}
    means["shared"], ways["shared"] = mean()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "memfd_create", broken)
        means["none"], ways["none"] = mean()
    with pytest.MonkeyPatch.context() as patch:
        if workers.rank == 1:
            patch.setattr(torch, "from_file", broken)
        means["unseen"], ways["unseen"] = mean()
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return {
        "means": means,
        "ways": {name: [kind.__name__ for kind in kinds] for name, kinds in ways.items()},
        "open": [link for link in links if "clop-gradients" in link],
    }


def process(folder):
    from conftest import NoiseGames, make_learner  # found beside this file when it is run as a script

    torch.set_num_threads(1)
    workers = Workers()
    parameter, frozen = nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(1))
    parameter.grad = torch.arange(6.0).view(3, 2).T * (1 + workers.rank)  # not contiguous, as channels-last is not
    workers.average_gradients([parameter, frozen])
    double = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    double.grad = torch.full((1,), (1 + workers.rank) / 3, dtype=torch.float64)
    workers.average_gradients([double])
    norm = nn.BatchNorm2d(2)
    norm.running_mean.fill_(1.0 + workers.rank)
    norm.running_var.fill_(3.0 + 3 * workers.rank)
    workers.average_statistics(norm)
    half = range(ENVS // 2 * workers.rank, ENVS // 2 * (workers.rank + 1))
    result = {
        "rank": workers.rank,
        "size": workers.size,
        "is_first": workers.is_first,
        "share": workers.share(64),
        "sum": workers.sum(torch.tensor([1.0, 10.0]) * (workers.rank + 1)),
        "mean gradient": parameter.grad,
        "mean of doubles": double.grad,
        "gradient means": gradient_means(workers),
        "no gradient": frozen.grad,
        "statistics": [norm.running_mean, norm.running_var],
        "mean": workers.mean({"one": workers.rank, "two": 4.0 * workers.rank}),
        "gathered": workers.gather({"rank": workers.rank}),
        "told": workers.broadcast({"rank": workers.rank}),
        "step": one_step(make_learner, NoiseGames, list(half)),
        "added": one_step(make_learner, NoiseGames, list(half), accumulate="sum")["gradient"],
        "micro": one_step(make_learner, NoiseGames, list(half), advantage_norm="micro")["advantages"],
        "normalised rewards": normalised_rewards(list(half)),
        "over the rollout": whole_rollout_normalised(make_learner, NoiseGames, list(half)),
        "iterations": whole_iterations(make_learner, NoiseGames, workers.rank),
    }
    result["compiler"] = "torch._dynamo" in sys.modules
    torch.save(result, f"{folder}/{workers.rank}.pt")
    return workers.rank


def fail(which, folder):
    """The process of this rank fails; the others wait for it."""
    workers = Workers()
    Path(folder, str(workers.rank)).write_text(str(os.getpid()))
    workers.broadcast(0)  # all are there
    if workers.rank == which:
        raise UsageError("this one had enough")
    workers.broadcast(1)


def die(which):
    """The process of this rank is killed between two steps; the others are about to average gradients."""
    workers, parameter = Workers(), nn.Parameter(torch.zeros(3))
    for step in range(2):
        if (workers.rank, step) == (which, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        parameter.grad = torch.ones(3)
        workers.average_gradients([parameter])


def mistake():
    """The second process fails by a mistake of ours."""
    workers = Workers()
    if not workers.is_first:
        raise ValueError("shapes do not fit")
    workers.broadcast(0)
    workers.gather(0)


def differ():
    """The processes have gradients of different parameters."""
    workers = Workers()
    parameter = nn.Parameter(torch.zeros(3 + workers.rank))
    parameter.grad = torch.ones_like(parameter)
    workers.average_gradients([parameter])


def run_script(*arguments):
    return subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("workers")
    ended = run_script("process", folder)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr  # the result of the first process
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("which", [0, 1], ids=["first", "other"])
def test_processes_end_together_and_the_first_says_why(tmp_path, which):
    """Fails when a process outlives the run, when both print a stack trace for one mistake, and when all that is said
    of a mistake in the other process is that it is gone."""
    ended = run_script("fail", tmp_path, which)
    assert ended.returncode == 1
    assert ended.stderr.endswith("clop.errors.UsageError: this one had enough\n")
    assert ended.stderr.count('raise UsageError("this one') == 1 - which  # of the other its sentence is enough
    for name in ("0", "1"):
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / name).read_text()), 0)


def test_two_processes_know_who_they_are(both):
    assert [(one["rank"], one["size"], one["is_first"], one["share"]) for one in both] == [
        (0, 2, True, 32),
        (1, 2, False, 32),
    ]


def test_sums_are_over_both_processes_and_the_same_in_each(both):
    for one in both:
        assert one["sum"].tolist() == [3.0, 30.0]


def test_gradients_become_their_mean_whatever_their_memory_format(both):
    for one in both:
        assert torch.equal(one["mean gradient"], torch.arange(6.0).view(3, 2).T * 1.5)
        assert one["no gradient"] is None


def test_gradients_in_float64_are_not_rounded_on_their_way(both):
    for one in both:
        assert one["mean of doubles"].tolist() == [(1 / 3 + 2 / 3) / 2]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
def test_means_through_shared_memory_are_those_of_gloo_to_the_bit(both):
    """Fails when a process adds before the other has written, when parts overlap or a number is left out, when groups
    of parameters share memory that fits one of them, and when one process goes by shared memory while the other waits
    for gloo."""
    for one in both:
        found = one["gradient means"]
        assert found["ways"] == {"shared": ["SharedMean"], "none": ["NoneType"], "unseen": ["NoneType"]}
        for name in ("shared", "none", "unseen"):
            for mean, expected in zip(found["means"][name], found["means"]["gloo"], strict=True):
                assert torch.equal(mean, expected), name
        assert found["open"] == [], "the memory would outlive the run"
    halves = [one["gradient means"]["means"]["shared"][1] for one in both]
    assert torch.equal(*halves)
    assert halves[0].abs().max() > 1


def test_a_killed_process_ends_the_first_which_does_not_wait_for_it(tmp_path):
    """Fails when memory is shared without a meeting that notices who is gone."""
    ended = run_script("die", tmp_path, 1)
    assert ended.returncode == 1
    assert "UsageError: another process of the run has died" in ended.stderr


def test_a_mistake_of_ours_in_another_process_is_shown_with_its_trace(tmp_path):
    ended = run_script("mistake", tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.count("in mistake") == 1
    assert ended.stderr.endswith(
        "clop.errors.UsageError: another process of the run failed: ValueError: shapes do not fit\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
def test_processes_that_have_gradients_of_different_parameters_end(tmp_path):
    """Fails when numbers of other parameters are averaged without a word, or the processes wait for each other."""
    ended = run_script("differ", tmp_path)
    assert ended.returncode == 1
    assert "gradients of different parameters" in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux")
def test_only_the_first_process_own_memory_is_taken(tmp_path):
    """Another machine may have something else at the same path: another run's memory, or a pipe, which must neither
    be waited for nor read empty."""
    token, file, pipe = b"k" * 16, tmp_path / "file", tmp_path / "pipe"
    file.write_bytes(token + torch.arange(3.0).numpy().tobytes())
    memory = shared_mean._open(str(file), token, 7)
    assert memory is not None
    assert memory[4:].tolist() == [0, 1, 2]
    assert shared_mean._open(str(file), b"n" * 16, 7) is None
    assert shared_mean._open(str(tmp_path / "nothing"), token, 7) is None
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # of both ends, so that nobody waits
    try:
        os.write(end, token)
        assert shared_mean._open(str(pipe), token, 7) is None
        assert os.read(end, 99) == token
    finally:
        os.close(end)


def test_what_is_logged_is_the_mean_over_both_processes(both):
    """Fails when a run logs the losses of its first process alone, whose share of the minibatch has another mean."""
    for one in both:
        assert one["mean"] == {"one": 0.5, "two": 2.0}
    one, other = (result["iterations"]["metrics"] for result in both)
    assert one == other


def test_values_are_gathered_in_the_first_and_told_by_it(both):
    assert [one["gathered"] for one in both] == [[{"rank": 0}, {"rank": 1}], []]
    assert [one["told"] for one in both] == [{"rank": 0}] * 2


def test_two_processes_have_the_gradient_of_one_with_all_transitions(both, make_learner, noise_games):
    """Fails when gradients are added, or advantages normalised in each process by itself (see the control)."""
    union = one_step(make_learner, noise_games, list(range(ENVS)))
    for one in both:
        torch.testing.assert_close(one["step"]["gradient"], union["gradient"], atol=2e-6, rtol=1e-4)
        torch.testing.assert_close(one["step"]["weights"], union["weights"], atol=1e-6, rtol=1e-4)
    assert torch.equal(both[0]["step"]["gradient"], both[1]["step"]["gradient"])


def test_losses_that_are_added_are_as_many_in_two_processes_as_in_one(both, make_learner, noise_games):
    """Four micro-batches are added, two in each process. Fails when the mean over the processes halves their sum, as it
    does for mean losses, and gradients are clipped later than in the authors' code."""
    union = one_step(make_learner, noise_games, list(range(ENVS)), accumulate="sum")["gradient"]
    for one in both:
        torch.testing.assert_close(one["added"], union, atol=1e-5, rtol=1e-4)
        assert one["added"].norm() == pytest.approx(4 * one["step"]["gradient"].norm().item(), rel=1e-4)


def test_processes_that_normalise_advantages_alone_would_have_another_gradient(both, make_learner, noise_games):
    """The control: the mean of the gradients of two learners that know nothing of each other."""
    halves = [one_step(make_learner, noise_games, envs) for envs in ([0, 1], [2, 3])]
    alone = sum(half["gradient"] for half in halves) / 2
    together = both[0]["step"]["gradient"]
    assert (alone - together).norm() > 0.05 * together.norm()


def test_advantages_are_normalised_over_both_processes(both, make_learner, noise_games):
    seen = torch.cat([one["step"]["advantages"] for one in both], 1)  # (T, E)
    assert seen.mean().item() == pytest.approx(0, abs=1e-5)
    assert seen.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert both[1]["step"]["advantages"].mean() > 0.5  # the second's are larger by the shift
    torch.testing.assert_close(seen, one_step(make_learner, noise_games, list(range(ENVS)))["advantages"])


def test_advantages_of_a_micro_batch_are_those_of_one_process(both):
    """As each worker of OpenAI's code has it; fails when micro-batches of two processes are normalised together."""
    for one in both:
        parts = one["micro"].flatten().split(SETTINGS["micro_batch"])
        assert [part.mean().item() for part in parts] == pytest.approx([0, 0], abs=1e-5)
        assert [part.std(correction=0).item() for part in parts] == pytest.approx([1, 1], abs=1e-5)


def test_advantages_of_a_whole_rollout_are_normalised_over_both_processes(both, make_learner, noise_games):
    """As DAAC, IDAAC and the authors' presets do. Fails when each process takes its own mean."""
    seen = torch.cat([one["over the rollout"] for one in both], 1)  # (T, E)
    assert both[1]["over the rollout"].mean() > 0.5
    torch.testing.assert_close(seen, whole_rollout_normalised(make_learner, noise_games, list(range(ENVS))))


def test_rewards_are_divided_by_the_deviation_of_both_processes(both):
    """One critic learns from all of them; fails when each process has a scale of its own."""
    union = normalised_rewards(list(range(ENVS)))
    for one in both:
        assert one["normalised rewards"]["moments"] == pytest.approx(union["moments"], rel=1e-12)
    assert both[0]["normalised rewards"]["moments"] == both[1]["normalised rewards"]["moments"]
    together = torch.cat([one["normalised rewards"]["rewards"] for one in both], -1)
    torch.testing.assert_close(together, union["rewards"])
    alone = normalised_rewards([0, 1])["moments"]
    assert alone[1] < 0.5 * union["moments"][1], "the control: the first process by itself"


def test_processes_play_other_games_and_keep_the_same_weights(both):
    one, other = (result["iterations"] for result in both)
    assert torch.equal(one["start"], other["start"])
    assert torch.equal(one["end"], other["end"])
    assert not torch.equal(one["start"], one["end"])
    assert not torch.equal(one["frames"], other["frames"])
    assert not torch.equal(one["actions"], other["actions"])
    assert one["env_steps"] == other["env_steps"] == 2 * STEPS * ENVS  # counts the steps of both


def test_running_statistics_of_batch_norm_become_their_mean(both):
    """Of 1 and 2, and of 3 and 6; fails when they are added up, or those of the first process are taken."""
    for one in both:
        assert [statistic.tolist() for statistic in one["statistics"]] == [[1.5, 1.5], [4.5, 4.5]]


def test_processes_share_the_running_statistics_of_batch_norm(both):
    one, other = (result["iterations"]["buffers"] for result in both)
    assert len(one) == 9
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_learning_does_not_load_the_compiler(both):
    """It takes 1.5 s at the start of every run. Fails for an optimiser of torch as it comes."""
    assert not any(one["compiler"] for one in both)


@pytest.mark.parametrize(
    ("device", "sentence"),
    [("cuda", "2 processes need as many GPUs, and here are 1"), ("cuda:1", "leave out the number in --device cuda:1")],
)
def test_processes_that_would_share_a_gpu_are_refused(monkeypatch, device, sentence):
    """They would wait for each other for ever."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match=sentence):
        run_together(2, device, lambda: None)


def test_alone_every_operation_gives_back_what_it_was_given():
    workers, tensor = Workers(), torch.tensor([1.0, 2.0])
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = tensor
    workers.average_gradients([parameter])
    assert (workers.size, workers.rank, workers.is_first, workers.share(7)) == (1, 0, True, 7)
    assert workers.sum(tensor) is tensor
    assert parameter.grad is tensor
    assert workers.gather(3) == [3]
    assert workers.broadcast(3) == 3


if __name__ == "__main__":
    what, folder, *which = sys.argv[1:]
    bodies = {
        "process": partial(process, folder),
        "fail": partial(fail, *map(int, which), folder),
        "differ": differ,
        "mistake": mistake,
        "die": partial(die, *map(int, which)),
    }
    print(run_together(2, "cpu", bodies[what]))  # noqa: T201
