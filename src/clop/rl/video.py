"""Files of moving pictures: mp4, webm and gif."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clop.errors import UsageError
from clop.files import write_atomic

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".mp4", ".webm", ".gif")


class _Codec(NamedTuple):
    name: str
    options: Mapping[str, str]
    container: Mapping[str, str]


_CODECS = {
    ".mp4": _Codec("libx264", {"crf": "15", "preset": "veryfast"}, {"movflags": "+faststart"}),
    # A bit rate of 0 leaves the quality to crf alone.
    ".webm": _Codec("libvpx-vp9", {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "7", "row-mt": "1"}, {}),
}


def check_suffix(path: Path) -> str:
    """The suffix in lower case, if it is one of :data:`SUFFIXES` and what it needs is installed."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        kinds = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise UsageError(f"cannot write a video as {suffix or 'a file without a suffix'!r}; expected {kinds}")
    if find_spec("PIL") is None:
        raise UsageError('videos need pillow, which is not installed: pip install "clop[picture]"')
    if suffix in _CODECS and find_spec("av") is None:
        raise UsageError(f"{suffix[1:]} needs av, which is not installed: pip install av; or write a .gif")
    return suffix


def write_video(pictures: Iterable[tuple["Image", bool]], path: Path, fps: int) -> None:
    """Write pictures as they come, the whole file or none.

    Args:
        pictures: One or more, all RGB and of one size, which is even for mp4 and webm; each with whether it stays for
            a second.
        path: Ends in one of :data:`SUFFIXES`. Browsers without H.264 play webm.
        fps: Pictures in a second. A gif counts in hundredths of seconds and may be a little off.
    """
    suffix = check_suffix(path)
    if suffix == ".gif":
        write_atomic(path, lambda draft: _write_gif(pictures, draft, fps))
    else:
        write_atomic(path, lambda draft: _write_av(pictures, draft, fps, suffix))


def _write_av(pictures: Iterable[tuple["Image", bool]], path: Path, fps: int, suffix: str) -> None:
    import av

    codec, rest = _CODECS[suffix], iter(pictures)
    first = next(rest)
    with av.open(str(path), "w", format=suffix[1:], options=dict(codec.container)) as container:
        stream = container.add_stream(codec.name, rate=fps, options=dict(codec.options))
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height = first[0].size
        stream.pix_fmt = "yuv420p"
        for picture, stays in chain([first], rest):
            for _ in range(fps if stays else 1):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")))
        container.mux(stream.encode())


def _write_gif(pictures: Iterable[tuple["Image", bool]], path: Path, fps: int) -> None:
    """Picture by picture, the part that changed. Pillow's own way keeps all of them in memory, a megabyte each."""
    from PIL import GifImagePlugin, Image, ImageChops

    duration = 10 * max(2, round(100 / fps))  # milliseconds; browsers slow down what is shorter than 20
    before: Image.Image | None = None
    with path.open("wb") as file:
        for picture, stays in pictures:
            box = (0, 0, *picture.size)
            if before is not None:
                box = ImageChops.difference(picture, before).getbbox() or (0, 0, 1, 1)
            part = picture.crop(box).quantize(256, Image.Quantize.FASTOCTREE)
            if before is None:
                file.writelines(GifImagePlugin.getheader(part, info={"loop": 0})[0])
            settings = {"duration": 1000 if stays else duration, "disposal": 1, "include_color_table": True}
            file.writelines(GifImagePlugin.getdata(part, box[:2], **settings))
            before = picture
        file.write(b";")
