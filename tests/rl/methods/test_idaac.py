"""IDAAC: partners, labels, a classifier that learns on its own, and a policy that is asked to confuse it."""

import copy
import math
import time
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

from clop import CLOP
from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.games import GAMES
from clop.rl.methods import idaac
from clop.rl.methods.base import Compose, Settings
from clop.rl.methods.clop import Clop
from clop.rl.methods.daac import Daac
from clop.rl.methods.idaac import (
    BEST,
    Idaac,
    TunedSettings,
    confusion_loss,
    draw_partners,
    episodes,
    order_classifier,
    order_loss,
)
from clop.rl.rollout import Rollout


def small(make_learner, method, **settings):
    return make_learner(method, **({"num_envs": 2, "num_steps": 2} | settings))


def ready(make_learner, sharpen, config=None, **settings):
    """A learner whose rollout has partners, its method, its policy phase and its whole rollout as one minibatch."""
    method = (config or Idaac(order_coef=0.1, hidden=0)).build()
    learner = sharpen(small(make_learner, method, num_steps=4, **settings))
    learner.collect()
    method.prepare(learner.rollout, learner.context())
    learner.model.train()
    phase, _ = method.phases(learner.config, learner.context())
    return learner, method, phase, learner.rollout.batch(torch.arange(8))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# ---- settings ------------------------------------------------------------------------------------------------------


def test_the_set_for_single_games_is_the_authors():
    rows = {
        "plunder": (1, 8, 0.3, 0.1, 0),
        "chaser": (1, 1, 0.15, 0.001, 0),
        "miner": (9, 32, 0.25, 0.1, 64),
        "climber": (9, 1, 0.05, 0.001, 64),
        "bigfish": (9, 32, 0.05, 0.01, 4),
        "dodgeball": (9, 32, 0.25, 0.001, 64),
    }
    assert {game: tuple(vars(chosen).values()) for game, chosen in BEST.items()} == rows
    assert set(BEST) <= set(GAMES)
    assert tuple(vars(TunedSettings()).values()) == (9, 1, 0.25, 0.001, 0)


def test_a_setting_that_is_given_goes_before_the_set():
    assert Idaac().tuned("bigfish") == BEST["bigfish"]
    assert Idaac().tuned("coinrun") == TunedSettings()
    assert Idaac(settings="uniform").tuned("bigfish") == TunedSettings()
    assert Idaac(value_every=2, hidden=0).tuned("bigfish") == TunedSettings(9, 2, 0.05, 0.01, 0)


def test_a_score_says_which_set_it_was():
    best, uniform = Idaac().build(), Idaac(settings="uniform").build()
    for method in (best, uniform):
        method.configure(Settings(LevelSet("bigfish")))
    assert best.notes() == {
        "settings": "best: value_epochs 9, value_every 32, advantage_coef 0.05, order_coef 0.01, hidden 4"
    }
    assert uniform.notes()["settings"].startswith("uniform: value_epochs 9, value_every 1,")


