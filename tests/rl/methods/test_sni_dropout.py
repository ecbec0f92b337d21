"""Dropout with selective noise injection: a slow mask to act with, and a fast one in half of the policy's loss."""

import pytest
import torch

from clop.errors import UsageError
from clop.rl.methods.base import Compose, Phase
from clop.rl.methods.dropout import Dropout
from clop.rl.methods.ibac_sni import IbacSni
from clop.rl.settings import NetworkConfig

PHASE = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)
SNI = Dropout(p=0.2, style="sni")


def ready(make_learner, sharpen, config=SNI, **settings):
    method = config.build()
    learner = sharpen(make_learner(method, num_envs=2, num_steps=2, **settings))
    method.begin_iteration(learner.context())
    learner.collect()
    learner.model.train()
    return learner, method, learner.rollout.batch(torch.arange(4))


def test_the_slow_mask_acts_and_stays_and_the_fast_one_changes_with_each_step(make_learner):
    method = SNI.build()
    learner = make_learner(method, num_envs=2, num_steps=2, num_minibatches=2)
    seen = {"slow": [], "fast": []}
    for name, masks in seen.items():
        layer = getattr(method.neck, name)
        layer.register_forward_hook(lambda m, *_, masks=masks: masks.append(tuple(m.kept.tolist())))
    for _ in range(2):
        learner.iterate()
    assert len(seen["slow"]) == 2 * (3 + 2)
    assert len(set(seen["slow"][:5])) == len(set(seen["slow"][5:])) == 1
    assert len(set(seen["slow"])) == 2
    assert len(seen["fast"]) == len(set(seen["fast"])) == 4


def test_the_views_are_the_slow_and_the_fast_policy_with_one_value(make_learner, sharpen):
    """The fast mask's, as in the authors' code. Fails if the slow mask's is learnt, or a mixture of both."""
    learner, method, batch = ready(make_learner, sharpen, Dropout(p=0.2, style="sni", lam=0.25))
    method.before_step([batch], PHASE, learner.context())
    (w1, slow), (w2, fast) = method.views(batch, PHASE, learner.context())
    assert (w1, w2) == (0.25, 0.75)
    torch.testing.assert_close(slow.log_prob(batch.actions), batch.log_probs, atol=1e-4, rtol=1e-4)
    assert fast.value is slow.value
    torch.testing.assert_close(fast.value, learner.model.value_head(fast.features).squeeze(-1))
    assert not torch.allclose(fast.value, learner.model.value_head(slow.features).squeeze(-1), atol=1e-3)
    assert not torch.allclose(fast.logits, slow.logits, atol=1e-3)
    dense = learner.model.neck.dense(slow.encoder_map)
    torch.testing.assert_close(fast.features, (dense * method.neck.fast.kept).relu())
    torch.testing.assert_close(slow.features, (dense * method.neck.slow.kept).relu())


def test_values_may_be_learnt_with_the_mask_that_acted(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, Dropout(p=0.2, style="sni", critic="slow"))
    method.before_step([batch], PHASE, learner.context())
    (_, slow), (_, fast) = method.views(batch, PHASE, learner.context())
    assert fast.value is slow.value
    torch.testing.assert_close(slow.value, batch.values, atol=1e-4, rtol=1e-4)


def test_values_have_the_fast_mask_where_no_part_of_the_policy_has_it(make_learner, sharpen):
    """``lam`` is the policy's share alone."""
    learner, method, batch = ready(make_learner, sharpen, Dropout(p=0.2, style="sni", lam=1.0))
    method.before_step([batch], PHASE, learner.context())
    ((weight, view),) = method.views(batch, PHASE, learner.context())
    assert weight == 1
    torch.testing.assert_close(view.log_prob(batch.actions), batch.log_probs, atol=1e-4, rtol=1e-4)
    dense = learner.model.neck.dense(view.encoder_map)
    value = learner.model.value_head((dense * method.neck.fast.kept).relu()).squeeze(-1)
    torch.testing.assert_close(view.value, value)


def test_a_critic_with_a_dense_layer_of_its_own_has_no_mask(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, network=NetworkConfig(topology="split"))
    method.before_step([batch], PHASE, learner.context())
    (_, slow), (_, fast) = method.views(batch, PHASE, learner.context())
    assert fast.value is slow.value
    torch.testing.assert_close(slow.value, batch.values, atol=1e-4, rtol=1e-4)


def test_with_the_slow_mask_alone_the_first_ratios_are_one(make_learner, sharpen):
    for lam, one in ((1.0, True), (0.5, False)):
        learner = sharpen(make_learner(Dropout(p=0.2, style="sni", lam=lam).build(), num_envs=2, num_steps=2))
        assert (learner.iterate()[0]["approx_kl"] < 1e-8) is one


def test_the_encoder_runs_once_and_an_evaluation_drops_nothing(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen)
    calls = []
    learner.model.encoder.register_forward_hook(lambda *_: calls.append(1))
    method.views(batch, PHASE, learner.context())
    assert len(calls) == 1
    output = method.act(batch.obs, "eval", learner.context())
    dense = learner.model.neck.dense(learner.model.eval()(batch.obs).encoder_map)
    torch.testing.assert_close(output.features, dense.relu())


def test_at_rate_zero_it_is_ppo_bit_for_bit(make_learner):
    """From the start: fails when the neck is not drawn in the place of the dense layer."""
    settings = {"num_envs": 2, "num_steps": 2, "mode": "train"}
    base, method = make_learner(**settings), make_learner(Dropout(p=0.0, style="sni").build(), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    for one, other in zip(base.model.parameters(), method.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(base.method_rng.get_state(), method.method_rng.get_state())


def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight):
    resumed_as_straight(lambda: SNI.build())


def test_the_slow_mask_is_part_of_its_state(make_learner):
    one, other = (SNI.build() for _ in range(2))
    for method in (one, other):
        make_learner(method)
    one.neck.slow.redraw(torch.Generator().manual_seed(3))
    other.load(one.state())
    assert torch.equal(one.neck.slow.kept, other.neck.slow.kept)


def test_it_cannot_be_combined_with_another_neck(make_learner):
    with pytest.raises(UsageError, match="both decide the learner's views"):
        Compose({"dropout": SNI.build(), "ibac_sni": IbacSni().build()})
    with pytest.raises(UsageError, match="act in training mode and another in evaluation mode"):
        make_learner(Compose({"dropout": Dropout().build(), "ibac_sni": IbacSni().build()}))


def test_a_share_that_is_none_is_refused():
    with pytest.raises(UsageError, match="share"):
        Dropout(lam=1.5)
