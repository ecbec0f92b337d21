"""Mixreg: pairs and weights, the mixture by hand, and that advantages are normalised after it."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import special, stats

from clop.errors import UsageError
from clop.rl.methods import compose
from clop.rl.methods.base import Method
from clop.rl.methods.mixreg import Mixreg, draw_pairs, mix_frames, order_pairs
from clop.rl.network import as_input
from clop.rl.rollout import Batch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(*rows):
    """Transitions with one number each: frames are of that brightness, actions and index count."""
    values = torch.tensor(rows)
    count = len(rows)
    return Batch(
        obs=values.to(torch.uint8)[:, None, None, None].expand(count, 64, 64, 3).contiguous(),
        actions=torch.arange(count),
        log_probs=-values,
        values=values + 1,
        returns=values + 2,
        advantages=values + 3,
        dones=torch.zeros(count, dtype=torch.bool),
        level_seeds=torch.arange(count) + 100,
        episode_steps=torch.arange(count),
        index=torch.arange(count) + 50,
        extra={"mark": torch.arange(count) + 7},
    )


# ---- pairs -----------------------------------------------------------------------------------------------------------


def test_the_heavier_of_a_pair_comes_first():
    """Weights 0.9 and 0.2 of places 0 and 1 with partners 2 and 0: 0 outweighs 2, and 0 outweighs 1."""
    dominant, other, weight = order_pairs(torch.tensor([0.9, 0.2, 0.5]), torch.tensor([2, 0, 1]))
    assert dominant.tolist() == [0, 0, 1]
    assert other.tolist() == [2, 1, 2]
    assert weight.tolist() == pytest.approx([0.9, 0.8, 0.5])


@pytest.mark.parametrize(("beta", "mean"), [(0.1, 0.942), (0.2, 0.899), (0.5, 0.818), (1.0, 0.750)])
def test_weights_are_folded_beta_variables(beta, mean):
    """E[max(l, 1 - l)] = 1 - I_0.5(beta + 1, beta), with I the regularised incomplete beta function."""
    count = 40_000
    _, _, weight = draw_pairs(count, beta, generator())
    assert weight.min() >= 0.5
    assert weight.max() <= 1
    exact = 1 - special.betainc(beta + 1, beta, 0.5)
    assert exact == pytest.approx(mean, abs=6e-4)
    assert weight.mean().item() == pytest.approx(exact, abs=6 * weight.std().item() / count**0.5)
    for x in (0.6, 0.8, 0.95):
        share = 2 * special.betainc(beta, beta, x) - 1
        assert stats.binomtest(int((weight < x).sum()), count, share).pvalue > 1e-6


def test_places_are_paired_by_a_permutation_and_dominance_is_none():
    """Of many places about a quarter is dominant twice, and as many never."""
    dominant, other, _ = draw_pairs(2000, 0.2, generator())
    assert torch.cat([dominant, other]).bincount().tolist() == [2] * 2000
    twice = int((dominant.bincount(minlength=2000) == 2).sum())
    assert stats.binomtest(twice, 2000, 0.25).pvalue > 1e-6


def test_chance_comes_from_the_learner_and_not_from_numpy(make_learner):
    learner = make_learner(compose({"mixreg": Mixreg()}), small=True)
    before, ours = np.random.get_state()[1].copy(), learner.method_rng.get_state()  # noqa: NPY002
    learner.iterate()
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert not torch.equal(learner.method_rng.get_state(), ours)
    for one, other in zip(draw_pairs(9, 0.2, generator()), draw_pairs(9, 0.2, generator()), strict=True):
        assert torch.equal(one, other)


# ---- the mixture -----------------------------------------------------------------------------------------------------


def mixed(weight, **settings):
    """Places 0 and 1 mixed with 1 and 0."""
    both = batch(10.0, 20.0)
    return Mixreg(**settings).build().mix(both, both[torch.tensor([1, 0])], torch.tensor(weight))


def test_the_mixture_by_hand():
    """0.75 of 10 and the rest of 20 is 12.5; 0.6 of 20 and the rest of 10 is 16."""
    result = mixed([0.75, 0.6])
    bright = torch.tensor([12.5, 16.0])
    torch.testing.assert_close(result.values, bright + 1)
    torch.testing.assert_close(result.returns, bright + 2)
    torch.testing.assert_close(result.advantages, bright + 3)
    torch.testing.assert_close(result.log_probs, -bright)
    assert result.obs.shape == (2, 3, 64, 64)
    torch.testing.assert_close(result.obs, (bright / 255)[:, None, None, None].expand(2, 3, 64, 64))
    assert result.actions.tolist() == [0, 1]
    assert result.actions.dtype == torch.int64
    assert result.index.tolist() == [50, 51]
    assert result.level_seeds.tolist() == [100, 101]
    assert result.extra["mark"].tolist() == [7, 8]


def test_the_old_log_probability_can_be_that_of_the_heavier_one():
    result = mixed([0.75, 0.6], logp="dominant")
    assert result.log_probs.tolist() == [-10, -20]
    torch.testing.assert_close(result.returns, torch.tensor([14.5, 18.0]))


def test_frames_alone_can_be_mixed():
    result = mixed([0.75, 0.6], mixobs=True)
    for name, value in (("log_probs", -10), ("values", 11), ("returns", 12), ("advantages", 13)):
        assert getattr(result, name)[0] == value
    torch.testing.assert_close(result.obs[0, 0, 0, 0], torch.tensor(12.5 / 255))


def test_frames_can_be_cut_to_bytes():
    """12.5 becomes 12, not 13."""
    result = mixed([0.75, 0.6], truncate=True)
    assert result.obs.dtype == torch.uint8
    assert result.obs[:, 5, 5].tolist() == [[12] * 3, [16] * 3]


def test_a_pair_of_equals_and_a_weight_of_one_change_nothing():
    """Bit for bit: with the identity for a permutation the batch stays what it is, whatever the weights."""
    frames = torch.randint(0, 256, (8, 64, 64, 3), dtype=torch.uint8, generator=generator())
    light, weight = frames.flip(0), torch.linspace(0.5, 1, 8)
    assert torch.equal(mix_frames(frames, frames, weight, False), as_input(frames))
    assert torch.equal(mix_frames(frames, light, torch.ones(8), False), as_input(frames))
    assert torch.equal(mix_frames(frames, frames, weight, True), frames)
    both = batch(*torch.randn(8, generator=generator()).abs().tolist())
    result = Mixreg().build().mix(both, both, weight)
    for name in ("log_probs", "values", "returns", "advantages", "actions"):
        assert torch.equal(getattr(result, name), getattr(both, name))


def test_mixed_frames_have_channels_innermost_like_those_of_the_games():
    frames = torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8, generator=generator())
    result = mix_frames(frames, frames.flip(0), torch.full((4,), 0.7), False)
    assert result.is_contiguous(memory_format=torch.channels_last)
    floats = as_input(frames)
    torch.testing.assert_close(mix_frames(floats, floats.flip(0), torch.full((4,), 0.7), True), result)


# ---- in the learner --------------------------------------------------------------------------------------------------


class Watching(Method):
    def __init__(self):
        self.batches, self.outputs = [], []

    def build(self):
        return self

    def views(self, batch, phase, ctx):
        views = super().views(batch, phase, ctx)
        self.batches.append(batch)
        self.outputs.append(views[0].output)
        return views


def spread_out(learner):
    """Advantages far from mean 0 and standard deviation 1."""
    learner.collect()
    learner.rollout.advantages = torch.randn(learner.rollout.advantages.shape, generator=generator()) * 5 + 3
    return learner


@pytest.mark.parametrize(("norm", "micro_batch"), [*product(["minibatch", "batch"], [64, 16]), ("micro", 64)])
def test_advantages_are_normalised_after_mixing(make_learner, norm, micro_batch):
    """Whatever the preset says. The control: those normalised first have a variance of E[w^2 + (1 - w)^2] < 1."""
    watching = Watching()
    learner = spread_out(
        make_learner(
            compose({"mixreg": Mixreg(), "watching": watching}),
            small=True,
            num_steps=16,
            advantage_norm=norm,
            micro_batch=micro_batch,
        )
    )
    learner.update()
    seen = torch.cat([b.advantages for b in watching.batches])
    assert seen.mean().item() == pytest.approx(0, abs=1e-5)
    assert seen.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    raw = learner.rollout.advantages.flatten()
    first = (raw - raw.mean()) / raw.std(correction=0)
    dominant, other, weight = draw_pairs(64, 0.2, generator())
    assert torch.lerp(first[other], first[dominant], weight).std(correction=0) < 0.97


def test_the_rollout_stays_as_it_is(make_learner):
    learner = make_learner(compose({"mixreg": Mixreg()}), small=True)
    learner.collect()
    before = {name: getattr(learner.rollout, name).clone() for name in ("obs", "returns", "advantages", "log_probs")}
    learner.update()
    for name, column in before.items():
        assert torch.equal(getattr(learner.rollout, name), column)


def test_each_minibatch_is_mixed_anew_with_actions_of_the_heavier_ones(make_learner):
    watching = Watching()
    learner = make_learner(compose({"mixreg": Mixreg(), "watching": watching}), small=True, update_epochs=2)
    learner.iterate()
    one, other = watching.batches
    assert not torch.equal(one.obs[one.index.argsort()], other.obs[other.index.argsort()])
    for seen in (one, other):
        assert torch.equal(seen.actions, learner.rollout.flat(learner.rollout.actions)[seen.index])


@pytest.mark.parametrize("logp", ["mixed", "dominant"])
def test_the_first_ratios_are_those_of_the_mixture(make_learner, sharpen, logp):
    """They are not 1; the old log-probability is interpolated although the action is not."""
    watching = Watching()
    learner = sharpen(make_learner(compose({"mixreg": Mixreg(logp=logp), "watching": watching})), 300)
    metrics, _ = learner.iterate()
    assert metrics["approx_kl"] > 1e-6
    (seen,) = watching.batches
    stored = learner.rollout.flat(learner.rollout.log_probs)[seen.index]
    assert torch.equal(seen.log_probs, stored) is (logp == "dominant")


def test_a_law_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"mixreg\.beta must not be negative, got -0\.1"):
        Mixreg(beta=-0.1)
