"""Which programs can play a game here, and what to install for those that cannot."""

import importlib.metadata
import importlib.util
import sys

from clop.errors import UsageError, unknown_name
from clop.rl.envs import procgen
from clop.rl.games import is_procgen

PROCGEN = ("procgen-mirror", "envpool")
"""Back ends of Procgen, the preferred one first: faster, with fewer parts, and able to save running games."""
GYMNASIUM = ("gymnasium-sync", "gymnasium-async")
"""Back ends of all other games: stepped in this process, or each in a process of its own."""
BACKENDS = (*PROCGEN, *GYMNASIUM)

_INSTALL = {
    # Without its dependencies, which the library does not need and which want numpy below 2.
    "procgen-mirror": "pip install --no-deps procgen-mirror",
    "envpool": "pip install envpool PyQt5-Qt5",
    "gymnasium-sync": 'pip install "clop[gymnasium]"',
    "gymnasium-async": 'pip install "clop[gymnasium]"',
}


def installed_backends() -> dict[str, str]:
    """Name and version of the back ends that are installed, the one used by default first."""
    found = {}
    if (data := procgen.data_folder()) is not None:
        found["procgen-mirror"] = (data.parent / "version.txt").read_text().strip()
    if importlib.util.find_spec("envpool") is not None:
        found["envpool"] = importlib.metadata.version("envpool")
    if importlib.util.find_spec("gymnasium") is not None:
        found |= dict.fromkeys(GYMNASIUM, importlib.metadata.version("gymnasium"))
    return found


def choose_backend(backend: str, game: str) -> str:
    """The back end of that name, or for ``auto`` the best that is installed; a :class:`UsageError` if it is not."""
    fitting = PROCGEN if is_procgen(game) else GYMNASIUM
    if backend not in ("auto", *fitting):
        if backend in BACKENDS:
            raise UsageError(f"{backend} does not play {game}; expected one of {', '.join(('auto', *fitting))}")
        raise UsageError(unknown_name("back end", backend, ("auto", *fitting)))
    installed = installed_backends()
    if backend in installed:
        return backend
    if backend != "auto":
        raise UsageError(f"{backend} is not installed: {_INSTALL[backend]}")
    found = next((name for name in fitting if name in installed), None)
    if found is None and is_procgen(game):
        wheel = sys.platform == "linux" and sys.version_info < (3, 13)
        command = _INSTALL["procgen-mirror"] if wheel else 'pip install "clop[rl]"'
        raise UsageError(f"no Procgen is installed; the layer and the vision experiments work without it: {command}")
    if found is None:
        raise UsageError(f"{game} needs Gymnasium, which is not installed: {_INSTALL['gymnasium-sync']}")
    return found
