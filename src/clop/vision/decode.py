"""The files of data sets as images: idx, LIBSVM text, STL-10's binary files, and folders of image files.

Every reader checks what it reads, so that a damaged file or the wrong one is reported and not trained on.
"""

import bz2
import gzip
import hashlib
import math
import os
import shutil
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from clop.errors import UsageError
from clop.files import cache_folder, write_atomic
from clop.progress import Progress

_DAMAGED = (EOFError, OSError, zlib.error)  # what gzip and bz2 raise
_SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp")
_IMAGE_MAGIC, _LABEL_MAGIC = 2051, 2049


def read_idx_images(path: Path) -> Tensor:
    """The images of MNIST's format, (N, 1, H, W) bytes."""
    content = _content(path)
    count, height, width = _idx_header(path, content, _IMAGE_MAGIC, "images", 3)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=16).copy()).view(count, 1, height, width)


def read_idx_labels(path: Path, classes: int = 10) -> Tensor:
    """The labels of MNIST's format, (N,)."""
    content = _content(path)
    _idx_header(path, content, _LABEL_MAGIC, "labels", 1)
    return _checked_labels(path, np.frombuffer(content, np.uint8, offset=8), 0, classes)


def _idx_header(path: Path, content: bytes, magic: int, what: str, dimensions: int) -> tuple[int, ...]:
    """The sizes that a file of this kind states, after a look at whether it has as many bytes."""
    found = int.from_bytes(content[:4])
    if found != magic:
        raise UsageError(f"{path} is no idx file of {what}: it starts with {found}, expected {magic}")
    start = 4 * (dimensions + 1)
    if len(content) < start:
        raise UsageError(f"{path} is cut off: {len(content)} bytes are less than the header of a file of {what}")
    sizes = struct.unpack(f">{dimensions}I", content[4:start])
    wanted = start + math.prod(sizes)
    if len(content) != wanted:
        raise UsageError(f"{path} is damaged: its header states {wanted} bytes, it has {len(content)}")
    if 0 in sizes:
        raise UsageError(f"{path} is damaged: its header states no {what}")
    return sizes


def read_libsvm_images(path: Path, size: int = 16, classes: int = 10) -> tuple[Tensor, Tensor]:
    """USPS as LIBSVM offers it: text lines of a label from 1 and pixels ``index:value`` with values in [-1, 1]."""
    *lines, rest = _content(path).split(b"\n")
    if rest:
        raise UsageError(f"{path} is cut off: its last line has no end")
    values = np.zeros((len(lines), size * size), np.float32)  # what a line leaves out is 0 in this format
    labels = np.zeros(len(lines), np.int64)
    for row, line in enumerate(lines):
        try:
            label, *pixels = line.split()
            labels[row] = int(label)
            for pixel in pixels:
                index, value = pixel.split(b":")
                if int(index) < 1:
                    raise ValueError
                values[row, int(index) - 1] = float(value)
        except (ValueError, IndexError, OverflowError):
            raise UsageError(
                f"{path} is damaged: line {row + 1} is not a label and up to {size * size} pixels index:value"
            ) from None
    if not len(lines) or not np.abs(values).max() <= 1:  # so that it holds for what is not a number too
        raise UsageError(f"{path} is damaged: expected pixels in [-1, 1]")
    bytes_ = np.round((values + 1) * 127.5).astype(np.uint8)
    return torch.from_numpy(bytes_).view(-1, 1, size, size), _checked_labels(path, labels, 1, classes)


def read_stl10(images: Path, labels: Path, size: int = 96, classes: int = 10) -> tuple[Tensor, Tensor]:
    """A split of STL-10: images as (N, 3, W, H) bytes, columns first, and a byte from 1 for each label."""
    content = _content(images)
    one = 3 * size * size
    if not content or len(content) % one:
        raise UsageError(f"{images} is cut off: {len(content)} bytes are not whole images of {one}")
    columns = np.frombuffer(content, np.uint8).reshape(-1, 3, size, size)
    rows = np.ascontiguousarray(columns.transpose(0, 3, 2, 1))  # (N, H, W, 3)
    found = _checked_labels(labels, np.frombuffer(_content(labels), np.uint8), 1, classes)
    if len(found) != len(rows):
        raise UsageError(f"{labels} has {len(found)} labels for the {len(rows)} images of {images.name}")
    return torch.from_numpy(rows).permute(0, 3, 1, 2), found


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(content)
        return bz2.decompress(content) if path.suffix == ".bz2" else content
    except (*_DAMAGED, ValueError) as error:
        raise UsageError(f"{path} is damaged or cut off ({error}); remove it and get it anew") from error


