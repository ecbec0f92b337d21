"""IBAC-SNI: a bottleneck that is noisy for half of the policy's loss, and silent wherever else it is read."""

import math

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from clop.errors import UsageError
from clop.rl.encoders.base import Site
from clop.rl.methods.base import Compose, Method, Phase, View
from clop.rl.methods.clop import Clop
from clop.rl.methods.daac import Daac
from clop.rl.methods.ibac_sni import Bottleneck, IbacSni, information, mixture
from clop.rl.network import FEATURES, Output
from clop.rl.settings import NetworkConfig

PHASE = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)


def frames(count, seed=0):
    return torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def ready(make_learner, sharpen, config, **settings):
    """A learner with opinions that has collected, its method, and a minibatch."""
    method = config.build()
    learner = sharpen(make_learner(method, num_envs=2, num_steps=2, **settings))
    learner.collect()
    learner.model.train()
    return learner, method, learner.rollout.batch(torch.arange(4))


def bottleneck(shape, **network):
    return Bottleneck(Site(shape, NetworkConfig(**network), 15, torch.Generator()))


def spread_gradient(model):
    """The gradient of the part of the dense layer that makes sigma."""
    return model.neck.dense.weight.grad[FEATURES:]


# ---- the mixture ---------------------------------------------------------------------------------------------------

TWO = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]]).log()  # (2 samples, 1 frame, 2 actions)


def test_the_mixture_has_the_log_of_the_mean_probability():
    """ln 0.7. The mean of the logs would be ln sqrt(0.45)."""
    output = mixture(TWO, Output())
    assert output.log_prob(torch.tensor([0])).item() == pytest.approx(math.log(0.7), rel=1e-6)
    assert TWO[:, 0, 0].mean().item() == pytest.approx(math.log(0.45) / 2)
    assert output.log_prob(torch.tensor([0])).item() != pytest.approx(math.log(0.45) / 2, abs=1e-3)


def test_its_entropy_is_the_mean_of_those_of_its_parts():
    """Not that of the mixture, which is larger: it would reward samples that disagree."""
    parts = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.9, 0.5, 0.7)]
    output = mixture(TWO, Output())
    assert output.entropy().item() == pytest.approx((parts[0] + parts[1]) / 2, rel=1e-6)
    assert Output(output.logits).entropy().item() == pytest.approx(parts[2], rel=1e-6)
    assert parts[2] > (parts[0] + parts[1]) / 2 + 0.05


def test_a_mixture_of_one_is_the_plain_policy():
    logits, actions = torch.randn(1, 5, 15), torch.arange(5)
    one, plain = mixture(logits, Output()), Output(logits[0])
    torch.testing.assert_close(one.log_prob(actions), plain.log_prob(actions))
    torch.testing.assert_close(one.entropy(), plain.entropy())


def test_the_mixture_agrees_with_a_library_on_random_numbers():
    logits, actions = torch.randn(12, 6, 15), torch.arange(6)
    ours = mixture(logits, Output())
    each = Categorical(logits=logits)
    torch.testing.assert_close(ours.log_prob(actions), each.log_prob(actions.expand(12, 6)).exp().mean(0).log())
    torch.testing.assert_close(ours.entropy(), each.entropy().mean(0))


# ---- the bottleneck ------------------------------------------------------------------------------------------------


def test_information_is_the_divergence_from_a_standard_normal_in_bits():
    assert information(torch.zeros(3, 4), torch.ones(3, 4)).item() == 0
    assert information(torch.ones(1, 2), torch.ones(1, 2)).item() == pytest.approx(2 * 0.5 / math.log(2))
    mean, sigma = torch.randn(5, 7), torch.rand(5, 7) + 0.01
    divergence = kl_divergence(Normal(mean, sigma), Normal(0.0, 1.0)).sum(-1).mean()
    assert information(mean, sigma).item() == pytest.approx(divergence.item() / math.log(2), rel=1e-5)


def test_the_network_has_the_published_size_and_starts_almost_silent(make_learner):
    learner = make_learner(IbacSni().build())
    assert sum(p.numel() for p in learner.model.parameters()) == 1_150_800
    assert learner.model.policy_head.weight.norm(dim=1).max() < 0.011  # gain 0.01, which the reference loses
    neck = bottleneck((32, 8, 8))
    torch.nn.init.zeros_(neck.dense.weight)
    _, aux = neck(torch.rand(2, 32, 8, 8))
    assert aux["sigma"].mean().item() == pytest.approx(math.log(1 + math.exp(-5)), rel=1e-5)
    assert aux["mean"].shape == aux["sigma"].shape == (2, 256)


