"""What a sweep runs, and the ids of its runs."""

from dataclasses import replace

import pytest

from clop.errors import UsageError
from clop.experiments.sweep.grids import AgentGrid, ClassifierGrid, Sweep, read_sweep
from clop.experiments.sweep.jobs import agent_job, vision_job
from clop.rl.config import TrainConfig
from clop.vision import methods as vision_methods
from clop.vision.train import paper_config

FILE = """
games = ["bigfish", "dodgeball"]
methods = ["ppo", "clop(alpha=0.3, per_sample=true)", "idaac+clop"]
seeds = 3
preset = "quick"
[settings]
total_timesteps = 2_000_000
num_levels = [50, 200]
"network.encoder" = "small"
[settings.ppo]
num_envs = 32
[[classifiers]]
task = "mnist-usps"
methods = ["plain", "clop"]
seeds = [4, 7]
settings = { train_images = 10_000, epochs = 10 }
"""


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_sweep(path)


def test_a_file_is_the_product_of_its_lists(tmp_path):
    """Fails if a list of settings does not multiply, or a group's table is read as one value."""
    sweep = written(tmp_path, FILE)
    jobs = sweep.jobs()
    agents = [TrainConfig.fromdict(job.config) for job in jobs if job.kind == "agent"]
    assert sweep.name == "mine"
    assert len(agents) == 2 * 3 * 3 * 2
    assert len(jobs) - len(agents) == 4
    assert {(config.num_levels, config.ppo.num_envs, config.total_timesteps) for config in agents} == {
        (50, 32, 2_000_000),
        (200, 32, 2_000_000),
    }
    assert {config.methods["clop"].per_sample for config in agents if config.method == "clop"} == {True}
    assert {job.config["seed"] for job in jobs if job.kind == "vision"} == {4, 7}
    assert len({job.id for job in jobs}) == len({job.name for job in jobs}) == len(jobs)
    assert jobs[0].title == "bigfish, ppo, num_levels 50, seed 0"
    assert jobs[0].name == f"bigfish-ppo-num_levels=50-s0-{jobs[0].id}"


