"""The benchmark of the learner adds up."""

import pytest
import torch

from clop import CLOP
from clop.bench import contestants as all_contestants
from clop.bench.contestants import Contestant, check_sb3, started
from clop.bench.flops import gflop_of
from clop.bench.iteration import Times, bare_times
from clop.bench.train import Row, Settings, contestants, cost_of, measure, ratios
from clop.errors import UsageError
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.procgen import spec
from clop.rl.network import Network
from clop.rl.settings import NetworkConfig


def row(what, kind="clop", encoder="impala", processes=1, method="ppo", steps_per_second=100.0, **values):
    values = {"convolutions": "direct", "amp": "off", "memory_gb": 1.0} | values
    return Row(what, kind, encoder, processes, method, steps_per_second=steps_per_second, **values)


def test_the_share_of_the_peak_is_what_the_steps_cost():
    """100 steps/s of 0.6 GFLOP are 60 of 120 GFLOP/s."""
    assert row("ppo", gflop_per_step=0.6, peak_gflops=120.0).share_of_peak == pytest.approx(0.5)
    assert row("other").share_of_peak is None


def test_two_processes_are_held_against_two_bare_ones_and_twice_an_undisturbed_one():
    """Fails if they are held against one alone, which twice the speed at half the efficiency would pass."""
    two = row("ppo", processes=2, bare_steps_per_second=160.0, lone_steps_per_second=100.0)
    assert (two.share_of_bare, two.share_of_lone) == (pytest.approx(0.625), pytest.approx(0.5))
    one = row("ppo", bare_steps_per_second=125.0, lone_steps_per_second=125.0)
    assert one.share_of_bare == one.share_of_lone == pytest.approx(0.8)
    assert row("other").share_of_bare is row("other").share_of_lone is None


def test_the_cost_of_a_pass_is_that_of_its_layers():
    """Nature on 64×64: a backward pass costs twice a forward one, but the frames need no gradient.

    Fails for constants of another network, and for multiplications without their additions.
    """
    first = 2 * 16 * 16 * 32 * (3 * 8 * 8)
    rest = 2 * (8 * 8 * 64 * (32 * 4 * 4) + 8 * 8 * 64 * (64 * 3 * 3) + 64 * 8 * 8 * 256 + 256 * (15 + 1))
    gflop = gflop_of(NetworkConfig(encoder="nature"), spec("starpilot"))
    assert gflop.forward * 1e9 == pytest.approx(first + rest)
    assert gflop.both * 1e9 == pytest.approx(2 * first + 3 * rest)


def test_bare_passes_are_those_of_an_iteration():
    """As many of the same sizes in the same mode; fails if the pass after the last step, an epoch or the remainder of a
    minibatch is left out. The network stays as it was."""
    sizes = {"num_envs": 4, "num_steps": 3, "num_minibatches": 2, "micro_batch": 4}
    learner = build_learner(TrainConfig.preset("quick", "fruitbot", ppo=sizes))
    passes = []
    learner.model.register_forward_pre_hook(
        lambda model, inputs: passes.append((model.training, torch.is_grad_enabled(), len(inputs[0])))
    )
    learner.model.eval()
    learner.iterate()
    expected, weights = passes.copy(), [parameter.clone() for parameter in learner.model.parameters()]
    passes.clear()
    learner.model.zero_grad()
    steps = []
    learner.games.step = lambda actions, step=learner.games.step: steps.append(len(actions)) or step(actions)
    times = bare_times(learner)
    assert passes == expected
    assert [size for _, _, size in passes] == [4] * 4 + [4, 2] * 2 * 3
    assert steps == [4] * 3
    assert min(times) > 0
    assert times.total == pytest.approx(sum(times))
    for parameter, before in zip(learner.model.parameters(), weights, strict=True):
        assert torch.equal(parameter, before)
        assert parameter.grad is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "encoder", "kind"),
    [(1, "nature", "clop"), (2, "small", "clop"), (1, "small", "bare"), (2, "small", "bare")],
)
def test_a_contestant_reports_where_its_time_went(processes, encoder, kind):
    contestant = Contestant("ours", kind, encoder, processes=processes, method="clop", num_steps=2, game="fruitbot")
    with started([contestant]) as running:
        turns = [running["ours"].turn() for _ in range(2)]
    for turn in turns:
        assert turn["seconds"] == pytest.approx(turn["env"] + turn["act"] + turn["learn"])
        assert 0 < turn["env"] < turn["learn"]
        assert len(turn["memory_gb"]) == processes


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["impala", "nature"])
def test_stable_baselines_plays_the_same_games(encoder):
    pytest.importorskip("stable_baselines3")
    with started([Contestant("sb3", "sb3", encoder, num_steps=2, game="fruitbot")]) as running:
        assert running["sb3"].turn()["seconds"] > 0


