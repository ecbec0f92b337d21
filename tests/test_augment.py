"""Augmentations: what each does to pixels, what it draws, and that it keeps its hands off its input."""

import colorsys
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from clop.augment import AUGMENTATIONS, CLOP_CODE, augmentation, fitting
from clop.errors import UsageError

each = pytest.mark.parametrize("name", AUGMENTATIONS)
each_of_bytes = pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "random_conv"])
each_of_any_channels = pytest.mark.parametrize(
    "name", [name for name in AUGMENTATIONS if name not in ("grayscale", "color_jitter", "random_conv")]
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def noise(count=4, channels=3, height=64, width=64, *, as_bytes=True, nhwc=True, seed=0):
    pixels = torch.randint(0, 256, (count, height, width, channels), dtype=torch.uint8, generator=generator(seed))
    images = pixels.permute(0, 3, 1, 2)
    images = images if nhwc else images.contiguous()
    return images if as_bytes else images.float() / 255


def numbered(height, width):
    """An image whose pixels tell where they come from."""
    return torch.arange(height * width, dtype=torch.uint8).view(1, 1, height, width)


def ints(*values):
    return torch.tensor(values)


# ---- what holds for all ----------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("as_bytes", [True, False])
@pytest.mark.parametrize("nhwc", [True, False])
def test_the_input_stays_as_it_is(name, as_bytes, nhwc):
    images = noise(as_bytes=as_bytes, nhwc=nhwc)
    before = images.clone()
    augmentation(name)(images, generator=generator())
    assert torch.equal(images, before)


@each_of_bytes
@pytest.mark.parametrize("as_bytes", [True, False])
@pytest.mark.parametrize("nhwc", [True, False])
def test_dtype_shape_memory_and_range_are_kept(name, as_bytes, nhwc):
    images = noise(as_bytes=as_bytes, nhwc=nhwc)
    changed = augmentation(name)(images, generator=generator())
    assert (changed.dtype, changed.shape, changed.stride()) == (images.dtype, images.shape, images.stride())
    assert changed.min() >= 0
    assert changed.max() <= (255 if as_bytes else 1)
    assert not torch.equal(changed, images)


@each_of_bytes
def test_bytes_are_rounded_floats_and_the_memory_format_does_not_matter(name):
    """Fails for bytes that are cut off instead of rounded, and for colours that were not divided by 255."""
    kind = augmentation(name)
    drawn = kind.draw(4, (3, 64, 64), generator=generator())
    result = kind.apply(noise(), drawn)
    assert torch.equal(result, kind.apply(noise(nhwc=False), drawn))
    for nhwc in (True, False):
        floats = kind.apply(noise(as_bytes=False, nhwc=nhwc), drawn)
        assert (floats * 255 - result.float()).abs().max() < 0.51


@each
def test_each_sample_has_a_draw_of_its_own(name):
    one = noise(1)
    changed = augmentation(name)(one.expand(16, -1, -1, -1).contiguous(), generator=generator())
    if name == "grayscale":
        assert (changed == changed[0]).all()  # nothing is drawn
    else:
        assert len({image.numpy().tobytes() for image in changed}) > 1


@each
def test_a_draw_can_be_replayed_and_the_next_one_differs(name):
    kind, images, dice = augmentation(name), noise(16), generator(1)
    first, second = (kind.draw(16, (3, 64, 64), generator=dice) for _ in range(2))
    assert torch.equal(kind.apply(images, first), kind.apply(images, first))
    if name != "grayscale":
        assert not torch.equal(kind.apply(images, first), kind.apply(images, second))
    again = generator(1)
    assert torch.equal(kind(images, generator=again), kind.apply(images, first))


@each
def test_chance_comes_from_the_generator_that_is_given(name):
    before = torch.get_rng_state()
    augmentation(name)(noise(), generator=generator())
    assert torch.equal(torch.get_rng_state(), before)


@each
def test_with_probability_zero_nothing_is_drawn_and_nothing_changed(name):
    kind, dice = augmentation(name, p=0.0), generator()
    before = dice.get_state()
    for images in (noise(), noise(as_bytes=False)):
        changed = kind(images, generator=dice)
        expected = images if name != "random_conv" or images.is_floating_point() else images.float().mul_(1 / 255)
        assert torch.equal(changed, expected)
    assert torch.equal(dice.get_state(), before)


@each
def test_the_share_of_changed_samples_is_p(name):
    p, count = 0.3, 400
    images = torch.arange(3 * 8 * 8, dtype=torch.uint8).view(1, 3, 8, 8).expand(count, -1, -1, -1).contiguous()
    settings = {"smallest": 20} if "cutout" in name else {}  # at side 8 no box is empty
    kind = augmentation(name, p=p, **settings)
    drawn = kind.draw(count, (3, 8, 8), generator=generator())
    expected = images.float().mul_(1 / 255) if name == "random_conv" else images
    same = (kind.apply(images, drawn) == expected).flatten(1).all(1)
    assert same[~drawn["applied"]].all()
    assert stats.binomtest(int(drawn["applied"].sum()), count, p).pvalue > 1e-6
    if name not in ("crop", "translate"):  # of which some draws move nothing
        assert not same[drawn["applied"]].any()


@each
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(28, 28), (96, 96), (32, 48)])
def test_any_size_and_channels_that_have_a_meaning(name, channels, height, width):
    """Fails when pixels of four channels cannot be moved, or are taken for three colours."""
    shape = (channels, height, width)
    coloured = channels in (1, 3)
    fits = {"rotate": height == width, "grayscale": coloured, "color_jitter": coloured}.get(name, True)
    assert (name in fitting(shape)) is fits
    if not fits:
        takes = "square images" if name == "rotate" else "images of 1 or 3 channels"
        with pytest.raises(ValueError, match=rf" takes {takes}, got \(2, {channels}, {height}, {width}\); "):
            augmentation(name)(noise(2, *shape))
        return
    for as_bytes in (True, False):
        images = noise(8, *shape, as_bytes=as_bytes)
        changed = augmentation(name)(images, generator=generator())
        assert changed.shape == images.shape
        if not (name == "grayscale" and channels == 1):
            assert not torch.equal(changed.float(), images.float())


