"""What one step of the learner does with a minibatch."""

import math
from dataclasses import replace

import pytest
import torch

from clop.distributed import Workers
from clop.rl import ppo
from clop.rl.losses import clipped_value_loss
from clop.rl.methods import compose
from clop.rl.methods.base import Method, Phase, View
from clop.rl.methods.clop import Clop


def gradient(learner):
    return torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()])


def test_on_the_first_minibatch_the_policy_is_still_the_one_that_acted(make_learner, sharpen, watching):
    metrics, _ = sharpen(make_learner(watching)).iterate()
    torch.testing.assert_close(watching.ratios, torch.ones(16), atol=1e-5, rtol=0)
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-9)


def test_after_a_step_it_is_another(make_learner, sharpen, watching):
    """The control of the test above: the second epoch's ratios are not 1."""
    metrics, _ = sharpen(make_learner(watching, update_epochs=2)).iterate()
    assert metrics["approx_kl"] > 1e-6


def test_clop_makes_the_first_ratios_other_than_one(make_learner, sharpen):
    """The permutation of the update is not the one that acted."""
    method = compose({"clop": Clop(alpha=0.5)})
    metrics, _ = sharpen(make_learner(method)).iterate()
    assert metrics["approx_kl"] > 1e-6


def fill(learner, seed=0):
    """A rollout with advantages far from mean 0 that differ along it."""
    generator = torch.Generator().manual_seed(seed)
    kept = learner.rollout
    kept.obs.copy_(torch.randint(0, 256, kept.obs.shape, generator=generator, dtype=torch.uint8))
    kept.actions.copy_(torch.randint(0, 15, kept.actions.shape, generator=generator))
    kept.log_probs.fill_(-math.log(15))
    for name in ("values", "returns", "advantages"):
        getattr(kept, name).copy_(torch.randn(kept.values.shape, generator=generator))
    kept.advantages += torch.arange(len(kept)).view_as(kept.advantages)
    return learner


def step(learner, index=None, **coefficients):
    phase = Phase("ppo", "all", 1, 1, **({"policy_coef": 1.0, "vf_coef": 0.5, "ent_coef": 0.01} | coefficients))
    return learner._step(torch.arange(len(learner.rollout)) if index is None else index, phase, learner.context())


@pytest.mark.parametrize("micro_batch", [4, 6, 1])
def test_gradients_over_micro_batches_equal_those_of_the_whole_minibatch(make_learner, micro_batch):
    """6 does not divide 16: the last part is smaller and must weigh less. Fails for a mean of means."""
    whole, parts = (fill(make_learner(micro_batch=size, max_grad_norm=1e9)) for size in (16, micro_batch))
    one, other = step(whole), step(parts)
    torch.testing.assert_close(gradient(parts), gradient(whole), atol=2e-6, rtol=1e-4)
    for name in one:
        assert other[name].item() == pytest.approx(one[name].item(), abs=2e-6, rel=1e-4), name


def test_added_gradients_are_as_many_times_larger_as_there_are_micro_batches(make_learner):
    mean, added = (
        fill(make_learner(micro_batch=4, accumulate=how, max_grad_norm=1e9, num_minibatches=1))
        for how in ("mean", "sum")
    )
    step(mean), step(added)
    torch.testing.assert_close(gradient(added), 4 * gradient(mean), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("micro_batch", [16, 4])
@pytest.mark.parametrize(("std", "correction"), [("population", 0), ("unbiased", 1)])
def test_advantages_are_normalised_over_the_minibatch_of_one_step(make_learner, micro_batch, std, correction, watching):
    learner = fill(make_learner(watching, small=True, num_steps=8, micro_batch=micro_batch, advantage_std=std))
    index = torch.randperm(32, generator=torch.Generator().manual_seed(0))[:16]
    step(learner, index)
    seen = torch.cat([batch.advantages for batch in watching.batches])
    raw = learner.rollout.flat(learner.rollout.advantages)[index]
    torch.testing.assert_close(seen, (raw - raw.mean()) / (raw.std(correction=correction) + 1e-8))
    assert (seen[:4].mean().abs() > 0.05).item()  # not micro-batch by micro-batch


def test_advantages_can_be_normalised_over_each_micro_batch_alone(make_learner, watching):
    """As each worker of OpenAI's code does with its share: the other processes do not count."""

    class Two(Workers):
        size = 2

        def sum(self, value):
            raise AssertionError("asked the other process")

    learner = fill(make_learner(watching, small=True, micro_batch=4, advantage_norm="micro"))
    learner.workers = Two()
    learner.workers.average_gradients = lambda parameters: None
    step(learner)
    raw = learner.rollout.flat(learner.rollout.advantages)
    assert len(watching.batches) == 4
    for batch in watching.batches:
        own = raw[batch.index]
        torch.testing.assert_close(batch.advantages, (own - own.mean()) / (own.std(correction=0) + 1e-8))


def test_advantages_can_be_normalised_over_the_rollout(make_learner, watching):
    learner = fill(make_learner(watching, small=True, num_minibatches=4, advantage_norm="batch"))
    raw = learner.rollout.advantages.clone()
    learner.update()
    normalised = (raw - raw.mean()) / (raw.std(correction=0) + 1e-8)
    index = torch.cat([batch.index for batch in watching.batches])
    torch.testing.assert_close(torch.cat([b.advantages for b in watching.batches]), normalised.flatten()[index])
    assert any(batch.advantages.mean().abs() > 0.05 for batch in watching.batches)


def test_returns_are_made_of_raw_advantages(make_learner, watching):
    learner = make_learner(watching, small=True)
    learner.iterate()
    kept = learner.rollout
    torch.testing.assert_close(kept.returns, kept.advantages + kept.values)
    torch.testing.assert_close(kept.returns[-1], kept.rewards[-1])  # since all values are still 0, those to come too
    torch.testing.assert_close(watching.batches[0].returns, kept.flat(kept.returns)[watching.batches[0].index])


def test_the_loss_is_the_sum_of_its_terms_with_their_coefficients(make_learner):
    """Policy + 0.5 value - 0.01 entropy; a wrong sign of the entropy moves the loss by 0.054."""
    learner = fill(make_learner(small=True))
    batch = learner.rollout.batch(torch.arange(16))
    loss, logs = learner._loss(batch, Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01), learner.context())
    # The small network starts with equal logits and values of zero.
    assert logs["policy_loss"].item() == pytest.approx(-batch.advantages.mean().item(), rel=1e-5)
    value_loss = clipped_value_loss(torch.zeros(16), batch.values, batch.returns, 0.2)
    assert logs["value_loss"].item() == pytest.approx(value_loss.item())
    assert logs["entropy"].item() == pytest.approx(math.log(15))
    expected = -batch.advantages.mean() + 0.5 * value_loss - 0.01 * math.log(15)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_value_may_change_as_it_likes_if_asked_to(make_learner):
    """Half the squared error then, which is 0; clipped, the value is taken for -0.8."""
    learner = fill(make_learner(small=True))
    batch = learner.rollout.batch(torch.arange(16))
    batch = batch.replace(values=torch.full((16,), -1.0), returns=torch.zeros(16))  # as the network now says
    phase = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)
    for clipped, expected in ((True, 0.5 * 0.8**2), (False, 0.0)):
        learner.config = replace(learner.config, clip_vloss=clipped)
        assert learner._loss(batch, phase, learner.context())[1]["value_loss"].item() == pytest.approx(expected)


