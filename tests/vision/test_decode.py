"""Readers give what is in a file, or one sentence about what is wrong with it."""

import bz2
import gzip
import os
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from clop.errors import UsageError
from clop.vision.decode import (
    decoded,
    list_images,
    read_idx_images,
    read_idx_labels,
    read_image,
    read_libsvm_images,
    read_stl10,
    resized,
)

# ---- idx -------------------------------------------------------------------------------------------------------------


def test_idx_images_and_labels_are_what_was_written(tmp_path, write):
    images = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    write.idx(tmp_path / "images.gz", images)
    write.idx(tmp_path / "labels.gz", np.array([7, 0, 9]))
    assert torch.equal(read_idx_images(tmp_path / "images.gz"), torch.from_numpy(images).view(2, 1, 3, 5).byte())
    assert read_idx_labels(tmp_path / "labels.gz").tolist() == [7, 0, 9]


def test_idx_files_may_be_uncompressed(tmp_path, write):
    write.idx(tmp_path / "images.gz", np.ones((2, 3, 3)))
    (tmp_path / "images").write_bytes(gzip.decompress((tmp_path / "images.gz").read_bytes()))
    assert read_idx_images(tmp_path / "images").sum() == 18


def test_bad_idx_files_are_told_apart(tmp_path, write):
    """Fails if labels are read as images, or a file that was cut off is filled up or taken as it is."""
    write.idx(tmp_path / "labels.gz", np.array([1, 2]))
    with pytest.raises(UsageError, match="no idx file of images: it starts with 2049, expected 2051"):
        read_idx_images(tmp_path / "labels.gz")
    write.idx(tmp_path / "images.gz", np.ones((4, 9, 9)))
    whole = (tmp_path / "images.gz").read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[:-9])
    with pytest.raises(UsageError, match=r"cut\.gz is damaged or cut off"):
        read_idx_images(tmp_path / "cut.gz")
    (tmp_path / "cut").write_bytes(gzip.decompress(whole)[:-1])
    with pytest.raises(UsageError, match="its header states 340 bytes, it has 339"):
        read_idx_images(tmp_path / "cut")
    (tmp_path / "short").write_bytes(struct.pack(">I", 2051))
    with pytest.raises(UsageError, match="4 bytes are less than the header"):
        read_idx_images(tmp_path / "short")
    for sizes in ((0, 9, 9), (4, 0, 9)):
        (tmp_path / "none").write_bytes(struct.pack(">4I", 2051, *sizes))
        with pytest.raises(UsageError, match="its header states no images"):
            read_idx_images(tmp_path / "none")
    (tmp_path / "text.gz").write_text("<html>not found</html>")
    with pytest.raises(UsageError, match="damaged or cut off"):
        read_idx_images(tmp_path / "text.gz")
    write.idx(tmp_path / "letters.gz", np.array([1, 26]))
    with pytest.raises(UsageError, match=r"expected labels in \[0, 9\], got 26"):
        read_idx_labels(tmp_path / "letters.gz")


# ---- LIBSVM ----------------------------------------------------------------------------------------------------------


def test_usps_labels_start_at_one_and_values_at_minus_one(tmp_path, write):
    """Fails if label 10 is taken for the digit 0, or -1 for grey."""
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16))
    images[0, 0, :2] = 0, 255
    write.libsvm(tmp_path / "usps.t.bz2", images, [0, 9, 4])
    pixels, labels = read_libsvm_images(tmp_path / "usps.t.bz2")
    assert labels.tolist() == [0, 9, 4]
    assert torch.equal(pixels, torch.from_numpy(images).view(3, 1, 16, 16).byte())


def test_a_value_that_a_line_leaves_out_is_zero(tmp_path):
    (tmp_path / "usps").write_text("3 2:1 256:-1\n")
    pixels, _ = read_libsvm_images(tmp_path / "usps")
    assert pixels.flatten()[[0, 1, 2, 255]].tolist() == [128, 255, 128, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 1:0.5\n2 nonsense\n", "line 2 is not a label and up to 256 pixels"),
        ("1 257:0.5\n", "line 1 is not a label"),
        ("1 0:0.5\n", "line 1 is not a label"),
        ("1.7 1:0.5\n", "line 1 is not a label"),
        ("1 1:0.5\n\n2 1:0.5\n", "line 2 is not a label"),
        (f"{'9' * 30} 1:0.5\n", "line 1 is not a label"),
        ("1 1:0.5\n2 1:0.", "is cut off: its last line has no end"),
        ("1 1:nan\n", r"expected pixels in \[-1, 1\]"),
        ("1 1:255\n", r"expected pixels in \[-1, 1\]"),
        ("11 1:0.5\n", r"expected labels in \[1, 10\], got 11"),
        ("0 1:0.5\n", r"expected labels in \[1, 10\], got 0"),
        ("", "expected pixels"),
    ],
)
def test_bad_libsvm_files_are_told(text, sentence, tmp_path):
    (tmp_path / "usps.t.bz2").write_bytes(bz2.compress(text.encode()))
    with pytest.raises(UsageError, match=sentence):
        read_libsvm_images(tmp_path / "usps.t.bz2")


