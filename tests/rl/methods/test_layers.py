"""Methods that are layers, CLOP, dropout and batch norm: where each goes in the network, and what it does there."""

import pytest
import torch
from scipy import stats
from torch import nn

from clop import CLOP
from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.games import GAMES
from clop.rl.methods import compose
from clop.rl.methods.base import Method, Settings
from clop.rl.methods.batch_norm import BatchNorm
from clop.rl.methods.clop import Clop
from clop.rl.methods.dropout import Dropout, SharedMask
from clop.rl.network import Network, slots_of
from clop.rl.ppo import build_network
from clop.rl.settings import NetworkConfig
from clop.sample_dropout import SampleDropout


def edited(method, game="bigfish", **network):
    """Settings that a method has edited."""
    return method.configure(Settings(LevelSet(game), network=NetworkConfig(**network)))


def build(config=None, *, game="bigfish", generator=None, **network):
    """The network of a method, with a generator as the learner's."""
    method = Method() if config is None else config.build()
    generator = generator or torch.Generator().manual_seed(0)
    return build_network(edited(method, game, **network), method, 0, generator)


def frames(count, seed=0):
    return torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def layers(network, kind):
    return [name for name, module in network.named_modules() if isinstance(module, kind)]


# ---- CLOP ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_the_strength_of_clop_is_the_papers_for_the_game_unless_given(game):
    assert build(Clop(), game=game).actor_in.alpha == GAMES[game].clop_alpha
    assert build(Clop(alpha=0.05), game=game).actor_in.alpha == 0.05


@pytest.mark.parametrize(
    ("config", "network", "places"),
    [
        (Clop(), {}, ["actor_in"]),
        (Clop(slot="block1"), {}, ["encoder.block1_out"]),
        (Clop(slot="block2"), {}, ["encoder.block2_out"]),
        (Clop(slot="block3"), {}, ["encoder.block3_out"]),
        (Clop(critic="same"), {}, ["encoder.out"]),
        (Clop(critic="independent"), {}, ["actor_in", "critic_in"]),
        (Clop(), {"impoola": True}, ["encoder.block2_out"]),
        (Clop(slot="block1"), {"impoola": True}, ["encoder.block1_out"]),
        (Clop(), {"topology": "decoupled"}, ["actor_in"]),
    ],
)
def test_clop_goes_where_it_is_told(config, network, places):
    assert layers(build(config, **network), CLOP) == places


@pytest.mark.parametrize("slot", ["actor_in", "block3"])
def test_clop_right_before_a_global_average_pool_is_refused_with_the_reason(slot):
    with pytest.raises(UsageError, match=r"would do nothing.*a mean does not see a permutation.*block2"):
        build(Clop(slot=slot), impoola=True)


@pytest.mark.parametrize("slot", ["actor_in", "block3"])
def test_there_it_would_indeed_do_nothing(slot):
    plain, slots = build(impoola=True), slots_of("impala")
    slots.put(slot, lambda _: CLOP(0.9))
    torch.manual_seed(0)
    permuted = Network(NetworkConfig(impoola=True), LevelSet("bigfish").spec, slots)
    torch.testing.assert_close(permuted(frames(2)).logits, plain(frames(2)).logits, atol=1e-6, rtol=1e-4)
    assert not torch.allclose(
        build(Clop(alpha=0.9), impoola=True)(frames(2)).logits, plain(frames(2)).logits, atol=1e-6
    )


def test_a_critic_that_already_sees_the_permuted_map_needs_no_other():
    with pytest.raises(UsageError, match="the critic already reads the permuted map when CLOP is at block2"):
        build(Clop(slot="block2", critic="same"))


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_a_strength_that_is_no_probability_is_refused(alpha):
    with pytest.raises(UsageError, match=f"alpha is a probability and must lie in .0, 1., got {alpha}"):
        Clop(alpha=alpha)