def test_stable_baselines_has_the_same_network_or_its_own():
    """Its own is DQN's without padding: 64 maps of 4×4 from 64×64 frames, and 512 features."""
    pytest.importorskip("stable_baselines3")
    from clop.bench.sb3 import make_ppo

    config = Contestant("sb3", num_steps=8, game="fruitbot").config
    levels = LevelSet("fruitbot")
    with_ours = make_ppo(levels, config.ppo, "impala").policy
    ours = Network(NetworkConfig(), levels.spec)
    assert sum(p.numel() for p in with_ours.parameters()) == sum(p.numel() for p in ours.parameters())
    own = make_ppo(levels, config.ppo, "nature").policy.features_extractor
    assert type(own).__name__ == "NatureCNN"
    assert own.linear[0].weight.shape == (512, 64 * 4 * 4)


def test_stable_baselines_has_the_same_settings():
    """Fails for a setting that is left to its default where ours is another; with ours of the benchmark most agree."""
    pytest.importorskip("stable_baselines3")
    from clop.bench.sb3 import make_ppo

    changes = {
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "clip_coef": 0.3,
        "ent_coef": 0.02,
        "vf_coef": 0.4,
        "max_grad_norm": 0.7,
    }
    sizes = {"num_envs": 4, "num_steps": 8, "num_minibatches": 4, "update_epochs": 5, "learning_rate": 1e-3}
    config = TrainConfig.preset("quick", "fruitbot", ppo=changes | sizes).ppo
    model = make_ppo(LevelSet("fruitbot"), config, "nature")
    found = {
        "gamma": model.gamma,
        "gae_lambda": model.gae_lambda,
        "clip_coef": model.clip_range(1.0),
        "ent_coef": model.ent_coef,
        "vf_coef": model.vf_coef,
        "max_grad_norm": model.max_grad_norm,
        "num_envs": model.n_envs,
        "num_steps": model.n_steps,
        "num_minibatches": config.batch_size // model.batch_size,
        "update_epochs": model.n_epochs,
        "learning_rate": model.lr_schedule(1.0),
        "adam_epsilon": model.policy.optimizer.defaults["eps"],
    }
    assert found == {name: getattr(config, name) for name in found}


def test_a_learning_rate_that_falls_does_so_over_the_whole_run():
    """Stable-Baselines3 knows the end of one call alone, and would fall to zero in each rollout."""
    pytest.importorskip("stable_baselines3")
    from clop.bench.sb3 import SB3Work

    sizes = {"num_envs": 2, "num_steps": 2, "num_minibatches": 1, "update_epochs": 1}
    ppo = sizes | {"schedule": "linear", "learning_rate": 1.0}
    work = SB3Work(TrainConfig.preset("quick", "fruitbot", total_timesteps=8, ppo=ppo), "nature")
    rates = []
    while not work.finished:
        work.step()
        rates.append(work.model.policy.optimizer.param_groups[0]["lr"])
    assert (work.done, rates) == (8, [0.5, 0.0])


def test_the_cost_of_a_method_is_its_time_over_that_without_it(monkeypatch):
    """Fails for the inverse, and when both learners have the method."""

    def times(learner):
        return 0.0, 0.0, 3.0 if any(isinstance(module, CLOP) for module in learner.model.modules()) else 2.0

    monkeypatch.setattr("clop.bench.train._PAIRED_STEPS", 1)
    monkeypatch.setattr("clop.bench.train.iteration_times", times)
    assert cost_of("clop", "fruitbot", rounds=2, encoder="small") == 1.5