@pytest.mark.parametrize("settings", [{"order_coef": -1}, {"hidden": -1}, {"advantage_coef": -1}, {"value_every": 0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(UsageError, match="must"):
        Idaac(**settings)


# ---- partners and labels -------------------------------------------------------------------------------------------


def test_partners_are_of_the_same_level_and_all_equally_likely():
    """Each frame has itself too. The control draws from the whole rollout."""
    levels = torch.tensor([7, 3, 7, 7, 3, 9])
    draws = torch.stack([draw_partners(levels, generator(k)) for k in range(3000)])
    assert (levels[draws] == levels).all()
    for place, choices in ((0, [0, 2, 3]), (4, [1, 4])):
        counts = [(draws[:, place] == choice).sum().item() for choice in choices]
        assert sum(counts) == 3000
        assert stats.chisquare(counts).pvalue > 1e-6
    assert (draws[:, 5] == 5).all()
    anywhere = torch.randint(6, (3000, 6), generator=generator())
    assert not (levels[anywhere] == levels).all()


def test_a_large_rollout_takes_no_quadratic_search():
    """Sorting takes a fraction of a second; one search for each place would take minutes."""
    levels = torch.randint(0, 200, (2**20,), generator=generator())
    start = time.process_time()
    partners = draw_partners(levels, generator())
    assert time.process_time() - start < 20
    assert torch.equal(levels[partners], levels)


def toy():
    """Two envs, four steps, two levels; env 0 ends an episode and starts another on the same level."""
    rollout = Rollout(4, 2, (64, 64, 3))
    rollout.level_seeds = torch.tensor([[5, 6], [5, 6], [5, 6], [5, 5]])
    rollout.episode_steps = torch.tensor([[8, 0], [9, 1], [0, 2], [1, 0]])
    rollout.dones = torch.tensor([[False, False], [True, False], [False, True], [False, False]])
    return rollout


def prepared(seed=0, **settings):
    """The toy rollout with partners and labels."""
    method, rollout = Idaac(**settings).build(), toy()
    method.configure(Settings(LevelSet("bigfish")))
    method.prepare(rollout, SimpleNamespace(generator=generator(seed), device="cpu"))
    return rollout


def test_labels_say_whether_the_partner_came_first(monkeypatch):
    """By hand: places run over envs first, 0 to 7; a frame is its own partner at equal steps, which counts as no.

    Fails when the label says the opposite, and when steps lag the frames by one.
    """
    partners = [4, 3, 0, 1, 2, 5, 7, 6]
    monkeypatch.setattr(idaac, "draw_partners", lambda groups, generator: torch.tensor(partners))
    rollout = prepared()
    steps = [8, 0, 9, 1, 0, 2, 1, 0]
    expected = [steps[j] < steps[i] for i, j in enumerate(partners)]
    assert expected == [True, False, True, True, False, False, True, False]
    assert rollout.flat(rollout.extra["partner_first"]).tolist() == expected
    assert rollout.flat(rollout.extra["partner"]).tolist() == partners
    opposite = [steps[j] > steps[i] for i, j in enumerate(partners)]
    assert opposite != expected


def test_partners_come_from_any_episode_of_the_level_or_from_the_same_one():
    levels, numbers = toy().level_seeds.flatten(), episodes(toy().dones)
    assert numbers.tolist() == [[0, 5], [0, 5], [1, 5], [1, 6]]
    partners = prepared().extra["partner"].flatten()
    assert torch.equal(levels[partners], levels)
    assert not torch.equal(numbers.flatten()[partners], numbers.flatten())
    draws = torch.stack([prepared(seed=k).extra["partner"].flatten()[7] for k in range(50)])
    assert set(draws.tolist()) == {0, 2, 4, 6, 7}, "env 1 is on level 5 in its last frame alone, env 0 in all"
    partners = prepared(same_episode=True).extra["partner"].flatten()
    assert torch.equal(numbers.flatten()[partners], numbers.flatten())


def test_minibatches_carry_partners_and_labels(make_learner, sharpen):
    learner, _, _, batch = ready(make_learner, sharpen)
    assert torch.equal(batch.extra["partner"], learner.rollout.flat(learner.rollout.extra["partner"]))
    seeds = learner.rollout.flat(learner.rollout.level_seeds)
    assert torch.equal(seeds[batch.extra["partner"]], batch.level_seeds)


# ---- losses --------------------------------------------------------------------------------------------------------

HALF = torch.zeros(2, 2).log_softmax(-1)
SURE = torch.tensor([[0.8, 0.2], [0.4, 0.6]]).log()


def test_the_first_output_is_the_probability_that_the_partner_came_first():
    """-(ln 0.8 + ln 0.6) / 2; with the labels the other way round -(ln 0.2 + ln 0.4) / 2."""
    labels = torch.tensor([True, False])
    assert order_loss(SURE, labels).item() == pytest.approx(-(math.log(0.8) + math.log(0.6)) / 2)
    assert order_loss(SURE, ~labels).item() == pytest.approx(-(math.log(0.2) + math.log(0.4)) / 2)


def test_confusion_is_least_where_the_classifier_cannot_tell():
    assert confusion_loss(HALF).item() == pytest.approx(math.log(2))
    assert confusion_loss(SURE).item() == pytest.approx(-(math.log(0.16) + math.log(0.24)) / 4)
    values = [confusion_loss(torch.tensor([[p, 1 - p]]).log()).item() for p in (0.1, 0.4, 0.5, 0.6, 0.9)]
    assert min(values) == values[2]


def test_a_classifier_at_one_half_gives_no_gradient_at_all():
    """Exactly zero; a classifier that leans gives some."""
    for hidden in (0, 4):
        classifier, pairs = order_classifier(hidden), torch.randn(3, 512, requires_grad=True)
        confusion_loss(classifier(pairs).log_softmax(-1)).backward()
        assert pairs.grad.any()
        pairs.grad = None
        last = classifier if hidden == 0 else classifier[-1]
        torch.nn.init.zeros_(last.weight)
        confusion_loss(classifier(pairs).log_softmax(-1)).backward()
        assert not pairs.grad.any()


def test_the_classifier_is_linear_or_has_one_hidden_layer():
    sizes = {hidden: [tuple(p.shape) for p in order_classifier(hidden).parameters()] for hidden in (0, 4)}
    assert sizes == {0: [(2, 512), (2,)], 4: [(4, 512), (4,), (2, 4), (2,)]}
    first, _, last = order_classifier(4)
    torch.testing.assert_close(first.weight @ first.weight.T, 2 * torch.eye(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(last.weight @ last.weight.T, torch.eye(2), atol=1e-5, rtol=0)


# ---- the classifier's step and the policy's term -------------------------------------------------------------------


def test_only_its_own_step_moves_the_classifier_and_nothing_else(make_learner, sharpen, vector):
    """The network receives no gradient from it, and it none from the policy's term."""
    learner, method, phase, batch = ready(make_learner, sharpen)
    network, before = vector(learner.model.parameters()), vector(method.classifier.parameters())
    method.before_step([batch], phase, learner.context())
    after = vector(method.classifier.parameters())
    assert not torch.equal(before, after)
    assert torch.equal(vector(learner.model.parameters()), network)
    assert all(p.grad is None for p in learner.model.parameters())
    for parameter in method.classifier.parameters():
        parameter.grad = None
    learner._loss(batch, phase, learner.context())[0].backward()
    assert all(p.grad is None for p in method.classifier.parameters())
    learner.optimisers["policy"].step()
    assert torch.equal(vector(method.classifier.parameters()), after)


def test_a_classifier_that_is_not_frozen_would_collect_the_policys_gradient(make_learner, sharpen):
    """The control of the test above."""
    learner, method, phase, batch = ready(make_learner, sharpen)
    method.before_step([batch], phase, learner.context())
    method.classifier.requires_grad_(True)
    method.optimiser.zero_grad()
    learner._loss(batch, phase, learner.context())[0].backward()
    assert any(p.grad is not None for p in method.classifier.parameters())


def test_the_value_phase_knows_no_classifier(make_learner, sharpen, vector):
    learner, method, _, batch = ready(make_learner, sharpen)
    value = method.phases(learner.config, learner.context())[1]
    before = vector(method.classifier.parameters())
    method.before_step([batch], value, learner.context())
    views = method.views(batch, value, learner.context())
    assert method.penalty(batch, views, value, learner.context()) == (None, {})
    assert torch.equal(vector(method.classifier.parameters()), before)


def test_the_step_is_adams_on_the_cross_entropy_of_the_whole_minibatch(make_learner, sharpen, vector):
    """By hand from features; the same in one micro-batch or in three of unequal size."""
    learner, method, phase, batch = ready(make_learner, sharpen)
    with torch.no_grad():
        features = learner.model(batch.obs).features
    pairs = torch.cat([features, features[batch.extra["partner"]]], 1)
    copy = order_classifier(method.tuned.hidden)
    copy.load_state_dict(method.classifier.state_dict())
    copy.requires_grad_(True)
    logits = copy(pairs)
    labels = torch.where(batch.extra["partner_first"], 0, 1)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    torch.nn.utils.clip_grad_norm_(copy.parameters(), 0.5)
    torch.optim.Adam(copy.parameters(), 5e-4, eps=1e-5).step()
    method.before_step([batch[:3], batch[3:6], batch[6:]], phase, learner.context())
    torch.testing.assert_close(vector(method.classifier.parameters()), vector(copy.parameters()), atol=1e-5, rtol=1e-4)
    right = (logits.argmax(-1) == labels).float().mean().item()
    assert method.logs["order_accuracy"].item() == pytest.approx(right)


def test_the_gradient_of_the_classifier_is_clipped_by_itself(make_learner, sharpen, vector):
    """Which Adam's first step, whose length hardly depends on the gradient's, would hide."""
    learner, method, phase, batch = ready(make_learner, sharpen, max_grad_norm=1e-3)
    method.before_step([batch], phase, learner.context())
    left = vector(p.grad for p in method.classifier.parameters())
    assert left.norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_the_policys_term_goes_through_the_updated_classifier_and_both_frames(make_learner, sharpen, vector):
    learner, method, phase, batch = ready(make_learner, sharpen, Idaac(order_coef=0.1, advantage_coef=0.0, hidden=0))
    model, ctx = learner.model, learner.context()
    before = [p.clone() for p in method.classifier.parameters()]
    method.before_step([batch], phase, ctx)
    assert not any(torch.equal(a, b) for a, b in zip(before, method.classifier.parameters(), strict=True))
    term, logs = method.penalty(batch, method.views(batch, phase, ctx), phase, ctx)

    def expected(stop_own, stop_partner):
        model.zero_grad()
        own = model(batch.obs, value=False).features
        partner = model(learner.rollout.flat(learner.rollout.obs)[batch.extra["partner"]], value=False).features
        pairs = torch.cat([own.detach() if stop_own else own, partner.detach() if stop_partner else partner], 1)
        value = 0.1 * confusion_loss(method.classifier(pairs).log_softmax(-1))
        value.backward()
        return value.item(), vector(p.grad for p in model.encoder.parameters())

    model.zero_grad()
    term.backward()
    ours = vector(p.grad for p in model.encoder.parameters())
    value, both = expected(False, False)
    assert term.item() == pytest.approx(value, rel=1e-5)
    assert logs["order_confusion"].item() == pytest.approx(10 * value, rel=1e-5)
    torch.testing.assert_close(ours, both, atol=1e-8, rtol=1e-3)
    for half in ((True, False), (False, True)):
        assert not torch.allclose(ours, expected(*half)[1], atol=1e-8, rtol=1e-3)


def test_processes_average_the_gradients_of_the_classifier(make_learner, sharpen):
    """Before the step: with an average of zero the classifier stays as it is, and without the others it does not."""

    class Cancelling(Workers):
        def average_gradients(self, parameters):
            for parameter in parameters:
                parameter.grad.zero_()

    for workers, stays in ((Cancelling(), True), (Workers(), False)):
        learner, method, phase, batch = ready(make_learner, sharpen)
        ctx = learner.context()
        ctx.workers = workers
        before = [parameter.clone() for parameter in method.classifier.parameters()]
        method.before_step([batch], phase, ctx)
        assert all(map(torch.equal, before, method.classifier.parameters())) == stays


def test_the_classifier_learns_to_tell_the_order_and_says_how_well(make_learner, sharpen):
    """On features that show the step of a frame. Fails when the labels are the wrong way round on one side only; the
    accuracy that the reference logs is one minus ours."""
    learner, method, phase, batch = ready(make_learner, sharpen)
    rollout = learner.rollout
    rollout.episode_steps[:, 0], rollout.level_seeds[:] = torch.tensor([0, 5, 9, 14]), torch.tensor([0, 1])
    rollout.episode_steps[:, 1] = torch.tensor([3, 4, 0, 1])
    rollout.obs[:] = rollout.episode_steps[..., None, None, None].to(torch.uint8)
    method.prepare(rollout, learner.context())
    batch = rollout.batch(torch.arange(8))
    method._features = lambda model, obs: obs[:, 0, 0, :1].float().expand(-1, 256) / 10
    for group in method.optimiser.param_groups:
        group["lr"] = 0.01
    for _ in range(300):
        method.before_step([batch], phase, learner.context())
    assert method.logs["order_accuracy"] > 0.8
    assert method.logs["order_loss"] < 0.6


# ---- zero, state, combinations -------------------------------------------------------------------------------------


def test_without_the_adversary_it_is_daac_bit_for_bit(make_learner, vector):
    settings = {"num_envs": 2, "num_steps": 2, "num_minibatches": 2}
    base = make_learner(Daac(value_epochs=2, advantage_coef=0.05).build(), **settings)
    method = make_learner(Idaac(order_coef=0.0, value_epochs=2, value_every=1).build(), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    assert torch.equal(base.method_rng.get_state(), method.method_rng.get_state())


def test_with_it_the_policy_differs_and_the_value_network_starts_alike(make_learner, vector):
    base = small(make_learner, Daac(value_epochs=1, advantage_coef=0.05).build())
    method = small(make_learner, Idaac(order_coef=0.1, value_epochs=1, hidden=0).build())
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    base.iterate(), method.iterate()
    assert not torch.equal(base.model.neck.dense.weight, method.model.neck.dense.weight)
    assert torch.equal(base.model.critic_neck.dense.weight, method.model.critic_neck.dense.weight)


def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight, vector):
    """Classifier and optimiser are part of the state."""
    straight, resumed = resumed_as_straight(lambda: Idaac(value_epochs=1, value_every=2, hidden=0).build(), num_steps=2)
    one, other = (learner.method.methods["method"] for learner in (straight, resumed))
    assert int(one.optimiser.state_dict()["state"][0]["step"]) == 8
    assert torch.equal(vector(one.classifier.parameters()), vector(other.classifier.parameters()))


@pytest.mark.parametrize("part", ["classifier", "optimiser"])
def test_a_run_that_forgets_a_part_of_it_differs(make_learner, part, vector):
    """The control of the test above."""
    config = Idaac(value_epochs=1, order_coef=1.0, hidden=0)
    straight = small(make_learner, config.build())
    fresh = small(make_learner, config.build(), seed=9).method.state()
    straight.iterate()
    state = copy.deepcopy(straight.state())
    whole, other = (small(make_learner, config.build()) for _ in range(2))
    whole.load(copy.deepcopy(state))
    other.load(state | {"method": state["method"] | {part: fresh[part]}})
    straight.iterate(), whole.iterate(), other.iterate()
    assert torch.equal(vector(straight.method.classifier.parameters()), vector(whole.method.classifier.parameters()))
    assert not torch.equal(
        vector(straight.method.classifier.parameters()), vector(other.method.classifier.parameters())
    )


def test_with_clop_the_two_frames_have_permutations_of_their_own(make_learner):
    method = Compose({"idaac": Idaac(value_epochs=1).build(), "clop": Clop(alpha=0.8, critic="clean").build()})
    learner = small(make_learner, method)
    (layer,) = (m for m in learner.model.modules() if isinstance(m, CLOP))
    drawn, ramp = [], torch.arange(64.0).view(1, 1, 8, 8)
    learner.collect()
    method.prepare(learner.rollout, learner.context())
    learner.model.train()

    layer.register_forward_hook(lambda module, *_: drawn.append(tuple(module.generator.get_state().tolist())))
    phase, _ = method.phases(learner.config, learner.context())
    learner._step(torch.arange(4), phase, learner.context())
    assert len(drawn) == 4  # twice for the classifier, once for PPO, once for the partners
    assert len(set(drawn)) == 4
    assert not torch.equal(layer(ramp), layer(ramp))