@pytest.mark.parametrize(
    ("config", "policy", "value"),
    [
        (Clop(alpha=0.8), True, False),
        (Clop(alpha=0.8, critic="same"), True, True),
        (Clop(alpha=0.8, critic="independent"), True, True),
        (Clop(alpha=0.8, slot="block2"), True, True),
    ],
)
@pytest.mark.parametrize("topology", ["shared", "split"])
def test_whom_the_permutation_reaches(config, policy, value, topology):
    """The critic's value is bit-identical with CLOP on and off, unless it is asked to see the permutation."""
    off, on, obs = build(topology=topology), build(config, topology=topology), frames(3)
    one, other = off(obs), on(obs)
    assert torch.equal(one.logits, other.logits) is not policy
    assert torch.equal(one.value, other.value) is not value
    assert torch.equal(on.eval()(obs).value, off.eval()(obs).value)
    assert torch.equal(on(obs).logits, off(obs).logits)


@pytest.mark.parametrize(("critic", "same"), [("same", True), ("independent", False)])
def test_actor_and_critic_share_a_draw_or_have_their_own(critic, same):
    network, seen = build(Clop(alpha=0.8, critic=critic), topology="split"), []
    for neck in (network.neck, network.critic_neck):
        neck.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    network(frames(2))
    assert torch.equal(*seen) is same


def test_the_settings_of_clop_reach_its_layer():
    config = Clop(0.5, variant="raster", local=False, channel_consistent=False, per_sample=True, rollout_mode="eval")
    generator = torch.Generator()
    layer = build(config, generator=generator).actor_in
    assert (layer.variant, layer.local, layer.channel_consistent, layer.per_sample) == ("raster", False, False, True)
    assert layer.generator is generator
    assert edited(config.build()).rollout_mode == "eval"
    assert edited(Clop().build()).rollout_mode == "train"


@pytest.mark.parametrize(
    "config", [Clop(alpha=0.5), Dropout(p=0.5), Dropout(p=0.5, style="coinrun")], ids=["clop", "dropout", "coinrun"]
)
def test_layers_draw_from_the_learner_and_not_from_torch(make_learner, config):
    """Fails when a layer takes torch's global generator, which a resumed run does not restore."""
    learner = make_learner(compose({"method": config}))
    globals_before, ours_before = torch.get_rng_state(), learner.method_rng.get_state()
    learner.iterate()
    assert torch.equal(torch.get_rng_state(), globals_before)
    assert not torch.equal(learner.method_rng.get_state(), ours_before)


@pytest.mark.parametrize(("mode", "active"), [("train", True), ("eval", False)])
def test_clop_acts_in_rollouts_if_told(make_learner, sharpen, mode, active):
    """In evaluation mode the stored log-probabilities are those of the clean map."""
    learner = sharpen(make_learner(compose({"clop": Clop(alpha=0.8, rollout_mode=mode)})))
    learner.collect()
    batch = learner.rollout.batch(torch.arange(16))
    with torch.no_grad():
        clean = learner.model.eval()(batch.obs)
    assert torch.allclose(clean.log_prob(batch.actions), batch.log_probs, atol=1e-4) is not active
    torch.testing.assert_close(clean.value, batch.values, atol=1e-5, rtol=1e-4)


# ---- dropout -------------------------------------------------------------------------------------------------------


def sample_layer(p):
    return SampleDropout(p, torch.Generator().manual_seed(0))


def shared_layer(p):
    mask = SharedMask(p, 8, 16, 16)
    mask.redraw(torch.Generator().manual_seed(0))
    return mask


each_layer = pytest.mark.parametrize("make_layer", [sample_layer, shared_layer])


@each_layer
def test_dropout_drops_with_its_probability_and_keeps_the_expectation(make_layer):
    """Each value is 0 or 1 / (1 - p); the count of zeros is binomial. Fails for a p that means keeping."""
    p, x = 0.3, torch.ones(4, 8, 16, 16)
    y = make_layer(p)(x)
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).item()}
    one_mask = y[0] if make_layer is shared_layer else y
    assert stats.binomtest(int((one_mask == 0).sum()), one_mask.numel(), p).pvalue > 1e-6
    assert stats.binomtest(int((one_mask == 0).sum()), one_mask.numel(), 1 - p).pvalue < 1e-6


@each_layer
def test_the_mean_of_many_draws_is_the_input(make_layer):
    p, draws, generator = 0.25, 4000, torch.Generator().manual_seed(1)
    x, layer = torch.full((1, 8, 16, 16), 2.0), make_layer(p)
    layer.generator = generator
    total = torch.zeros_like(x)
    for _ in range(draws):
        if make_layer is shared_layer:
            layer.redraw(generator)
        total += layer(x)
    # Of 2048 means the largest error is some 4 standard errors of 2 * sqrt(p / (1 - p) / draws).
    assert (total / draws - x).abs().max() < 6 * 2 * (p / (1 - p) / draws) ** 0.5


