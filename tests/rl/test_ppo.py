"""The learner: what it stores, what one step does, when each hook is called, and that it learns."""

import ast
import inspect
import io
import math
import re

import numpy as np
import pytest
import torch

from clop.errors import UsageError
from clop.rl import ppo, rollout
from clop.rl.envs import Episodes, Frames, Step, VectorGames, installed_backends
from clop.rl.levels import TrainLevels
from clop.rl.losses import clipped_value_loss
from clop.rl.methods import METHODS, compose
from clop.rl.methods.base import Compose, Method, Phase, Plan
from clop.rl.methods.batch_norm import BatchNorm
from clop.rl.methods.clop import Clop
from clop.rl.methods.dropout import Dropout
from clop.rl.networks import NetworkConfig, as_input
from clop.rl.ppo import DivergedError, PPOConfig
from clop.rl.reward_norm import RewardNormaliser
from clop.rl.workers import Workers

AUTHORS = NetworkConfig(topology="split", norm="block")


def vector(parameters):
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def weights(learner):
    return vector(learner.model.parameters())


def gradient(learner):
    return vector(parameter.grad for parameter in learner.model.parameters())


@pytest.fixture
def assert_same_learners(assert_same_state):
    """Weights, buffers, optimisers, games and generators, bit for bit."""

    def check(one, other):
        left, right = io.BytesIO(), io.BytesIO()
        torch.save(one.state(), left)
        torch.save(other.state(), right)
        assert_same_state(torch.load(io.BytesIO(left.getvalue())), torch.load(io.BytesIO(right.getvalue())))

    return check


class Watching(Method):
    """Keeps the minibatches that the forward passes see, and what came out."""

    def __init__(self):
        self.batches, self.outputs = [], []

    def views(self, model, batch, phase, ctx):
        self.batches.append(batch)
        views = super().views(model, batch, phase, ctx)
        self.outputs.append(views[0][1])
        return views

    @property
    def ratios(self):
        """Of the first pass."""
        batch, output = self.batches[0], self.outputs[0]
        return (output.log_prob(batch.actions) - batch.log_probs).exp().detach()


# ---- settings ------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_published_agents():
    config = PPOConfig()
    assert config.batch == 16_384
    assert (config.gamma, config.gae_lambda, config.epochs, config.minibatches) == (0.999, 0.95, 3, 8)
    assert (config.learning_rate, config.clip, config.value_coef, config.entropy_coef) == (5e-4, 0.2, 0.5, 0.01)
    assert (config.max_grad_norm, config.adam_epsilon, config.reward_gamma) == (0.5, 1e-5, 0.99)


def test_minibatches_of_unequal_size_are_refused():
    with pytest.raises(UsageError, match=r"minibatches=7 does not divide num_envs \* num_steps = 16384"):
        PPOConfig(minibatches=7)


def test_minibatches_of_unequal_size_in_one_process_are_refused(make_learner, noise_games):
    """Two processes of 1 x 5 transitions each: all ten make 2 minibatches, but five do not."""
    with pytest.raises(UsageError, match="minibatches=2 does not divide"):
        make_learner(games=noise_games(1), num_envs=2, num_steps=5, minibatches=2)


def test_a_discount_beyond_one_is_refused():
    with pytest.raises(UsageError, match=r"got 1\.5"):
        PPOConfig(gamma=1.5)


@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig(topology="decoupled")])
def test_each_group_of_parameters_has_an_adam_with_epsilon_1e_5(make_learner, network):
    learner = make_learner(network=network)
    assert learner.optimisers.keys() == learner.model.groups().keys()
    for name, optimiser in learner.optimisers.items():
        assert isinstance(optimiser, torch.optim.Adam)
        assert (optimiser.defaults["eps"], optimiser.defaults["betas"]) == (1e-5, (0.9, 0.999))
        assert optimiser.defaults["weight_decay"] == 0
        assert [id(p) for p in optimiser.param_groups[0]["params"]] == [id(p) for p in learner.model.groups()[name]]


# ---- collecting ----------------------------------------------------------------------------------------------------


