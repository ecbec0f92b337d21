"""What holds for each of weight_decay, mixreg, rad, drac and ucb_drac: zero strength, resuming, and whose chance."""

import pytest
import torch

from clop.errors import UsageError
from clop.rl.envs.levels import LevelSet
from clop.rl.methods import METHODS, compose
from clop.rl.methods.augmented import as_images, augment_frames, game_augmentation, name_of
from clop.rl.methods.base import Settings
from clop.rl.methods.drac import Drac
from clop.rl.methods.mixreg import Mixreg
from clop.rl.methods.rad import Rad
from clop.rl.methods.ucb_drac import UcbDrac
from clop.rl.methods.weight_decay import WeightDecay

PLACES = ("collect", "collect-step", "both", "update")

ZERO = [
    ("weight_decay", WeightDecay(coef=0.0)),
    ("mixreg", Mixreg(beta=0.0)),
    ("drac", Drac(alpha_r=0.0)),
    ("ucb_drac", UcbDrac(alpha_r=0.0)),
    *(("rad", Rad(aug=aug, where=where, p=0.0)) for where in PLACES for aug in ("crop", "random_conv")),
]
ACTIVE = [
    ("weight_decay", WeightDecay(coef=0.1)),
    ("mixreg", Mixreg()),
    ("mixreg", Mixreg(truncate=True, logp="dominant")),
    ("drac", Drac()),
    ("drac", Drac(aug="random_conv", kl="sample")),
    ("ucb_drac", UcbDrac()),
    ("ucb_drac", UcbDrac(init="sweep", window=2)),
    *(("rad", Rad(aug="crop", where=where)) for where in ("collect", "collect-step", "update")),
]
SLOTTED = [  # that need the real network
    ("rad", Rad(aug="random_conv")),
    ("rad", Rad(aug="random_conv", where="collect-step")),
    ("rad", Rad(aug="crop", where="both")),
]


def label(value):
    return value if isinstance(value, str) else None


def with_opinions(learner):
    """The small network starts with heads of zeros, which nothing passes."""
    with torch.no_grad():
        for head in (learner.model.policy_head, learner.model.value_head):
            torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(1))
    return learner


@pytest.mark.parametrize(("name", "config"), ZERO, ids=label)
def test_at_zero_strength_a_method_updates_bit_for_bit_like_ppo(make_learner, name, config, vector):
    small = name != "rad"  # whose layers need a real network
    plain, other = (make_learner(method, small=small) for method in (None, compose({name: config})))
    if small:
        with_opinions(plain), with_opinions(other)
    before = other.method_rng.get_state()
    for _ in range(2):
        metrics = plain.iterate()[0]
        assert metrics.items() <= other.iterate()[0].items()
        assert torch.equal(vector(other.model.parameters()), vector(plain.model.parameters()))
    assert torch.equal(other.method_rng.get_state(), before)  # so a method beside it draws what it would draw alone


@pytest.mark.parametrize(("name", "config"), ACTIVE, ids=label)
def test_at_its_own_strength_it_does_not(make_learner, name, config, vector):
    plain, other = (
        with_opinions(make_learner(small=True)),
        with_opinions(make_learner(compose({name: config}), small=True)),
    )
    plain.iterate(), other.iterate()
    assert not torch.equal(vector(other.model.parameters()), vector(plain.model.parameters()))


@pytest.mark.parametrize(
    ("name", "config", "small"), [(*x, True) for x in ACTIVE] + [(*x, False) for x in SLOTTED], ids=label
)
def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight, name, config, small):
    """The bandit is saved while it sweeps, with an arm that waits for its return."""
    resumed_as_straight(config.build, iterations=3 if small else 1, before=3 if small else 1, small=small)


@pytest.mark.parametrize(("name", "config"), ACTIVE + SLOTTED, ids=label)
def test_chance_is_the_learners(make_learner, name, config):
    learner = make_learner(compose({name: config}), small=(name, config) not in SLOTTED)
    torch_before, ours_before = torch.get_rng_state(), learner.method_rng.get_state()
    learner.iterate()
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert torch.equal(learner.method_rng.get_state(), ours_before) is (name == "weight_decay")


@pytest.mark.parametrize(
    "text",
    [
        "rad+clop",
        "mixreg+clop",
        "drac+clop",
        "ucb_drac+clop",
        "weight_decay+clop",
        "rad+mixreg",
        "rad+drac",
        "drac+mixreg",
    ],
)
def test_methods_are_combined(make_learner, vector, text):
    """Each of them matters: without it, one update leads elsewhere."""

    def weights(names):
        learner = make_learner(compose({name: METHODS[name]() for name in names}))
        learner.iterate()
        return vector(learner.model.parameters())

    names = text.split("+")
    together = weights(names)
    for name in names:
        assert not torch.equal(together, weights(set(names) - {name}))


@pytest.mark.parametrize("text", ["drac+ucb_drac", "mixreg+daac", "mixreg+idaac", "weight_decay+ibac_sni"])
def test_or_refused_with_the_reason(text):
    with pytest.raises(UsageError, match="cannot be combined: "):
        compose({name: METHODS[name]() for name in text.split("+")})


# ---- frames ----------------------------------------------------------------------------------------------------------


def test_frames_keep_the_layout_of_their_dtype():
    dice = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8, generator=dice)
    assert as_images(frames).shape == (2, 3, 64, 64)
    assert as_images(frames).data_ptr() == frames.data_ptr()
    maze = Settings(LevelSet("maze"))
    crop, filtered = (
        game_augmentation("crop", maze, "horizontal"),
        game_augmentation("random_conv", maze, "vertical"),
    )
    changed = augment_frames(frames, crop, dice)
    assert (changed.shape, changed.dtype) == ((2, 64, 64, 3), torch.uint8)
    assert changed.is_contiguous()
    floats = augment_frames(frames, filtered, dice)
    assert (floats.shape, floats.dtype) == ((2, 3, 64, 64), torch.float32)
    assert augment_frames(floats, crop, dice).shape == (2, 3, 64, 64)
    assert name_of(game_augmentation("cutout_color", maze, "horizontal")) == "cutout_color"
