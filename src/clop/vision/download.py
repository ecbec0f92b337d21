"""Where the files of a data set are: in the user's folder, in the cache, or on the net."""

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clop.errors import UsageError
from clop.files import cache_folder
from clop.progress import Progress


@dataclass(frozen=True)
class Source:
    """A file as its publisher offers it. ``hash`` is that of the published file, ``md5:…`` or ``sha256:…``."""

    name: str
    url: str
    hash: str


def data_folders(data: Path | None) -> list[Path]:
    """Where to look, in this order."""
    if data is not None and not data.is_dir():
        raise UsageError(f"--data names the folder that holds the data sets, but there is no folder {data}")
    return [*([data] if data is not None else []), cache_folder() / "data"]


def find_file(source: Source, data: Path | None, places: Sequence[str]) -> Path:
    """A file of a data set, downloaded to the cache if it is nowhere yet.

    Args:
        source: The file.
        data: The user's folder.
        places: Folders in it, or in the cache, where the file is usually kept; the first is where it is downloaded to.
            A compressed file may also lie there uncompressed.
    """
    for folder in data_folders(data):
        for place in (*places, "."):
            for name in (source.name, source.name.removesuffix(".gz").removesuffix(".bz2")):
                if (folder / place / name).is_file():
                    return folder / place / name
    return _download(source, cache_folder() / "data" / places[0], (data or cache_folder() / "data") / places[0])


def find_folder(
    source: Source | None, data: Path | None, names: Sequence[str], is_it: Callable[[Path], bool], what: str
) -> Path:
    """The folder of a data set, unpacked to the cache if it is nowhere yet: from an archive that the user has put among
    the data, or one that is downloaded.

    Args:
        source: The archive of the folder named first, None if it cannot be downloaded.
        data: The user's folder: what holds the data set, or the data set itself.
        names: Under which the folder is known, the preferred ones first.
        is_it: Whether a folder is what is wanted.
        what: Told if it is not found and not to be had.
    """
    for folder in data_folders(data):
        for path in (*(folder / name for name in names), folder):
            if is_it(path):
                return path
    here = data or cache_folder() / "data"
    if source is None:
        raise UsageError(f"no {what} found, and it cannot be downloaded freely; put it into {here / names[0]}")
    target = cache_folder() / "data" / Path(source.url).name.split(".")[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    given = [folder / source.name for folder in data_folders(data) if (folder / source.name).is_file()]
    if given:
        _check_hash(given[0], source)
        _unpack(given[0], target)
    else:
        archive = _download(source, target.parent, here)
        _unpack(archive, target)
        archive.unlink()
    if not is_it(target):
        raise UsageError(f"{source.url} holds no {what}; get it elsewhere and put it into {here / names[0]}")
    return target


def _check_hash(path: Path, source: Source) -> None:
    kind, wanted = source.hash.split(":")
    with path.open("rb") as file:
        if hashlib.file_digest(file, kind).hexdigest() != wanted:
            raise UsageError(f"{path} is damaged: its hash is not the published one; get it anew from {source.url}")


def _download(source: Source, folder: Path, put: Path) -> Path:
    """Fetch a file whole or not at all, and compare its hash."""
    try:
        import pooch
    except ImportError:
        raise UsageError(
            f"{source.name} is not here, and downloads need pooch, which is not installed: "
            f'pip install "clop[vision]", or put {source.url} into {put}'
        ) from None
    pooch.get_logger().setLevel("WARNING")
    try:
        with _Bar(source.name) as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar)
            return Path(pooch.retrieve(source.url, source.hash, source.name, folder, downloader=downloader))
    except (OSError, ValueError) as error:  # those of requests are OSErrors, a wrong hash is a ValueError
        reason = "its hash is not the published one" if type(error) is ValueError else _reason(error)
        raise UsageError(
            f"{source.name} is not here and could not be downloaded ({reason}); get it from {source.url} and put it "
            f"into {put}"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"status {status}" if status is not None else "no connection"


def _unpack(archive: Path, target: Path) -> None:
    """The one folder in an archive, under the name of ``target``, whole or not at all."""
    megabytes = archive.stat().st_size // 2**20
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".unpack-", dir=target.parent) as draft,
            Progress(f"unpacking {archive.name}", megabytes, "MB") as progress,
            archive.open("rb") as raw,
            tarfile.open(fileobj=raw) as tar,
        ):
            for member in tar:
                tar.extract(member, draft, filter="data")
                progress.step(raw.tell() // 2**20 - progress.done)
            (folder,) = Path(draft).iterdir()
            folder.replace(target)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"{archive} cannot be unpacked to {target}: {error}") from error


class _Bar:
    """Progress in the form pooch wants."""

    def __init__(self, name: str) -> None:
        self.name, self.total = name, 0
        self._progress: Progress | None = None
        self._bytes = 0

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.__exit__(*error)

    def update(self, count: int) -> None:
        if self._progress is None:
            self._progress = Progress(f"downloading {self.name}", max(1, self.total // 2**10), "kB")
        self._bytes = min(self._bytes + count, self.total)
        self._progress.step(self._bytes // 2**10 - self._progress.done)

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass
