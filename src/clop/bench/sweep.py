"""What a sweep promises: no run is lost whatever is killed, and next to nothing is spent on the promise.

Chaos: the same jobs undisturbed, and with SIGKILLs at random moments among jobs, the processes that supervise them, the
driver and, on Ray, whole nodes; then the final checkpoints and metrics of both are compared to the bit.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clop.bench.bars import Row, result
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder, read_checkpoint
from clop.experiments.sweep.grids import read_sweep
from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan
from clop.files import write_json

DESCRIPTION = (
    "Kill the jobs, supervisors, driver and nodes of a sweep at random and compare what comes out with an undisturbed "
    "sweep, bit for bit; time the same runs by hand, and a plan and a status of many finished runs."
)
_NOT_COMPARED = ("seconds", "memory_gb")  # what a run cost
_GAP = (1.0, 4.0)  # seconds between two kills
_CHECKPOINT_MINUTES = "0.02"
_MARK = "CLOP_BENCH_SWEEP"


@dataclass(frozen=True)
class Settings(BenchSettings):
    """How much of everything."""

    jobs: int = 8
    """Runs of the sweep."""
    steps: int = 40_000
    """Env steps of each run."""
    kills: int = 20
    """Processes that are killed at random moments."""
    finished: int = 1000
    """Finished runs that a plan and a status look at."""
    on: Literal["local", "ray"] = "local"
    """Executor whose processes are killed."""
    seed: int = 1
    """Seed that decides which process a kill hits, but not in which moment of its work."""


def run(settings: Settings, report: Report = silent) -> Result:
    rows, killed = measure(settings, report)
    return result(rows, f"killed: {killed}", {"killed": killed})


def measure(settings: Settings, report: Report = silent) -> tuple[list[Row], dict[str, int]]:
    """The lines, and how many processes of each kind were killed."""
    with tempfile.TemporaryDirectory(prefix="clop-sweep-") as name:
        folder = Path(name)
        os.environ[_MARK] = name  # all processes of this benchmark inherit it, and are known by it
        file = folder / "chaos.toml"
        file.write_text(_FILE.format(seeds=-(-settings.jobs // 2), steps=settings.steps))
        jobs = read_sweep(file).jobs()
        half = len(jobs) // 2
        report(f"{half} of {len(jobs)} runs by hand, two at a time")
        by_hand = _by_hand(jobs[:half], folder / "by-hand")
        report("all of them as a sweep")
        start = time.monotonic()
        _drive(file, folder / "calm", "local").wait()
        swept = time.monotonic() - start
        report("the others by hand")  # before and after, so that a machine that becomes slower favours neither
        by_hand += _by_hand(jobs[half:], folder / "by-hand")
        report(f"the same with {settings.kills} kills on {settings.on}")
        kills, took = _chaos(file, folder / "chaos", jobs, settings, report)
        equal = sum(same_run(folder / "calm" / "runs" / job.name, folder / "chaos" / "runs" / job.name) for job in jobs)
        planned, looked = _finished(folder / "many", settings.finished)
    rows = [
        Row(f"runs equal to the bit after {len(kills)} kills on {settings.on}", equal, f"of {len(jobs)}", "all"),
        Row("chaos", took, "s", ""),
        Row("sweep, two at a time", swept, "s", ""),
        Row("the same commands by hand", by_hand, "s", ""),
        Row("sweep / by hand", swept / by_hand, "", "1.05"),
        Row(f"finding that {settings.finished} finished runs need nothing", planned, "s", "3"),
        Row(f"clop sweep status on {settings.finished} runs", looked, "s", "1"),
    ]
    return rows, {who: kills.count(who) for who in sorted(set(kills))}


_FILE = """
games = ["fruitbot"]
methods = ["ppo", "clop"]
seeds = {seeds}
preset = "quick"
[settings]
total_timesteps = {steps}
num_levels = 10
eval_episodes = 16
test_every = 0
[settings.ppo]
num_envs = 16
num_steps = 32
num_minibatches = 4
update_epochs = 1
"""


def _by_hand(jobs: list[Job], folder: Path) -> float:
    """Seconds of the same runs as commands, two at a time."""
    start = time.monotonic()
    waiting = list(jobs)
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        while waiting and len(running) < 2:
            job = waiting.pop(0)
            names = ("total_timesteps", "eval_episodes", "num_levels", "seed", "processes", "threads", "test_every")
            settings = {name: job.config[name] for name in names}
            ppo = ("num_envs", "num_steps", "num_minibatches", "update_epochs")
            settings |= {f"ppo.{name}": job.config["ppo"][name] for name in ppo}
            words = ["train", job.config["game"], "--method", "+".join(job.config["methods"]) or "ppo"]
            words += ["--preset", "quick", "--out", str(folder / job.name), "--checkpoint-minutes", _CHECKPOINT_MINUTES]
            words += [f"--{name}={value}" for name, value in settings.items()]
            running.append(_start(words, folder.with_suffix(".log")))
        for process in list(running):
            if process.poll() is not None:
                if process.returncode:
                    raise UsageError(f"a run by hand has failed: {folder.with_suffix('.log').read_text()[-500:]}")
                running.remove(process)
        time.sleep(0.05)
    return time.monotonic() - start


def _start(words: list[str], log: Path) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", "clop", *words], stdout=file, stderr=file, env=environment)


def _drive(file: Path, root: Path, on: str, address: str | None = None) -> "subprocess.Popen[bytes]":
    """The driver of a sweep, as a process."""
    words = ["sweep", "run", str(file), "--out", str(root), "--on", on, "--jobs", "2"]
    words += ["--checkpoint-minutes", _CHECKPOINT_MINUTES, *(["--address", address] if address else [])]
    return _start(words, root.with_suffix(".log"))


def _chaos(file: Path, root: Path, jobs: list[Job], settings: Settings, report: Report) -> tuple[list[str], float]:
    """Kill until all kills are spent, then let the sweep end; returns who was hit, and the seconds it took."""
    plan = Plan.create(root, "chaos", jobs)
    rng = random.Random(settings.seed)
    cluster = _Cluster() if settings.on == "ray" else None
    address = cluster.address if cluster is not None else None
    start = time.monotonic()
    killed: list[str] = []
    drivers = [_drive(file, root, settings.on, address) for _ in range(2)]  # both on the same sweep
    try:
        while len(killed) < settings.kills:
            time.sleep(rng.uniform(*_GAP))
            if all(plan.is_done(job) for job in jobs):
                raise UsageError(f"all runs ended after {len(killed)} of {settings.kills} kills; give them more steps")
            who = rng.choice(["job", "job", "job", "driver", *(["node", "supervisor"] if cluster else [])])
            if _kill(who, drivers, cluster, rng):
                killed.append(who)
                report(f"kill {len(killed)} of {settings.kills}: {who}")
            drivers = [
                driver if driver.poll() is None else _drive(file, root, settings.on, address) for driver in drivers
            ]
        for driver in drivers:
            driver.wait()
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
        if cluster is not None:
            cluster.close()
    missing = [job.title for job in jobs if not plan.is_done(job)]
    if missing:
        log = root.with_suffix(".log").read_text()[-800:]
        raise UsageError(f"not complete after chaos: {', '.join(missing)}; {log}")
    return killed, time.monotonic() - start


def _kill(who: str, drivers: list[Any], cluster: "_Cluster | None", rng: random.Random) -> bool:
    """SIGKILL one of a kind; False if there is none at this moment."""
    if who == "node" and cluster is not None:
        return cluster.kill_node(rng)
    if who == "driver":
        alive = [driver.pid for driver in drivers if driver.poll() is None]
    else:
        alive = [pid for pid in _pids("clop.experiments.sweep.worker") if os.environ[_MARK] in _environment(pid)]
        if who == "supervisor":
            alive = sorted({_parent(pid) for pid in alive} - {driver.pid for driver in drivers} - {1, -1})
    if not alive:
        return False
    try:
        os.kill(rng.choice(alive), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _pids(text: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if text.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


class _Cluster:
    """Ray with a head that runs no job, and three nodes, each a process tree of this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self._nodes = [self._cluster.add_node(num_cpus=1) for _ in range(3)]
        self.address: str = self._cluster.address

    def kill_node(self, rng: random.Random) -> bool:
        """The whole node at once, and a new one in its place."""
        node = rng.choice(self._nodes)
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._cluster.add_node(num_cpus=1))
        return True

    def close(self) -> None:
        self._cluster.shutdown()