def test_each_row_of_the_rollout_is_what_the_games_told(make_learner, noise_games):
    """Fails when level, step, reward or end are one step off the frame they belong to."""
    games = noise_games(4, end=0.3)
    learner = make_learner(games=games, num_steps=12, small=True)
    episodes = learner.collect()
    kept, raw_to_normalised = learner.rollout, RewardNormaliser(4)
    for t, (frames, actions, step) in enumerate(games.told):
        assert np.array_equal(kept.obs[t], frames.obs)
        assert np.array_equal(kept.level_seeds[t], frames.level_seeds)
        assert np.array_equal(kept.episode_steps[t], frames.episode_steps)
        assert np.array_equal(kept.actions[t], actions)
        assert np.array_equal(kept.dones[t], step.dones)
        assert np.array_equal(kept.rewards[t], raw_to_normalised(step.rewards, step.dones))
    told = [step.finished for *_, step in games.told if len(step.finished.envs)]
    assert len(told) > 1
    assert [e.returns.tolist() for e in episodes] == [e.returns.tolist() for e in told]


def test_log_probabilities_and_values_are_those_of_the_stored_frame_and_action(make_learner, sharpen):
    learner = sharpen(make_learner())
    learner.collect()
    batch = learner.rollout.minibatch(torch.arange(16))
    with torch.no_grad():
        output = learner.model(batch.obs)
    torch.testing.assert_close(batch.log_probs, output.log_prob(batch.actions), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(batch.values, output.value, atol=1e-5, rtol=1e-4)


def test_the_bootstrap_value_is_that_of_the_frame_after_the_last_step(make_learner, noise_games):
    games = noise_games(4, end=0.0)
    learner = make_learner(games=games, gamma=0.9, gae_lambda=0.0)
    learner.collect()
    with torch.no_grad():
        last = learner.model(torch.from_numpy(games.observe().obs)).value
    kept = learner.rollout
    torch.testing.assert_close(kept.returns[-1], kept.rewards[-1] + 0.9 * last, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(kept.returns[:-1], kept.rewards[:-1] + 0.9 * kept.values[1:])
    torch.testing.assert_close(kept.advantages, kept.returns - kept.values, atol=1e-5, rtol=1e-4)


def test_frames_that_a_method_changes_are_what_the_policy_sees_and_the_rollout_stores(make_learner, noise_games):
    class Negative(Method):
        seen = 0

        def observe(self, obs, ctx):
            return 255 - obs

        def act(self, model, obs, stage, ctx):
            assert stage == "rollout"
            assert torch.equal(obs, torch.from_numpy(255 - games.observe().obs))
            self.seen += 1
            return super().act(model, obs, stage, ctx)

    games, method = noise_games(4), Negative()
    learner = make_learner(method, games, small=True)
    learner.collect()
    assert method.seen == 5
    assert np.array_equal(learner.rollout.obs[2], 255 - games.told[2][0].obs)


@pytest.mark.parametrize(("mode", "training"), [("train", True), ("eval", False)])
def test_the_network_acts_in_the_mode_of_the_plan_and_learns_in_training_mode(make_learner, mode, training):
    modes = []
    learner = make_learner(mode=mode)
    learner.model.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    learner.iterate()
    assert modes == [(training, False)] * 5 + [(True, True)]


@pytest.mark.parametrize("before", [True, False])
def test_an_evaluation_is_in_evaluation_mode_and_gives_the_old_mode_back(make_learner, before):
    modes = []
    learner = make_learner(mode="train")
    learner.model.train(before)
    learner.model.register_forward_hook(lambda module, *_: modes.append(module.training))
    learner.method.act(learner.model, learner.rollout.obs[0], "eval", learner.context())
    assert modes == [False]
    assert learner.model.training is before


# ---- one step ------------------------------------------------------------------------------------------------------


def test_on_the_first_minibatch_the_policy_is_still_the_one_that_acted(make_learner, sharpen):
    method = Watching()
    metrics, _ = sharpen(make_learner(method)).iterate()
    torch.testing.assert_close(method.ratios, torch.ones(16), atol=1e-5, rtol=0)
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-9)


def test_after_a_step_it_is_another(make_learner, sharpen):
    """The control of the test above: the second epoch's ratios are not 1."""
    method = Watching()
    metrics, _ = sharpen(make_learner(method, epochs=2)).iterate()
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
    phase = Phase("ppo", "all", 1, 1, **({"policy": 1.0, "value": 0.5, "entropy": 0.01} | coefficients))
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
        fill(make_learner(micro_batch=4, accumulate=how, max_grad_norm=1e9, minibatches=1)) for how in ("mean", "sum")
    )
    step(mean), step(added)
    torch.testing.assert_close(gradient(added), 4 * gradient(mean), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("micro_batch", [16, 4])
@pytest.mark.parametrize(("std", "correction"), [("population", 0), ("unbiased", 1)])
def test_advantages_are_normalised_over_the_minibatch_of_one_step(make_learner, micro_batch, std, correction):
    method = Watching()
    learner = fill(make_learner(method, small=True, num_steps=8, micro_batch=micro_batch, advantage_std=std))
    index = torch.randperm(32, generator=torch.Generator().manual_seed(0))[:16]
    step(learner, index)
    seen = torch.cat([batch.advantages for batch in method.batches])
    raw = learner.rollout.flat(learner.rollout.advantages)[index]
    torch.testing.assert_close(seen, (raw - raw.mean()) / (raw.std(correction=correction) + 1e-8))
    assert (seen[:4].mean().abs() > 0.05).item()  # not micro-batch by micro-batch


def test_advantages_can_be_normalised_over_each_micro_batch_alone(make_learner):
    """As each worker of OpenAI's code does with its share: the other processes do not count."""

    class Two(Workers):
        size = 2

        def sum(self, value):
            raise AssertionError("asked the other process")

    method = Watching()
    learner = fill(make_learner(method, small=True, micro_batch=4, advantage_norm="micro"))
    learner.workers = Two()
    learner.workers.average_gradients = lambda parameters: None
    step(learner)
    raw = learner.rollout.flat(learner.rollout.advantages)
    assert len(method.batches) == 4
    for batch in method.batches:
        own = raw[batch.index]
        torch.testing.assert_close(batch.advantages, (own - own.mean()) / (own.std(correction=0) + 1e-8))


def test_advantages_can_be_normalised_over_the_rollout(make_learner):
    method = Watching()
    learner = fill(make_learner(method, small=True, minibatches=4, advantage_norm="batch"))
    raw = learner.rollout.advantages.clone()
    learner.update()
    normalised = (raw - raw.mean()) / (raw.std(correction=0) + 1e-8)
    index = torch.cat([batch.index for batch in method.batches])
    torch.testing.assert_close(torch.cat([b.advantages for b in method.batches]), normalised.flatten()[index])
    assert any(batch.advantages.mean().abs() > 0.05 for batch in method.batches)


def test_returns_are_made_of_raw_advantages(make_learner):
    method = Watching()
    learner = make_learner(method, small=True)
    learner.iterate()
    kept = learner.rollout
    torch.testing.assert_close(kept.returns, kept.advantages + kept.values)
    torch.testing.assert_close(method.batches[0].returns, kept.flat(kept.returns)[method.batches[0].index])


def test_the_loss_is_the_sum_of_its_terms_with_their_coefficients(make_learner):
    """Policy + 0.5 value - 0.01 entropy; a wrong sign of the entropy moves the loss by 0.054."""
    learner = fill(make_learner(small=True))
    batch = learner.rollout.minibatch(torch.arange(16))
    loss, logs = learner._loss(batch, Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01), learner.context())
    # The small network starts with equal logits and values of zero.
    assert logs["policy_loss"].item() == pytest.approx(-batch.advantages.mean().item(), rel=1e-5)
    value_loss = clipped_value_loss(torch.zeros(16), batch.values, batch.returns, 0.2)
    assert logs["value_loss"].item() == pytest.approx(value_loss.item())
    assert logs["entropy"].item() == pytest.approx(math.log(15))
    expected = -batch.advantages.mean() + 0.5 * value_loss - 0.01 * math.log(15)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_views_are_averaged_with_their_weights_and_penalties_added(make_learner):
    class Twice(Method):
        def views(self, model, batch, phase, ctx):
            return [(0.25, model(batch.obs)), (0.75, model(255 - batch.obs))]

        def penalty(self, model, batch, views, phase, ctx):
            assert [weight for weight, _ in views] == [0.25, 0.75]
            return torch.tensor(3.0), {"three": torch.tensor(3.0)}

    plain, twice = fill(make_learner()), fill(make_learner(Twice()))
    batch = plain.rollout.minibatch(torch.arange(16))
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
        ({"entropy": 0.0}, {"entropy"}, (True, True)),
        ({"value": 0.0}, {"value_loss"}, (True, False)),
        ({"policy": 0.0}, {"policy_loss", "approx_kl", "clip_fraction"}, (True, True)),
        (
            {"policy": 0.0, "entropy": 0.0},
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


# ---- schedule ------------------------------------------------------------------------------------------------------


def test_a_linear_learning_rate_follows_the_formula(make_learner):
    """lr = 5e-4 (1 - t / total) with t the steps done so far; the last iteration overshoots and ends at 0."""
    learner = make_learner(small=True, schedule="linear", total_steps=56)
    for k in range(4):
        metrics, _ = learner.iterate()
        assert metrics["learning_rate"] == pytest.approx(5e-4 * (1 - 16 * k / 56))
        assert learner.env_steps == 16 * (k + 1)
        assert learner.optimisers["all"].param_groups[0]["lr"] == pytest.approx(5e-4 * max(0, 1 - 16 * (k + 1) / 56))


def test_a_constant_learning_rate_stays(make_learner):
    learner = make_learner(small=True, total_steps=32)
    assert {learner.iterate()[0]["learning_rate"] for _ in range(3)} == {5e-4}


# ---- hooks ---------------------------------------------------------------------------------------------------------


class Empty(Method):
    """Overrides nothing."""


def test_a_method_that_overrides_nothing_is_no_method_bit_for_bit(make_learner):
    settings = {"epochs": 2, "minibatches": 2, "micro_batch": 4}
    learners = [make_learner(m, **settings) for m in (compose({}), Empty(), Compose({"a": Empty(), "b": Empty()}))]
    states = []
    for learner in learners:
        metrics = [learner.iterate()[0] for _ in range(3)]
        states.append((metrics, weights(learner)))
    for metrics, learnt in states[1:]:
        assert metrics == states[0][0]
        assert torch.equal(learnt, states[0][1])
    assert not torch.equal(states[0][1], weights(make_learner()))  # something was learnt


def test_the_seed_decides_everything(make_learner, noise_games):
    runs = []
    for seed in (3, 3, 4):
        torch.randn(seed)  # what was drawn elsewhere does not matter
        learner = make_learner(games=noise_games(4), seed=seed)
        runs.append((learner.iterate()[0], weights(learner)))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert not torch.equal(runs[0][1], runs[2][1])


class Tracing(Method):
    """Writes down each call."""

    def __init__(self):
        self.calls = []


def _traced(hook):
    def call(self, *args, **kwargs):
        self.calls.append(hook if hook != "act" else f"act {args[2]}")
        return getattr(Method, hook)(self, *args, **kwargs)

    return call


HOOKS = (
    *("configure", "begin_iteration", "observe", "act", "prepare"),
    *("phases", "batch", "before_step", "views", "penalty"),
)
for _hook in HOOKS:
    setattr(Tracing, _hook, _traced(_hook))


def test_there_are_ten_hooks():
    public = {name for name, _ in inspect.getmembers(Method, inspect.isfunction)}
    assert public == {*HOOKS, "notes", "state", "load"}
    assert Method.exclusive == ("act", "phases", "views")


@pytest.mark.parametrize("composed", [False, True])
def test_hooks_are_called_in_the_order_of_the_specification(make_learner, composed):
    """T + 1 times observe and act; batch, views and penalty E * M * k times, before_step E * M times.

    T = 4, E = 2, M = 4, k = 1.
    """
    method = Tracing()
    learner = make_learner(Compose({"tracing": method}) if composed else method, small=True, epochs=2, minibatches=4)
    assert method.calls == ["configure"]
    for _ in range(2):
        method.calls.clear()
        learner.iterate()
        assert method.calls == (
            [
                "begin_iteration",
                *["observe", "act rollout"] * 5,
                "prepare",
                "phases",
                *["batch", "before_step", "views", "penalty"] * 8,
            ]
        )


def test_with_micro_batches_all_of_a_step_are_made_before_the_first_is_seen(make_learner):
    """Advantages are normalised over the whole step after methods changed it, so its batches come first."""
    method = Tracing()
    make_learner(method, small=True, epochs=2, minibatches=4, micro_batch=2).iterate()
    step_of_two = ["batch", "batch", "before_step", "views", "penalty", "views", "penalty"]
    assert method.calls[method.calls.index("phases") + 1 :] == step_of_two * 8


@pytest.mark.parametrize("hook", Method.exclusive)
def test_two_methods_that_decide_the_same_thing_cannot_be_combined(hook):
    one, other = (type(name, (Method,), {hook: lambda self: None})() for name in ("One", "Other"))
    with pytest.raises(UsageError, match=f"one and other cannot be combined: both decide the learner's {hook}"):
        Compose({"one": one, "empty": Empty(), "other": other})
    Compose({"one": one, "empty": Empty()})


@pytest.mark.parametrize("hook", Method.exclusive)
def test_the_one_that_decides_is_asked_even_inside_another_composition(hook):
    """Fails when a composition hides that one of its methods decides: the inner hook would silently be PPO's."""
    one = type("One", (Method,), {hook: lambda self: "mine"})()
    nested = Compose({"nested": Compose({"one": one}), "empty": Empty()})
    assert getattr(nested, hook)() == "mine"
    with pytest.raises(UsageError, match=f"nested and one cannot be combined: both decide the learner's {hook}"):
        Compose({"nested": nested, "one": one})


class Affine(Method):
    """Each chained hook multiplies and adds, which tells the order of two of them."""

    def __init__(self, factor, term):
        self.factor, self.term = factor, term

    def observe(self, obs, ctx):
        return obs * self.factor + self.term

    def batch(self, batch, ctx):
        return batch.replace(returns=batch.returns * self.factor + self.term)

    def penalty(self, model, batch, views, phase, ctx):
        return torch.tensor(float(self.term)), {f"term {self.term}": torch.tensor(1.0)}


def test_chained_hooks_run_in_order_and_penalties_add(make_learner):
    method = Compose({"first": Affine(2, 1), "second": Affine(3, 5)})
    learner = fill(make_learner(small=True))
    batch, ctx = learner.rollout.minibatch(torch.arange(4)), learner.context()
    torch.testing.assert_close(method.batch(batch, ctx).returns, (batch.returns * 2 + 1) * 3 + 5)
    obs = torch.ones(2, 64, 64, 3, dtype=torch.uint8)
    assert (method.observe(obs, ctx) == 14).all()
    total, logs = method.penalty(learner.model, batch, [], None, ctx)
    assert total == 6
    assert logs.keys() == {"term 1", "term 5"}


def test_a_penalty_of_one_method_is_not_lost_beside_one_without(make_learner):
    for methods in ({"a": Affine(1, 2), "b": Empty()}, {"b": Empty(), "a": Affine(1, 2)}):
        assert Compose(methods).penalty(None, None, [], None, None)[0] == 2
    assert Compose({"b": Empty()}).penalty(None, None, [], None, None) == (None, {})


def test_a_method_may_make_frames_that_are_no_bytes(make_learner):
    """Fails when the rollout rounds them, and when what is learnt on is not what was acted on."""

    class Darker(Method):
        def configure(self, plan):
            plan.frames = "floats"

        def observe(self, obs, ctx):
            return as_input(obs) * 0.3 - 0.1

    learner = make_learner(Darker(), small=True)
    learner.collect()
    batch = learner.rollout.minibatch(torch.arange(len(learner.rollout)))
    assert batch.obs.min() < 0
    torch.testing.assert_close(learner.model(batch.obs).log_prob(batch.actions), batch.log_probs)


def test_methods_that_disagree_on_the_mode_of_acting_cannot_be_combined():
    """Fails when the last one named decides: the noise of the other would be off while acting, without a word."""
    plan = Plan(TrainLevels("bigfish"), PPOConfig(), NetworkConfig(), torch.Generator())
    plan.act_in("train")
    plan.act_in("train")
    with pytest.raises(UsageError, match="cannot be combined"):
        plan.act_in("eval")


def test_a_batch_hook_changes_what_is_learnt_and_not_the_rollout(make_learner):
    class Zero(Method):
        def batch(self, batch, ctx):
            return batch.replace(obs=torch.zeros_like(batch.obs))

    watching = Watching()
    learner = make_learner(Compose({"zero": Zero(), "watching": watching}), small=True)
    learner.iterate()
    assert not watching.batches[0].obs.any()
    assert learner.rollout.obs.any()


def test_columns_added_while_preparing_reach_the_minibatches(make_learner):
    class Label(Watching):
        def prepare(self, rollout, ctx):
            rollout.extra["label"] = torch.arange(len(rollout)).view(rollout.steps, rollout.envs)

    method = Label()
    make_learner(method, small=True, minibatches=2).iterate()
    for batch in method.batches:
        assert torch.equal(batch.extra["label"], batch.index)


class Daac(Method):
    """Two phases, one for each network; the second in every other iteration."""

    def phases(self, ppo, ctx):
        return [
            Phase("policy", "policy", 1, 2, 1.0, 0.0, 0.01),
            Phase("value", "value", 3, 1, 0.0, 1.0, 0.0, every=2),
        ]


def test_a_phase_moves_its_own_group_when_it_is_due(make_learner):
    """Value updates in iterations 0 and 2 and not in 1; the policy in each."""
    learner = make_learner(Daac(), network=NetworkConfig(topology="decoupled"))
    groups = learner.model.groups()
    for value_moves in (True, False, True):
        before = {name: vector(groups[name]) for name in ("policy", "value")}
        metrics, _ = learner.iterate()
        moved = {name: not torch.equal(vector(groups[name]), before[name]) for name in before}
        assert moved == {"policy": True, "value": value_moves}
        assert ("value_loss" in metrics) is value_moves
    steps = {name: optimiser.state_dict()["state"] for name, optimiser in learner.optimisers.items()}
    assert {int(entry["step"]) for entry in steps["policy"].values()} == {6}
    assert {int(entry["step"]) for entry in steps["value"].values()} == {6}
    assert steps["all"] == {}


def test_the_learner_names_no_method_and_asks_for_no_type():
    source = inspect.getsource(ppo)
    tree = ast.parse(source)
    words = {word.lower() for node in ast.walk(tree) if isinstance(node, ast.Name) for word in [node.id]}
    words |= {node.attr.lower() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    words |= set(re.findall(r"[a-z_]+", re.sub(r"\bclop\.", "", source.lower())))
    assert "isinstance" not in words
    assert "method" in words
    published = {"mixreg", "rand_fm", "ucb_drac", "drac", "ibac_sni", "rad", "daac", "idaac", "weight_decay"}
    assert words & (set(METHODS) | published | {"batchnorm", "type"}) == set()


# ---- methods at zero strength --------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [NetworkConfig(), AUTHORS], ids=["plain", "authors"])
@pytest.mark.parametrize(
    "configs",
    [
        {"clop": Clop(alpha=0.0)},
        {"clop": Clop(alpha=0.0, critic="independent")},
        {"clop": Clop(alpha=0.0, slot="block2")},
        {"dropout": Dropout(p=0.0)},
        {"dropout": Dropout(p=0.0, style="coinrun")},
        {"dropout": Dropout(p=0.0), "clop": Clop(alpha=0.0)},
    ],
    ids=["clop", "clop for both", "clop at block2", "dropout", "coinrun dropout", "dropout+clop"],
)
def test_a_method_at_strength_zero_is_its_base_bit_for_bit(make_learner, configs, network):
    """Fails when a layer draws although it does nothing, or moves a weight by a rounding."""
    settings = {"network": network, "mode": "train", "num_envs": 2, "minibatches": 2}
    base, method = make_learner(**settings), make_learner(compose(configs), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    assert torch.equal(weights(base), weights(method))
    for name in ("noise", "dice", "shuffle"):
        assert torch.equal(getattr(base, name).get_state(), getattr(method, name).get_state())


@pytest.mark.parametrize(
    "configs", [{"clop": Clop(alpha=0.5)}, {"dropout": Dropout(p=0.2)}, {"dropout": Dropout(p=0.2, style="coinrun")}]
)
def test_at_another_strength_it_is_not(make_learner, configs):
    base, method = make_learner(mode="train"), make_learner(compose(configs), mode="train")
    base.iterate(), method.iterate()
    assert not torch.equal(weights(base), weights(method))


# ---- state ---------------------------------------------------------------------------------------------------------


class Counting(Method):
    """Has something to remember that decides what is learnt."""

    def __init__(self):
        self.count = 0

    def begin_iteration(self, ctx):
        self.count += 1

    def batch(self, batch, ctx):
        noise = torch.rand(len(batch), generator=ctx.generator)
        return batch.replace(returns=batch.returns + self.count * noise)

    def state(self):
        return {"count": self.count}

    def load(self, state):
        self.count = state["count"]


def saved(learner):
    """A state as a file keeps it, read without running code."""
    file = io.BytesIO()
    torch.save(learner.state(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("methods", "settings"),
    [
        (lambda: compose({}), {}),
        (lambda: compose({"clop": Clop(alpha=0.5)}), {"network": AUTHORS, "schedule": "linear"}),
        (lambda: compose({"dropout": Dropout(style="coinrun"), "batch_norm": BatchNorm("block")}), {}),
        (lambda: Compose({"counting": Counting()}), {"advantage_norm": "batch"}),
        (Daac, {"network": NetworkConfig(topology="decoupled")}),
    ],
    ids=["ppo", "clop", "dropout+batch_norm", "counting", "daac"],
)
def test_a_resumed_learner_goes_on_bit_for_bit(make_learner, noise_games, assert_same_learners, methods, settings):
    settings = {"total_steps": 80, "minibatches": 2} | settings
    straight = make_learner(methods(), noise_games(4), **settings)
    straight.iterate()
    state = saved(straight)
    expected = [straight.iterate()[0] for _ in range(2)]

    resumed = make_learner(methods(), noise_games(4), seed=99, **settings)
    resumed.games.seed = straight.games.seed
    resumed.load(state)
    assert (resumed.iteration, resumed.env_steps) == (1, 16)
    assert [resumed.iterate()[0] for _ in range(2)] == expected
    assert_same_learners(straight, resumed)


@pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="procgen-mirror is not installed")
def test_a_learner_resumes_inside_real_games(make_learner, assert_same_learners):
    settings = {"num_envs": 2, "num_steps": 8}
    with VectorGames("leaper", 2, num_levels=5, rand_seed=0) as games:
        straight = make_learner(compose({"clop": Clop()}), games, **settings)
        straight.iterate()
        state = saved(straight)
        straight.iterate()
        with VectorGames("leaper", 2, num_levels=5, rand_seed=7) as other:
            resumed = make_learner(compose({"clop": Clop()}), other, seed=5, **settings)
            resumed.load(state)
            resumed.iterate()
            assert_same_learners(straight, resumed)


def test_a_learner_with_a_part_of_the_state_missing_would_differ(make_learner, noise_games):
    """The control: each generator, the normaliser and the optimiser matter."""
    straight = make_learner(compose({"dropout": Dropout()}), noise_games(4), minibatches=2)
    straight.iterate()
    for part in ("noise", "dice", "shuffle", "rewards", "optimisers"):
        resumed = make_learner(compose({"dropout": Dropout()}), noise_games(4), seed=99, minibatches=2)
        fresh, state = saved(resumed), saved(straight)
        if part in state:
            state[part] = fresh[part]
        else:
            state["generators"][part] = fresh["generators"][part]
        whole = make_learner(compose({"dropout": Dropout()}), noise_games(4), minibatches=2)
        whole.load(saved(straight))
        resumed.load(state)
        resumed.iterate(), whole.iterate()
        assert not torch.equal(weights(resumed), weights(whole)), part


# ---- divergence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(make_learner, bad):
    class Spoiled(Method):
        def penalty(self, model, batch, views, phase, ctx):
            return (views[0][1].value.sum() * bad if ctx.iteration == 2 else None), {}

    learner = make_learner(Spoiled(), small=True)
    learner.iterate(), learner.iterate()
    with pytest.raises(DivergedError, match="no longer a number in the update after 32 steps"):
        learner.iterate()


def test_a_weight_that_is_no_number_is_noticed_at_once(make_learner):
    learner = make_learner(small=True)
    with torch.no_grad():
        learner.model.dense.weight[0, 0] = math.nan
    with pytest.raises(DivergedError, match="after 0 steps"):
        learner.iterate()


def test_a_gradient_that_is_no_number_is_noticed_although_the_loss_is_one(make_learner):
    """The gradient of sqrt at 0 is infinite."""

    class Root(Method):
        def penalty(self, model, batch, views, phase, ctx):
            return (0 * views[0][1].value.sum()).sqrt(), {}

    with pytest.raises(DivergedError, match="grad_norm"):
        make_learner(Root(), small=True).iterate()


# ---- learning ------------------------------------------------------------------------------------------------------


class StripeGames:
    """A stripe tells which third of the actions is right; the reward comes a step later, shown by the screen's colour.

    Rollouts of two steps begin with that later step, so a choice is always the last thing in its rollout, and all
    that tells its worth is the critic's value of the coloured screen. Always right is worth 1, chance a third.
    """

    def __init__(self, num_envs, seed):
        self.num_envs, self.draw = num_envs, np.random.default_rng(seed)
        self.right, self.later = self.draw.random(num_envs) < 1 / 3, True
        self.stripe = np.zeros(num_envs, int)

    def observe(self, out=None):
        out = np.empty((self.num_envs, 64, 64, 3), np.uint8) if out is None else out
        out[:] = 0
        for env in range(self.num_envs):
            if self.later:
                out[env, ..., 1 if self.right[env] else 0] = 200
            else:
                out[env, :, 20 * self.stripe[env] :][:, :20] = 255
        levels = np.zeros(self.num_envs, np.int32)
        return Frames(out, levels, levels + self.later)

    def step(self, actions):
        rewards = np.zeros(self.num_envs, np.float32)
        ended = np.arange(self.num_envs if self.later else 0)
        if self.later:
            rewards[self.right] = 1
            self.stripe = self.draw.integers(0, 3, self.num_envs)
        else:
            self.right = actions % 3 == self.stripe
        dones, self.later = np.full(self.num_envs, self.later), not self.later
        lengths, levels = np.full(len(ended), 2, np.int32), np.zeros(len(ended), np.int32)
        return Step(rewards, dones, Episodes(ended, rewards[ended].astype(float), lengths, levels, rewards[ended] > 0))


def final_return(make_learner, iterations, seed=0, **settings):
    """Mean return over the last quarter of training."""
    ppo = {"num_envs": 32, "num_steps": 2, "epochs": 3, "minibatches": 2, "learning_rate": 3e-3} | settings
    learner = make_learner(games=StripeGames(32, seed), seed=seed, **ppo)
    with torch.no_grad():
        learner.model.value_head.weight.zero_()  # what a frozen critic then knows is nothing
    returns = [np.mean([e.returns for e in learner.iterate()[1]]) for _ in range(iterations)]
    return np.mean(returns[-iterations // 4 :])


SOLVED = 0.9  # of 1; a third is chance


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_learner_solves_a_task_with_a_delayed_reward(make_learner, seed):
    assert final_return(make_learner, 40, seed, small=True) > SOLVED


@pytest.mark.slow
def test_the_learner_solves_it_with_the_real_network_and_clop(make_learner):
    settings = {"learning_rate": 1e-3, "epochs": 2, "method": compose({"clop": Clop(alpha=0.3)})}
    assert final_return(make_learner, 20, **settings) > SOLVED


def wrong_sign(monkeypatch):
    def wrong(*args):
        advantages, returns = right(*args)
        return -advantages, returns

    right = rollout.gae
    monkeypatch.setattr(rollout, "gae", wrong)
    return {}


def no_bootstrap(monkeypatch):
    right = rollout.gae
    monkeypatch.setattr(
        rollout, "gae", lambda rewards, values, dones, last, *rest: right(rewards, values, dones, 0 * last, *rest)
    )
    return {}


def no_discounted_future(monkeypatch):
    return {"gamma": 0.0}


def frozen_critic(monkeypatch):
    return {"value_coef": 0.0}


@pytest.mark.parametrize("mistake", [wrong_sign, no_bootstrap, no_discounted_future, frozen_critic])
def test_a_wrong_learner_does_not_solve_it(make_learner, monkeypatch, mistake):
    """The controls: the same task and criterion, and one mistake; each stays at chance or below."""
    assert final_return(make_learner, 40, small=True, **mistake(monkeypatch)) < 0.6