def test_a_cut_off_bz2_file_is_told(tmp_path, write):
    write.libsvm(tmp_path / "usps.t.bz2", np.zeros((5, 16, 16)), [0] * 5)
    (tmp_path / "usps.t.bz2").write_bytes((tmp_path / "usps.t.bz2").read_bytes()[:-20])
    with pytest.raises(UsageError, match="damaged or cut off"):
        read_libsvm_images(tmp_path / "usps.t.bz2")


# ---- STL-10 ----------------------------------------------------------------------------------------------------------


def test_stl10_is_stored_column_by_column(tmp_path):
    """Fails if images come out transposed, which a network would learn without complaint."""
    image = np.zeros((3, 96, 96), np.uint8)
    image[0, 10, 70] = 200  # red, row 10, column 70
    (tmp_path / "X.bin").write_bytes(np.stack([image.transpose(0, 2, 1)] * 2).tobytes())
    (tmp_path / "y.bin").write_bytes(bytes([1, 10]))
    pixels, labels = read_stl10(tmp_path / "X.bin", tmp_path / "y.bin")
    assert torch.equal(pixels[1], torch.from_numpy(image))
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert labels.tolist() == [0, 9]


def test_bad_stl10_files_are_told(tmp_path):
    images, labels = tmp_path / "X.bin", tmp_path / "y.bin"
    images.write_bytes(bytes(3 * 96 * 96 - 1))
    labels.write_bytes(bytes([1]))
    with pytest.raises(UsageError, match="27647 bytes are not whole images of 27648"):
        read_stl10(images, labels)
    images.write_bytes(bytes(2 * 3 * 96 * 96))
    with pytest.raises(UsageError, match="1 labels for the 2 images"):
        read_stl10(images, labels)
    labels.write_bytes(bytes([0, 1]))
    with pytest.raises(UsageError, match=r"expected labels in \[1, 10\], got 0"):
        read_stl10(images, labels)


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_class_folders_become_images_of_one_size_with_their_classes(tmp_path, write):
    write.class_folder(tmp_path / "train", ["a", "b", "c"])
    files = list_images(tmp_path / "train", ["a", "b", "c"])
    assert files.labels.tolist() == [0, 0, 1, 1, 2, 2]
    pixels = decoded(files, 16, "test")
    assert pixels.shape == (6, 3, 16, 16)
    assert pixels.permute(0, 2, 3, 1).is_contiguous()
    colours = pixels.float().mean((2, 3))
    expected = torch.tensor([[25.0 * n, 255 - 25.0 * n, 10.0 * i] for n in range(3) for i in range(2)])
    assert (colours - expected).abs().max() < 4  # JPEG


def test_images_are_decoded_once_and_anew_if_a_file_changes(tmp_path, write, monkeypatch, cache):
    """Fails if every run decodes, or if changed files are not noticed."""
    write.class_folder(tmp_path / "train", ["a", "b"])
    reads = []
    monkeypatch.setattr(
        "clop.vision.decode.read_image", lambda path, size: reads.append(path) or read_image(path, size)
    )

    def load(size=8):
        return decoded(list_images(tmp_path / "train", ["a", "b"]), size, "test")

    first = load()
    assert len(reads) == 4
    assert torch.equal(load(), first)
    assert len(reads) == 4
    load(size=9)
    assert len(reads) == 8
    changed = tmp_path / "train" / "a" / "a_0.JPEG"
    Image.new("RGB", (20, 12), (0, 0, 255)).save(changed)
    os.utime(changed, ns=(1, 1))
    assert not torch.equal(load(), first)
    assert not list(cache.rglob(".*")), "no draft is left"


def test_a_damaged_image_is_named_and_leaves_nothing_in_the_cache(tmp_path, write, cache):
    write.class_folder(tmp_path / "train", ["a"])
    bad = tmp_path / "train" / "a" / "a_1.JPEG"
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"a_1\.JPEG is (damaged or cut off|no image)"):
        decoded(list_images(tmp_path / "train", ["a"]), 8, "test")
    assert not list(cache.rglob("*.npy"))
    bad.write_text("no image")
    with pytest.raises(UsageError, match="is no image that can be read"):
        read_image(bad, 8)


def test_folders_of_other_classes_are_refused(tmp_path, write):
    """Fails if Imagewoof is taken for Imagenette, or a class without images for learnt."""
    write.class_folder(tmp_path / "train", ["a", "b"])
    with pytest.raises(UsageError, match="c is missing"):
        list_images(tmp_path / "train", ["a", "b", "c"])
    with pytest.raises(UsageError, match="b is not one of them"):
        list_images(tmp_path / "train", ["a"])
    (tmp_path / "train" / "c").mkdir()
    with pytest.raises(UsageError, match="has no images"):
        list_images(tmp_path / "train", ["a", "b", "c"])


def test_a_disk_that_is_too_small_is_told_before_decoding(tmp_path, write, monkeypatch):
    write.class_folder(tmp_path / "train", ["a"])
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 10}))
    with pytest.raises(UsageError, match="GB free; name another folder in CLOP_CACHE"):
        decoded(list_images(tmp_path / "train", ["a"]), 8, "test")


def test_resizing_keeps_flat_images_and_does_not_alias():
    flat = torch.full((2, 1, 28, 28), 77, dtype=torch.uint8)
    assert (resized(flat, 32) == 77).all()
    stripes = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    stripes[..., ::2] = 255
    assert 100 < resized(stripes, 8)[..., 2:-2].float().mean() < 155
    assert resized(flat, 28) is flat
