"""What agents look at: the same maps as captum's, on each encoder, for each score."""

import pytest
import torch

from clop.errors import UsageError
from clop.layer import CLOP
from clop.rl.agent import Agent
from clop.rl.encoders import ENCODERS
from clop.rl.envs.spec import EnvSpec
from clop.rl.methods.base import Context, Method
from clop.rl.network import Network, as_input, slots_of
from clop.rl.saliency import saliency
from clop.rl.settings import NetworkConfig

SPEC = EnvSpec((32, 32, 3), 5)


def make_agent(fill=None, **config):
    torch.manual_seed(0)
    slots = slots_of(config.get("encoder", "impala"))
    if fill is not None:
        fill(slots)
    model = Network(NetworkConfig(**config), SPEC, slots)
    with torch.no_grad():
        model.policy_head.weight.mul_(100)  # at the start all actions are the same
    context = Context(0, 0, torch.device("cpu"), torch.Generator(), "eval", model)
    return Agent(model, Method(), context, SPEC)


def frames(count=3):
    return torch.randint(
        0, 256, (count, *SPEC.obs_shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )


def captums(agent, layer, target, actions):
    """The same by captum, whose hooks see what passes the layer."""
    attr = pytest.importorskip("captum.attr")

    def forward(x):
        output = agent.model(x)
        if target == "value":
            return output.value
        return output.logits if target == "logit" else output.logits.log_softmax(-1)

    cam = attr.LayerGradCam(forward, layer)
    agent.model.eval()
    found = cam.attribute(as_input(frames()), None if target == "value" else actions, relu_attributions=True)
    agent.model.train()
    return found[:, 0].detach()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("target", ["logit", "log_prob", "value"])
def test_maps_are_captums(encoder, target):
    """Fails if the weights are not the mean gradients of this score, or CLOP's layer is on."""
    agent = make_agent(lambda slots: slots.put("actor_in", lambda site: CLOP(1.0)), encoder=encoder)
    actions = torch.tensor([1, 4, 0])
    expected = captums(agent, agent.model.encoder, target, actions)
    found = saliency(agent, frames(), target, actions)
    assert found.shape == expected.shape
    assert expected.max() > 0
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.max()))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_maps_of_every_stage_are_captums(encoder):
    agent, actions = make_agent(encoder=encoder), torch.tensor([1, 4, 0])
    for stage in ENCODERS[encoder].stages:
        expected = captums(agent, getattr(agent.model.encoder, f"{stage}_out"), "logit", actions)
        found = saliency(agent, frames(), "logit", actions, stage)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.max()))


def test_the_value_of_a_network_of_its_own_is_seen_on_its_own_map():
    """Fails if the critic's score is traced to the actor's encoder, on which it does not depend."""
    agent = make_agent(encoder="small", topology="decoupled")
    expected = captums(agent, agent.model.critic_encoder, "value", None)
    torch.testing.assert_close(saliency(agent, frames(), "value"), expected, rtol=1e-5, atol=1e-6)


def test_without_actions_it_is_the_most_probable_ones():
    agent = make_agent(encoder="small")
    best = agent.act(frames().numpy(), greedy=True)
    assert torch.equal(saliency(agent, frames()), saliency(agent, frames(), actions=torch.from_numpy(best)))


def test_nothing_of_the_agent_changes():
    agent = make_agent(encoder="small")
    agent.model.train()
    agent.model.neck.eval()
    before = {name: module.training for name, module in agent.model.named_modules()}
    saliency(agent, frames())
    assert {name: module.training for name, module in agent.model.named_modules()} == before
    assert all(parameter.grad is None for parameter in agent.model.parameters())


def test_a_misspelt_stage_is_refused():
    with pytest.raises(UsageError, match="unknown stage 'conv4'; did you mean 'conv3'"):
        saliency(make_agent(encoder="small"), frames(), stage="conv4")
