"""What a classifier looks at: Grad-CAM on the map behind a stage, in evaluation mode, so without CLOP."""

from typing import Literal

import torch
from torch import Tensor

from clop.errors import UsageError, unknown_name
from clop.grad_cam import grad_cam
from clop.vision.models import Classifier


def saliency(
    model: Classifier,
    images: Tensor,
    target: Literal["logit", "log_prob"] = "logit",
    classes: Tensor | None = None,
    stage: str | None = None,
) -> Tensor:
    """Where on a map the score of a class comes from.

    Args:
        model: Whose map; its mode is as before afterwards.
        images: As the network takes them, (N, C, H, W).
        target: The score: logit or log-probability.
        classes: (N,) Of which class; the most probable one if not given.
        stage: Behind which stage the map is; the last one if not given.

    Returns:
        (N, H, W) of that map, on the CPU, not negative
    """
    stage = stage or model.stage_names[-1]
    if stage not in model.stage_names:
        raise UsageError(unknown_name("stage", stage, model.stage_names))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            feature_map = model.features(images, stage)
        with torch.enable_grad():
            logits = model.classify(feature_map.requires_grad_(), stage)
            scores = logits if target == "logit" else logits.log_softmax(1)
            chosen = logits.argmax(1) if classes is None else classes.to(logits.device)
            return grad_cam(feature_map, scores.gather(1, chosen[:, None]).squeeze(1)).cpu()
    finally:
        model.train(training)