@each_of_any_channels
@pytest.mark.parametrize("nhwc", [True, False])
def test_the_first_channels_of_many_change_as_they_would_alone(name, nhwc):
    """Fails when channels are mixed up in memory, or move apart."""
    images, kind = noise(8, 6, nhwc=nhwc), augmentation(name)
    drawn = kind.draw(8, (6, 64, 64), generator=generator())
    few = drawn | ({"colour": drawn["colour"][:, :3]} if name == "cutout_color" else {})
    assert torch.equal(kind.apply(images, drawn)[:, :3], kind.apply(images[:, :3].contiguous(), few))


@each
def test_other_shapes_and_types_are_refused(name):
    """Channels that come last are found out, by a width of 3."""
    kind = augmentation(name)
    with pytest.raises(ValueError, match=r"of shape \(N, C, H, W\), got \(2, 64, 64, 3\)"):
        kind.apply(torch.zeros(2, 64, 64, 3), {})
    with pytest.raises(ValueError, match=r"got torch\.int64"):
        kind.apply(torch.zeros(2, 3, 8, 8, dtype=torch.int64), {})


# ---- crop and translate ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nhwc", [True, False])
def test_a_crop_is_a_window_of_the_image_continued_by_its_edge(nhwc):
    images, down, right = noise(5, nhwc=nhwc), [-12, 12, 0, 5, -3], [12, -12, 0, -7, 9]
    changed = augmentation("crop").apply(images, {"down": ints(*down), "right": ints(*right)})
    padded = F.pad(images.float(), (12, 12, 12, 12), mode="replicate").to(torch.uint8)
    for k in range(5):
        top, left = 12 + down[k], 12 + right[k]
        assert torch.equal(changed[k], padded[k, :, top : top + 64, left : left + 64])


