"""Rand + FM: one filter for an iteration, features of filtered frames drawn to those of clean ones, and evaluation."""

from itertools import pairwise

import pytest
import torch
from scipy import stats

from clop.errors import UsageError
from clop.rl.methods.base import Method, Phase, View
from clop.rl.methods.rand_fm import RandFm, RandomFilter, convolve, draw_filter, feature_matching, mean_policy
from clop.rl.network import Output, as_input

PHASE = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)


def identity():
    """The filter that changes nothing."""
    weight = torch.zeros(3, 3, 3, 3)
    weight[range(3), range(3), 1, 1] = 1
    return weight


def frames(count, seed=0):
    return torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def logits(*probabilities):
    return torch.tensor([probabilities]).log()


# ---- the filter ----------------------------------------------------------------------------------------------------


def test_weights_follow_xaviers_normal_law():
    """Variance 2 / (27 + 27). Fails for fans that count channels alone (1 / 3), and for He's 2 / 27."""
    weights = torch.stack([draw_filter(3, torch.Generator().manual_seed(k)) for k in range(200)]).double()
    for variance, right in ((2 / 54, True), (2 / 6, False), (2 / 27, False)):
        share = stats.chi2.cdf((weights**2).sum().item() / variance, weights.numel())
        assert bool(1e-6 < share < 1 - 1e-6) is right


def test_a_filter_is_a_convolution_with_zeros_around():
    x, weight = torch.rand(2, 3, 5, 7), torch.randn(3, 3, 3, 3)
    y = convolve(x, weight)
    assert y.shape == x.shape
    assert y[1, 2, 2, 3].item() == pytest.approx((weight[2] * x[1, :, 1:4, 2:5]).sum().item(), rel=1e-4)
    assert y[1, 2, 0, 0].item() == pytest.approx((weight[2, :, 1:, 1:] * x[1, :, :2, :2]).sum().item(), rel=1e-4)
    torch.testing.assert_close(convolve(x, identity()), x)


def test_filter_and_flag_stay_for_an_iteration_and_change_after(make_learner):
    """Rollout, bootstrap frame and all epochs; the clean pass of the penalty has the flag turned."""
    method = RandFm(clean=0.5).build()
    learner = make_learner(method, num_envs=2, num_steps=2, update_epochs=2)
    seen = []
    method.layer.register_forward_hook(lambda layer, *_: seen.append((layer.weight.clone(), layer.on)))
    flags, filters = [], []
    for _ in range(5):
        seen.clear()
        learner.iterate()
        assert len(seen) == 3 + 2 * 2
        flags.append(method.layer.on)
        assert all(torch.equal(weight, seen[0][0]) for weight, _ in seen)
        assert [on is method.layer.on for _, on in seen] == [True] * 3 + [True, False] * 2
        filters.append(seen[0][0])
    assert set(flags) == {True, False}
    assert not any(torch.equal(one, other) for one, other in pairwise(filters))


def test_one_iteration_in_ten_is_clean(make_learner):
    method = RandFm().build()
    ctx = make_learner(method, small=True).context()
    draws, clean = 3000, 0
    for _ in range(draws):
        method.begin_iteration(ctx)
        clean += not method.layer.on
    assert stats.binomtest(clean, draws, 0.1).pvalue > 1e-6
    assert stats.binomtest(draws - clean, draws, 0.1).pvalue < 1e-6


def test_the_filter_is_neither_learnt_nor_shared_between_processes(make_learner):
    """Buffers are averaged over processes, which have filters of their own."""
    method = RandFm().build()
    learner = make_learner(method)
    assert learner.model.encoder.input is method.layer
    assert not list(method.layer.parameters())
    assert not list(method.layer.buffers())
    method.begin_iteration(learner.context())
    assert not method.layer.weight.requires_grad
    assert sum(p.numel() for p in learner.model.parameters()) == 626_256


