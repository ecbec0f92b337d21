"""Small pictures inside a page: PNG as a data URI, written without a library."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def png_uri(pixels: NDArray[np.uint8]) -> str:
    """An image (H, W, 3) as a ``data:`` URI."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An image (H, W, 3) as the bytes of a PNG."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # filter 0: as it is
    parts = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
