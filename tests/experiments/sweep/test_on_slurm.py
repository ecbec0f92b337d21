"""Slurm, by submitit's executors that need none; no Slurm was there to try it on."""

import pytest

from clop.errors import UsageError
from clop.experiments.sweep.grids import AgentGrid, Sweep
from clop.experiments.sweep.on_slurm import Resources, make_tasks, submit
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.supervise import Options

submitit = pytest.importorskip("submitit", reason='pip install "clop[cluster]"')
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""submitit's debug executor leaves its logs open."""
OPTIONS = Options(device="cpu", checkpoint_seconds=0, command=("clop", "sweep", "run"))


@pytest.fixture
def plan(tmp_path):
    settings = {"num_levels": 5, "eval_episodes": 2, "test_every": 0, "total_timesteps": [32, 64]}
    settings |= {"ppo.num_envs": 4, "ppo.num_steps": 8, "ppo.num_minibatches": 2, "ppo.update_epochs": 1}
    sweep = Sweep("tiny", (AgentGrid(("fruitbot",), ("ppo", "clop"), (0,), "quick", settings),))
    return Plan.create(tmp_path / "sweep", "tiny", sweep.jobs())


def test_the_sbatch_file_asks_for_what_the_runs_need(plan):
    """Two runs of two totals are an array of two. Fails if each total is a job of its own, in one folder."""
    said = submit(plan, OPTIONS, Resources(gpus=1, hours=2.5, partition="fast", jobs=1), print_only=True)
    text = (plan.root / "slurm" / "sweep.sbatch").read_text()
    assert "nothing is submitted" in said
    for line in ("--array=0-1%1", "--time=150", "--partition=fast", "--cpus-per-task=1", "--gpus-per-node=1"):
        assert f"#SBATCH {line}\n" in text
    assert "#SBATCH --job-name=tiny\n" in text
    assert "submitit.core._submit" in text
    assert not (plan.root / "runs").exists()


def test_the_tasks_bring_their_runs_to_their_ends(plan):
    said = submit(plan, OPTIONS, Resources(), cluster="debug")
    assert "2 jobs are submitted" in said
    # submitit's debug executor runs a job when its result is asked for
    for task in make_tasks(plan, OPTIONS):
        assert submitit.AutoExecutor(plan.root / "slurm", cluster="debug").submit(task).result() == ["done", "done"]
    assert all(plan.is_done(job) for job in plan.jobs)
    assert submit(plan, OPTIONS, Resources(), cluster="debug").endswith("nothing is submitted")


def test_a_task_that_is_taken_away_saves_its_run_and_is_submitted_again(plan):
    """What submitit calls before a preemption. Fails if the new task could not be pickled, or lost its jobs."""
    import pickle

    (task, *_) = make_tasks(plan, OPTIONS)
    again = task.checkpoint()
    assert pickle.loads(pickle.dumps(again.function)).jobs == task.jobs
    assert again.function() == ["done", "done"]


def test_without_slurm_one_sentence_says_so(plan):
    with pytest.raises(UsageError, match=r"no Slurm is here: .* --print-only writes the sbatch file without one"):
        submit(plan, OPTIONS, Resources())
