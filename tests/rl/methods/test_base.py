"""The hooks of a method: when the learner calls each, and how methods compose."""

import inspect
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from torch import nn

from clop import CLOP
from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.methods import compose
from clop.rl.methods.base import Compose, Method, Phase, Settings
from clop.rl.methods.clop import Clop
from clop.rl.methods.dropout import Dropout
from clop.rl.network import as_input, slots_of
from clop.rl.ppo import build_network
from clop.rl.settings import NetworkConfig
from clop.sample_dropout import SampleDropout


class Empty(Method):
    """Overrides nothing."""


def test_a_method_that_overrides_nothing_is_no_method_bit_for_bit(make_learner, vector):
    settings = {"update_epochs": 2, "num_minibatches": 2, "micro_batch": 4}
    learners = [make_learner(m, **settings) for m in (compose({}), Empty(), Compose({"a": Empty(), "b": Empty()}))]
    states = []
    for learner in learners:
        metrics = [learner.iterate()[0] for _ in range(3)]
        states.append((metrics, vector(learner.model.parameters())))
    for metrics, learnt in states[1:]:
        assert metrics == states[0][0]
        assert torch.equal(learnt, states[0][1])
    assert not torch.equal(states[0][1], vector(make_learner().model.parameters()))  # something was learnt


class Tracing(Method):
    """Writes down each call."""

    def __init__(self):
        self.calls = []


def _traced(hook):
    def call(self, *args, **kwargs):
        self.calls.append(hook if hook != "act" else f"act {args[1]}")
        return getattr(Method, hook)(self, *args, **kwargs)

    return call


HOOKS = (
    *("configure", "fill", "attach", "begin_iteration", "observe", "act", "prepare"),
    *("phases", "transform", "before_step", "views", "penalty", "metrics"),
)
for _hook in HOOKS:
    setattr(Tracing, _hook, _traced(_hook))


def test_there_are_thirteen_hooks():
    public = {name for name, _ in inspect.getmembers(Method, inspect.isfunction)}
    assert public == {*HOOKS, "notes", "state", "load"}
    assert Method.exclusive == ("act", "phases", "views")


@pytest.mark.parametrize("composed", [False, True])
def test_hooks_are_called_in_the_order_in_which_they_are_described(make_learner, composed):
    """T + 1 times observe and act; transform, views and penalty E * M * k times, before_step E * M times.

    T = 4, E = 2, M = 4, k = 1.
    """
    method = Tracing()
    learner = make_learner(
        Compose({"tracing": method}) if composed else method, small=True, update_epochs=2, num_minibatches=4
    )
    assert method.calls == ["configure", "fill", "attach"]
    for _ in range(2):
        method.calls.clear()
        learner.iterate()
        assert method.calls == (
            [
                "begin_iteration",
                *["observe", "act rollout"] * 5,
                "prepare",
                "phases",
                *["transform", "before_step", "views", "penalty"] * 8,
                "metrics",
            ]
        )


def test_with_micro_batches_all_of_a_step_are_made_before_the_first_is_seen(make_learner):
    """Advantages are normalised over the whole step after methods changed it, so its batches come first."""
    method = Tracing()
    make_learner(method, small=True, update_epochs=2, num_minibatches=4, micro_batch=2).iterate()
    step_of_two = ["transform", "transform", "before_step", "views", "penalty", "views", "penalty"]
    assert method.calls[method.calls.index("phases") + 1 :] == [*step_of_two * 8, "metrics"]


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

    def transform(self, batch, ctx):
        return batch.replace(returns=batch.returns * self.factor + self.term)

    def penalty(self, batch, views, phase, ctx):
        return torch.tensor(float(self.term)), {f"term {self.term}": torch.tensor(1.0)}

    def metrics(self):
        return {f"term {self.term}": float(self.term)}


def test_chained_hooks_run_in_order_and_penalties_add(make_learner):
    method = Compose({"first": Affine(2, 1), "second": Affine(3, 5)})
    learner = make_learner(small=True)
    learner.collect()
    batch, ctx = learner.rollout.batch(torch.arange(4)), learner.context()
    torch.testing.assert_close(method.transform(batch, ctx).returns, (batch.returns * 2 + 1) * 3 + 5)
    obs = torch.ones(2, 64, 64, 3, dtype=torch.uint8)
    assert (method.observe(obs, ctx) == 14).all()
    total, logs = method.penalty(batch, [], None, ctx)
    assert total == 6
    assert logs.keys() == {"term 1", "term 5"}
    assert method.metrics() == {"term 1": 1, "term 5": 5}


