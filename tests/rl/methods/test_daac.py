"""DAAC: two networks that learn in phases of their own, and a head that predicts advantages."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from clop import CLOP
from clop.errors import UsageError
from clop.rl.methods.base import Compose, Method, Phase, View
from clop.rl.methods.clop import Clop
from clop.rl.methods.daac import Daac
from clop.rl.methods.idaac import Idaac
from clop.rl.network import FEATURES, Output


def frames(count, seed=0):
    return torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def phases(learner):
    policy, value = learner.method.phases(learner.config, learner.context())
    return policy, value


def small(make_learner, method, **settings):
    return make_learner(method, **({"num_envs": 2, "num_steps": 2} | settings))


class Watching(Method):
    """Keeps the minibatches of each phase."""

    def __init__(self):
        self.seen = []

    def before_step(self, batches, phase, ctx):
        self.seen.append((phase.name, batches))


def test_each_network_is_clipped_by_its_own_gradient(make_learner, vector):
    """Fails when the gradient of the other network, left from the phase before, counts too."""
    learner = small(make_learner, Daac().build(), max_grad_norm=1e9)
    learner.collect()
    for phase in phases(learner):
        norm = learner._step(torch.arange(4), phase, learner.context())["grad_norm"]
        own = vector(p.grad for p in learner.model.groups()[phase.group]).norm()
        assert norm.item() == pytest.approx(own.item(), rel=1e-4)


def test_the_networks_have_the_published_sizes_and_start(make_learner):
    learner = small(make_learner, Daac().build())
    groups = learner.model.groups()
    sizes = {name: sum(p.numel() for p in group) for name, group in groups.items()}
    assert sizes == {"policy": 626_271, "value": 622_401, "all": 626_271 + 622_401}
    assert learner.model.adv_head.weight.norm().item() == pytest.approx(1, rel=1e-5)
    dense = learner.model.neck.dense.weight.detach()
    torch.testing.assert_close(dense @ dense.T, 2 * torch.eye(256), atol=1e-4, rtol=0)


def test_the_passes_of_an_update_are_those_of_the_paper(make_learner):
    """One epoch of the policy with its entropy, nine of the value, whose coefficient is 1 and not 0.5."""
    learner = small(make_learner, Daac().build())
    policy, value = phases(learner)
    assert policy == Phase("policy", "policy", 1, 1, policy_coef=1, vf_coef=0, ent_coef=0.01, every=1)
    assert value == Phase("value", "value", 9, 1, policy_coef=0, vf_coef=1, ent_coef=0, every=1)
    assert Daac().advantage_coef == 0.25


@pytest.mark.parametrize("which", [0, 1])
def test_a_phase_leaves_the_other_network_alone(make_learner, which, vector):
    learner = small(make_learner, Daac().build())
    learner.collect()
    phase, groups = phases(learner)[which], learner.model.groups()
    ours, other = ("policy", "value")[which], ("value", "policy")[which]
    before = {name: vector(groups[name]) for name in (ours, other)}
    learner._step(torch.arange(4), phase, learner.context())
    assert not torch.equal(vector(groups[ours]), before[ours])
    assert torch.equal(vector(groups[other]), before[other])
    assert all(p.grad is None for p in groups[other])
    assert all(p.grad is not None for p in groups[ours])


def test_the_value_network_is_fitted_every_nth_iteration_from_the_first_on(make_learner, vector):
    learner = small(make_learner, Daac(value_every=4, value_epochs=1).build())
    value, fitted = learner.model.groups()["value"], []
    for k in range(9):
        before = vector(value)
        learner.iterate()
        if not torch.equal(vector(value), before):
            fitted.append(k)
    assert fitted == [0, 4, 8]


def test_the_head_reads_the_features_and_the_stored_action(make_learner):
    learner = small(make_learner, Daac().build())
    head = learner.model.adv_head
    with torch.no_grad():
        head.weight.zero_()
        head.weight[0, FEATURES:] = torch.arange(15.0)
    learner.collect()
    batch = learner.rollout.batch(torch.arange(4)).replace(actions=torch.tensor([3, 0, 14, 7]))
    ((_, output),) = learner.method.views(batch, phases(learner)[0], learner.context())
    assert output.aux["advantage"].tolist() == [3, 0, 14, 7]
    assert output.value is None
    with torch.no_grad():
        head.weight[0, 0] = 1
    ((_, output),) = learner.method.views(batch, phases(learner)[0], learner.context())
    torch.testing.assert_close(output.aux["advantage"], batch.actions + output.features[:, 0])


def test_the_error_of_the_head_is_squared_and_not_halved(make_learner):
    """0.25 (1 + 0 + 4 + 9) / 4."""
    learner = small(make_learner, Daac().build())
    learner.collect()
    batch = learner.rollout.batch(torch.arange(4)).replace(advantages=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    views = [View(1.0, Output(aux={"advantage": torch.tensor([2.0, 2.0, 1.0, 1.0])}))]
    policy, value = phases(learner)
    term, logs = learner.method.penalty(batch, views, policy, learner.context())
    assert term.item() == 0.25 * 14 / 4
    assert logs["advantage_loss"].item() == 14 / 4
    assert learner.method.penalty(batch, views, value, learner.context()) == (None, {})


def test_surrogate_and_head_have_advantages_normalised_over_the_rollout(make_learner):
    """Unbiased standard deviation plus 1e-5, whatever the preset says."""
    watching = Watching()
    method = Compose({"daac": Daac(value_epochs=1).build(), "watching": watching})
    learner = small(make_learner, method, num_minibatches=2, advantage_norm="minibatch", advantage_epsilon=1e-8)
    assert learner.config.advantage_epsilon == 1e-5
    learner.method.begin_iteration(learner.context())
    learner.collect()
    raw = learner.rollout.advantages.flatten().clone()
    learner.update()
    expected = (raw - raw.mean()) / (raw.std() + 1e-5)
    assert [name for name, _ in watching.seen] == ["policy"] * 2 + ["value"] * 2
    for _, batches in watching.seen:
        for batch in batches:
            torch.testing.assert_close(batch.advantages, expected[batch.index])
            torch.testing.assert_close(batch.returns, (raw + learner.rollout.values.flatten())[batch.index])


def test_advantages_come_from_the_value_network_alone(make_learner):
    """Fails when the head enters the estimate."""
    learner = small(make_learner, Daac().build(), gamma=0.9, gae_lambda=0.0)
    with torch.no_grad():
        learner.model.adv_head.weight.fill_(100.0)
        learner.model.value_head.weight.zero_()
        learner.model.value_head.bias.fill_(2.0)
    learner.collect()
    kept = learner.rollout
    alive = 1 - kept.dones.float()
    torch.testing.assert_close(kept.advantages, kept.rewards + 0.9 * alive * 2.0 - 2.0)


# ---- zero, state, combinations -------------------------------------------------------------------------------------


class TwoPhases(Method):
    """DAAC without its head."""

    def configure(self, settings):
        return replace(
            settings,
            network=replace(settings.network, topology="decoupled", dense_init="orthogonal"),
            ppo=replace(settings.ppo, advantage_norm="batch", advantage_std="unbiased", advantage_epsilon=1e-5),
        )

    def phases(self, ppo, ctx):
        return [
            Phase("policy", "policy", 1, ppo.num_minibatches, policy_coef=1.0, vf_coef=0.0, ent_coef=0.01),
            Phase("value", "value", 2, ppo.num_minibatches, policy_coef=0.0, vf_coef=1.0, ent_coef=0.0),
        ]


def test_without_the_head_it_is_decoupled_ppo_bit_for_bit(make_learner):
    base = small(make_learner, TwoPhases(), num_minibatches=2)
    method = small(make_learner, Daac(advantage_coef=0.0, value_epochs=2).build(), num_minibatches=2)
    head = {"adv_head.weight", "adv_head.bias"}
    start = method.model.state_dict()["adv_head.weight"].clone()
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    ours, theirs = method.model.state_dict(), base.model.state_dict()
    assert ours.keys() - theirs.keys() == head
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert torch.equal(ours["adv_head.weight"], start)


def test_with_the_head_it_is_not(make_learner):
    base, method = (small(make_learner, m) for m in (TwoPhases(), Daac(value_epochs=2).build()))
    base.iterate(), method.iterate()
    assert not torch.equal(base.model.neck.dense.weight, method.model.neck.dense.weight)
    assert torch.equal(base.model.critic_neck.dense.weight, method.model.critic_neck.dense.weight)


def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight):
    resumed_as_straight(lambda: Daac(value_epochs=2, value_every=2).build())


def test_with_clop_the_policy_network_alone_reads_permuted_maps(make_learner, sharpen):
    plain = sharpen(small(make_learner, Daac().build()))
    method = Compose({"daac": Daac(value_epochs=1).build(), "clop": Clop(alpha=0.8).build()})
    permuted = sharpen(small(make_learner, method))
    assert [name for name, m in permuted.model.named_modules() if isinstance(m, CLOP)] == ["actor_in"]
    assert permuted.settings.rollout_mode == "train"
    obs, actions = frames(3), torch.tensor([1, 2, 3])
    with torch.no_grad():
        one, other = plain.model(obs, actions=actions), permuted.model(obs, actions=actions)
    assert torch.equal(one.value, other.value)
    assert not torch.allclose(one.logits, other.logits)
    assert not torch.allclose(one.aux["advantage"], other.aux["advantage"])
    permuted.iterate()


def test_a_falling_learning_rate_falls_for_both_networks(make_learner):
    learner = make_learner(Daac(value_epochs=1).build(), num_envs=2, num_steps=2, schedule="linear", total_timesteps=16)
    learner.iterate()
    rates = {name: optimiser.param_groups[0]["lr"] for name, optimiser in learner.optimisers.items()}
    assert {"policy", "value"} <= rates.keys()
    assert rates == pytest.approx(dict.fromkeys(rates, 5e-4 * 0.75))


def test_what_cannot_be_combined_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="idaac is daac with an adversary"):
        Compose({"daac": Daac().build(), "idaac": Idaac().build()})
    with pytest.raises(UsageError, match="daac and mixreg cannot be combined: mixreg normalises advantages after"):
        Compose({"mixreg": Method(), "daac": Daac().build()})


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"value_every": 0}, "at least 1"), ({"policy_epochs": 0}, "at least 1"), ({"advantage_coef": -1}, "negative")],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        Daac(**settings)


def test_the_head_does_not_change_the_start_of_the_other_weights(make_learner):
    base, method = small(make_learner, TwoPhases()), small(make_learner, Daac().build())
    for name, weight in base.model.state_dict().items():
        assert torch.equal(weight, method.model.state_dict()[name]), name
    assert isinstance(method.model.adv_head, nn.Linear)
