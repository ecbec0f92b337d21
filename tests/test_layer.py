"""The layer among PyTorch's tools: compile, export, ONNX, copies, checkpoints, data parallel."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from clop import CLOP, clop

quiet_inductor = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated"
)  # torch, on its first import
INDUCTOR = pytest.param("inductor", marks=quiet_inductor)
SETTINGS = [
    {},
    {"variant": "raster"},
    {"local": False},
    {"channel_consistent": False},
    {"per_sample": True},
]
backends = pytest.mark.parametrize("backend", ["aot_eager", INDUCTOR])


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def positions_as_values(samples=2, channels=3, size=(8, 8)):
    return torch.arange(float(np.prod(size))).view(1, 1, *size).repeat(samples, channels, *(1 for _ in size))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_layer_is_the_function(settings):
    x = torch.rand(2, 3, 5, 3)
    expected = clop(x, 0.7, generator=seeded(), **settings)
    assert torch.equal(CLOP(0.7, generator=seeded(), **settings)(x), expected)
    torch.manual_seed(0)
    assert torch.equal(CLOP(0.7, **settings)(x), expected)


def test_evaluation_returns_the_very_tensor():
    x, layer = torch.rand(2, 3, 5, 3), CLOP(0.7)
    assert layer.eval()(x) is x
    assert layer.train()(x) is not x


def test_alpha_can_be_set_and_is_checked():
    layer, x = CLOP(0.7), positions_as_values()
    layer.alpha = 0
    assert layer(x) is x
    layer.alpha = 1
    assert layer.alpha == 1.0
    assert not torch.equal(layer(x), x)
    with pytest.raises(ValueError, match="must lie in"):
        layer.alpha = 1.5
    assert layer.alpha == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"alpha": 1.5}, ValueError, "alpha is a probability and must lie in"),
        ({"alpha": "0.5"}, TypeError, "alpha is a probability, expected a number"),
        ({"alpha": 0.5, "variant": "papr"}, ValueError, "unknown variant 'papr'; did you mean 'paper'?"),
        ({"alpha": 0.5, "generator": 3}, TypeError, "generator: expected a torch.Generator, got int"),
    ],
)
def test_bad_settings_are_refused_when_the_layer_is_made(arguments, error, sentence):
    with pytest.raises(error, match=sentence.replace("?", r"\?")):
        CLOP(**arguments)


@pytest.mark.parametrize("training", [True, False])
def test_a_flattened_input_is_refused_with_what_to_do(training):
    with pytest.raises(ValueError, match=r"got \(4, 75\); apply it before flattening"):
        nn.Sequential(nn.Flatten(), CLOP(0.5)).train(training)(torch.rand(4, 3, 5, 5))


def test_settings_are_shown_where_they_are_not_the_default():
    assert repr(CLOP(0.5)) == "CLOP(alpha=0.5)"
    layer = CLOP(1, variant="clamp", local=False, channel_consistent=False, per_sample=True)
    assert repr(layer) == "CLOP(alpha=1, variant='clamp', local=False, channel_consistent=False, per_sample=True)"


def test_the_state_is_empty():
    layer = CLOP(0.5, generator=seeded())
    assert not layer.state_dict()
    assert not [*layer.parameters(), *layer.buffers()]


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


def through_torch_save(value):
    file = io.BytesIO()
    torch.save(value, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle, through_torch_save])
def test_a_copy_goes_its_own_way_from_where_the_original_was(copied):
    x = positions_as_values()
    layer = CLOP(0.7, variant="clamp", generator=seeded())
    layer(x)
    other = copied(nn.Sequential(layer))[0]
    assert repr(other) == repr(layer)
    assert torch.equal(other(x), layer(x))  # both generators stood at the same point, and have moved on apart
    assert other.generator is not layer.generator
    other.alpha = 0.1
    assert layer.alpha == 0.7


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, through_pickle])
def test_a_copy_goes_its_own_way_when_compiled(copied):
    """A compiled graph refers to its layer; fails when the graph of the copy still asks the original."""
    x, layer = positions_as_values(), CLOP(0.7)
    original = torch.compile(layer, fullgraph=True, backend="aot_eager")
    original(x)
    other = copied(layer)
    other.alpha, other.generator = 1e-9, seeded(5)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x)
    assert not torch.equal(original(x), x)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_copy_of_a_compiled_network_goes_its_own_way():
    x = positions_as_values()
    compiled = torch.compile(nn.Sequential(CLOP(0.7)), fullgraph=True, backend="aot_eager")
    compiled(x)
    other = copy.deepcopy(compiled)
    other.get_submodule("_orig_mod.0").alpha = 1e-9
    assert torch.equal(other(x), x)
    assert not torch.equal(compiled(x), x)


def test_a_layer_is_made_and_run_on_the_meta_device():
    with torch.device("meta"):
        network = nn.Sequential(nn.Conv2d(3, 4, 3), CLOP(0.5))
        assert network(torch.rand(2, 3, 8, 8)).shape == (2, 4, 6, 6)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("settings", "backend"),
    [*((settings, "aot_eager") for settings in SETTINGS), pytest.param({}, "inductor", marks=quiet_inductor)],
)
def test_compiled_and_eager_give_the_same_for_the_same_seed(settings, backend, memory_format):
    """In one graph without a break, forward and backward, arithmetic around the layer included."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), CLOP(0.7, generator=seeded(), **settings), nn.Flatten())
    compiled = torch.compile(copy.deepcopy(network), fullgraph=True, backend=backend)
    x = torch.rand(2, 3, 8, 8).to(memory_format=memory_format)
    weights = torch.rand(2, 4 * 6 * 6)
    for _ in range(2):  # the second call draws anew
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected, result = network(a), compiled(b)
        torch.testing.assert_close(result, expected)
        (weights * expected).sum().backward()
        (weights * result).sum().backward()
        torch.testing.assert_close(b.grad, a.grad)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("fresh_compiler")
