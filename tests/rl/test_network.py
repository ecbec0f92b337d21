"""The network: its size, its start, its parts, and the places a method may fill."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from clop import CLOP
from clop.rl.encoders.base import Builder, Encoder, Residual
from clop.rl.envs.spec import EnvSpec
from clop.rl.network import Network, Output, as_input, slots_of
from clop.rl.settings import NetworkConfig

TOPOLOGIES = ("shared", "split", "decoupled")
SPEC = EnvSpec((64, 64, 3), 15)


def make(layers=None, after_convolutions=(), *, seed=0, **config):
    """A network with these layers in its slots."""
    torch.manual_seed(seed)
    network = NetworkConfig(**config)
    slots = slots_of(network.encoder)
    for name, layer in (layers or {}).items():
        slots.put(name, lambda site, layer=layer: layer)
    slots.after_convolutions.extend(after_convolutions)
    return Network(network, SPEC, slots)


def frames(count, seed=0):
    return torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def count(*parts):
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


class Watch(nn.Module):
    """Passes everything on and remembers what it saw."""

    def __init__(self, name, log):
        super().__init__()
        self.name, self.log = name, log

    def forward(self, x):
        self.log.append((self.name, tuple(x.shape)))
        return x


class Plus(nn.Module):
    def forward(self, x):
        return x + 1


# ---- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ({}, 626_256),
        ({"topology": "split"}, 1_150_800),
        ({"topology": "split", "norm": "block"}, 1_150_960),
        ({"norm": "all"}, 626_256 + 2 * (5 * 16 + 10 * 32)),
        ({"impoola": True}, 97_600 + 33 * 256 + 257 * 16),
        ({"width": 2}, 388_736 + 4097 * 256 + 257 * 16),
        ({"width": 4}, 1_551_616 + 8193 * 256 + 257 * 16),
    ],
)
def test_parameter_counts_are_those_of_the_published_agents(config, parameters):
    assert count(make(**config)) == parameters


def test_the_encoder_alone_has_its_published_size():
    assert count(make().encoder) == 97_600


def test_the_decoupled_networks_have_the_sizes_of_daac():
    groups = make({"adv_head": nn.Linear(256 + SPEC.num_actions, 1)}, topology="decoupled").groups()
    assert {name: sum(p.numel() for p in group) for name, group in groups.items()} == {
        "policy": 626_271,
        "value": 622_401,
        "all": 626_271 + 622_401,
    }


@pytest.mark.parametrize("width", [0.5, 1, 2, 4])
def test_a_width_multiplies_the_channels_of_the_map_and_nothing_else(width):
    network = make(width=width)
    assert network.encoder(as_input(frames(2))).shape == (2, 32 * width, 8, 8)
    assert network(frames(2)).features.shape == (2, 256)


@pytest.mark.parametrize("bad", [{"width": 3}, {"topology": "shred"}, {"norm": "blok"}, {"dense_init": "ortogonal"}])
def test_a_misspelt_shape_is_refused(bad):
    """Fails when a typo silently means another network, as norm="blok" once meant none."""
    with pytest.raises(ValueError, match=str(next(iter(bad.values())))):
        NetworkConfig(**bad)


# ---- what goes in and comes out ------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("size", [1, 3])
def test_output_shapes(topology, size):
    output = make(topology=topology)(frames(size))
    assert (output.logits.shape, output.value.shape, output.features.shape) == ((size, 15), (size,), (size, 256))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_part_that_is_not_asked_for_is_absent_and_the_other_the_same(topology):
    network, obs = make(topology=topology), frames(2)
    both, policy, value = network(obs), network(obs, value=False), network(obs, policy=False)
    assert policy.value is None
    assert value.logits is None
    assert torch.equal(policy.logits, both.logits)
    assert torch.equal(value.value, both.value)


def test_bytes_become_numbers_from_0_to_1_with_channels_first():
    obs = torch.zeros(1, 64, 64, 3, dtype=torch.uint8)
    obs[0, 5, 7] = torch.tensor([255, 51, 0])
    x = as_input(obs)
    assert x.shape == (1, 3, 64, 64)
    torch.testing.assert_close(x[0, :, 5, 7], torch.tensor([1.0, 0.2, 0.0]))
    assert x.count_nonzero() == 2
    network = make()
    assert torch.equal(network(obs).logits, network(x).logits)


def reference(network, obs):
    """The network written down from the papers once more, a line for each layer."""
    weights = dict(network.named_parameters())

    def conv(x, name):
        return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=1)

    x = obs.permute(0, 3, 1, 2) / 255
    for block in ("encoder.block1", "encoder.block2", "encoder.block3"):
        x = F.max_pool2d(conv(x, f"{block}.0"), 3, 2, 1)
        for pair in (2, 3):
            x = x + conv(conv(x.relu(), f"{block}.{pair}.conv1").relu(), f"{block}.{pair}.conv2")
    h = (x.relu().flatten(1) @ weights["neck.dense.weight"].T + weights["neck.dense.bias"]).relu()
    return [h @ weights[f"{head}.weight"].T + weights[f"{head}.bias"] for head in ("policy_head", "value_head")]


def test_the_whole_is_the_network_of_the_papers():
    """Fails for a missing ReLU or one too many: before the dense layer, after it, or on the skip path."""
    network, obs = make(), frames(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))  # so that biases count too
        logits, value = reference(network, obs)
        output = network(obs)
    torch.testing.assert_close(output.logits, logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(output.value, value.squeeze(-1), atol=1e-5, rtol=1e-4)


def residual(**settings):
    torch.manual_seed(0)
    return Residual("r", Builder(NetworkConfig(**settings), 15, torch.Generator()), (4, 5, 5))


def test_a_residual_adds_its_untouched_input():
    """relu(x) + f(relu(x)), as in auto-drac and idaac whose first ReLU works in place, has no negative value here."""
    block, x = residual(), torch.randn(2, 4, 5, 5)
    before = x.clone()
    with torch.no_grad():
        expected = x + block.conv2(block.conv1(x.relu()).relu())
        torch.testing.assert_close(block(x), expected)
        block.conv2.weight.zero_()
        assert torch.equal(block(x), before)
    assert torch.equal(x, before)


def test_a_residual_can_add_its_rectified_input_as_some_reference_code_does():
    block, x = residual(skip_relu=True), torch.randn(2, 4, 5, 5)
    before = x.clone()
    with torch.no_grad():
        torch.testing.assert_close(block(x), x.relu() + block.conv2(block.conv1(x.relu()).relu()))
    assert torch.equal(x, before)


def test_a_residual_hands_the_gradient_past_its_convolutions():
    block, x = residual(), torch.randn(1, 4, 5, 5, requires_grad=True)
    with torch.no_grad():
        block.conv2.weight.zero_()
    block(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_impoola_averages_over_the_map():
    """Fails when the pool comes after the dense layer or over channels: positions must not matter, channels must."""
    neck = make(impoola=True).neck
    maps = torch.rand(2, 32, 8, 8)
    shuffled = maps.flatten(2)[..., torch.randperm(64)].view_as(maps)
    torch.testing.assert_close(neck(shuffled), neck(maps))
    torch.testing.assert_close(neck(maps.mean((2, 3), keepdim=True).expand(-1, -1, 8, 8)), neck(maps))
    assert not torch.allclose(neck(maps.flip(1)), neck(maps))


# ---- initialisation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{}, {"topology": "split", "norm": "block"}, {"width": 2}, {"impoola": True}])
def test_the_policy_starts_near_uniform(config):
    """Entropy within 1e-2 of ln 15 on noise."""
    with torch.no_grad():
        assert (make(**config)(frames(8)).entropy() - math.log(15)).abs().max() < 1e-2


def test_a_policy_head_with_gain_one_would_not_start_near_uniform():
    network = make()
    with torch.no_grad():
        network.policy_head.weight.mul_(100)
        assert (network(frames(8)).entropy() - math.log(15)).abs().max() > 2e-2


def test_heads_are_orthogonal_with_their_gains():
    network = make()
    policy, value = network.policy_head.weight, network.value_head.weight
    torch.testing.assert_close(policy @ policy.T, 1e-4 * torch.eye(15))
    torch.testing.assert_close(value @ value.T, torch.eye(1))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_convolutions_and_dense_layers_start_xavier_uniform_and_biases_at_zero(topology):
    network = make(topology=topology)
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            assert not module.bias.any(), name
        if isinstance(module, nn.Conv2d) or name.endswith("dense"):
            weight = module.weight
            spots = weight[0, 0].numel() if weight.ndim == 4 else 1
            bound = math.sqrt(6 / (spots * (weight.shape[0] + weight.shape[1])))
            assert 0.98 * bound < weight.abs().max() <= bound, name
            # A uniform variable's variance is bound^2 / 3; its estimate from n draws errs by 0.9 / sqrt(n).
            assert weight.square().mean().item() == pytest.approx(bound**2 / 3, rel=5 / math.sqrt(weight.numel())), name


def test_the_dense_layer_can_start_orthogonal_with_gain_root_two():
    weight = make(dense_init="orthogonal").neck.dense.weight
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(256), atol=1e-5, rtol=0)


def test_the_two_dense_layers_of_a_split_network_start_apart():
    network = make(topology="split")
    assert not torch.equal(network.neck.dense.weight, network.critic_neck.dense.weight)


# ---- batch norm ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "places"), [("none", 0), ("block", 3), ("all", 15)])
def test_batch_norm_follows_the_convolutions_it_should(norm, places):
    network = make(norm=norm)
    norms = [name for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == places
    if norm == "block":  # right after the block's first convolution, before its pool
        assert norms == [f"encoder.block{k}.0.1" for k in (1, 2, 3)]


# ---- slots ---------------------------------------------------------------------------------------------------------

MAPS = {
    "input": (2, 3, 64, 64),
    "block1": (2, 16, 32, 32),
    "block2": (2, 32, 16, 16),
    "block3": (2, 32, 8, 8),
    "encoder_out": (2, 32, 8, 8),
    "actor_in": (2, 32, 8, 8),
    "critic_in": (2, 32, 8, 8),
}


@pytest.mark.parametrize("topology", ["shared", "split"])
def test_each_slot_sees_the_map_it_is_named_after_once(topology):
    log = []
    make({name: Watch(name, log) for name in MAPS}, topology=topology)(frames(2))
    assert log == list(MAPS.items())


def test_in_a_decoupled_network_slots_of_the_policys_encoder_do_not_reach_the_critics():
    """CLOP after a block of the policy's encoder must not reach the critic's."""
    log = []
    make({name: Watch(name, log) for name in MAPS}, topology="decoupled")(frames(2))
    assert log == list(MAPS.items())


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_critics_own_encoder_has_the_same_slots_where_there_is_one(topology):
    """After the policy's pass and before ``critic_in``; elsewhere they are no part of the network."""
    log = []
    own = {f"critic.{name}": shape for name, shape in MAPS.items() if name not in ("actor_in", "critic_in")}
    make({name: Watch(name, log) for name in [*own, "actor_in", "critic_in"]}, topology=topology)(frames(2))
    middle = list(own.items()) if topology == "decoupled" else []
    assert log == [("actor_in", MAPS["actor_in"]), *middle, ("critic_in", MAPS["critic_in"])]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(
    ("slot", "moves"),
    [
        ("block1", {"shared": (True, True), "split": (True, True), "decoupled": (True, False)}),
        ("encoder_out", {"shared": (True, True), "split": (True, True), "decoupled": (True, False)}),
        ("actor_in", dict.fromkeys(TOPOLOGIES, (True, False))),
        ("critic_in", dict.fromkeys(TOPOLOGIES, (False, True))),
    ],
)
def test_a_filled_slot_moves_the_outputs_behind_it_and_no_other(slot, moves, topology):
    obs = frames(2)
    empty, filled = make(topology=topology)(obs), make({slot: Plus()}, topology=topology)(obs)
    moved = (not torch.equal(empty.logits, filled.logits), not torch.equal(empty.value, filled.value))
    assert moved == moves[topology]


