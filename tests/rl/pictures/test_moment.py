"""Pictures of moments: what they show, where it stands, and that nothing runs into anything else."""

import itertools

import numpy as np
import pytest
from PIL import Image, ImageChops

from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec
from clop.rl.pictures import layout, text
from clop.rl.pictures.heat import heat_over
from clop.rl.pictures.moment import CHOSEN, GROOVE, PAPER, Moment, Scene, as_image, draw, draw_together

PROCGEN = LevelSet("bigfish").spec
MINIGRID = EnvSpec((40, 40, 3), 7, 0, ("left", "right", "forward", "pickup", "drop", "toggle", "done"))
UNNAMED = EnvSpec((84, 84, 4), 40)
ATARI = EnvSpec((210, 160, 3), 18, 0, tuple(f"DOWNRIGHTFIRE {index}" for index in range(18)))
SPECS = (PROCGEN, MINIGRID, UNNAMED, ATARI, EnvSpec((20, 10, 1), 1))


def scene(spec=PROCGEN, title="bigfish", known="unseen", heat_text=""):
    return Scene(title, known, spec, heat_text)


def moment(spec=PROCGEN, **changes):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(spec.num_actions)).astype(np.float32)
    frame = rng.integers(0, 256, spec.obs_shape, dtype=np.uint8)
    action = min(7, spec.num_actions - 1)
    return Moment(frame, probabilities, action, (0.5, 1.5), 2_147_483_646, 12, 3.0)._replace(**changes)


def single_panel(spec=PROCGEN):
    return layout.single_panel(scene(spec).names)


def all_panels(spec):
    names = scene(spec).names
    both = [False, True]
    together = (layout.panels_together(count, names, heat) for count in (2, 3, 4) for heat in both)
    return [*(layout.single_panel(names, heat) for heat in both), *itertools.chain.from_iterable(together)]


def test_the_frame_is_upscaled_without_blur():
    picture = np.asarray(draw(moment(), scene()))
    assert np.array_equal(picture[16 : 16 + 512 : 8, 16 : 16 + 512 : 8], moment().frame)
    assert np.array_equal(picture[23 : 16 + 512 : 8, 23 : 16 + 512 : 8], moment().frame)


def test_a_grey_frame_that_is_not_square_keeps_its_shape_and_stands_in_the_middle():
    spec = EnvSpec((20, 10, 1), 2)
    frame = moment(spec).frame
    picture = np.asarray(draw(moment(spec), scene(spec)))
    left, top = 16 + (512 - 250) // 2, 16 + (512 - 500) // 2
    shown = picture[top : top + 500, left : left + 250]
    assert np.array_equal(shown, np.repeat(np.repeat(frame, 25, 0), 25, 1).repeat(3, 2))
    for beside in (picture[16:528, 16:left], picture[16:528, left + 250 : 528], picture[16:top, 16:528]):
        assert (beside == GROOVE).all()


@pytest.mark.parametrize(
    ("shape", "side", "size"),
    [
        ((64, 64, 3), 384, (384, 384)),
        ((210, 160, 3), 512, (320, 420)),
        ((210, 160, 3), 384, (293, 384)),  # a factor of 1 would leave nearly half of it free
        ((300, 600, 3), 512, (512, 256)),
        ((2000, 1, 1), 256, (1, 256)),
    ],
)
def test_a_frame_fills_at_least_two_thirds_of_its_square_and_never_more(shape, side, size):
    assert as_image(np.zeros(shape, np.uint8), side).size == size


@pytest.mark.parametrize(
    ("channels", "shown"),
    [(1, [0, 0, 0]), (2, [1, 1, 1]), (3, [0, 1, 2]), (4, [3, 3, 3]), (9, [6, 7, 8]), (16, [15, 15, 15])],
)
def test_of_many_channels_the_last_triple_or_the_last_one_is_shown(channels, shown):
    frame = np.arange(2 * 2 * channels, dtype=np.uint8).reshape(2, 2, channels)
    assert np.array_equal(np.asarray(as_image(frame, 2)), frame[..., shown])


@pytest.mark.parametrize(("spec", "action"), [(PROCGEN, action) for action in range(15)] + [(MINIGRID, 6)])
def test_a_certain_action_fills_its_bar_and_no_other(spec, action):
    certain = np.eye(spec.num_actions, dtype=np.float32)[action]
    sure = np.asarray(draw(moment(spec, probabilities=certain, action=action), scene(spec)))
    for other, (left, top, right, _) in enumerate(single_panel(spec).bars.boxes):
        row = sure[top + 6, left + 2 : right - 2]
        groove, filled = (row == GROOVE).all(), (row == CHOSEN).all()
        assert (groove, filled) == ((False, True) if other == action else (True, False))