@each_layer
def test_dropout_is_the_identity_in_evaluation_and_at_zero(make_layer):
    x = torch.randn(2, 8, 16, 16)
    assert make_layer(0.5).eval()(x) is x
    assert make_layer(0.0)(x) is x


def test_masks_differ_between_samples_and_passes_or_not_at_all():
    x = torch.ones(3, 8, 16, 16)
    per_sample, shared = sample_layer(0.5), shared_layer(0.5)
    first = per_sample(x)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, per_sample(x))
    first = shared(x)
    assert torch.equal(first[0], first[1])
    assert torch.equal(first, shared(x))
    shared.redraw(torch.Generator().manual_seed(5))
    assert not torch.equal(first, shared(x))


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_rate_that_drops_all_or_is_no_probability_is_refused(p):
    with pytest.raises(UsageError, match=rf"dropout\.p is a probability and must lie in \[0, 1\), got {p}"):
        Dropout(p=p)


def test_dropout_goes_before_the_policy_or_after_each_convolution():
    assert layers(build(Dropout()), SampleDropout) == ["actor_in"]
    network = build(Dropout(style="coinrun"))
    assert len(layers(network, SharedMask)) == 15
    assert layers(network, SharedMask)[:2] == ["encoder.block1.0.1", "encoder.block1.2.conv1.1"]
    assert sum(p.numel() for p in network.parameters()) == 626_256


@pytest.mark.parametrize("topology", ["shared", "split", "decoupled"])
def test_the_critic_does_not_see_the_dropout_of_the_actor(topology):
    off, on, obs = build(topology=topology), build(Dropout(p=0.5), topology=topology), frames(3)
    assert torch.equal(on(obs).value, off(obs).value)
    assert not torch.equal(on(obs).logits, off(obs).logits)


def test_coinrun_dropout_learns_from_the_policy_that_acted_and_actor_dropout_does_not(make_learner, sharpen):
    """One mask for an iteration makes the first ratios 1; a mask for each sample and pass does not."""
    kl = {}
    for style in ("coinrun", "actor"):
        learner = sharpen(make_learner(compose({"dropout": Dropout(p=0.2, style=style)})))
        kl[style] = [learner.iterate()[0]["approx_kl"] for _ in range(2)]
    assert kl["coinrun"] == pytest.approx([0, 0], abs=1e-8)
    assert min(kl["actor"]) > 1e-6


@pytest.mark.parametrize("style", ["actor", "coinrun", "sni"])
def test_dropout_acts_in_rollouts(make_learner, sharpen, style):
    """The stored log-probabilities are not those of the network without dropout."""
    learner = sharpen(make_learner(compose({"dropout": Dropout(p=0.5, style=style)})))
    learner.method.begin_iteration(learner.context())
    learner.collect()
    batch = learner.rollout.batch(torch.arange(16))
    with torch.no_grad():
        clean = learner.model.eval()(batch.obs)
    assert not torch.allclose(clean.log_prob(batch.actions), batch.log_probs, atol=1e-3)


def test_coinrun_masks_are_drawn_once_for_each_iteration(make_learner):
    method = compose({"dropout": Dropout(p=0.2, style="coinrun")})
    learner = make_learner(method, update_epochs=2)
    masks, seen = method.methods["dropout"].masks, []
    masks[0].register_forward_hook(lambda module, *_: seen.append(module.kept.clone()))
    for _ in range(2):
        learner.iterate()
    assert len(seen) == 2 * (5 + 2)
    assert all(torch.equal(mask, seen[0]) for mask in seen[:7])
    assert all(torch.equal(mask, seen[7]) for mask in seen[7:])
    assert not torch.equal(seen[0], seen[7])


def test_masks_of_coinrun_dropout_are_part_of_its_state():
    one, other = (Dropout(p=0.5, style="coinrun").build() for _ in range(2))
    for method in (one, other):
        build_network(edited(method), method, 0, torch.Generator())
    for mask in one.masks:
        mask.redraw(torch.Generator().manual_seed(3))
    other.load(one.state())
    for ours, theirs in zip(one.masks, other.masks, strict=True):
        assert torch.equal(ours.kept, theirs.kept)
        assert ours.kept.data_ptr() != theirs.kept.data_ptr()