def test_the_neck_does_not_change_the_start_of_the_encoder(make_learner, vector):
    """Fails when it is drawn before its place."""
    base, method = make_learner(), make_learner(IbacSni().build())
    assert torch.equal(vector(base.model.encoder.parameters()), vector(method.model.encoder.parameters()))


def test_the_pooled_and_wide_networks_have_a_bottleneck_too():
    neck = bottleneck((64, 8, 8), width=2, impoola=True, dense_init="orthogonal")
    assert neck(torch.rand(3, 64, 8, 8))[0].shape == (3, 256)


@pytest.mark.parametrize("training", [True, False])
def test_acting_and_evaluating_know_no_noise(make_learner, sharpen, training):
    learner, method, batch = ready(make_learner, sharpen, IbacSni())
    before = learner.method_rng.get_state()
    one = method.act(batch.obs, "eval", learner.context())
    two = method.act(batch.obs, "rollout", learner.context())
    assert torch.equal(one.logits, two.logits)
    with torch.no_grad():
        other = learner.model.train(training)(batch.obs)
    torch.testing.assert_close(other.logits, one.logits)
    assert torch.equal(learner.method_rng.get_state(), before)
    torch.testing.assert_close(one.log_prob(batch.actions), batch.log_probs, atol=1e-4, rtol=1e-4)


def test_without_spread_both_views_are_the_same(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, IbacSni())
    with torch.no_grad():
        learner.model.neck.dense.bias[FEATURES:] = -200  # softplus of which is 0
    (w1, still), (w2, noisy) = method.views(batch, PHASE, learner.context())
    assert (w1, w2) == (0.5, 0.5)
    torch.testing.assert_close(noisy.log_prob(batch.actions), still.log_prob(batch.actions))
    torch.testing.assert_close(noisy.entropy(), still.entropy())
    assert noisy.value is still.value
    with torch.no_grad():
        learner.model.neck.dense.bias[FEATURES:] = 5.0
    (_, still), (_, noisy) = method.views(batch, PHASE, learner.context())
    assert not torch.allclose(noisy.log_prob(batch.actions), still.log_prob(batch.actions), atol=1e-3)


def test_the_noisy_view_is_made_of_rectified_draws(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, IbacSni(samples=3))
    learner.method_rng.manual_seed(5)
    _, (_, noisy) = method.views(batch, PHASE, learner.context())
    noise = torch.randn(3, 4, 256, generator=torch.Generator().manual_seed(5))
    mean, sigma = noisy.aux["mean"], noisy.aux["sigma"]
    each = [learner.model.policy_head((mean + sigma * e).relu()).softmax(-1) for e in noise]
    torch.testing.assert_close(noisy.logits.exp(), sum(each) / 3, atol=1e-5, rtol=1e-4)


def test_the_critic_never_moves_the_spread_and_the_noisy_policy_does(make_learner, sharpen):
    """Fails when the value is read from a noisy latent."""
    learner, method, batch = ready(make_learner, sharpen, IbacSni())
    _, (_, noisy) = method.views(batch, PHASE, learner.context())
    noisy.value.sum().backward(retain_graph=True)
    assert learner.model.neck.dense.weight.grad.any()
    assert not spread_gradient(learner.model).any()
    noisy.log_prob(batch.actions).sum().backward()
    assert spread_gradient(learner.model).any()


def test_clop_between_encoder_and_bottleneck_keeps_the_critic_clean(make_learner, sharpen):
    method = Compose({"ibac_sni": IbacSni().build(), "clop": Clop(alpha=0.8, rollout_mode="eval").build()})
    learner = sharpen(make_learner(method, num_envs=2, num_steps=2))
    obs = frames(3)
    with torch.no_grad():
        permuted, clean = learner.model.train()(obs), learner.model.eval()(obs)
    assert torch.equal(permuted.value, clean.value)
    assert not torch.allclose(permuted.aux["mean"], clean.aux["mean"])
    learner.iterate()


