"""Pictures of what the layer does: the paper's Figures 2 and 6 for any image."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clop.errors import UsageError
from clop.files import write_atomic
from clop.functional import clop
from clop.game_frame import draw_frame
from clop.seeds import check_seed

if TYPE_CHECKING:
    from PIL.Image import Image

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

_TILE = 208  # pixels on paper
_GAP, _LABEL = 12, 30
_INK, _PAPER = (32, 32, 32), (255, 255, 255)


def picture(image: Tensor, alpha: float = 0.5, seed: int = 0) -> "Image":
    """The paper's two illustrations, one above the other.

    First row: growing alpha. Second row: the image, CLOP, without locality, without channel consistency, at one alpha.

    Args:
        image: uint8 of shape (3, H, W).
        alpha: The alpha of the second row.
        seed: Of every permutation.
    """
    check_seed(seed)

    def swapped(alpha: float, local: bool = True, channel_consistent: bool = True) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return clop(image[None], alpha, local=local, channel_consistent=channel_consistent, generator=generator)[0]

    growing = [(f"alpha {value:g}", swapped(value)) for value in ALPHAS]
    ablations = [
        ("image", image),
        (f"CLOP, alpha {alpha:g}", swapped(alpha)),
        ("not local", swapped(alpha, local=False)),
        ("not channel-consistent", swapped(alpha, channel_consistent=False)),
    ]
    return _sheet([growing, ablations])


def read_image(path: Path, size: int) -> Tensor:
    """An image file as uint8 (3, H, W), its longer side ``size`` pixels: one pixel is one position of the map."""
    image_file = _pillow()
    try:
        with image_file.open(path) as file:
            image = file.convert("RGB")
    except FileNotFoundError:
        raise UsageError(f"no image at {path}") from None
    except (OSError, ValueError):
        raise UsageError(f"{path} is no image that can be read; expected a PNG, JPEG or the like") from None
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    return torch.from_numpy(np.array(image.resize((width, height)))).permute(2, 0, 1)


def write_picture(sheet: "Image", path: Path) -> None:
    _pillow()
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp", ".gif"):
        raise UsageError(
            f"cannot write a picture as {path.suffix or 'a file without a suffix'!r}; expected .png, .jpg or .webp"
        )
    write_atomic(path, sheet.save)


def game_frame() -> Tensor:
    """A small synthetic game frame, uint8 (3, 64, 64), for pictures without an image at hand."""
    return torch.from_numpy(draw_frame()).permute(2, 0, 1)


def _sheet(rows: list[list[tuple[str, Tensor]]]) -> "Image":
    """Labelled tiles in rows, each centred."""
    image_file = _pillow()
    from PIL import ImageDraw, ImageFont

    tiles = [[(label, _tile(image)) for label, image in row] for row in rows]
    height = tiles[0][0][1].height
    width = tiles[0][0][1].width
    columns = max(len(row) for row in rows)
    sheet = image_file.new(
        "RGB", (_GAP + columns * (width + _GAP), _GAP + len(rows) * (height + _LABEL + _GAP)), _PAPER
    )
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(18)
    for r, row in enumerate(tiles):
        left = (sheet.width - len(row) * (width + _GAP) + _GAP) // 2
        top = _GAP + r * (height + _LABEL + _GAP)
        for c, (label, tile) in enumerate(row):
            corner = left + c * (width + _GAP)
            sheet.paste(tile, (corner, top))
            pen.text((corner + width // 2, top + height + _LABEL // 2), label, _INK, font, anchor="mm")
    return sheet


def _tile(image: Tensor) -> "Image":
    image_file = _pillow()
    tile = image_file.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    scale = _TILE / max(tile.size)
    return tile.resize((round(tile.width * scale), round(tile.height * scale)), image_file.Resampling.NEAREST)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise UsageError('pictures need pillow, which is not installed: pip install "clop[picture]"') from None
    return Image