def test_crops_start_at_each_of_25_places_along_both_axes():
    """The authors' other code leaves out the last place by an off-by-one."""
    drawn = augmentation("crop").draw(2000, (3, 64, 64), generator=generator())
    for axis in ("down", "right"):
        assert drawn[axis].unique().tolist() == list(range(-12, 13))
        counts = drawn[axis].add(12).bincount()
        assert stats.chisquare(counts).pvalue > 1e-6


def test_a_crop_of_one_colour_is_the_image():
    images = torch.full((8, 3, 64, 64), 77, dtype=torch.uint8)
    assert torch.equal(augmentation("crop")(images), images)
    assert not torch.equal(augmentation("crop", beyond="zero")(images, generator=generator()), images)


def test_a_shift_by_hand():
    moved = augmentation("translate").apply(numbered(2, 3) + 1, {"down": ints(1), "right": ints(-1)})
    assert moved[0, 0].tolist() == [[0, 4, 5], [0, 0, 0]]


@pytest.mark.parametrize("nhwc", [True, False])
def test_shifts_are_undone_by_the_opposite_ones_but_for_the_border(nhwc):
    images, kind = noise(16, nhwc=nhwc), augmentation("translate")
    drawn = kind.draw(16, (3, 64, 64), generator=generator())
    back = kind.apply(kind.apply(images, drawn), {name: -value for name, value in drawn.items()})
    assert torch.equal(back[:, :, 4:-4, 4:-4], images[:, :, 4:-4, 4:-4])


def test_shifts_go_up_to_four_pixels_either_way():
    drawn = augmentation("translate").draw(500, (3, 64, 64), generator=generator())
    assert drawn["down"].unique().tolist() == drawn["right"].unique().tolist() == list(range(-4, 5))


def test_lengths_grow_with_the_image():
    """Twelve of 64 pixels are six of 32 and eighteen of 96."""
    for side, most in ((32, 6), (96, 18)):
        assert augmentation("crop").draw(2000, (1, side, side), generator=generator())["down"].max() == most


# ---- flip, rotate, tilt ----------------------------------------------------------------------------------------------


def test_a_flip_swaps_left_and_right_and_the_other_axis_is_an_option():
    """The negative control is the reference's mistake: up and down."""
    flipped = augmentation("flip", p=1.0)(numbered(2, 3))
    assert flipped[0, 0].tolist() == [[2, 1, 0], [5, 4, 3]]
    upside_down = augmentation("flip", p=1.0, flip_axis="vertical")(numbered(2, 3))
    assert upside_down[0, 0].tolist() == [[3, 4, 5], [0, 1, 2]]
    assert not torch.equal(flipped, upside_down)


@pytest.mark.parametrize("axis", ["horizontal", "vertical"])
def test_two_flips_are_none(axis):
    kind, images = augmentation("flip", flip_axis=axis), noise()
    drawn = kind.draw(4, (3, 64, 64), generator=generator())
    assert torch.equal(kind.apply(kind.apply(images, drawn), drawn), images)


def test_a_quarter_turn_by_hand():
    turned = augmentation("rotate").apply(numbered(2, 2).expand(3, -1, -1, -1), {"turns": ints(1, 2, 3)})
    assert turned[:, 0].tolist() == [[[1, 3], [0, 2]], [[3, 2], [1, 0]], [[2, 0], [3, 1]]]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_four_equal_turns_are_none(turns):
    images = changed = noise(2)
    for _ in range(4):
        changed = augmentation("rotate").apply(changed, {"turns": ints(turns, turns)})
    assert torch.equal(changed, images)


@pytest.mark.parametrize(("constants", "shares"), [("rad", [0.25, 0.25, 0.25, 0.25]), ("clop", [0.7, 0.1, 0.1, 0.1])])
def test_the_law_of_quarter_turns(constants, shares):
    """Uniform over all four; in the CLOP authors' code 0.3 for a turn at all."""
    count = 4000
    drawn = augmentation("rotate", constants).draw(count, (3, 64, 64), generator=generator())
    counts = (drawn["turns"] * drawn["applied"]).bincount(minlength=4)
    assert stats.chisquare(counts, torch.tensor(shares) * count).pvalue > 1e-6