def same_run(one: Path, other: Path) -> bool:
    """Whether two runs have the same metrics and the same final state, to the bit."""
    if (one / "metrics.jsonl").read_bytes() != (other / "metrics.jsonl").read_bytes():
        return False
    states = [read_checkpoint(folder / "checkpoints" / "last.pt") for folder in (one, other)]
    first, second = ({name: value for name, value in state.items() if name not in _NOT_COMPARED} for state in states)
    return _equal(first, second)


def _equal(one: Any, other: Any) -> bool:
    import torch

    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _finished(root: Path, count: int) -> tuple[float, float]:
    """Seconds of ``clop sweep run`` and of ``clop sweep status`` on so many runs that are all done."""
    file = root.with_suffix(".toml")
    seeds = count // 4
    file.write_text(
        f'games = ["maze", "heist"]\nmethods = ["ppo", "clop"]\nseeds = {seeds}\npreset = "quick"\n'
        "[settings]\ntotal_timesteps = 4096\n"
    )
    sweep = read_sweep(file)
    plan = Plan.create(root, sweep.name, sweep.jobs())
    for job in plan.jobs:
        folder = RunFolder.create(plan.run_folder(job), job.kind, job.config, command="clop bench sweep").path
        write_json(folder / "summary.json", {"version": 2, "env_steps": job.total})
    timed: list[float] = []
    for words in (["run", str(file), "--out", str(root)], ["status", str(root)]):
        timed.append(min(_seconds(lambda words=words: _command(words)) for _ in range(2)))  # type: ignore[misc]
    shutil.rmtree(root)
    return timed[0], timed[1]


def _seconds(call: Callable[[], None]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def _command(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "clop", "sweep", *words], check=True, capture_output=True)
