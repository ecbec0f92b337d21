"""Pictures show the pixels of the image, moved and not changed."""

import numpy as np
import torch
from PIL import Image

from clop.picture import game_frame, picture, read_image


def colours(tile):
    return sorted(map(tuple, np.asarray(tile).reshape(-1, 3).tolist()))


def test_every_tile_with_channels_kept_together_holds_the_colours_of_the_image():
    """Fails if a tile mixes colours, as a resampling other than nearest would, or a permutation for each channel."""
    frame = game_frame()
    frame = frame[:, :52, :52]  # 208 / 52: four pixels on paper for each of the image
    sheet = picture(frame, alpha=0.5)
    original = set(colours(frame.permute(1, 2, 0).numpy()))
    for column in range(6):
        left = 12 + column * 220
        assert set(colours(sheet.crop((left, 12, left + 208, 12 + 208)))) == original
    second_row = [sheet.crop((left, 262, left + 208, 262 + 208)) for left in (232 + 220 * c for c in range(4))]
    assert [set(colours(tile)) == original for tile in second_row] == [True, True, True, False]


def test_disorder_grows_with_alpha():
    frame = game_frame()
    sheet = np.asarray(picture(frame)).astype(int)
    tiles = [sheet[12:220, 12 + 220 * c : 220 + 220 * c] for c in range(6)]
    changed = [(tile != tiles[0]).any(-1).mean() for tile in tiles]
    assert changed[0] == 0
    assert changed == sorted(changed)


def test_an_image_is_read_with_its_longer_side_at_the_size_asked_for(tmp_path):
    Image.new("L", (90, 45), 7).save(tmp_path / "grey.png")
    image = read_image(tmp_path / "grey.png", 32)
    assert image.shape == (3, 16, 32)
    assert image.dtype == torch.uint8