def test_tilts_are_turns():
    images, kind = noise(2, as_bytes=False), augmentation("rotation")
    for angle, expected in ((0.0, images), (90.0, images.rot90(1, (2, 3))), (-90.0, images.rot90(-1, (2, 3)))):
        torch.testing.assert_close(kind.apply(images, {"angle": torch.full((2,), angle)}), expected, atol=1e-4, rtol=0)
    wide = noise(2, height=32, width=48, as_bytes=False)
    half = kind.apply(wide, {"angle": torch.full((2,), 180.0)})
    torch.testing.assert_close(half, wide.flip(2, 3), atol=1e-4, rtol=0)


def test_a_tilt_of_an_oblong_image_keeps_distances():
    """A dot 8 pixels right of the centre goes to 8 above it; without the ratio of the sides it goes elsewhere."""
    images = torch.zeros(1, 1, 33, 49)
    images[0, 0, 16, 32] = 1
    turned = augmentation("rotation").apply(images, {"angle": torch.tensor([90.0])})
    assert turned[0, 0, 8, 24] == pytest.approx(1, abs=1e-4)


def test_angles_stay_within_bounds():
    angles = augmentation("rotation").draw(2000, (1, 28, 28), generator=generator())["angle"]
    assert angles.abs().max() <= 15
    assert angles.min() < -14 < 14 < angles.max()


# ---- cutout ----------------------------------------------------------------------------------------------------------


def boxes(kind, side=64):
    """Rows and columns of all boxes that can be drawn, by enumeration."""
    sizes = torch.arange(7, 22)
    images = torch.ones(len(sizes), 1, side, side)
    gone = kind.apply(images, {"height": sizes, "width": sizes})[:, 0] == 0
    return [(box.any(1).nonzero().flatten().tolist(), box.any(0).nonzero().flatten().tolist()) for box in gone]


@pytest.mark.parametrize(("constants", "row", "column", "last"), [("rad", 12, 24, (53, 63)), ("clop", 0, 0, (41, 41))])
def test_the_box_of_cutout(constants, row, column, last):
    """Rows pivot + h to pivot + 2 h, clipped by the frame."""
    found = boxes(augmentation("cutout", constants))
    for h, (rows, columns) in zip(range(7, 22), found, strict=True):
        assert rows == list(range(row + h, row + 2 * h))
        assert columns == list(range(column + h, min(column + 2 * h, 64)))
    assert (min(r for rows, _ in found for r in rows), max(r for rows, _ in found for r in rows)) == (row + 7, last[0])
    assert (min(c for _, cs in found for c in cs), max(c for _, cs in found for c in cs)) == (column + 7, last[1])


def test_sizes_of_the_box_are_uniform_from_7_to_21_and_independent():
    drawn = augmentation("cutout").draw(3000, (3, 64, 64), generator=generator())
    for side in ("height", "width"):
        assert drawn[side].unique().tolist() == list(range(7, 22))
        assert stats.chisquare(drawn[side].bincount()[7:]).pvalue > 1e-6
    assert not torch.equal(drawn["height"], drawn["width"])


@pytest.mark.parametrize("nhwc", [True, False])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_around_the_box_all_stays_and_inside_is_one_colour(nhwc, as_bytes):
    """Fails when the colour is not divided by 255, as in the reference after the first draw: values up to 254."""
    images, kind = noise(as_bytes=as_bytes, nhwc=nhwc), augmentation("cutout_color")
    drawn = kind.draw(4, (3, 64, 64), generator=generator())
    drawn["colour"] = torch.tensor([[0, 51, 254], [102, 3, 4], [5, 6, 7], [8, 9, 10]], dtype=torch.uint8)
    changed, black = kind.apply(images, drawn), augmentation("cutout").apply(images, drawn)
    h, w = int(drawn["height"][0]), int(drawn["width"][0])
    box = (slice(12 + h, 12 + 2 * h), slice(24 + w, min(24 + 2 * w, 64)))
    for channel, byte in enumerate((0, 51, 254)):
        expected = torch.full_like(images[0, 0][box], byte if as_bytes else byte / 255)
        torch.testing.assert_close(changed[0, channel][box], expected)
        assert not black[0, channel][box].any()
    inside = torch.zeros(64, 64, dtype=torch.bool)
    inside[box] = True
    assert torch.equal(changed[0][:, ~inside], images[0][:, ~inside])
    assert torch.equal(black[0][:, ~inside], images[0][:, ~inside])
    assert changed.max() <= (255 if as_bytes else 1)


