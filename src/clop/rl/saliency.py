"""What an agent looks at: Grad-CAM on a map of its encoder, in evaluation mode, so without CLOP."""

from typing import Literal

import torch
from torch import Tensor

from clop.errors import UsageError, unknown_name
from clop.grad_cam import grad_cam
from clop.rl.agent import Agent, in_evaluation
from clop.rl.network import as_input

Target = Literal["logit", "log_prob", "value"]
HEAT_TEXTS: dict[Target, str] = {
    "logit": "what raises the logit of the chosen action",
    "log_prob": "what raises the probability of the chosen action",
    "value": "what raises the value",
}


def saliency(
    agent: Agent, obs: Tensor, target: Target = "logit", actions: Tensor | None = None, stage: str | None = None
) -> Tensor:
    """Where on a map of the encoder a score comes from.

    The frames pass the network as they are: what a method does to frames before it acts, as rand_fm may, is left out.

    Args:
        agent: Whose network; its modes are as before afterwards.
        obs: uint8 frames (N, H, W, C).
        target: The score: logit or log-probability of an action, or the value.
        actions: (N,) Of which action; the most probable one if not given.
        stage: Behind which stage of the encoder the map is; the last one if not given.

    Returns:
        (N, H, W) of that map, on the CPU, not negative
    """
    model = agent.model
    own = model.critic_encoder if target == "value" else None
    encoder = model.encoder if own is None else own
    stage = stage or list(encoder.stages)[-1]
    if stage not in encoder.stages:
        raise UsageError(unknown_name("stage", stage, encoder.stages) + f" (the encoder is {model.config.encoder})")
    with in_evaluation(model):
        with torch.no_grad():
            feature_map = encoder.until(as_input(obs.to(agent.ctx.device)), stage)
        with torch.enable_grad():
            feature_map.requires_grad_()
            encoder_map = encoder.onward(feature_map, stage)
            if target == "value":
                score = model.value_branch(encoder_map)
            else:
                output = model.policy_branch(encoder_map)
                scores = output.known_logits if target == "logit" else output.known_logits.log_softmax(-1)
                chosen = output.known_logits.argmax(-1) if actions is None else actions.to(scores.device)
                score = scores.gather(1, chosen[:, None]).squeeze(1)
    return grad_cam(feature_map, score).cpu()