def test_the_last_block_slot_comes_after_the_final_relu():
    log = []

    class Smallest(nn.Module):
        def forward(self, x):
            log.append(x.min().item())
            return x

    make({name: Smallest() for name in ("block2", "block3")})(frames(2))
    assert log[0] < 0
    assert log[1] == 0


def test_the_neck_slot_replaces_the_dense_layer():
    class Sum(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :256]

    network = make({"neck": Sum()})
    assert count(network) == 97_600 + 257 * 16
    assert network(frames(2)).features.shape == (2, 256)


def test_the_advantage_head_reads_features_and_the_stored_action():
    log = []

    class Head(nn.Module):
        def forward(self, x):
            log.append(x)
            return x[:, -1:]

    network, obs = make({"adv_head": Head()}), frames(2)
    output = network(obs, actions=torch.tensor([3, 14]))
    assert torch.equal(log[0][:, :256], output.features)
    assert torch.equal(log[0][:, 256:], F.one_hot(torch.tensor([3, 14]), 15).float())
    assert output.aux["advantage"].tolist() == [0.0, 1.0]
    assert "advantage" not in network(obs).aux  # nothing to ask about


def test_no_other_slot_is_accepted():
    with pytest.raises(AssertionError, match="actor_out"):
        make({"actor_out": nn.Identity()})
    inside = {"input", "block1", "block2", "block3", "encoder_out"}
    own = {f"critic.{name}" for name in inside}
    assert set(slots_of("impala").known) == set(MAPS) | {"neck", "adv_head"} | own