def test_colours_are_bytes_from_0_to_254():
    colour = augmentation("cutout_color").draw(4000, (3, 64, 64), generator=generator())["colour"]
    assert (colour.shape, colour.min(), colour.max()) == ((4000, 3), 0, 254)


# ---- colours ---------------------------------------------------------------------------------------------------------


def test_luma_by_hand():
    """0.299, 0.587 and 0.114 of 255 are 76.2, 149.7 and 29.1; 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15."""
    pixels = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]], dtype=torch.uint8)
    gray = augmentation("grayscale")(pixels.T.reshape(1, 3, 2, 2))
    assert gray[0, 0].flatten().tolist() == [76, 150, 29, 18]
    assert (gray[0] == gray[0, 0]).all()


def jittered(rgb, mean, drawn, k, contrast_first):
    """One pixel of sample k by the standard library's conversions."""
    brightness, contrast, saturation, turn = (
        float(drawn[name][k]) for name in ("brightness", "contrast", "saturation", "turn")
    )

    def colour(pixel):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        return colorsys.hsv_to_rgb((h + turn) % 1, min(s * saturation, 1), min(v * brightness, 1))

    def around_mean(pixel, mean):
        return [min(max((x - m) * contrast + m, 0), 1) for x, m in zip(pixel, mean, strict=True)]

    return colour(around_mean(rgb, mean)) if contrast_first else around_mean(colour(rgb), mean)


@pytest.mark.parametrize("contrast_first", [True, False])
def test_jitter_is_that_of_hue_saturation_and_value(contrast_first):
    """Against the standard library, pixel by pixel; among them black, white, grey and two equal channels."""
    images = noise(3, height=4, width=4, as_bytes=False)
    special = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [0.7, 0.7, 0.1], [0.2, 0.9, 0.9], [0.6, 0.1, 0.6]]
    images[:, :, :, 0] = torch.tensor(special[:4]).T
    images[:, :, :2, 1] = torch.tensor(special[4:]).T
    kind = augmentation("color_jitter")
    drawn = kind.draw(3, (3, 4, 4), generator=generator()) | {"contrast_first": torch.tensor(contrast_first)}
    changed = kind.apply(images, drawn)
    for k in range(3):
        pixels = images[k].flatten(1).T.tolist()
        if not contrast_first:  # the mean is that of the picture as it is when contrast has its turn
            neutral = drawn | {"contrast": torch.ones(3)}
            mean = kind.apply(images, neutral)[k].mean((1, 2)).tolist()
        else:
            mean = images[k].mean((1, 2)).tolist()
        expected = [jittered(rgb, mean, drawn, k, contrast_first) for rgb in pixels]
        torch.testing.assert_close(changed[k].flatten(1).T, torch.tensor(expected), atol=1e-5, rtol=0)
    other = kind.apply(images, drawn | {"contrast_first": torch.tensor(not contrast_first)})
    assert not torch.allclose(changed, other, atol=1e-3)


def test_jitter_of_no_strength_is_none():
    images = noise()
    assert torch.equal(augmentation("color_jitter", strength=0.0, hue=0.0)(images, generator=generator()), images)