def test_the_agent_learns_on_what_it_saw(make_learner, sharpen):
    """The rollout keeps raw frames; acting, bootstrap value and update go through the same filter, so ratios are 1."""
    method = RandFm(clean=0.0).build()
    learner = sharpen(make_learner(method))
    metrics, _ = learner.iterate()
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-8)
    assert metrics["filtered"] == 1
    learner.method.begin_iteration(learner.context())
    learner.collect()
    batch = learner.rollout.batch(torch.arange(16))
    assert batch.obs.dtype == torch.uint8
    with torch.no_grad():
        filtered = learner.model.train()(batch.obs)
        clean = learner.model.eval()(batch.obs)
    torch.testing.assert_close(filtered.log_prob(batch.actions), batch.log_probs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(filtered.value, batch.values, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(clean.log_prob(batch.actions), batch.log_probs, atol=1e-3)


# ---- the term ------------------------------------------------------------------------------------------------------


def test_feature_matching_by_hand_with_a_target_that_receives_no_gradient():
    """(1 + 0 + 0 + 16) / 4; the gradient of the filtered ones is 2 (f - c) / 4. The control does not stop it."""
    filtered = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    clean = torch.tensor([[0.0, 2.0], [3.0, 1.0]], requires_grad=True)
    term = feature_matching(filtered, clean)
    assert term.item() == 4.25
    term.backward()
    assert filtered.grad.tolist() == [[0.5, 0], [0, 2]]
    assert clean.grad is None
    ((filtered - clean) ** 2).mean().backward()
    assert clean.grad.any()


@pytest.mark.parametrize("on", [True, False])
def test_the_gradient_of_the_term_goes_through_filtered_frames_only(make_learner, on, vector):
    """In clean iterations too, where the pass of PPO is the target. Fails when a clean branch receives gradient."""
    method = RandFm(beta=1.0).build()
    learner = make_learner(method)
    learner.collect()
    batch, model = learner.rollout.batch(torch.arange(4)), learner.model.train()
    method.layer.weight, method.layer.on = draw_filter(3, torch.Generator().manual_seed(0)), on
    term, _ = method.penalty(batch, method.views(batch, PHASE, learner.context()), PHASE, learner.context())
    term.backward()
    ours = vector(p.grad for p in model.parameters() if p.grad is not None)
    assert method.layer.on is on

    method.layer.on = False
    target = model(batch.obs).features.detach()

    def gradient(stopped):
        model.zero_grad()
        filtered = model(convolve(as_input(batch.obs), method.layer.weight)).features
        other = target if stopped else model(batch.obs).features
        ((filtered - other) ** 2).mean().backward()
        return vector(p.grad for p in model.parameters() if p.grad is not None)

    torch.testing.assert_close(ours, gradient(True), atol=1e-6, rtol=1e-3)
    assert not torch.allclose(ours, gradient(False), atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("on", [True, False])
def test_with_a_filter_that_changes_nothing_the_term_is_zero(make_learner, on):
    method = RandFm().build()
    learner = make_learner(method)
    batch = learner.rollout.batch(torch.arange(4)).replace(obs=frames(4))
    method.layer.weight, method.layer.on = identity(), on
    term, logs = method.penalty(batch, method.views(batch, PHASE, learner.context()), PHASE, learner.context())
    assert term.item() == pytest.approx(0, abs=1e-12)
    assert logs["filtered"] == on
    method.layer.weight = draw_filter(3, torch.Generator().manual_seed(0))
    assert method.penalty(batch, method.views(batch, PHASE, learner.context()), PHASE, learner.context())[0] > 0


# ---- evaluation ----------------------------------------------------------------------------------------------------


def test_a_mean_policy_averages_probabilities_and_not_logits():
    """0.8 and 0.5 make 0.65; their logits' mean would make 0.667."""
    mean = mean_policy([Output(logits(0.8, 0.2), torch.ones(1)), Output(logits(0.5, 0.5), torch.zeros(1))])
    torch.testing.assert_close(mean.logits.exp(), torch.tensor([[0.65, 0.35]]))
    assert mean.value.item() == 0.5
    of_logits = (logits(0.8, 0.2) + logits(0.5, 0.5)).div(2).softmax(-1)
    assert of_logits[0, 0].item() == pytest.approx(2 / 3, abs=1e-3)


def evaluated(make_learner, sharpen, config, seed=3):
    method = config.build()
    learner = sharpen(make_learner(method, num_envs=2, num_steps=2))
    method.layer.weight, method.layer.on = draw_filter(3, torch.Generator().manual_seed(0)), True
    learner.method_rng.manual_seed(seed)
    return learner, method.act(frames(3), "eval", learner.context())


def test_the_monte_carlo_policy_is_the_mean_over_fresh_filters(make_learner, sharpen):
    learner, output = evaluated(make_learner, sharpen, RandFm(samples=3))
    draws = torch.Generator().manual_seed(3)
    with torch.no_grad():
        inputs = [convolve(as_input(frames(3)), draw_filter(3, draws)) for _ in range(3)]
        each = [learner.model.eval()(x).logits.softmax(-1) for x in inputs]
    torch.testing.assert_close(output.logits.exp(), sum(each) / 3, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(output.logits.exp().sum(-1), torch.ones(3))
    assert not torch.allclose(each[0], each[1], atol=1e-3)
    _, other = evaluated(make_learner, sharpen, RandFm(samples=3), seed=4)
    assert not torch.allclose(output.logits, other.logits, atol=1e-3)
    assert RandFm().samples == 10


def test_an_evaluation_may_be_without_a_filter_or_with_the_last_one(make_learner, sharpen):
    learner, clean = evaluated(make_learner, sharpen, RandFm(evaluation="clean"))
    expected = Method().act(frames(3), "eval", learner.context())
    assert torch.equal(clean.logits, expected.logits)
    learner, random = evaluated(make_learner, sharpen, RandFm(evaluation="random"))
    with torch.no_grad():
        through = learner.model.eval()(convolve(as_input(frames(3)), learner.method.layer.weight))
    torch.testing.assert_close(random.logits, through.logits)
    assert not torch.allclose(random.logits, clean.logits, atol=1e-3)
    learner.method.layer.on = False
    assert torch.equal(learner.method.act(frames(3), "eval", learner.context()).logits, clean.logits)


def test_the_layer_alone_does_nothing_in_evaluation_mode():
    layer, x = RandomFilter(), torch.rand(1, 3, 4, 4)
    layer.weight, layer.on = draw_filter(3, torch.Generator().manual_seed(0)), True
    assert layer.eval()(x) is x
    assert layer.train()(x) is not x


def test_a_score_says_how_it_was_evaluated():
    assert RandFm().build().notes() == {"evaluation": "mc with 10"}
    assert RandFm(evaluation="clean").build().notes() == {"evaluation": "clean"}


# ---- zero, state, refusals -----------------------------------------------------------------------------------------


def test_always_clean_and_without_the_term_it_is_ppo_bit_for_bit(make_learner, vector):
    settings = {"mode": "train", "num_envs": 2, "num_minibatches": 2}
    base, method = make_learner(**settings), make_learner(RandFm(beta=0.0, clean=1.0).build(), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    assert torch.equal(base.method_rng.get_state(), method.method_rng.get_state())


def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight):
    resumed_as_straight(lambda: RandFm(clean=0.5).build())


def test_filter_and_flag_are_part_of_the_state():
    """An evaluation of a loaded agent through the last filter needs them."""
    one, other = RandFm().build(), RandFm().build()
    one.layer.weight, one.layer.on = draw_filter(3, torch.Generator().manual_seed(1)), True
    other.load(one.state())
    assert torch.equal(one.layer.weight, other.layer.weight)
    assert other.layer.on


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"beta": -1}, "beta"), ({"clean": 1.5}, "probability"), ({"samples": 0}, "at least 1")],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        RandFm(**settings)


def test_the_term_is_that_of_the_policys_features(make_learner):
    """A pass without a policy has none, and nothing is matched."""
    method = RandFm().build()
    learner = make_learner(method)
    output = learner.model(frames(2), policy=False)
    assert method.penalty(None, [View(1.0, output)], PHASE, learner.context()) == (None, {})
