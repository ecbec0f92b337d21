"""Videos on the page: found beside runs, copied into the page's folder."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clop.report.page.html import escape
from clop.report.page.links import Links

SUFFIXES = (".webm", ".mp4")
"""In the order in which a browser tries them: not every one plays H.264."""
FOLDER = "videos"
_TYPES = {".webm": 'video/webm; codecs="vp9"', ".mp4": "video/mp4"}


@dataclass(frozen=True)
class Video:
    """One video, in one file or two."""

    name: str
    files: tuple[Path, ...]
    caption: str
    """What a JSON file beside it says; its name otherwise."""
    runs: tuple[tuple[str, str], ...] = ()
    """What the agents are called, and their runs, if it says so."""


def find_videos(paths: Iterable[Path], out: Path) -> list[Video]:
    """All videos at these paths and below, and those that were filmed for the page in the folder ``out``.

    Copies that an earlier page has left there are not taken again; what was filmed has a JSON file beside it.
    """
    elsewhere = _videos(paths, out)
    names = {video.name for video in elsewhere}
    filmed = [video for video in _videos([out / FOLDER]) if video.files[0].with_suffix(".json").exists()]
    return elsewhere + [video for video in filmed if video.name not in names]


def _videos(paths: Iterable[Path], left_out: Path | None = None) -> list[Video]:
    found: dict[Path, list[Path]] = {}
    for path in paths:
        files = [path] if path.suffix in SUFFIXES else sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
        for file in files:
            if left_out is None or not file.resolve().is_relative_to(left_out.resolve()):
                found.setdefault(file.with_suffix(""), []).append(file)
    videos: list[Video] = []
    for stem, files in found.items():
        name, number = stem.name, 2
        while any(video.name == name for video in videos):  # videos of two folders may have one name
            name, number = f"{stem.name}-{number}", number + 1
        ordered = tuple(sorted(set(files), key=lambda file: SUFFIXES.index(file.suffix)))
        videos.append(Video(name, ordered, *_about(stem)))
    return videos


def _about(stem: Path) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Caption and runs."""
    beside = stem.with_suffix(".json")
    try:
        values = json.loads(beside.read_text()) if beside.exists() else {}
    except ValueError:
        values = {}
    if not isinstance(values, dict) or not isinstance(values.get("caption"), str):
        return stem.name, ()
    runs = values.get("runs")
    return values["caption"], tuple(runs.items()) if isinstance(runs, dict) else ()


def copy_videos(videos: Iterable[Video], out: Path) -> None:
    """Into the page's folder."""
    for video in videos:
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
        for file in video.files:
            target = out / FOLDER / f"{video.name}{file.suffix}"
            if file.resolve() != target.resolve():
                shutil.copyfile(file, target)


def section(videos: Iterable[Video], links: Links) -> str:
    """The section of the page; empty without a video."""
    shown = "".join(_figure(video, links) for video in videos)
    if not shown:
        return ""
    return f"""<section id="agents">
<h2>Agents at play</h2>
<p>Agents on the same levels side by side, in evaluation mode. Where there is heat beside a frame, it shows by Grad-CAM
what raises the logit of the chosen action.</p>
<div class="videos">{shown}</div>
</section>"""


def _figure(video: Video, links: Links) -> str:
    sources = "".join(
        f'<source src="{FOLDER}/{escape(video.name)}{file.suffix}" type="{escape(_TYPES[file.suffix])}">'
        for file in video.files
    )
    return (
        f'<figure><video controls muted loop playsinline preload="metadata">{sources}</video>'
        f"<figcaption>{escape(video.caption)}{_runs(video, links)}</figcaption></figure>"
    )


def _runs(video: Video, links: Links) -> str:
    """Whose agents they are, where the runs are on the page too."""
    known = {label: links.named(Path(str(path)).name) for label, path in video.runs}
    found = [links.to([path], escape(label)) for label, path in known.items() if path is not None]
    return f" Runs: {', '.join(found)}." if found else ""