def test_what_follows_a_convolution_is_asked_for_once_for_each_of_the_fifteen():
    asked = []

    def ask(name, site):
        asked.append((name, site.shape))
        return nn.Identity()

    make(after_convolutions=[ask])
    expected = []
    for block, channels, size in (("block1", 16, 64), ("block2", 32, 32), ("block3", 32, 16)):
        expected.append((f"{block}.conv", (channels, size, size)))
        for pair in ("residual1", "residual2"):
            names = (f"{block}.{pair}.{conv}" for conv in ("conv1", "conv2"))
            expected += [(name, (channels, size // 2, size // 2)) for name in names]
    assert asked == expected


def test_what_follows_a_convolution_sees_its_output_before_the_pool():
    log = []
    make(after_convolutions=[lambda name, site: Watch(site.shape, log)])(frames(2))
    assert len(log) == 15
    for declared, shape in log:
        assert shape == (2, *declared)


def test_modules_after_convolutions_come_in_order_and_after_the_norm():
    network = make(norm="block", after_convolutions=[lambda *_: Plus(), lambda *_: nn.Identity()])
    assert [type(m) for m in network.encoder.block1[0]] == [nn.Conv2d, nn.BatchNorm2d, Plus, nn.Identity]


# ---- CLOP in the network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "block"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_value_is_the_same_bits_with_clop_before_the_policy_and_without(topology, norm):
    """Fails when the critic reads the permuted map, or the features that came from it."""
    obs = frames(4)
    off = make(topology=topology, norm=norm)
    on = make({"actor_in": CLOP(0.8)}, topology=topology, norm=norm)
    on.load_state_dict(off.state_dict())
    one, other = off(obs), on(obs)
    assert torch.equal(one.value, other.value)
    assert not torch.allclose(one.logits, other.logits)
    on.eval(), off.eval()
    assert torch.equal(on(obs).logits, off(obs).logits)


def test_without_permutation_the_shared_dense_layer_runs_once():
    runs = []
    for slots, expected in (({}, 1), ({"actor_in": CLOP(0.5)}, 2)):
        network = make(slots)
        network.neck.register_forward_hook(lambda *_: runs.append(1))
        network(frames(2))
        assert len(runs) == expected
        runs.clear()


# ---- gradients and memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "other"), [("policy", "value"), ("value", "policy")])
def test_no_gradient_crosses_between_decoupled_networks(asked, other):
    network = make(topology="decoupled")
    output = network(frames(2))
    (output.logits if asked == "policy" else output.value).sum().backward()
    groups = network.groups()
    assert all(p.grad is not None for p in groups[asked])
    assert all(p.grad is None for p in groups[other])
    ids = [id(p) for name in ("policy", "value") for p in groups[name]]
    assert sorted(ids) == sorted(id(p) for p in network.parameters())


@pytest.mark.parametrize("asked", ["policy", "value"])
def test_a_decoupled_network_computes_only_the_half_it_is_asked_for(asked):
    network, ran = make(topology="decoupled"), []
    for name, module in network.named_modules():
        if isinstance(module, Encoder):
            module.register_forward_hook(lambda *_, name=name: ran.append(name))
    network(frames(1), policy=asked == "policy", value=asked == "value")
    assert ran == ["encoder" if asked == "policy" else "critic_encoder"]


@pytest.mark.parametrize("topology", ["shared", "split"])
def test_other_networks_are_one_group(topology):
    network = make(topology=topology)
    assert list(network.groups()) == ["all"]
    assert [id(p) for p in network.groups()["all"]] == [id(p) for p in network.parameters()]


def test_channels_stay_innermost_in_memory_from_the_frame_to_the_last_map():
    """Each map that is not, is copied by the next convolution."""
    network, wrong = make({"actor_in": CLOP(0.5)}, norm="all", topology="split"), []

    def check(name):
        def hook(module, inputs, output):
            for x in (*inputs, output):
                if x.ndim == 4 and not x.is_contiguous(memory_format=torch.channels_last):
                    wrong.append(name)

        return hook

    for name, module in network.encoder.named_modules():
        module.register_forward_hook(check(name))
    output = network(frames(4))
    assert wrong == []
    assert output.encoder_map.is_contiguous(), "from here on dense layers read it"
    for name, parameter in network.named_parameters():
        assert parameter.ndim != 4 or parameter.is_contiguous(memory_format=torch.channels_last), name


# ---- output --------------------------------------------------------------------------------------------------------


def test_log_probabilities_and_entropy_of_hand_made_logits():
    logits = torch.tensor([[0.0, math.log(2), math.log(5)], [1.0, 1.0, 1.0]])
    output = Output(logits)
    expected = torch.tensor([math.log(5 / 8), math.log(1 / 3)])
    torch.testing.assert_close(output.log_prob(torch.tensor([2, 0])), expected)
    first = -sum(p * math.log(p) for p in (1 / 8, 2 / 8, 5 / 8))
    torch.testing.assert_close(output.entropy(), torch.tensor([first, math.log(3)]))


def test_actions_are_drawn_with_the_probabilities_of_the_policy():
    probabilities, draws = torch.tensor([0.1, 0.2, 0.3, 0.4]), 20_000
    output = Output(probabilities.log().expand(draws, 4))
    actions = output.sample(torch.Generator().manual_seed(0))
    observed = torch.bincount(actions, minlength=4).numpy()
    assert stats.chisquare(observed, probabilities.numpy() / probabilities.sum().item() * draws).pvalue > 1e-6
    greedy_or_flat = [0, 0, 0, draws], [draws / 4] * 4
    assert all(abs(observed - wrong).max() > 500 for wrong in greedy_or_flat)


def test_the_same_generator_draws_the_same_actions():
    output = Output(torch.zeros(32, 15))
    one, again, other = (output.sample(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_an_action_that_cannot_happen_never_does():
    output = Output(torch.tensor([[0.0, -torch.inf, 0.0]]).expand(5000, 3))
    assert set(output.sample(torch.Generator().manual_seed(0)).tolist()) == {0, 2}


def test_short_frames_are_the_rounded_ones_to_the_bit():
    """Fails when a byte, or what it is multiplied with, is rounded before the product."""
    obs = torch.arange(256, dtype=torch.uint8).repeat(48).view(1, 64, 64, 3)
    short = as_input(obs, torch.bfloat16)
    assert torch.equal(short, as_input(obs).bfloat16())
    assert short.stride() == as_input(obs).stride()


@pytest.mark.parametrize(("slot", "expected"), [("input", torch.float32), ("actor_in", torch.bfloat16)])
def test_what_stands_before_the_first_convolution_sees_frames_that_are_not_rounded(slot, expected):
    """In mixed precision too: a method that filters frames would round twice."""
    slots = slots_of("small")
    slots.put(slot, lambda site: nn.Identity())
    network = Network(NetworkConfig(encoder="small", amp="bf16"), SPEC, slots)
    seen = []
    network.encoder.input.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    network(torch.zeros(2, 64, 64, 3, dtype=torch.uint8))
    assert seen == [expected]


@pytest.mark.parametrize("topology", ["shared", "split", "decoupled"])
def test_mixed_precision_is_for_encoder_and_dense_layers_alone(topology):
    """Fails if autocast is never entered, or if logits, values or gradients are left in bfloat16."""
    network = Network(NetworkConfig(encoder="small", topology=topology, amp="bf16"), SPEC)
    seen = {}

    def note(name):
        def hook(module, inputs, output):
            seen[name] = output.dtype

        return hook

    for name in ("neck", "policy_head", "value_head"):
        getattr(network, name).register_forward_hook(note(name))
    output = network(torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8))
    assert output.encoder_map.dtype == torch.bfloat16
    assert seen == {"neck": torch.bfloat16, "policy_head": torch.float32, "value_head": torch.float32}
    (output.logits.sum() + output.value.sum()).backward()
    assert {p.grad.dtype for p in network.parameters()} == {torch.float32}
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    again = network.policy_branch(output.encoder_map)
    assert torch.equal(again.logits, output.logits)