def test_what_is_logged_of_the_ratios_follows_its_definition(make_learner):
    """Four of sixteen ratios are 1.5: clipped are a quarter, and the divergence is the mean of r - 1 - log r."""
    learner = fill(make_learner(small=True))
    learner.rollout.log_probs[0] -= math.log(1.5)
    logs = step(learner)
    assert logs["clip_fraction"].item() == pytest.approx(0.25)
    assert logs["approx_kl"].item() == pytest.approx(0.25 * (0.5 - math.log(1.5)), rel=1e-4)


@pytest.mark.parametrize(("factor", "explained"), [(1, 1), (0, 0), (-1, -3)])
def test_the_explained_variance_is_that_of_returns_by_values(make_learner, factor, explained):
    kept = fill(make_learner(small=True)).rollout
    kept.values.copy_(factor * kept.returns)
    assert ppo._explained_variance(kept) == pytest.approx(explained, abs=1e-5)


def test_views_are_averaged_with_their_weights_and_penalties_added(make_learner):
    class Twice(Method):
        def views(self, batch, phase, ctx):
            return [View(0.25, ctx.model(batch.obs)), View(0.75, ctx.model(255 - batch.obs))]

        def penalty(self, batch, views, phase, ctx):
            assert [weight for weight, _ in views] == [0.25, 0.75]
            return torch.tensor(3.0), {"three": torch.tensor(3.0)}

    plain, twice = fill(make_learner()), fill(make_learner(Twice()))
    batch = plain.rollout.batch(torch.arange(16))
    phase = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)
    left, right = (
        plain._loss(b, phase, plain.context())[0].item() for b in (batch, batch.replace(obs=255 - batch.obs))
    )
    loss, logs = twice._loss(batch, phase, twice.context())
    assert loss.item() == pytest.approx(0.25 * left + 0.75 * right + 3, rel=1e-5)
    assert logs["three"] == 3


@pytest.mark.parametrize(
    ("coefficients", "absent", "asked"),
    [
        ({"ent_coef": 0.0}, set(), (True, True)),  # how undecided the policy is remains to be seen
        ({"vf_coef": 0.0}, {"value_loss"}, (True, False)),
        ({"policy_coef": 0.0}, {"policy_loss", "approx_kl", "clip_fraction"}, (True, True)),
        (
            {"policy_coef": 0.0, "ent_coef": 0.0},
            {"policy_loss", "approx_kl", "clip_fraction", "entropy"},
            (False, True),
        ),
    ],
)
def test_terms_with_coefficient_zero_are_not_computed(make_learner, coefficients, absent, asked):
    calls = []
    learner = fill(make_learner(small=True))
    learner.model.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append((kwargs["policy"], kwargs["value"])), with_kwargs=True
    )
    logs = step(learner, **coefficients)
    everything = {"policy_loss", "approx_kl", "clip_fraction", "value_loss", "entropy", "grad_norm"}
    assert logs.keys() == everything - absent
    assert calls == [asked]


def test_the_gradient_is_clipped_as_a_whole_and_its_length_before_is_logged(make_learner):
    free, bound = (fill(make_learner(max_grad_norm=limit)) for limit in (1e9, 1e-3))
    before, logged = step(free), step(bound)["grad_norm"]
    assert logged.item() == pytest.approx(before["grad_norm"].item())
    assert gradient(bound).norm().item() == pytest.approx(1e-3, rel=1e-3)
    torch.testing.assert_close(gradient(bound), gradient(free) * (1e-3 / logged), atol=1e-9, rtol=1e-3)
