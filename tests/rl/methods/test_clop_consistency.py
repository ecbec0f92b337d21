"""CLOP as a question: the policy acts and learns on clean maps, and is asked to say the same on permuted ones."""

import math

import pytest
import torch

from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.losses import policy_divergence
from clop.rl.methods.base import Compose, Phase, Settings, View
from clop.rl.methods.clop import Clop
from clop.rl.methods.clop_auto import ClopAuto
from clop.rl.methods.clop_consistency import ClopConsistency, OnDemand
from clop.rl.methods.daac import Daac
from clop.rl.ppo import build_network
from clop.rl.settings import NetworkConfig

PHASE = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)


def ready(make_learner, sharpen, config, **settings):
    method = config.build()
    learner = sharpen(make_learner(method, num_envs=2, num_steps=2, **settings))
    learner.collect()
    learner.model.train()
    return learner, method, learner.rollout.batch(torch.arange(4))


# ---- the divergence ------------------------------------------------------------------------------------------------


def test_the_divergence_by_hand_with_a_target_that_receives_no_gradient():
    """0.5 ln(0.5 / 0.8) + 0.5 ln(0.5 / 0.2); the other way round 0.8 ln 1.6 + 0.2 ln 0.4. The control stops nothing."""
    target = torch.tensor([[0.5, 0.5]]).log().requires_grad_()
    logits = torch.tensor([[0.8, 0.2]]).log().requires_grad_()
    term = policy_divergence(target, logits)
    assert term.item() == pytest.approx(0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2), rel=1e-6)
    assert term.item() != pytest.approx(0.8 * math.log(1.6) + 0.2 * math.log(0.4), abs=1e-3)
    term.backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.3, -0.3]]))  # q - p
    assert target.grad is None
    (target.softmax(-1) * (target.log_softmax(-1) - logits.log_softmax(-1))).sum().backward()
    assert target.grad.abs().max() > 0.1


def test_policies_that_agree_have_no_divergence_and_more_frames_are_averaged():
    logits = torch.randn(3, 15)
    assert policy_divergence(logits, logits).item() == 0
    one, two = torch.randn(1, 15), torch.randn(1, 15)
    mean = policy_divergence(torch.cat([one, two]), torch.cat([two, one])).item()
    assert mean == pytest.approx((policy_divergence(one, two) + policy_divergence(two, one)).item() / 2, rel=1e-5)


# ---- clean maps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_acting_and_the_pass_of_ppo_are_clean(make_learner, sharpen, mode):
    """The first ratios are 1, which CLOP's are not."""
    learner = sharpen(make_learner(ClopConsistency(alpha=0.8).build(), mode=mode))
    metrics, _ = learner.iterate()
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-8)
    assert metrics["consistency"] > 1e-6
    noisy = sharpen(make_learner(Clop(alpha=0.8).build()))
    assert noisy.iterate()[0]["approx_kl"] > 1e-6


def test_the_layer_is_off_except_for_the_question(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, ClopConsistency(alpha=0.8))
    before = learner.method_rng.get_state()
    views = method.views(batch, PHASE, learner.context())
    assert torch.equal(learner.method_rng.get_state(), before)
    method.penalty(batch, views, PHASE, learner.context())
    assert not torch.equal(learner.method_rng.get_state(), before)
    assert not method.layer.active


# ---- the question --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slot", "passes"), [("actor_in", 1), ("block3", 2), ("block2", 2)])
def test_the_encoder_runs_once_where_it_can(make_learner, sharpen, slot, passes):
    """And the term is the same as with a second pass through the whole network under the same permutation."""
    config = ClopConsistency(coef=0.5, alpha=0.8, slot=slot)
    learner, method, batch = ready(make_learner, sharpen, config)
    calls = []
    learner.model.encoder.register_forward_hook(lambda *_: calls.append(1))
    views = method.views(batch, PHASE, learner.context())
    learner.method_rng.manual_seed(7)
    term, logs = method.penalty(batch, views, PHASE, learner.context())
    assert len(calls) == passes
    learner.method_rng.manual_seed(7)
    with method.layer.on():
        permuted = learner.model(batch.obs)
    expected = policy_divergence(views[0].output.logits, permuted.logits)
    assert term.item() == pytest.approx(0.5 * expected.item(), rel=1e-4)
    assert logs["consistency"].item() == pytest.approx(expected.item(), rel=1e-4)
    assert not torch.allclose(permuted.logits, views[0].output.logits, atol=1e-3)


