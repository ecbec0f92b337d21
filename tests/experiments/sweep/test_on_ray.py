"""Ray: a sweep on simulated nodes, one of which dies."""

import time

import pytest

from clop.bench.sweep import same_run
from clop.errors import UsageError
from clop.experiments.agents import run
from clop.experiments.sweep.grids import AgentGrid, Sweep
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.queue import Queue
from clop.experiments.sweep.supervise import Options, Stop
from clop.rl.config import TrainConfig

ray = pytest.importorskip("ray", reason='pip install "clop[cluster]"')
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray leaves sockets open


def test_a_node_dies_and_every_run_comes_out_the_same_to_the_bit(tmp_path):
    """Fails if a task is not started again elsewhere, or its run goes on from another state."""
    from ray.cluster_utils import Cluster

    from clop.experiments.sweep.on_ray import run_on_ray

    settings = {"num_levels": 5, "eval_episodes": 2, "test_every": 0, "total_timesteps": 32 * 60}
    settings |= {"ppo.num_envs": 4, "ppo.num_steps": 8, "ppo.num_minibatches": 2, "ppo.update_epochs": 1}
    jobs = Sweep("tiny", (AgentGrid(("fruitbot",), ("ppo", "clop"), (0,), "quick", settings),)).jobs()
    plan = Plan.create(tmp_path / "sweep", "tiny", jobs)
    queue, stop = Queue(plan), Stop()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        doomed = cluster.add_node(num_cpus=2)
        options = Options(device="cpu", checkpoint_seconds=0, command=("clop", "sweep", "run"))
        goes_on = run_on_ray(queue, stop, address=cluster.address, jobs=0, options=options, cpus=None, gpus=0)
        killed, end = False, time.monotonic() + 800
        while goes_on():
            assert time.monotonic() < end
            if not killed and list((plan.root / "runs").glob("*/checkpoints/step-*.pt")):
                cluster.remove_node(doomed, allow_graceful=False)
                cluster.add_node(num_cpus=2)
                killed = True
        assert killed
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert not queue.failed
    for job in jobs:
        run(TrainConfig.fromdict(job.config), tmp_path / "calm" / job.name)
        assert same_run(tmp_path / "calm" / job.name, plan.run_folder(job))
    written = "".join(path.read_text(errors="replace") for path in plan.root.rglob("*") if path.is_file())
    assert "token" not in written.replace('"token"', "")  # the lease has one of its own


def test_a_cluster_that_is_not_reachable_is_one_sentence(monkeypatch):
    from clop.experiments.sweep import on_ray

    def fail(**_):
        raise ConnectionError("ray client connection timeout\nlong story")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(
        UsageError, match=r"no Ray cluster can be reached at 10.0.0.1:6379: ray client connection timeout"
    ):
        on_ray._connect("10.0.0.1:6379")
