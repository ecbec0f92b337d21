"""Methods change training in the place they say, and not at all at zero strength."""

import dataclasses

import numpy as np
import pytest
import torch

from clop.errors import UsageError
from clop.layer import CLOP
from clop.sample_dropout import SampleDropout
from clop.vision import methods
from clop.vision.methods import (
    METHODS,
    Batch,
    BatchNorm,
    Clop,
    Crop,
    Cutout,
    Dropout,
    Method,
    Mixup,
    Plan,
    RandomConv,
    Rotation,
)
from clop.vision.train import Trainer, VisionConfig, normalised

ZERO = {
    "clop": Clop(alpha=0.0),
    "dropout, dense": Dropout(style="dense", p=0.0),
    "dropout, channel": Dropout(style="channel", p=0.0),
    "mixup": Mixup(beta=0.0),
    "crop": Crop(p=0.0),
    "crop, pad": Crop(pad=0),
    "rotation": Rotation(p=0.0),
    "rotation, degrees": Rotation(degrees=0.0),
    "cutout": Cutout(p=0.0),
    "random_conv": RandomConv(p=0.0),
}
STRONG = {
    "dropout, dense": Dropout(style="dense", p=0.5),
    "dropout, channel": Dropout(style="channel"),
    "clop, each": Clop(per_sample=True),
} | {name: method() for name, method in METHODS.items() if name != "dropout"}


def config(**settings):
    return VisionConfig(**({"task": "digits", "network": "small_cnn", "image_size": 8, "epochs": 1} | settings))


def weights(task, *used, **settings):
    trainer = Trainer(config(methods={str(i): method for i, method in enumerate(used)}, **settings), task)
    while not trainer.done:
        trainer.advance()
    return [p.clone() for p in trainer.model.parameters()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.fixture(scope="module")
def plain_weights(request):
    found = {}

    def get(task):
        key = task.channels, task.flip
        if key not in found:
            found[key] = weights(task)
        return found[key]

    return get


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ZERO)
def test_a_method_of_no_strength_trains_bit_for_bit_like_the_plain_network(name, channels, noise_task, plain_weights):
    """With flips, whose draws a method must not move."""
    task = noise_task(channels=channels, flip=True)
    assert same(weights(task, ZERO[name]), plain_weights(task))


def test_all_methods_of_no_strength_together_are_the_plain_network_too(noise_task, plain_weights):
    task = noise_task(channels=3, flip=True)
    assert same(weights(task, *ZERO.values()), plain_weights(task))


@pytest.mark.parametrize("name", STRONG)
def test_a_method_changes_training_and_a_seed_repeats_it(name, tiny, plain_weights):
    trained = weights(tiny, STRONG[name])
    assert same(trained, weights(tiny, STRONG[name]))
    assert not same(trained, weights(tiny, STRONG[name], seed=1))
    if name != "batch_norm":  # which has parameters of its own
        assert not same(trained, plain_weights(tiny))


def layers(network, *used):
    plan = Plan(network, torch.Generator())
    for method in used:
        method.configure(plan)
    return plan.layers


def test_clop_comes_after_the_last_stage_with_the_papers_alpha():
    (small,) = layers("small_cnn", Clop())["stage3"]
    (vgg,) = layers("vgg11", Clop())["stage5"]
    assert (small.alpha, vgg.alpha) == (0.9, 0.7)
    (given,) = layers("vgg9", Clop(alpha=0.3, slot="stage2", variant="raster", local=False))["stage2"]
    assert (given.alpha, given.variant, given.local) == (0.3, "raster", False)
    with pytest.raises(
        UsageError, match=r"clop\.slot must be one of stage1, stage2, stage3 in small_cnn, got 'stage4'"
    ):
        layers("small_cnn", Clop(slot="stage4"))


def test_dropout_has_both_readings():
    """``dense`` as the paper's text, ``channel`` as its code, whose rate is CLOP's alpha. The appendix has the small
    CNN's between convolutions and dense layers; fails if that of VGGs goes there too unless asked for."""
    for network, dropout in (("small_cnn", Dropout(style="dense")), ("vgg9", Dropout())):
        dense = layers(network, dropout)
        assert {slot: layer.p for slot, (layer,) in dense.items()} == {"dense1": 0.5, "dense2": 0.5}
    between = layers("small_cnn", Dropout())
    assert {slot: (layer.p, layer.whole_channels) for slot, (layer,) in between.items()} == {"stage3": (0.9, True)}
    (channel,) = layers("vgg9", Dropout(style="channel"))["stage4"]
    assert channel.p == 0.7
    assert channel.whole_channels
    x = torch.ones(500, 20, 2, 2)
    dropped = SampleDropout(0.9, torch.Generator().manual_seed(0), whole_channels=True)(x)
    assert torch.equal(dropped, dropped[..., :1, :1].expand_as(dropped)), "whole channels"
    assert dropped.unique().tolist() == pytest.approx([0, 10])
    assert dropped.mean() == pytest.approx(1, abs=0.15)  # five standard deviations
    assert SampleDropout(0.9, torch.Generator(), whole_channels=True).eval()(x) is x


