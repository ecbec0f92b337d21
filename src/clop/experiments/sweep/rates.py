"""How long jobs take on this machine: measured on a few steps of each kind, and remembered.

Evaluations and tests are not counted, and jobs that run side by side slow each other down, so this is a lower bound.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from clop import machine
from clop.experiments.sweep.jobs import Job
from clop.files import cache_folder, write_json
from clop.progress import Progress

_ROLLOUT = 8  # steps of each env in a measurement
_BATCHES = {"small_cnn": 16}  # in a measurement; one of the large networks takes seconds


def seconds_of(jobs: Iterable[Job], *, show: bool = True) -> float:
    """Seconds that training takes, one job after the other."""
    jobs = list(jobs)
    rates = _rates(jobs, show)
    return sum(_size(job) / rates[_key(job)] for job in jobs)


def _rates(jobs: list[Job], show: bool) -> dict[str, float]:
    """Units a second by kind of job."""
    path = cache_folder() / "rates.json"
    here = machine.describe()
    owner = json.dumps([here["processor"], here["cores"], here["gpu"], here["versions"]["torch"]])
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    rates: dict[str, float] = dict(known.get(owner, {}))
    missing = {key: job for job in jobs if (key := _key(job)) not in rates}
    if missing:
        with Progress("measuring the speed of this machine, once", len(missing), "kinds of run") as progress:
            for key, job in missing.items():
                rates[key] = _agent_rate(job) if job.kind == "agent" else _vision_rate(job)
                if show:
                    progress.step()
        write_json(path, known | {owner: rates})
    return rates


def _key(job: Job) -> str:
    """What decides the speed of a job, at least roughly."""
    config = job.config
    if job.kind == "vision":
        return json.dumps([config["network"], config["image_size"], list(config["methods"]), config["threads"]])
    network = {name: config["network"][name] for name in ("encoder", "width", "topology", "norm")}
    ppo = [config["ppo"][name] for name in ("update_epochs", "micro_batch")]
    return json.dumps([network, ppo, list(config["methods"]), config["processes"], config["threads"]])


def _size(job: Job) -> float:
    """Env steps, or images."""
    if job.kind == "agent":
        return job.total
    images = job.config["train_images"] or _ALL_IMAGES.get(job.config["task"], 0)
    return float(images * job.config["epochs"])


_ALL_IMAGES = {
    "mnist-usps": 60_000,
    "imagenette": 9_469,
    "imagewoof": 9_025,
    "imagenet": 1_281_167,
    "stl10": 5_000,
    "digits": 1_198,
}
"""Training images of the full data sets."""


def _agent_rate(job: Job) -> float:
    """Steps a second of one process over a short rollout, times the processes."""
    from clop.rl.build import build_learner
    from clop.rl.config import TrainConfig

    config = TrainConfig.fromdict(job.config)
    envs = config.ppo.num_envs // config.processes
    minibatches = max(count for count in range(1, config.ppo.num_minibatches + 1) if envs * _ROLLOUT % count == 0)
    ppo = replace(config.ppo, num_envs=envs, num_steps=_ROLLOUT, num_minibatches=minibatches)
    learner = build_learner(replace(config, ppo=ppo, processes=1))
    learner.iterate()  # the first one compiles and allocates
    return config.processes * envs * _ROLLOUT / _seconds(learner.iterate, config.threads)


def _vision_rate(job: Job) -> float:
    """Images a second, on noise."""
    from clop.vision.datasets import Images
    from clop.vision.tasks import Task, recipe
    from clop.vision.train import Trainer, VisionConfig

    config = replace(VisionConfig.fromdict(job.config), epochs=4, test_every=0)
    paper, size, count = (
        recipe(config.task),
        config.image_size,
        config.batch_size * _BATCHES.get(job.config["network"], 1),
    )
    channels = len(paper.mean) if len(paper.mean) > 1 else 1
    noise = Images(torch.randint(256, (count, channels, size, size), dtype=torch.uint8), torch.zeros(count).long())
    trainer = Trainer(config, Task(config.task, paper.classes, noise, {}, paper.mean, paper.std))
    trainer.advance()
    return count / _seconds(trainer.advance, config.threads)


def _seconds(step: Callable[[], object], threads: int) -> float:
    """Of a step, the better of two; of this process alone where it has one thread, whatever else the machine does."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 and not torch.cuda.is_available() else time.perf_counter
    found = []
    for _ in range(2):
        start = clock()
        step()
        found.append(clock() - start)
    return min(found)