@backends
def test_a_compiled_layer_draws_at_each_call_and_each_layer_for_itself(backend):
    """Fails when a permutation becomes a constant of the graph, or two equal draws are merged into one."""
    first, second = CLOP(0.9), CLOP(0.9)
    compiled = torch.compile(lambda x: (first(x), second(x), first(x)), fullgraph=True, backend=backend)
    x = positions_as_values().requires_grad_()  # equal operations are merged where there is a backward
    results = [y.detach() for _ in range(3) for y in compiled(x)]
    assert len({tuple(y[0, 0].flatten().tolist()) for y in results}) == 9
    assert all(torch.equal(y.flatten(2).sort().values, x.flatten(2)) for y in results)


@pytest.mark.usefixtures("fresh_compiler")
@backends
def test_a_compiled_function_draws_at_each_of_its_calls(backend):
    compiled = torch.compile(lambda x: (clop(x, 0.9), clop(x + 0, 0.9)), fullgraph=True, backend=backend)
    x = positions_as_values().requires_grad_()
    results = [y.detach() for _ in range(2) for y in compiled(x)]
    assert len({tuple(y[0, 0].flatten().tolist()) for y in results}) == 4


@pytest.mark.usefixtures("fresh_compiler")
@backends
def test_compiled_draws_come_in_the_order_of_the_calls(backend):
    """Fails when the compiler reorders draws from torch's generator that do not depend on each other."""
    layers = [CLOP(alpha) for alpha in (0.9, 0.5, 0.7)]

    def network(x, small):
        a = layers[0](x * 2)
        b = layers[1](small + 1)
        return layers[2](a.mean(1, keepdim=True)), b

    compiled = torch.compile(network, fullgraph=True, backend=backend)
    x, small = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 5, 3)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = network(x, small)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x, small), expected)
        after = torch.get_rng_state()
        torch.manual_seed(seed)
        network(x, small)
        assert torch.equal(after, torch.get_rng_state())


@pytest.mark.usefixtures("fresh_compiler")
@backends
def test_the_compiled_function_is_the_eager_one(backend):
    compiled = torch.compile(lambda x, alpha: clop(x, alpha, per_sample=True) + 1, fullgraph=True, backend=backend)
    x = torch.rand(2, 3, 8, 8)
    for alpha in (0.5, 0.7):
        torch.manual_seed(0)
        expected = clop(x, alpha, per_sample=True) + 1
        torch.manual_seed(0)
        assert torch.equal(compiled(x, alpha), expected)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_schedule_of_alpha_does_not_recompile():
    """Twenty values, 0 among them, in two graphs: one that moves, and one that does not and uses no randomness."""
    layer = CLOP(0.0)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = positions_as_values(1, 1, (16, 16))
    before = torch.get_rng_state()
    compiled(x)
    assert torch.equal(torch.get_rng_state(), before)
    moved = []
    for alpha in np.linspace(0, 1, 20):
        layer.alpha = alpha
        moved.append((compiled(x) != x).float().mean().item())
    assert counters["stats"]["unique_graphs"] <= 2
    assert moved[0] == 0
    assert moved[-1] > 0.7 > moved[5] > 0.2  # and each value is obeyed


