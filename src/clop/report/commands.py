"""Commands that would fill what was not run."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from clop.report import settings

_NOT_REPEATED = ("game", "seed", "preset_name", "total_timesteps", "wrappers", "backend", "threads", "processes")


def sweep_command(sweep: str, *, games: Sequence[str] = (), methods: Sequence[str] = ()) -> str:
    """The part of a named sweep, at the paper's scale."""
    words = ["clop", "sweep", "run", sweep]
    if games:
        words += ["--games", ",".join(games)]
    if methods:
        words += ["--methods", ",".join(methods)]
    return shlex.join(words)


def train_command(config: Mapping[str, Any], methods: Sequence[str], seeds: Sequence[int], env_steps: int) -> str:
    """Runs of these methods with these seeds at the scale of another run, for a shell."""
    words = ["clop", "train", config["game"], "--method", "$m", "--seed", "$s", "--preset", config["preset_name"]]
    words += ["--total-timesteps", str(min(config["total_timesteps"], env_steps))]
    usual = settings.known()["presets"].get(config["preset_name"], {})
    for name, value in settings.flat(config).items():
        if name in _NOT_REPEATED or usual.get(name) == value or value is None:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words += [f"--{flag}" if value else f"--no-{flag}"]
        else:
            words += [f"--{flag}", settings.word(value)]
    words += [word for wrapper in config["wrappers"] for word in ("--wrapper", wrapper)]
    loops = (f"for m in {' '.join(methods)}; do", f"for s in {' '.join(map(str, seeds))}; do")
    return f"{' '.join(loops)} {' '.join(words)}; done; done"
