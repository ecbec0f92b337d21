"""What classifiers look at: the same maps as captum's."""

import pytest
import torch

from clop.errors import UsageError
from clop.layer import CLOP
from clop.vision.models import build
from clop.vision.saliency import saliency


def make(**options):
    torch.manual_seed(0)
    return build("small_cnn", 1, 10, 16, **options)


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("stage", ["stage1", "stage2", "stage3"])
def test_maps_are_captums(stage, batch_norm):
    """Fails if CLOP is on, or a map is cut at another place."""
    attr = pytest.importorskip("captum.attr")
    model = make(batch_norm=batch_norm)
    images, classes = torch.rand(3, 1, 16, 16), torch.tensor([1, 9, 4])
    expected = attr.LayerGradCam(model.eval(), model.get_submodule(stage)).attribute(
        images, classes, relu_attributions=True
    )
    found = saliency(model.train(), images, "logit", classes, stage)
    torch.testing.assert_close(found, expected[:, 0].detach(), rtol=1e-5, atol=1e-7)
    assert model.training


def test_clop_is_off_and_the_most_probable_class_is_the_default():
    plain, layered = make(), make(layers={"stage3": [CLOP(1.0)]})
    images = torch.rand(3, 1, 16, 16)
    best = plain.eval()(images).argmax(1)
    assert torch.equal(saliency(layered.train(), images), saliency(plain, images, "logit", best))


def test_a_misspelt_stage_is_refused():
    with pytest.raises(UsageError, match="unknown stage 'stage4'; did you mean 'stage"):
        saliency(make(), torch.rand(1, 1, 16, 16), stage="stage4")