def test_the_gradient_goes_through_the_permuted_branch_only(make_learner, sharpen, vector):
    """Down to the encoder; the clean policy is a target."""
    learner, method, batch = ready(make_learner, sharpen, ClopConsistency(coef=1.0, alpha=0.8))
    model, parameters = learner.model, [p for n, p in learner.model.named_parameters() if "value" not in n]

    def gradient(stopped):
        model.zero_grad()
        ((_, clean),) = method.views(batch, PHASE, learner.context())
        learner.method_rng.manual_seed(7)
        if stopped is None:
            term = method.penalty(batch, [View(1.0, clean)], PHASE, learner.context())[0]
        else:
            target = clean.logits.detach() if stopped else clean.logits
            with method.layer.on():
                log_probs = model(batch.obs, value=False).logits.log_softmax(-1)
            term = (target.softmax(-1) * (target.log_softmax(-1) - log_probs)).sum(-1).mean()
        term.backward()
        return vector(p.grad for p in parameters)

    ours = gradient(None)
    assert ours.abs().max() > 1e-4
    torch.testing.assert_close(ours, gradient(True), atol=1e-6, rtol=1e-3)
    assert not torch.allclose(ours, gradient(False), atol=1e-6, rtol=1e-3)


def test_a_few_steps_on_the_question_alone_make_the_policies_agree(make_learner, sharpen):
    learner, method, batch = ready(make_learner, sharpen, ClopConsistency(coef=1.0, alpha=0.6))
    optimiser, terms = torch.optim.SGD(learner.model.parameters(), 0.5), []
    for _ in range(12):
        views = method.views(batch, PHASE, learner.context())
        term, _ = method.penalty(batch, views, PHASE, learner.context())
        optimiser.zero_grad()
        term.backward()
        optimiser.step()
        terms.append(term.item())
    assert sum(terms[-3:]) < 0.5 * sum(terms[:3])


# ---- zero, state, combinations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [ClopConsistency(coef=0.0), ClopConsistency(alpha=0.0)], ids=["coef", "alpha"])
def test_at_zero_strength_it_is_ppo_bit_for_bit(make_learner, config, vector):
    settings = {"num_envs": 2, "num_steps": 2, "num_minibatches": 2}
    base, method = make_learner(**settings), make_learner(config.build(), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    assert torch.equal(base.method_rng.get_state(), method.method_rng.get_state())


def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight):
    resumed_as_straight(lambda: ClopConsistency().build())


def test_with_daac_the_question_is_put_in_the_policy_phase(make_learner, sharpen):
    method = Compose({"daac": Daac(value_epochs=1).build(), "clop_consistency": ClopConsistency(alpha=0.8).build()})
    metrics, _ = sharpen(make_learner(method, num_envs=2, num_steps=2)).iterate()
    assert metrics["consistency"] > 0


@pytest.mark.parametrize("other", [Clop(), ClopAuto()], ids=["clop", "clop_auto"])
def test_two_ways_to_use_the_layer_cannot_be_combined(other):
    name = {Clop: "clop", ClopAuto: "clop_auto"}[type(other)]
    for first, second in ((name, "clop_consistency"), ("clop_consistency", name)):
        configs = {name: other, "clop_consistency": ClopConsistency()}
        with pytest.raises(UsageError, match=f"clop_consistency and {name} cannot be combined: .* on clean maps"):
            Compose({key: configs[key].build() for key in (first, second)})


def test_the_layer_goes_where_that_of_clop_goes():
    def places(config, **network):
        method, settings = config.build(), Settings(LevelSet("chaser"), network=NetworkConfig(**network))
        model = build_network(method.configure(settings), method, 0, torch.Generator())
        return {name: layer.clop.alpha for name, layer in model.named_modules() if isinstance(layer, OnDemand)}

    assert places(ClopConsistency()) == {"actor_in": 0.8}
    assert places(ClopConsistency(alpha=0.1), impoola=True) == {"encoder.block2_out": 0.1}
    with pytest.raises(UsageError, match="would do nothing"):
        places(ClopConsistency(slot="actor_in"), impoola=True)


@pytest.mark.parametrize("settings", [{"coef": -1}, {"alpha": 1.5}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(UsageError, match="must"):
        ClopConsistency(**settings)
