"""Weight decay: its gradient, whom it spares, and that it is inside the clipping."""

import pytest
import torch

from clop.errors import UsageError
from clop.rl.methods import compose
from clop.rl.methods.base import Phase
from clop.rl.methods.daac import Daac
from clop.rl.methods.weight_decay import WeightDecay
from clop.rl.settings import NetworkConfig


def step(learner):
    """One optimiser step on the rollout at hand; its logs."""
    phase = Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01)
    learner.model.train()
    return learner._step(torch.arange(len(learner.rollout)), phase, learner.context())


def pair(make_learner, coef=0.5, **settings):
    """A learner without and one with the decay, on the same rollout."""
    learners = [make_learner(method, **settings) for method in (None, compose({"weight_decay": WeightDecay(coef)}))]
    for learner in learners:
        learner.collect()
    return learners


def test_the_term_by_hand(make_learner):
    """Half of 1e-4 times the squares: with every weight of a 2 x 2 matrix at 3, 0.5e-4 * 36."""
    learner = make_learner(compose({"weight_decay": WeightDecay()}), small=True)

    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            torch.nn.init.constant_(self.layer.weight, 3)
            torch.nn.init.constant_(self.layer.bias, 5)

        def groups(self):
            return {"all": list(self.parameters())}

    ctx = learner.context()
    ctx.model = Tiny()
    term, logs = learner.method.penalty(None, [], Phase("ppo", "all", 1, 1, 1.0, 0.5, 0.01), ctx)
    assert term.item() == pytest.approx(0.5e-4 * 36)
    assert logs["half_squared_norm"].item() == pytest.approx(18)


@pytest.mark.parametrize("norm", ["none", "all"])
@pytest.mark.parametrize("micro_batch", [64, 6])
def test_weights_get_their_multiple_and_biases_and_batch_norm_nothing(make_learner, norm, micro_batch):
    """Fails when each micro-batch adds the whole of it."""
    network = NetworkConfig(norm=norm)
    plain, decayed = pair(make_learner, max_grad_norm=1e9, network=network, micro_batch=micro_batch)
    before = {name: p.detach().clone() for name, p in decayed.model.named_parameters()}
    step(plain), step(decayed)
    kinds = {1: 0, 2: 0, 4: 0}
    for (name, one), other in zip(plain.model.named_parameters(), decayed.model.parameters(), strict=True):
        kinds[one.dim()] += 1
        if one.dim() == 1:
            assert torch.equal(other.grad, one.grad), name
        else:
            torch.testing.assert_close(other.grad - one.grad, 0.5 * before[name], atol=1e-6, rtol=1e-4)
    assert kinds == {1: 18 + (30 if norm == "all" else 0), 2: 3, 4: 15}


def test_the_norm_that_is_clipped_includes_it(make_learner):
    """The optimiser's own decay would come after the clipping, and leave the norm at the gradient's."""
    plain, decayed = pair(make_learner, max_grad_norm=1e9, small=True)
    weights = [p.detach().clone() for p in decayed.model.parameters()]
    alone, norm = step(plain)["grad_norm"], step(decayed)["grad_norm"]
    gradients = zip(plain.model.parameters(), weights, strict=True)
    sums = [p.grad + 0.5 * w if w.dim() > 1 else p.grad for p, w in gradients]
    torch.testing.assert_close(norm, torch.cat([x.flatten() for x in sums]).norm())
    assert norm > 1.1 * alone
    clipped = pair(make_learner, max_grad_norm=0.1, small=True)[1]
    step(clipped)
    gradient = torch.cat([p.grad.flatten() for p in clipped.model.parameters()])
    assert gradient.norm().item() == pytest.approx(0.1, rel=1e-3)


def test_the_decay_of_optimisers_is_another(make_learner):
    """The control: Adam's setting of that name, at the same strength, gives other weights."""
    plain, decayed = pair(make_learner, coef=1e-2, max_grad_norm=0.01, small=True)
    plain.optimisers["all"].param_groups[0]["weight_decay"] = 1e-2
    step(plain), step(decayed)
    one, other = (torch.cat([p.detach().flatten() for p in x.model.parameters()]) for x in (plain, decayed))
    assert not torch.allclose(one, other, atol=1e-5)


def test_with_two_networks_each_phase_decays_its_own(make_learner):
    learner = make_learner(compose({"daac": Daac(), "weight_decay": WeightDecay(0.5)}))
    learner.collect()
    for phase in learner.method.phases(learner.config, learner.context()):
        learner.model.zero_grad()
        learner.method.methods["weight_decay"].penalty(None, [], phase, learner.context())[0].backward()
        ours = {id(p) for p in learner.model.groups()[phase.group] if p.dim() > 1}
        assert {id(p) for p in learner.model.parameters() if p.grad is not None} == ours


def test_a_negative_weight_is_refused():
    with pytest.raises(UsageError, match=r"weight_decay\.coef must not be negative, got -1"):
        WeightDecay(-1)