@pytest.mark.usefixtures("fresh_compiler")
def test_changing_batch_and_map_sizes_compile_once_more_at_most():
    """Per sample, so that the number of permutations changes as well."""
    compiled = torch.compile(CLOP(0.9, per_sample=True), fullgraph=True, backend="aot_eager")
    for n, size in [(2, 8), (3, 8), (5, 8), (6, 9), (7, 11), (9, 12)]:
        x = positions_as_values(n, 2, (size, size))
        assert torch.equal(compiled(x).flatten(2).sort().values, x.flatten(2))
    assert counters["stats"]["unique_graphs"] <= 3


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_layer_in_evaluation_is_the_identity_and_learns_of_the_mode():
    layer, x = CLOP(0.9), positions_as_values()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled.eval()(x), x)
    assert not torch.equal(compiled.train()(x), x)
    assert torch.equal(compiled.eval()(x), x)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_call_of_the_function_refuses_a_generator_and_names_the_layer():
    generator = seeded()
    compiled = torch.compile(lambda x: clop(x, 0.5, generator=generator), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="give it to a CLOP layer, which can"):
        compiled(positions_as_values())


def network_with_clop():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), CLOP(0.7), nn.Flatten(), nn.Linear(4 * 6 * 6, 5)).eval()


def without_clop(network):
    return nn.Sequential(*(module for module in network if not isinstance(module, CLOP)))


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_network_holds_nothing_of_the_layer(strict):
    network, x = network_with_clop(), torch.rand(2, 3, 8, 8)
    program = torch.export.export(network, (x,), strict=strict)
    plain = torch.export.export(without_clop(network), (x,), strict=strict)
    assert [str(node.target) for node in program.graph.nodes if node.op == "call_function"] == [
        str(node.target) for node in plain.graph.nodes if node.op == "call_function"
    ]
    assert torch.equal(program.module()(x), network(x))


def test_an_onnx_file_holds_nothing_of_the_layer_and_runs():
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    network, x = network_with_clop(), torch.rand(2, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter about itself
        program, plain = (
            torch.onnx.export(n, (x,), dynamo=True, verbose=False) for n in (network, without_clop(network))
        )
    assert [node.op_type for node in program.model.graph] == [node.op_type for node in plain.model.graph]
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(result, network(x).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing_repeats_the_same_permutation(use_reentrant):
    """The forward runs again in the backward. Fails when the draw does not come from the state that torch puts back."""
    layer, x = CLOP(0.9), torch.rand(2, 3, 8, 8, requires_grad=True)

    def run(x):
        return layer(x * x)

    torch.manual_seed(0)
    y = checkpoint(run, x, use_reentrant=use_reentrant)
    weights = torch.rand(x.shape, generator=seeded())
    (weights * y).sum().backward()
    torch.manual_seed(0)
    (expected,) = torch.autograd.grad((weights * run(x)).sum(), x)
    assert torch.equal(x.grad, expected)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("move", [CLOP(0.9), lambda x: clop(x, 0.9)], ids=["layer", "function"])
def test_activation_checkpointing_repeats_the_same_permutation_when_compiled(move):
    """The compiler saves the state of the generator of the device it finds in a random operator's arguments."""
    x, weights = torch.rand(2, 3, 8, 8, requires_grad=True), torch.rand(2, 3, 8, 8)

    def run(x):
        return move(torch.sin(x)) ** 2

    compiled = torch.compile(lambda x: checkpoint(run, x, use_reentrant=False), fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad((weights * compiled(x)).sum(), x)
    torch.manual_seed(0)
    (expected,) = torch.autograd.grad((weights * run(x)).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_distributed_data_parallel_runs_forward_and_backward(tmp_path):
    network = network_with_clop().train()
    alone, x = copy.deepcopy(network), torch.rand(2, 3, 8, 8)

    def learn(module):
        torch.manual_seed(0)
        module(x).square().sum().backward()

    learn(alone)
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        # The wrapper is gone before its group: as the last to hold it, torch would wait for the group's threads without
        # letting go of Python, for which these may wait.
        learn(nn.parallel.DistributedDataParallel(network))
    finally:
        distributed.destroy_process_group()
    for ours, theirs in zip(network.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