def test_all_learners_have_the_same_rollouts(monkeypatch):
    """Fails if a learner is left with the defaults, which are another game and another length."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    learners = contestants(Settings(game="fruitbot", num_steps=8))
    assert {(c.game, c.num_steps) for c in learners} == {("fruitbot", 8)}
    assert {(c.config.game, c.config.ppo.num_steps) for c in learners} == {("fruitbot", 8)}
    assert len({c.name for c in learners}) == len(learners)
    alone = [("bare", 1, 1, "ppo"), ("clop", 1, 1, "ppo")]
    ours = [*alone, ("bare", 4, 1, "ppo"), ("clop", 4, 1, "ppo"), ("clop", 4, 1, "clop")]
    faster = [c for c in learners if (c.convolutions, c.amp) != ("direct", "off")]
    assert [(c.encoder, c.kind, c.processes, c.threads, c.method) for c in learners if c not in faster] == [
        *((encoder, *rest) for encoder in ("impala", "small", "nature") for rest in ours),
        ("impala", "sb3", 1, 4, "ppo"),
        ("nature", "sb3", 1, 4, "ppo"),
    ]
    assert [(c.encoder, c.processes, c.config.network.convolutions, c.config.network.amp) for c in faster] == [
        ("impala", 4, "winograd", "off"),
        ("impala", 4, "direct", "bf16"),
        ("nature", 4, "direct", "bf16"),
    ]
    assert [c.kind for c in contestants(Settings(encoder="nature", without_sb3=True))] == [
        *("bare", "clop"),
        *("bare", "clop", "clop", "clop"),
    ]
    assert [c.encoder for c in contestants(Settings(encoder="small")) if c.kind == "sb3"] == ["impala"]


def test_one_core_has_no_learner_twice(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    learners = contestants(Settings(encoder="small", without_sb3=True))
    assert [c.name for c in learners] == [
        "bare small, 1 process",
        "clop small, 1 process",
        "clop small, 1 process, method clop",
    ]


def test_speeds_are_compared_with_named_baselines():
    """Ours in most processes and without a method; fails if the bare passes or the method count as ours."""
    rows = [
        row("bare small", "bare", "small", steps_per_second=999.0),
        row("small 1", encoder="small", steps_per_second=400.0),
        row("small 2", encoder="small", processes=2, steps_per_second=700.0),
        row("small 2 clop", encoder="small", processes=2, method="clop", steps_per_second=600.0),
        row("impala 1", steps_per_second=60.0),
        row("impala 2", processes=2, steps_per_second=100.0),
        row("impala 2 winograd", processes=2, steps_per_second=150.0, convolutions="winograd"),
        row("sb3", "sb3", steps_per_second=50.0),
        row("sb3 own", "sb3", "nature", steps_per_second=70.0),
    ]
    assert ratios(rows) == {
        "small 2 / impala 2": 7.0,
        "impala 2 / sb3": 2.0,
        "impala 2 winograd / sb3": 3.0,
        "small 2 / sb3": 14.0,
    }
    rows.append(row("nature 2", encoder="nature", processes=2, steps_per_second=140.0))
    assert ratios(rows)["nature 2 / sb3 own"] == 2.0


class Stub:
    """All contestants, which report times that were agreed on."""

    def __init__(self, contestants):
        self.running = {c.name: Timed(c) for c in contestants}

    def __enter__(self):
        return self.running

    def __exit__(self, *_):
        pass


class Timed:
    """Two bare processes take five eighths of the time of one; two of ours 1 s, all else 2 s."""

    def __init__(self, contestant):
        seconds = {("bare", 1): 1.6, ("bare", 2): 1.0, ("clop", 2): 1.0}.get((contestant.kind, contestant.processes), 2)
        self.seconds = seconds

    def turn(self):
        shares = {"env": self.seconds / 4, "act": self.seconds / 4, "learn": self.seconds / 2}
        return {"seconds": self.seconds, **shares, "memory_gb": [0.5], "gflops": 10.0}


def test_each_learner_is_held_against_its_own_encoder(monkeypatch):
    """And against bare passes in as many processes, and as many times those in one."""
    monkeypatch.setattr("clop.bench.train.started", Stub)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    rows = measure(Settings(encoder="small,nature", rounds=2, num_steps=4))
    costs = {}
    for r in rows:
        assert (r.env_share, r.act_share, r.learn_share) == (0.25, 0.25, 0.5)
        if r.kind == "sb3":
            assert (r.gflop_per_step, r.share_of_peak, r.share_of_bare, r.share_of_lone) == (None,) * 4
            continue
        expected = {("bare", 1): (1, 1), ("clop", 1): (0.8, 0.8), ("bare", 2): (1, 0.8), ("clop", 2): (1, 0.8)}
        assert (r.share_of_bare, r.share_of_lone) == pytest.approx(expected[r.kind, r.processes])
        costs.setdefault(r.encoder, set()).add(r.gflop_per_step)
    assert {encoder: len(found) for encoder, found in costs.items()} == {"small": 1, "nature": 1}
    assert min(costs["nature"]) > 1.5 * max(costs["small"])


class TwoWorkers:
    """This process, the first of two, of which the other takes longer."""

    is_first, size = True, 2

    def broadcast(self, value):
        return value

    def gather(self, value):
        return [value, value._replace(learn=9.0) if isinstance(value, Times) else value]


def test_a_turn_is_over_when_the_last_process_has_done_its_share(monkeypatch):
    monkeypatch.setattr("clop.distributed.Workers", TwoWorkers)
    monkeypatch.setattr("clop.rl.build.build_learner", lambda config, workers: None)
    monkeypatch.setattr("clop.bench.iteration.bare_times", lambda learner: Times(1.0, 2.0, 3.0))
    turns = []
    all_contestants._clop_process(Contestant("bare", "bare", processes=2), lambda turn: turns.append(turn()))
    assert (turns[0]["seconds"], turns[0]["learn"]) == (12.0, 9.0)


@pytest.mark.parametrize(
    ("encoders", "message"),
    [("smal", "unknown network.encoder 'smal'"), ("small,small", "each encoder takes part once"), ("", "unknown")],
)
def test_a_wrong_list_of_encoders_is_refused(encoders, message):
    with pytest.raises(UsageError, match=message):
        Settings(encoder=encoders)


def test_stable_baselines_is_missed_before_the_others_run(monkeypatch):
    monkeypatch.setattr(all_contestants.importlib.util, "find_spec", lambda name: None)
    check_sb3(without=True)
    with pytest.raises(UsageError, match="--without-sb3"):
        check_sb3(without=False)