def test_methods_compose_in_their_order():
    chain = layers("small_cnn", Clop(), Dropout(style="channel"))["stage3"]
    assert [type(layer) for layer in chain] == [CLOP, SampleDropout]
    assert methods.names("clop+mixup") == ["clop", "mixup"]
    assert methods.names("plain") == []
    with pytest.raises(UsageError, match="did you mean 'dropout'"):
        methods.names("dropuot")
    with pytest.raises(UsageError, match="named twice"):
        methods.names("clop+clop")


# ---- mixup -----------------------------------------------------------------------------------------------------------


def test_mixup_mixes_what_the_network_sees(tiny):
    """The authors' code mixes labels alone: the network sees the clean images. Here it must not."""
    trainer = Trainer(config(methods={"mixup": Mixup(beta=1.0)}), tiny)
    torch.manual_seed(0)
    pixels, labels = tiny.train.pixels[:16], tiny.train.labels[:16]
    batch = trainer.batch(pixels, labels)
    clean = Trainer(config(), tiny).batch(pixels, labels)
    partners = [
        next(
            j
            for j in range(16)
            if torch.allclose(
                batch.weight * clean.images[i] + (1 - batch.weight) * clean.images[j], batch.images[i], atol=1e-5
            )
        )
        for i in range(16)
    ]
    assert sorted(partners) == list(range(16)), "each image is some other's partner"
    assert torch.equal(batch.others, labels[partners])
    seen, mixed, make = [], [], trainer.batch
    trainer.model.register_forward_pre_hook(lambda model, inputs: seen.append(inputs[0]) if model.training else None)
    trainer.batch = lambda *given: mixed.append((given[0], batch := make(*given))) or batch
    trainer.advance()
    assert seen
    for images, (pixels, batch) in zip(seen, mixed, strict=True):
        assert torch.equal(images, batch.images), "that is what the network is given"
        assert not torch.equal(images, normalised(pixels, tiny)), "and not this"


def test_the_loss_of_a_mixture_weighs_both_classes():
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    batch = Batch(torch.zeros(1), torch.tensor([0]), torch.tensor([2]), 0.25)
    log_probabilities = logits.log_softmax(1)[0]
    assert batch.loss(logits) == pytest.approx(-(0.25 * log_probabilities[0] + 0.75 * log_probabilities[2]).item())
    assert batch.heavier.item() == 2


def test_the_weight_of_a_mixture_follows_its_beta_law():
    """Variance 1 / (4 (2 beta + 1)) = 0.179 for beta = 0.2; a uniform weight would have 0.083."""
    generator = torch.Generator().manual_seed(0)
    batch = Batch(torch.zeros(2, 1, 1, 1), torch.tensor([0, 1]))
    drawn = np.array([Mixup(beta=0.2).mix(batch, generator).weight for _ in range(4000)])
    assert drawn.mean() == pytest.approx(0.5, abs=0.035)
    assert drawn.var() == pytest.approx(1 / 5.6, abs=0.01)


# ---- of the input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Crop(), Rotation(), Cutout(), RandomConv(), RandomConv(shared=True)], ids=repr)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_augmentation_changes_training_images_only(method, channels, noise_task):
    task = noise_task(channels=channels, size=16)
    trainer = Trainer(config(image_size=16, methods={"it": method}), task)
    images = trainer.batch(task.train.pixels[:8], task.train.labels[:8]).images
    plain = Trainer(config(image_size=16), task).batch(task.train.pixels[:8], task.train.labels[:8]).images
    assert images.shape == plain.shape
    assert not torch.equal(images, plain)
    seen = []
    trainer.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    trainer.test()
    expected = Trainer(config(image_size=16), task)
    expected.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    expected.test()
    assert torch.equal(seen[0], seen[1])


@pytest.mark.parametrize(
    ("method", "settings"),
    [(Clop, {"alpha": 1.5}), (Dropout, {"p": 1.0}), (Mixup, {"beta": -1.0}), (Crop, {"p": 2.0}), (Crop, {"pad": -1})],
)
def test_settings_out_of_range_are_refused(method, settings):
    with pytest.raises(UsageError, match="must"):
        method(**settings)


def test_every_method_is_a_frozen_config():
    for method in METHODS.values():
        assert issubclass(method, Method)
        assert dataclasses.is_dataclass(method)
        assert method.__dataclass_params__.frozen
    assert BatchNorm() == BatchNorm()
