"""Files of moving pictures: as many pictures as were given, of their size, and the whole file or none."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clop.errors import UsageError
from clop.rl import video
from clop.rl.video import SUFFIXES, check_suffix, write_video

SIZE = (96, 64)


def pictures(size=SIZE):
    """Four of different red, the second of which stays for a second."""
    for index in range(4):
        yield Image.new("RGB", size, (60 * index, 90, 200)), index == 1


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
@pytest.mark.parametrize("size", [SIZE, (160, 32)])
def test_a_film_has_the_size_of_the_first_picture_and_one_frame_each(tmp_path, suffix, size):
    av = pytest.importorskip("av")
    path = tmp_path / "deep" / f"video{suffix}"
    write_video(pictures(size), path, 5)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert (stream.average_rate, stream.width, stream.height) == (5, *size)
    reds = [frame[..., 0].mean() for frame in frames]
    assert np.allclose(reds, [0, *[60] * 5, 120, 180], atol=6)


@pytest.mark.parametrize(("suffix", "codec"), [(".mp4", "h264"), (".webm", "vp9")])
def test_a_film_has_the_codec_that_browsers_expect_of_its_suffix(tmp_path, suffix, codec):
    av = pytest.importorskip("av")
    path = tmp_path / f"video{suffix}"
    write_video(pictures(), path, 5)
    with av.open(str(path)) as container:
        assert suffix[1:] in container.format.name.split(",")
        assert container.streams.video[0].codec_context.codec.canonical_name == codec


def test_a_gif_says_how_long_each_picture_stays(tmp_path):
    path = tmp_path / "video.GIF"
    write_video(pictures(), path, 20)
    durations, reds = [], []
    with Image.open(path) as gif:
        assert (gif.n_frames, gif.size, gif.info["loop"]) == (4, SIZE, 0)
        for index in range(gif.n_frames):
            gif.seek(index)
            durations.append(gif.info["duration"])
            reds.append(np.asarray(gif.convert("RGB"))[..., 0].mean())
    assert durations == [50, 1000, 50, 50]
    assert np.allclose(reds, [0, 60, 120, 180], atol=5)


@pytest.mark.parametrize("name", ["video.avi", "video"])
def test_another_suffix_is_refused(name):
    with pytest.raises(UsageError, match=r"cannot write a video as .*; expected \.mp4, \.webm or \.gif"):
        check_suffix(Path(name))


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_without_av_only_a_gif_can_be_written(monkeypatch, suffix):
    monkeypatch.setattr(video, "find_spec", lambda name: None if name == "av" else name)
    with pytest.raises(UsageError, match=rf"{suffix[1:]} needs av, .*pip install av; or write a \.gif"):
        check_suffix(Path(f"a{suffix}"))
    assert check_suffix(Path("a.gif")) == ".gif"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("good", [0, 1])
def test_a_video_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, suffix, good):
    if suffix != ".gif":
        pytest.importorskip("av")
    path = tmp_path / f"video{suffix}"
    path.write_bytes(b"old")

    def failing():
        for _ in range(good):
            yield Image.new("RGB", SIZE), False
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_video(failing(), path, 15)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"