def test_seeds_come_one_after_the_other_so_that_a_part_has_a_little_of_everything(tmp_path):
    jobs = AgentGrid(("bigfish", "maze"), ("ppo", "clop"), (0, 1), "quick").jobs()
    assert [(job.config["seed"], job.config["game"]) for job in jobs][:5] == [
        *[(0, "bigfish"), (0, "bigfish"), (0, "maze"), (0, "maze")],
        (1, "bigfish"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('game = ["bigfish"]', r"mine.toml: unknown key 'game'; did you mean 'games'"),
        ('games = ["bigfsh"]\nmethods = ["ppo"]', r"unknown game 'bigfsh'; did you mean 'bigfish'"),
        ('games = ["bigfish"]\nmethods = ["klop"]', r"unknown method 'klop'; did you mean 'clop'"),
        ('games = ["bigfish"]\nmethods = ["ppo"]\nseeds = -1', r"seeds: expected a number of at least 1"),
        ('games = ["bigfish"]\nmethods = ["ppo"]\nseeds = [0, -1]', r"seeds: expected integers of at least 0, got -1"),
        ('games = ["bigfish"]\nmethods = ["ppo"]\n[settings]\nnum_level = 5', r"unknown setting 'num_level'; did you"),
        ('games = ["bigfish"]\nmethods = ["ppo"]\n[settings]\nseed = 5', r"seed is not one of them; use seeds"),
        ('games = ["bigfish"]\nmethods = ["ppo"]\n[settings]\nnum_levels = []', r"num_levels is an empty list"),
        ('games = "bigfish"\nmethods = ["ppo"]', r"games: expected a list of names"),
        ('[[classifiers]]\nmethods = ["plain"]', r"needs its task"),
        ('[[classifiers]]\ntask = "mnst-usps"\nmethods = ["plain"]', r"unknown task 'mnst-usps'; did you mean"),
        ('[[classifiers]]\ntask = "digits"\nmethods = ["plain"]\nsettings = {epoch = 1}', r"unknown setting 'epoch'"),
        ("", r"nothing to run"),
        ("games = [", r"is no TOML file"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        written(tmp_path, text).jobs()


def test_an_id_is_made_of_what_decides_the_numbers_and_of_nothing_else():
    """Fails if a path, the preset's name or the spelt-out back end changes it, or if a setting does not."""
    config = TrainConfig.preset("quick", "bigfish", "clop", total_timesteps=1_000_000)
    wanted = agent_job(config).id
    for same in ({"preset_name": "mine"}, {"backend": "procgen-mirror"}, {"total_timesteps": 2_000_000}):
        assert agent_job(replace(config, **same)).id == wanted
    others = [{"seed": 1}, {"num_levels": 51}, {"ppo.gamma": 0.98}, {"clop.alpha": 0.5}, {"processes": 2}]
    others += [{"game": "maze"}, {"method": "ppo"}, {"test_every": 7}, {"network.width": 0.5}]
    ids = {agent_job(config.changed(**other)).id for other in others}
    assert len(ids | {wanted}) == len(others) + 1
    vision = paper_config("digits", methods=vision_methods.parse("clop"))
    assert vision_job(replace(vision, data="/elsewhere")).id == vision_job(vision).id
    assert vision_job(replace(vision, epochs=3)).id != vision_job(vision).id


def test_an_id_names_the_total_where_the_run_depends_on_it():
    """Fails if a run with a falling learning rate were to grow."""
    config = TrainConfig.preset("authors-easy", "bigfish")
    assert agent_job(config.changed(total_timesteps=1000)).id != agent_job(config).id


def test_the_order_of_methods_is_part_of_the_id():
    first, second = (TrainConfig.preset("quick", "maze", method) for method in ("rad+clop", "clop+rad"))
    assert agent_job(first).id != agent_job(second).id


def test_a_job_that_two_grids_have_is_run_once_and_two_totals_are_one_run():
    grid = AgentGrid(("maze",), ("ppo",), (0,), "quick", {"total_timesteps": [4096, 8192]})
    jobs = Sweep("x", (grid, grid)).jobs()
    assert [job.total for job in jobs] == [4096, 8192]
    assert len({job.name for job in jobs}) == 1


def test_titles_that_would_be_alike_name_what_differs():
    """Fails when two grids have a method with another setting, or another total, and a plan has one name for both."""
    settings = {"total_timesteps": [4096, 8192]}
    grids = (
        AgentGrid(("maze",), ("ppo",), (0,), "quick", settings),
        AgentGrid(("maze",), ("ppo", "clop"), (0,), "quick", {"total_timesteps": 4096, "ppo.ent_coef": 0.0}),
        AgentGrid(("maze",), ("clop",), (0,), "quick", {"total_timesteps": 8192, "ppo.ent_coef": 0.0}),
    )
    assert [job.title for job in Sweep("x", grids).jobs()] == [
        "maze, ppo, total_timesteps 4096, seed 0",
        "maze, ppo, total_timesteps 8192, seed 0",
        "maze, ppo, seed 0",
        "maze, clop, seed 0, total_timesteps 4096",
        "maze, clop, seed 0, total_timesteps 8192",
    ]
    named = AgentGrid(("maze",), ("ppo",), (0,), "quick"), AgentGrid(("maze",), ("ppo",), (0,), "quick", {"threads": 2})
    titles = [job.title for job in Sweep("x", named).jobs()]
    assert titles == ["maze, ppo, seed 0, threads 1", "maze, ppo, seed 0, threads 2"]


def test_a_part_of_a_sweep_has_the_named_games_methods_and_seeds():
    grids = (AgentGrid(("maze", "heist"), ("ppo", "clop"), (0, 1), "quick"), ClassifierGrid("digits", ("plain",), (0,)))
    sweep = Sweep("x", grids)
    titles = [job.title for job in sweep.changed(["maze"], ["clop"], [5]).jobs()]
    assert titles == ["maze, clop, seed 5"]
    assert [job.title for job in sweep.changed(["digits"]).jobs()] == ["digits, plain, seed 0"]
    with pytest.raises(UsageError, match=r"no such part: unknown game or task 'maz'; did you mean 'maze'"):
        sweep.changed(["maz"])
    with pytest.raises(UsageError, match=r"no such part: unknown method 'rad'"):
        sweep.changed(methods=["rad"])
