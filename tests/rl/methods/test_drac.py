"""DrAC: the penalty by hand, who receives its gradient, and what stays clean."""

import math

import pytest
import torch

from clop.augment import AUGMENTATIONS, augmentation
from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.games import GAMES
from clop.rl.methods import compose
from clop.rl.methods.base import Phase, Settings
from clop.rl.methods.drac import Drac, disagreement, policy_distance, value_distance
from clop.rl.network import Output, slots_of

PHASE = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)
LN2, LN3 = math.log(2), math.log(3)


def log(*rows):
    return torch.tensor(rows).log()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gradient(learner):
    return torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()])


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_the_divergence_of_two_policies_by_hand():
    """KL((1/2, 1/2) || (1/4, 3/4)) = ln 2 - ln 3 / 2 = 0.1438; of equal ones 0. The reverse would be 0.1308."""
    clean, other = Output(log([0.5, 0.5], [0.2, 0.8])), Output(log([0.25, 0.75], [0.2, 0.8]))
    term = policy_distance(clean, other, "exact", generator())
    assert term.item() == pytest.approx((LN2 - LN3 / 2) / 2, abs=1e-6)
    assert policy_distance(other, clean, "exact", generator()).item() == pytest.approx(0.1308 / 2, abs=1e-4)


def test_the_distance_of_two_values_by_hand():
    """Half of 0.6 ** 2 and of 0.2 ** 2, averaged."""
    clean, other = Output(value=torch.tensor([1.0, 2.0])), Output(value=torch.tensor([0.4, 2.2]))
    assert value_distance(clean, other).item() == pytest.approx((0.18 + 0.02) / 2)


def test_a_sampled_divergence_is_the_exact_one_plus_the_entropy_on_average():
    count = 200_000
    clean, other = (Output(log(p).expand(count, 3)) for p in ([0.5, 0.3, 0.2], [0.2, 0.2, 0.6]))
    exact = policy_distance(clean, other, "exact", generator())
    sampled = policy_distance(clean, other, "sample", generator())
    spread = torch.tensor([0.2, 0.2, 0.6]).log().std().item()
    assert sampled.item() == pytest.approx((exact + clean.entropy().mean()).item(), abs=6 * spread / count**0.5)
    assert abs(sampled - exact) > 0.5


@pytest.mark.parametrize("kl", ["exact", "sample"])
def test_only_the_augmented_side_receives_gradient(kl):
    """The control is the distance without the detached target, in which both sides move."""
    clean = Output(torch.randn(8, 3, requires_grad=True), torch.randn(8, requires_grad=True))
    other = Output(torch.randn(8, 3, requires_grad=True), torch.randn(8, requires_grad=True))
    (policy_distance(clean, other, kl, generator()) + value_distance(clean, other)).backward()
    assert clean.logits.grad is None
    assert clean.value.grad is None
    assert other.logits.grad.abs().sum() > 0
    assert other.value.grad.abs().sum() > 0
    wrong = 0.5 * ((clean.value - other.value) ** 2).mean()
    wrong.backward()
    assert clean.value.grad.abs().sum() > 0


def test_both_divergences_have_the_same_gradient_on_average():
    count = 100_000
    logits = torch.zeros(1, 3, requires_grad=True)
    clean = Output(log([0.5, 0.3, 0.2]).expand(count, 3))
    gradients = []
    for kl in ("exact", "sample"):
        (grad,) = torch.autograd.grad(policy_distance(clean, Output(logits.expand(count, 3)), kl, generator()), logits)
        gradients.append(grad)
    torch.testing.assert_close(*gradients, atol=6 * 0.5 / count**0.5, rtol=0)
    torch.testing.assert_close(gradients[0], torch.tensor([[1 / 3 - 0.5, 1 / 3 - 0.3, 1 / 3 - 0.2]]))


# ---- in the learner --------------------------------------------------------------------------------------------------


def penalty(learner, phase=PHASE):
    """Of the rollout at hand, the clean pass, and the method's names for its parts."""
    batch = learner.rollout.batch(torch.arange(len(learner.rollout)))
    learner.model.train()
    ctx = learner.context()
    views = learner.method.views(batch, phase, ctx)
    term, logs = learner.method.penalty(batch, views, phase, ctx)
    return batch, views, term, logs


