"""The second half of ``clop demo``: an agent with CLOP on bigfish for about three minutes, by the commands that a user
would type."""

import shlex
import subprocess
import sys
from pathlib import Path

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.report.agents import plot_runs

GAME = "bigfish"


def run(out: Path, steps: int, seed: int, episodes: int = 100) -> str:
    """Train, evaluate on seen and unseen levels, draw the curve and film the agent; returns what came of it.

    What is there already is not made again, so an interrupted demo goes on.
    """
    folder, video = out / GAME, out / f"{GAME}.mp4"
    if not folder.exists():
        asked = {"steps": steps, "test-every": max(1, steps // 3), "seed": seed, "eval-episodes": episodes}
        flags = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
        _clop("train", GAME, "--method", "clop", "--preset", "quick", *flags, "--out", str(folder))
    run = RunFolder.open(folder, "agent")
    if (run.config["steps"], run.config["seed"]) != (steps, seed):
        raise UsageError(f"{folder} is a run with other settings; name another folder with --out")
    if run.summary is None:
        _clop("train", "--resume", str(folder))
    summary = run.summary
    assert summary is not None, "a run that ended well has a summary"
    plot_runs([folder], out / f"{GAME}.png")
    if not video.exists():
        _clop("watch", str(folder), "--levels", "test", "--episodes", "2", "--out", str(video))
    train, test = summary["train"], summary["test"]
    return (
        f"PPO with CLOP on {GAME}, {summary['env_steps']} steps (the paper: 25 million), one seed ({seed}), in "
        f"{summary['seconds']:.0f} s: return {train['mean']:.2f} ± {train['standard_error']:.2f} on training levels, "
        f"{test['mean']:.2f} ± {test['standard_error']:.2f} on unseen ones ({test['episodes']} episodes each, "
        f"{test['protocol']}).\n"
    )


def _clop(*words: str) -> None:
    """Run a command as a user would, and show it."""
    print(f"$ {shlex.join(['clop', *words])}", file=sys.stderr)  # noqa: T201
    done = subprocess.run([sys.executable, "-m", "clop", *words])
    if done.returncode:
        raise UsageError(
            f"the command above has failed with status {done.returncode}; the same demo goes on from there"
        )