@pytest.mark.parametrize(
    "changes",
    [{"level": 7}, {"step": 13}, {"total": 4.0}, {"values": (0.5, 1.6)}, {"action": 8}, {"outcome": "solved"}],
)
def test_each_thing_that_changes_is_seen(changes):
    before, after = (draw(m, scene()) for m in (moment(), moment(**changes)))
    assert ImageChops.difference(before, after).getbbox()
    pairs = ({"a": m, "b": m} for m in (moment(), moment(**changes)))
    before, after = (draw_together(pair, scene()) for pair in pairs)
    assert ImageChops.difference(before, after).getbbox()


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_is_drawn_over_the_edge_or_the_frame_for_the_largest_numbers(spec):
    """Margins stay paper-white: a text that is too long would run into them or into the game."""
    large = moment(spec, level=2_147_483_646, step=600_000, total=-1234567.8, values=(-100_000.25,) * 500)
    title = "module_with_a_long_name.and_a_part:function_that_makes_the_environment\nof two lines"
    picture = np.asarray(draw(large, scene(spec, title, "seen in training")))
    margins = (picture[:, :16], picture[:, -15:], picture[:6], picture[-10:], picture[:, 16 + 512 : 16 + 512 + 12])
    assert all((margin == PAPER).all() for margin in margins)
    for count in (2, 3, 4):
        labels = [f"an agent with a very long name, longer than any panel is wide, of number {n}" for n in range(count)]
        picture = np.asarray(draw_together(dict.fromkeys(labels, large), scene(spec, title, "seen in training")))
        edges = [panel.frame[2] for panel in layout.panels_together(count, scene(spec).names)]
        # Numbers and probabilities end at the edge of a panel, and an anti-aliased pixel may lie beyond.
        margins = [picture[:, :15], picture[:6], picture[-10:], *(picture[48:, edge + 1 : edge + 15] for edge in edges)]
        assert all((margin == PAPER).all() for margin in margins)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("spec", SPECS)
def test_pictures_side_by_side_have_sides_that_encoders_like(spec, count):
    size = draw_together({str(n): moment(spec) for n in range(count)}, scene(spec)).size
    assert [side % 16 for side in size] == [0, 0]


@pytest.mark.parametrize("spec", SPECS)
def test_bars_and_their_labels_do_not_overlap(spec):
    for panel in all_panels(spec):
        bars = panel.bars
        font = text.font(bars.text_size)
        assert all(font.getlength(label) <= bars.label_width - 8 for label in bars.labels)
        assert len(set(bars.labels)) == spec.num_actions or spec is ATARI
        whole = [
            (left - bars.label_width, top - 3, right + bars.percent_width, bottom)
            for left, top, right, bottom in bars.boxes
        ]
        assert all(right - left > 20 for left, _, right, _ in bars.boxes)
        for a, b in itertools.combinations(whole, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] < b[1] or b[3] < a[1]


def test_only_procgens_directions_stand_apart():
    tops = [box[1] for box in single_panel().bars.boxes]
    gaps = [below - above for above, below in itertools.pairwise(tops)]
    assert gaps == [21] * 8 + [32] + [21] * 5
    tops = [box[1] for box in single_panel(EnvSpec((64, 64, 3), 15)).bars.boxes]
    assert {below - above for above, below in itertools.pairwise(tops)} == {21}


def test_of_too_many_actions_the_first_ones_and_the_chosen_one_are_shown():
    for panel in all_panels(UNNAMED):
        bars = panel.bars
        fitting = len(bars.boxes) - 1  # the last place tells how many there are besides
        assert bars.hidden == 40 - fitting
        assert bars.actions(3) == list(range(fitting))
        assert bars.actions(39) == [*range(fitting - 1), 39]
    certain = np.eye(40, dtype=np.float32)[39]
    picture = np.asarray(draw(moment(UNNAMED, probabilities=certain, action=39), scene(UNNAMED)))
    left, top, right, _ = single_panel(UNNAMED).bars.boxes[-2]
    assert (picture[top + 5, left:right] == CHOSEN).all()


@pytest.mark.parametrize("spec", [PROCGEN, MINIGRID, ATARI, EnvSpec((64, 64, 3), 1)])
def test_actions_that_fit_are_all_shown(spec):
    for panel in all_panels(spec):
        assert panel.bars.hidden == 0
        assert panel.bars.actions(spec.num_actions - 1) == list(range(spec.num_actions))


# ---- heat ------------------------------------------------------------------------------------------------------------


def test_heat_is_brightest_where_the_map_is_largest_and_the_rest_is_dimmed():
    """Fails if the map is transposed or turned upside down."""
    heat = np.zeros((8, 8), np.float32)
    heat[1, 6] = 3.0
    picture = np.asarray(heat_over(Image.new("RGB", (64, 64), (120, 120, 120)), heat)).astype(int)
    bright = picture.sum(-1)
    assert np.unravel_index(bright.argmax(), bright.shape)[0] // 8 == 1
    assert np.unravel_index(bright.argmax(), bright.shape)[1] // 8 == 6
    assert (picture[40:, :32] == round(0.55 * 120)).all()


def test_an_empty_map_leaves_a_dim_frame():
    picture = np.asarray(heat_over(Image.new("RGB", (16, 16), (100, 100, 100)), np.zeros((8, 8), np.float32)))
    assert (picture == 55).all()


def test_the_heat_stands_beside_the_frame():
    heat = np.random.default_rng(0).random((8, 8), np.float32)
    shown, panel = scene(heat_text="what raises the value"), layout.single_panel(scene().names, True)
    picture = draw(moment(heat=heat), shown)
    expected = np.asarray(heat_over(as_image(moment().frame, 384), heat))
    assert np.array_equal(np.asarray(picture.crop(panel.heat)), expected)
    assert np.array_equal(np.asarray(picture.crop(panel.frame)), np.asarray(as_image(moment().frame, 384)))
    assert [side % 16 for side in picture.size] == [0, 0]
    for count in (2, 3, 4):
        moments = {str(n): moment(heat=heat) for n in range(count)}
        picture = draw_together(moments, shown)
        for panel in layout.panels_together(count, scene().names, True):
            side = panel.heat[2] - panel.heat[0]
            assert np.array_equal(
                np.asarray(picture.crop(panel.heat)), np.asarray(heat_over(as_image(moment().frame, side), heat))
            )
        assert [side % 16 for side in picture.size] == [0, 0]