def test_factors_of_jitter_stay_within_bounds():
    """0.6 to 1.4, and a hue of at most 0.5 * 255 / 360 of a turn."""
    drawn = augmentation("color_jitter").draw(4000, (3, 64, 64), generator=generator())
    for name in ("brightness", "contrast", "saturation"):
        assert 0.6 <= drawn[name].min() < 0.61
        assert 1.39 < drawn[name].max() <= 1.4
    assert 0.35 < drawn["turn"].max() <= 0.5 * 255 / 360
    assert -0.5 * 255 / 360 <= drawn["turn"].min() < -0.35


def test_one_coin_for_each_draw_decides_the_order_of_jitter():
    dice, kind = generator(), augmentation("color_jitter")
    first = sum(bool(kind.draw(2, (3, 8, 8), generator=dice)["contrast_first"]) for _ in range(1000))
    assert stats.binomtest(first, 1000, 0.5).pvalue > 1e-6


# ---- random convolution ----------------------------------------------------------------------------------------------


def test_each_sample_meets_its_own_filter():
    images, kind = noise(as_bytes=False), augmentation("random_conv")
    drawn = kind.draw(4, (3, 64, 64), generator=generator())
    changed = kind.apply(images, drawn)
    for k in range(4):
        expected = F.conv2d(images[k : k + 1], drawn["filters"][k], padding=1)
        torch.testing.assert_close(changed[k : k + 1], expected, atol=1e-5, rtol=1e-4)


def test_or_all_meet_one():
    images, kind = noise(as_bytes=False), augmentation("random_conv", shared=True)
    drawn = kind.draw(4, (3, 64, 64), generator=generator())
    assert len(drawn["filters"]) == 1
    expected = F.conv2d(images, drawn["filters"][0], padding=1)
    torch.testing.assert_close(kind.apply(images, drawn), expected)


def test_the_identity_filter_keeps_the_image_and_beyond_it_is_black():
    images, kind = noise(1), augmentation("random_conv")
    identity = torch.zeros(1, 3, 3, 3, 3)
    for channel in range(3):
        identity[0, channel, channel, 1, 1] = 1
    torch.testing.assert_close(kind.apply(images, {"filters": identity}), images.float() / 255)
    ones = kind.apply(torch.ones(1, 1, 4, 4), {"filters": torch.ones(1, 1, 1, 3, 3)})
    assert ones[0, 0, 0].tolist() == [4, 6, 6, 4]


@pytest.mark.parametrize("channels", [1, 3])
def test_weights_have_the_variance_of_xavier(channels):
    """Variance 2 / (9 C + 9 C): a standard deviation of 0.1925 for three channels; values leave [0, 1]."""
    weights = augmentation("random_conv").draw(2000, (channels, 64, 64), generator=generator())["filters"]
    std = math.sqrt(1 / (9 * channels))
    assert stats.kstest(weights.flatten().numpy()[:20_000] / std, "norm").pvalue > 1e-6
    assert augmentation("random_conv")(noise(), generator=generator()).min() < 0


# ---- by name ---------------------------------------------------------------------------------------------------------


def test_the_constants_of_the_three_codes():
    drac, rad = ({name: augmentation(name, code) for name in AUGMENTATIONS} for code in ("drac", "rad"))
    assert {name: kind.p for name, kind in drac.items() if kind.p < 1} == {"flip": 0.5, "rotate": 0.75}
    assert rad == drac | {"grayscale": augmentation("grayscale", p=0.5)}
    assert {name: kind.p for name, kind in CLOP_CODE.items() if kind.p < 1} == {
        "grayscale": 0.5,
        "flip": 0.2,
        "rotate": 0.3,
    }
    assert CLOP_CODE["random_conv"].shared
    assert not drac["random_conv"].shared


def test_names_and_settings_that_are_none_are_refused():
    with pytest.raises(UsageError, match=r"unknown augmentation 'corp'; did you mean 'crop'\?"):
        augmentation("corp")
    with pytest.raises(UsageError, match="the CLOP authors' code has no crop that works"):
        augmentation("crop", "clop")
    with pytest.raises(UsageError, match=r"must lie in \[0, 1\], got 1.5"):
        augmentation("flip", p=1.5)


@each
def test_settings_cannot_be_changed_afterwards(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        augmentation(name).p = 0.1