def _checked_labels(path: Path, labels: NDArray[np.integer], first: int, classes: int) -> Tensor:
    last = first + classes - 1
    wrong = labels[(labels < first) | (labels > last)]
    if len(wrong):
        raise UsageError(f"{path} is damaged or another data set: expected labels in [{first}, {last}], got {wrong[0]}")
    return torch.from_numpy(labels.astype(np.int64) - first)


def resized(images: Tensor, size: int) -> Tensor:
    """Byte images at another size, bilinear, without aliasing."""
    if images.shape[-2:] == (size, size):
        return images
    parts = [
        F.interpolate(part.float(), (size, size), mode="bilinear", antialias=True).round_().clamp_(0, 255).byte()
        for part in images.split(4096)
    ]
    return torch.cat(parts)


# ---- folders of image files ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageFiles:
    """Image files and the number of each one's class."""

    paths: Sequence[Path]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    def at(self, indices: Sequence[int]) -> "ImageFiles":
        return ImageFiles([self.paths[i] for i in indices], self.labels[list(indices)])


def list_classes(folder: Path) -> list[str]:
    """The names of the class folders in a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise UsageError(f"{folder} has no class folders")
    return names


def list_images(folder: Path, classes: Sequence[str]) -> ImageFiles:
    """The images in the folders of these classes; other folders, and classes without an image, are refused."""
    found = list_classes(folder)
    if set(found) != set(classes):
        wrong = sorted(set(found) ^ set(classes))[0]
        how = "not one of them" if wrong in found else "missing"
        raise UsageError(f"{folder} does not hold the classes that are expected: {wrong} is {how}")
    paths: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(classes):
        images = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in _SUFFIXES)
        if not images:
            raise UsageError(f"{folder / name} has no images ({', '.join(_SUFFIXES)})")
        paths += images
        labels += [number] * len(images)
    return ImageFiles(paths, np.asarray(labels, np.int64))


def decoded(files: ImageFiles, size: int, name: str) -> Tensor:
    """Image files as bytes, (N, 3, size, size), channels last in memory.

    They are decoded once: the pixels stay in the cache as one file, which is mapped into memory and not read at once.
    Its name holds a hash of the files' names, sizes and times, so changed files are decoded anew.
    """
    key = hashlib.sha256(f"bilinear {size}".encode())
    for path in files.paths:
        status = path.stat()
        key.update(f"{path.parent.name}/{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    target = cache_folder() / "decoded" / f"{name}-{size}-{len(files)}-{key.hexdigest()[:16]}.npy"
    if not target.exists():
        needed = 3 * size * size * len(files)
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if needed > free:
            raise UsageError(
                f"the decoded images take {needed / 2**30:.1f} GB and {target.parent} has {free / 2**30:.1f} GB free; "
                "name another folder in CLOP_CACHE, or take fewer with --train-images or smaller ones with --image-size"
            )
        write_atomic(target, lambda draft: _decode(files, size, name, draft))
    # Copy on write: torch wants memory that could be written, and nothing here writes.
    return torch.from_numpy(np.load(target, mmap_mode="c")).permute(0, 3, 1, 2)


def _decode(files: ImageFiles, size: int, name: str, draft: Path) -> None:
    pixels = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint8, shape=(len(files), size, size, 3))
    with (
        ThreadPoolExecutor(os.cpu_count()) as threads,  # Pillow lets go of the interpreter while it decodes
        Progress(f"decoding {name}", len(files), "images") as progress,
    ):
        for number, image in enumerate(threads.map(lambda path: read_image(path, size), files.paths)):
            pixels[number] = image
            progress.step()
    pixels.flush()


def read_image(path: Path, size: int) -> NDArray[np.uint8]:
    """One image file as (size, size, 3) bytes; its sides are scaled each for itself."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UsageError('image files need Pillow, which is not installed: pip install "clop[vision]"') from None
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
    except UnidentifiedImageError:
        raise UsageError(f"{path} is no image that can be read; remove it or get it anew") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} is damaged or cut off ({error}); remove it or get it anew") from error
