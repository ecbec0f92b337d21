"""The dense layer by oneDNN: the numbers, the gradients and the graphs are those of torch's own."""

import pytest
import torch
import torch.nn.functional as F

from clop.kernels import dense
from clop.kernels.dense import Linear, linear

with_operator = pytest.mark.skipif(dense._OPERATOR is None, reason="this torch has no oneDNN")


def numbers(rows=5, inputs=37, outputs=11, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((rows, inputs), (outputs, inputs), (outputs,))
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def gradients(function, x, weight, bias):
    y = function(x, weight, bias)
    factor = torch.arange(y.numel()).view_as(y) / y.numel()  # so that no two outputs count the same
    return [y, *torch.autograd.grad((y * factor).sum(), (x, weight, bias))]


@pytest.mark.parametrize("rows", [1, 2, 64, 129])
def test_output_and_gradients_are_those_of_torch(rows):
    """Fails for a gradient that is transposed, summed over the wrong dimension or given to the wrong argument."""
    for ours, theirs in zip(gradients(linear, *numbers(rows)), gradients(F.linear, *numbers(rows)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@with_operator
def test_floats_on_the_cpu_are_multiplied_by_onednn(monkeypatch):
    """Fails if the fast way is never taken: then the tests above compare torch with itself."""
    called = []
    operator = dense._OPERATOR
    monkeypatch.setattr(dense, "_OPERATOR", lambda *arguments: called.append(len(arguments)) or operator(*arguments))
    gradients(linear, *numbers())
    assert len(called) == 3  # forward, and the gradients of input and weight
    with torch.no_grad():
        linear(*numbers())
    assert len(called) == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_numbers_are_multiplied_by_torch(dtype):
    x, weight, bias = numbers(dtype=dtype)
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


def test_autocast_decides_the_precision():
    """Fails if mixed precision is bypassed: it would train in float32 and say it did not."""
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(*numbers()).dtype == torch.bfloat16


def test_without_onednn_torch_multiplies(monkeypatch):
    monkeypatch.setattr(dense, "_OPERATOR", None)
    x, weight, bias = numbers()
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


def test_an_exported_graph_has_the_plain_operator():
    """Fails if a graph that leaves this process needs an operator that other runtimes do not have."""
    graph = torch.export.export(Linear(37, 11).eval(), (torch.randn(5, 37),)).graph
    assert [str(node.target) for node in graph.nodes if node.op == "call_function"] == ["aten.linear.default"]