@pytest.mark.parametrize("kl", ["exact", "sample"])
def test_an_augmentation_that_changes_nothing_costs_nothing(make_learner, sharpen, kl):
    method = compose({"drac": Drac(kl=kl)})
    learner = sharpen(make_learner(method))
    learner.collect()
    method.methods["drac"].augmentation = augmentation("flip", p=0.0)
    _, _, term, logs = penalty(learner)
    learner.model.zero_grad()
    term.backward()
    assert logs["augmented_value"] == 0
    if kl == "exact":
        assert logs["augmented_policy"].item() == pytest.approx(0, abs=1e-6)
        assert gradient(learner).abs().max() < 1e-6
    else:
        assert gradient(learner).abs().max() > 1e-4  # one sample is noise, not zero


def test_the_penalty_is_its_weight_times_the_sum_of_both_terms(make_learner, sharpen):
    learner = sharpen(make_learner(compose({"drac": Drac(alpha_r=0.25, aug="crop")})))
    learner.collect()
    _, _, term, logs = penalty(learner)
    assert set(logs) == {"augmented_policy", "augmented_value"}
    assert min(logs.values()) > 1e-6
    torch.testing.assert_close(term, 0.25 * (logs["augmented_policy"] + logs["augmented_value"]))


def test_no_gradient_reaches_the_network_through_the_clean_pass(make_learner, sharpen):
    """The gradient is that of a target computed by a network without gradient; with the attached target it is not."""
    gradients = {}
    for name in ("penalty", "target without gradient", "attached"):
        learner = sharpen(make_learner(compose({"drac": Drac(aug="crop")})))
        learner.collect()
        learner.method_rng.manual_seed(3)
        batch = learner.rollout.batch(torch.arange(16))
        with torch.set_grad_enabled(name != "target without gradient"):
            clean = learner.model(batch.obs)
        learner.model.zero_grad()
        if name == "attached":
            frames = augmentation("crop")(batch.obs.permute(0, 3, 1, 2), generator=learner.method_rng)
            other = learner.model(frames.permute(0, 2, 3, 1))
            log_probs = clean.logits.log_softmax(-1)
            kl = (log_probs.exp() * (log_probs - other.logits.log_softmax(-1))).sum(-1).mean()
            (kl + 0.5 * ((clean.value - other.value) ** 2).mean()).backward()
        else:
            terms = disagreement(
                learner.model, batch, clean, learner.method.methods["drac"].augmentation, "exact", learner.method_rng
            )
            sum(terms.values()).backward()
        gradients[name] = gradient(learner)
    assert torch.equal(gradients["penalty"], gradients["target without gradient"])
    assert not torch.allclose(gradients["penalty"], gradients["attached"], atol=1e-4)


def test_one_more_pass_for_each_micro_batch_and_none_while_acting(make_learner):
    passes = []
    learner = make_learner(compose({"drac": Drac()}), micro_batch=8, update_epochs=2, small=True)
    learner.model.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    learner.iterate()
    assert passes == [False] * 5 + [True] * (2 * 2 * 2)


def test_acting_and_the_terms_of_ppo_are_on_clean_frames(make_learner, sharpen, noise_games):
    games = noise_games(4)
    learner = sharpen(make_learner(compose({"drac": Drac(aug="random_conv")}), games))
    metrics, _ = learner.iterate()
    for t, (frames, *_) in enumerate(games.told):
        assert torch.equal(learner.rollout.obs[t], torch.from_numpy(frames.obs))
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-7)
    assert metrics["augmented_policy"] > 1e-5


def test_frames_are_drawn_anew_for_each_pass(make_learner):
    learner = make_learner(compose({"drac": Drac(aug="crop")}), small=True)
    learner.collect()
    seen = []
    learner.model.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    for _ in range(2):
        penalty(learner)
    clean, one, again, other = seen
    assert torch.equal(clean, again)
    assert not torch.equal(one, other)
    assert one.dtype == torch.uint8


def test_a_phase_without_policy_or_value_has_no_such_term(make_learner):
    learner = make_learner(compose({"drac": Drac()}), small=True)
    learner.collect()
    assert set(penalty(learner, Phase("value", "all", 1, 1, 0.0, 1.0, 0.0))[3]) == {"augmented_value"}
    assert set(penalty(learner, Phase("policy", "all", 1, 1, 1.0, 0.0, 0.01))[3]) == {"augmented_policy"}


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_the_augmentation_is_the_authors_best_for_the_game_unless_given(game):
    for config, name in ((Drac(), GAMES[game].best_augmentation), (Drac(aug="rotate"), "rotate")):
        method = config.build()
        method.fill(slots_of("impala"), method.configure(Settings(LevelSet(game))))
        assert isinstance(method.augmentation, AUGMENTATIONS[name])
        assert method.notes() == {"augmentation": name}


def test_a_negative_weight_is_refused():
    with pytest.raises(UsageError, match=r"drac\.alpha_r must not be negative, got -1"):
        Drac(alpha_r=-1)