# ---- batch norm ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "more"), [("block", 160), ("all", 800)])
def test_batch_norm_adds_a_scale_and_a_shift_for_each_channel(where, more):
    assert sum(p.numel() for p in build(BatchNorm(where)).parameters()) == 626_256 + more


def test_batch_norm_starts_as_pytorch_does():
    network = build(BatchNorm("all"))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.eps, module.momentum) == (1e-5, 0.1)
            assert (module.weight == 1).all()
            assert not module.bias.any()


@pytest.mark.parametrize(("mode", "passes"), [("train", 5 + 1), ("eval", 1)])
def test_batch_norm_counts_the_passes_whose_statistics_it_takes(make_learner, mode, passes):
    """Acting in training mode takes statistics of the frames at hand, and adds them to the running ones."""
    learner = make_learner(compose({"batch_norm": BatchNorm("block", rollout_mode=mode)}))
    learner.iterate()
    counts = {int(m.num_batches_tracked) for m in learner.model.modules() if isinstance(m, nn.BatchNorm2d)}
    assert counts == {passes}


def test_an_evaluation_uses_and_keeps_the_running_statistics():
    """In evaluation mode a frame's outputs do not depend on its neighbours; in training mode they do."""
    network, obs = build(BatchNorm("block")), frames(8)
    with torch.no_grad():
        for _ in range(3):
            network(obs)
        before = [buffer.clone() for buffer in network.buffers()]
        assert not torch.allclose(network.train()(obs[:2]).value, network(obs).value[:2], atol=1e-4)
        for buffer, old in zip(network.buffers(), before, strict=True):
            buffer.copy_(old)
        network.eval()
        torch.testing.assert_close(network(obs[:2]).value, network(obs).value[:2], atol=1e-5, rtol=1e-4)
    assert all(torch.equal(one, other) for one, other in zip(network.buffers(), before, strict=True))


def test_batch_norm_may_go_by_the_frames_at_hand_in_evaluation_too():
    """The CoinRun line knows no running statistics. Fails if the setting does not reach the layers."""
    network, obs = build(BatchNorm("all", statistics="batch")), frames(8)
    with torch.no_grad():
        training, evaluation = network.train()(obs).value, network.eval()(obs).value
        alone = network(obs[:2]).value
    assert torch.equal(training, evaluation)
    assert not torch.allclose(alone, evaluation[:2], atol=1e-4)
    assert not list(network.buffers())
    assert compose({"batch_norm": BatchNorm(statistics="batch")}).notes() == {"batch_norm.statistics": "batch"}


def test_batch_norm_keeps_the_rest_of_the_network():
    settings = edited(BatchNorm("block").build(), topology="split", width=2)
    assert settings.network == NetworkConfig(topology="split", width=2, norm="block")


# ---- at zero strength -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network", [NetworkConfig(), NetworkConfig(topology="split", norm="block")], ids=["plain", "authors"]
)
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
def test_a_method_at_strength_zero_is_its_base_bit_for_bit(make_learner, configs, network, vector):
    """Fails when a layer draws although it does nothing, or moves a weight by a rounding."""
    settings = {"network": network, "mode": "train", "num_envs": 2, "num_minibatches": 2}
    base, method = make_learner(**settings), make_learner(compose(configs), **settings)
    for _ in range(2):
        assert base.iterate()[0] == method.iterate()[0]
    assert torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
    for name in ("method_rng", "action_rng", "shuffle_rng"):
        assert torch.equal(getattr(base, name).get_state(), getattr(method, name).get_state())


@pytest.mark.parametrize(
    "configs", [{"clop": Clop(alpha=0.5)}, {"dropout": Dropout(p=0.2)}, {"dropout": Dropout(p=0.2, style="coinrun")}]
)
def test_at_another_strength_it_is_not(make_learner, configs, vector):
    base, method = make_learner(mode="train"), make_learner(compose(configs), mode="train")
    base.iterate(), method.iterate()
    assert not torch.equal(vector(base.model.parameters()), vector(method.model.parameters()))