# ---- the loss ------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_weighted_sum_of_both_views_and_the_information(make_learner, sharpen):
    config = IbacSni(lam=0.25, beta=0.01, weight_decay=0.0)
    learner, method, batch = ready(make_learner, sharpen, config)
    learner.method_rng.manual_seed(1)
    loss, logs = learner._loss(batch, PHASE, learner.context())
    learner.method_rng.manual_seed(1)
    (_, still), (_, noisy) = method.views(batch, PHASE, learner.context())

    def policy(output):
        ratio = (output.log_prob(batch.actions) - batch.log_probs).exp()
        clipped = torch.minimum(ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages)
        return -clipped.mean() - 0.01 * output.entropy().mean()

    near = batch.values + (still.value - batch.values).clamp(-0.2, 0.2)
    value = 0.5 * torch.maximum((still.value - batch.returns) ** 2, (near - batch.returns) ** 2).mean()
    bits = information(still.aux["mean"], still.aux["sigma"])
    expected = 0.25 * policy(still) + 0.75 * policy(noisy) + 0.5 * value + 0.01 * bits
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert logs["information"].item() == pytest.approx(bits.item(), rel=1e-6)


def test_with_the_whole_loss_silent_the_means_square_stands_for_the_information(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, IbacSni(lam=1.0, beta=0.1, weight_decay=0.0))
    before = learner.method_rng.get_state()
    ((weight, still),) = method.views(batch, PHASE, learner.context())
    assert weight == 1
    assert torch.equal(learner.method_rng.get_state(), before)
    term, logs = method.penalty(batch, [View(1.0, still)], PHASE, learner.context())
    assert term.item() == pytest.approx(0.1 * (still.aux["mean"] ** 2).sum(-1).mean().item(), rel=1e-6)
    assert logs.keys() == {"squared_mean"}
    metrics, _ = learner.iterate()
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-8)


def test_noise_makes_the_first_ratios_of_the_noisy_view_other_than_one(make_learner, sharpen):
    learner, *_ = ready(make_learner, sharpen, IbacSni())
    assert learner.iterate()[0]["approx_kl"] > 1e-8


def test_all_weights_decay_and_biases_do_not(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, IbacSni(beta=0.0, weight_decay=1e-4))
    views = method.views(batch, PHASE, learner.context())
    method.penalty(batch, views, PHASE, learner.context())[0].backward()
    for parameter in learner.model.parameters():
        if parameter.dim() > 1:
            torch.testing.assert_close(parameter.grad, 1e-4 * parameter.detach())
        else:
            assert parameter.grad is None


def test_the_loss_may_be_noisy_altogether(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, IbacSni(lam=0.0))
    ((weight, noisy),) = method.views(batch, PHASE, learner.context())
    assert weight == 1
    assert not torch.equal(noisy.logits, learner.model(batch.obs).logits)
    assert method.penalty(batch, [View(1.0, noisy)], PHASE, learner.context())[0] > 0


# ---- zero, state, refusals -----------------------------------------------------------------------------------------


class OnlyBottleneck(Method):
    """Plain PPO on the network of IBAC-SNI."""

    def fill(self, slots, settings):
        slots.put("neck", Bottleneck)


def test_at_zero_strength_it_is_ppo_on_its_network_bit_for_bit(make_learner, vector):
    settings = {"num_envs": 2, "num_minibatches": 2}
    base = make_learner(OnlyBottleneck(), **settings)
    method = make_learner(IbacSni(lam=1.0, beta=0.0, weight_decay=0.0).build(), **settings)
    for _ in range(2):
        expected, metrics = base.iterate()[0], method.iterate()[0]
        assert {name: metrics[name] for name in expected} == expected
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    assert torch.equal(base.method_rng.get_state(), method.method_rng.get_state())


def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight):
    resumed_as_straight(lambda: IbacSni().build())


def test_it_does_not_act_in_training_mode(make_learner):
    method = Compose({"clop": Clop().build(), "ibac_sni": IbacSni().build()})
    with pytest.raises(UsageError, match="cannot be combined"):
        make_learner(method)


def test_what_cannot_be_combined_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="a weight decay of its own"):
        Compose({"weight_decay": Method(), "ibac_sni": IbacSni().build()})
    with pytest.raises(UsageError, match="both decide the learner's views"):
        Compose({"daac": Daac().build(), "ibac_sni": IbacSni().build()})


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"beta": -1}, "beta"), ({"lam": 1.5}, "share"), ({"samples": 0}, "at least 1"), ({"weight_decay": -1}, "decay")],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        IbacSni(**settings)