def test_a_penalty_of_one_method_is_not_lost_beside_one_without(make_learner):
    for methods in ({"a": Affine(1, 2), "b": Empty()}, {"b": Empty(), "a": Affine(1, 2)}):
        assert Compose(methods).penalty(None, [], None, None)[0] == 2
    assert Compose({"b": Empty()}).penalty(None, [], None, None) == (None, {})


def test_a_method_may_make_frames_that_are_no_bytes(make_learner):
    """Fails when the rollout rounds them, and when what is learnt on is not what was acted on."""

    class Darker(Method):
        def configure(self, settings):
            return replace(settings, frames="floats")

        def observe(self, obs, ctx):
            return as_input(obs) * 0.3 - 0.1

    learner = make_learner(Darker(), small=True)
    learner.collect()
    batch = learner.rollout.batch(torch.arange(len(learner.rollout)))
    assert batch.obs.min() < 0
    torch.testing.assert_close(learner.model(batch.obs).log_prob(batch.actions), batch.log_probs)


def test_methods_that_disagree_on_the_mode_of_acting_cannot_be_combined():
    """Fails when the last one named decides: the noise of the other would be off while acting, without a word."""
    agreed = Settings(LevelSet("bigfish")).act_in("train").act_in("train")
    assert agreed.rollout_mode == "train"
    with pytest.raises(UsageError, match="cannot be combined"):
        agreed.act_in("eval")


def test_settings_are_changed_in_copies_only():
    """Fails when a method's request reaches the settings that another run is built from."""
    settings = Settings(LevelSet("bigfish"))
    assert settings.act_in("train") != settings
    assert settings == Settings(LevelSet("bigfish"))
    assert settings.act_in("eval").rollout_mode == "eval"
    with pytest.raises(FrozenInstanceError):
        settings.frames = "floats"


def test_a_transform_changes_what_is_learnt_and_not_the_rollout(make_learner, watching):
    class Zero(Method):
        def transform(self, batch, ctx):
            return batch.replace(obs=torch.zeros_like(batch.obs))

    learner = make_learner(Compose({"zero": Zero(), "watching": watching}), small=True)
    learner.iterate()
    assert not watching.batches[0].obs.any()
    assert learner.rollout.obs.any()


def test_columns_added_while_preparing_reach_the_minibatches(make_learner, watching):
    class Label(Method):
        def prepare(self, rollout, ctx):
            rollout.extra["label"] = torch.arange(len(rollout)).view(rollout.steps, rollout.envs)

    make_learner(Compose({"label": Label(), "watching": watching}), small=True, num_minibatches=2).iterate()
    assert len(watching.batches) == 2
    for batch in watching.batches:
        assert torch.equal(batch.extra["label"], batch.index)


class TwoPhases(Method):
    """Two phases, one for each network; the second in every other iteration."""

    def phases(self, ppo, ctx):
        return [
            Phase("policy", "policy", 1, 2, 1.0, 0.0, 0.01),
            Phase("value", "value", 3, 1, 0.0, 1.0, 0.0, every=2),
        ]


def test_a_phase_moves_its_own_group_when_it_is_due(make_learner, vector):
    """Value updates in iterations 0 and 2 and not in 1; the policy in each."""
    learner = make_learner(TwoPhases(), network=NetworkConfig(topology="decoupled"))
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


def test_methods_are_composed_in_the_order_they_are_named():
    method = compose({"dropout": Dropout(), "clop": Clop()})
    assert isinstance(method, Compose)
    settings = method.configure(Settings(LevelSet("bigfish")))
    network = build_network(settings, method, 0, torch.Generator())
    assert [type(module) for module in network.actor_in] == [SampleDropout, CLOP]


def test_two_methods_cannot_both_replace_a_part_of_the_network():
    slots = slots_of("impala")
    for part in ("neck", "adv_head"):
        slots.put(part, lambda _: nn.Identity())
        with pytest.raises(UsageError, match=f"two methods want to fill the network's {part}"):
            slots.put(part, lambda _: nn.Identity())
    slots.put("actor_in", lambda _: nn.Identity())
    slots.put("actor_in", lambda _: nn.Identity())
