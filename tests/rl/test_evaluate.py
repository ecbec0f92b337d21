"""Evaluation: which episodes count, which levels are played, and that training does not notice."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from clop.errors import UsageError
from clop.progress import Progress
from clop.rl import evaluate as module
from clop.rl import protocols
from clop.rl.agent import Agent
from clop.rl.envs.backends import installed_backends
from clop.rl.envs.levels import STRICT_LEVELS, LevelSet, held_out_levels
from clop.rl.envs.spec import EnvSpec, Episodes, Frames, Step
from clop.rl.envs.vector import VectorGames
from clop.rl.evaluate import evaluate
from clop.rl.methods import compose
from clop.rl.methods.base import Context, Method, Settings
from clop.rl.methods.batch_norm import BatchNorm
from clop.rl.methods.clop import Clop
from clop.rl.network import Output
from clop.rl.play import play_list
from clop.rl.ppo import build_network
from clop.rl.protocols import PEERS, EvalConfig, Peer

needs_games = pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="needs procgen-mirror")


class FakeGames(VectorGames):
    """Env e plays levels 0, 1, 2, ...; each of its episodes lasts e + 1 steps and returns e + 1, even envs solve.

    Rewards beyond 0 come for action 7 only, and the last action must not be lost.
    """

    made: list["FakeGames"]

    def __init__(self, opened, num_envs, seed, backend="auto", threads=0):
        self.opened, self.spec, self.num_envs, self.seed = opened, opened.spec, num_envs, seed
        self.levels, self.steps, self.returns = (np.zeros(num_envs, kind) for kind in (np.int32, np.int32, np.float64))
        self.actions, self.closed = [], False
        FakeGames.made.append(self)

    def observe(self, out=None):
        obs = np.zeros((self.num_envs, 64, 64, 3), np.uint8)
        obs[:, 0, 0, 0] = np.arange(self.num_envs)
        return Frames(obs, self.levels.copy(), self.steps.copy())

    def step(self, actions):
        self.actions.append(np.array(actions))
        rewards = (np.asarray(actions) == 7).astype(np.float32)
        self.returns += rewards
        self.steps += 1
        dones = self.steps == np.arange(self.num_envs) + 1
        ended = np.flatnonzero(dones)
        finished = Episodes(ended, self.returns[ended], self.steps[ended], self.levels[ended], ended % 2 == 0)
        self.levels[ended] += 1
        self.steps[ended] = self.returns[ended] = 0
        return Step(rewards, dones, finished)

    def close(self):
        self.closed = True


class Fixed(Method):
    """Always the same policy, and a record of what it was shown."""

    def __init__(self, logits):
        self.logits, self.batches, self.stages = torch.tensor(logits, dtype=torch.float32), [], []

    def act(self, obs, stage, ctx):
        assert obs.dtype == torch.uint8
        assert obs.shape[1:] == (64, 64, 3)
        assert not torch.is_grad_enabled()
        self.batches.append(obs[:, 0, 0, 0].tolist())
        self.stages.append(stage)
        return Output(self.logits.expand(len(obs), -1), torch.zeros(len(obs)))


ALWAYS_7 = [1000.0 * (action == 7) for action in range(15)]


@pytest.fixture
def fake_games(monkeypatch):
    FakeGames.made = []
    monkeypatch.setattr(LevelSet, "open", lambda levels, *settings: FakeGames(levels, *settings))
    monkeypatch.setattr(module, "choose_backend", lambda backend, game: "fake")
    return FakeGames.made


ONE_ENV = {"peer-idaac-v1": Peer(1, 10, "quota")}


SPEC = LevelSet("bigfish").spec


def fixed_agent(logits=ALWAYS_7):
    return Agent(torch.nn.Identity(), Fixed(logits), context(), SPEC)


def context(model=None, generator=None):
    return Context(0, 0, torch.device("cpu"), generator or torch.Generator().manual_seed(5), "train", model)


def network_agent(*configs, sharpness=100.0):
    """A network with random weights whose actions differ between frames."""
    method, generator = compose({type(config).__name__: config for config in configs}), torch.Generator().manual_seed(5)
    settings = method.configure(Settings(LevelSet("coinrun")))
    model = build_network(settings, method, 0, generator).train()
    with torch.no_grad():
        model.policy_head.weight.mul_(sharpness)
    return Agent(model, method, context(model, generator), SPEC)


# ---- which episodes count --------------------------------------------------------------------------------------------


def test_every_env_contributes_its_quota_so_that_short_episodes_are_not_favoured(fake_games):
    """Env e's return is e + 1: over 8 envs the mean is 4.5 for any quota. The first N to end are mostly env 0's."""
    result = evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=24, num_envs=8))
    assert np.bincount(result.rows.envs).tolist() == [3] * 8
    assert result.mean == 4.5
    assert result.episodes == 24
    assert result.rows.level_seeds.tolist() == [0, 1, 2] * 8  # the first three, not any later ones

    games, first = FakeGames(LevelSet("bigfish"), 8, 0), []  # the control: whatever ends first
    while len(first) < 24:
        first += games.step(np.full(8, 7)).finished.returns.tolist()
    assert np.mean(first[:24]) < 3


def test_the_quota_is_rounded_up_and_envs_without_an_episode_are_not_made(fake_games):
    assert EvalConfig(episodes=1000, num_envs=64).total == 1024
    result = evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=10, num_envs=4))
    assert result.episodes == EvalConfig(episodes=10, num_envs=4).total == 12
    assert evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=3)).episodes == 3
    assert fake_games[-1].num_envs == 3
    assert all(games.closed for games in fake_games)


def test_the_peers_count_as_their_code_does(fake_games, monkeypatch):
    """Env e ends every e + 1 steps with a return of e + 1. The CLOP authors take what ends first and add the rewards of
    what has not ended; OpenAI takes what ended last; IDAAC plays one env."""
    monkeypatch.setattr(
        protocols, "PEERS", {"peer-clop-v1": Peer(3, 4, "first"), "peer-openai-v1": Peer(3, 3, "last"), **ONE_ENV}
    )
    monkeypatch.setattr("clop.rl.envs.procgen.spec", lambda _: EnvSpec((64, 64, 3), 15, time_limit=3))
    results = {
        name: evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(protocol=name))
        for name in ("peer-clop-v1", "peer-openai-v1", "peer-idaac-v1")
    }
    clop = results["peer-clop-v1"]  # env 0 in steps 1, 2 and 3, env 1 in step 2, env 2 in step 3
    assert clop.rows.envs.tolist() == [0, 0, 1, 0, 2]
    assert clop.mean == (1 + 1 + 2 + 1 + 3 + 1) / 5  # one reward of env 1's second episode
    assert results["peer-openai-v1"].rows.envs.tolist() == [0, 1, 2]  # all of them end in step 6
    assert results["peer-idaac-v1"].rows.envs.tolist() == [0] * 10
    assert [games.num_envs for games in fake_games] == [3, 3, 1]


def test_the_peers_have_their_own_numbers():
    with pytest.raises(UsageError, match="peer-clop-v1 has its own number of episodes"):
        EvalConfig(protocol="peer-clop-v1", episodes=10)
    assert PEERS == {
        "peer-clop-v1": (256, 1000, "first"),
        "peer-openai-v1": (64, 100, "last"),
        "peer-idaac-v1": (1, 10, "quota"),
    }
    assert EvalConfig(protocol="peer-clop-v1").total == 1000
    assert EvalConfig(protocol="peer-idaac-v1").total == 10


def test_by_default_64_envs_play_as_many_episodes_each_as_make_1000():
    assert (EvalConfig().envs, EvalConfig().quota, EvalConfig().total) == (64, 16, 1024)


def test_rewards_of_unfinished_episodes_are_not_counted(fake_games):
    """Envs 0 and 1 earn on while env 2 plays; the authors' code had such rewards in the sum."""
    result = evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=3, num_envs=3))
    assert result.rows.returns.tolist() == [1, 2, 3]
    assert result.rows.lengths.tolist() == [1, 2, 3]
    assert result.rows.completed.tolist() == [True, False, True]
    assert result.success_rate == 2 / 3


def test_an_env_that_has_its_quota_steps_on_unseen_by_the_network(fake_games):
    agent = fixed_agent()
    evaluate(agent, LevelSet("bigfish"), EvalConfig(episodes=3, num_envs=3))
    assert agent.method.batches == [[0, 1, 2], [1, 2], [2]]
    assert [actions.tolist() for actions in fake_games[0].actions] == [[7, 7, 7], [4, 7, 7], [4, 4, 7]]
    assert set(agent.method.stages) == {"eval"}


def test_a_network_that_mixes_frames_looks_at_all_envs_to_the_end(fake_games):
    """Fails when the longest episodes are normalised by fewer and fewer frames."""
    method = Fixed(ALWAYS_7)
    agent = Agent(network_agent(BatchNorm(statistics="batch")).model, method, context(), SPEC)
    evaluate(agent, LevelSet("bigfish"), EvalConfig(episodes=3, num_envs=3))
    assert method.batches == [[0, 1, 2]] * 3
    evaluate(network_agent(BatchNorm()), LevelSet("bigfish"), EvalConfig(episodes=2, num_envs=2))  # does not mix


@pytest.mark.parametrize("settings", [{"protocol": "strict-v1"}, {"protocol": "peer-idaac-v1"}, {"episodes": 1}])
def test_a_network_that_mixes_frames_is_not_left_with_one(fake_games, settings):
    with pytest.raises(UsageError, match="needs many games to the end"):
        evaluate(network_agent(BatchNorm(statistics="batch")), LevelSet("bigfish"), EvalConfig(**settings))


def test_progress_counts_exactly_the_episodes_of_the_score(fake_games):
    config, stream = EvalConfig(episodes=10, num_envs=4), io.StringIO()
    with Progress("evaluate", config.total, "episodes", stream=stream) as progress:
        evaluate(fixed_agent(), LevelSet("bigfish"), config, progress=progress)
    assert progress.done == progress.total == 12


# ---- what is said about them -----------------------------------------------------------------------------------------


def test_the_numbers_of_a_score_follow_from_its_rows(fake_games):
    result = evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=3, num_envs=3, seed=7))
    assert result.mean == 2
    assert result.standard_error == pytest.approx(1 / math.sqrt(3))
    assert result.normalised_mean == pytest.approx((2 - 1) / (40 - 1))
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["protocol"] == "clop-v1"
    assert summary["episodes"] == 3
    assert summary["seed"] == 7
    rows = list(csv.DictReader(io.StringIO(result.csv())))
    assert rows[2] == {"level": "0", "return": "3.0", "length": "3", "completed": "1", "env": "2"}
    assert len(rows) == 3


def test_a_single_episode_has_no_standard_error_and_still_is_json(fake_games):
    result = evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=1))
    assert math.isnan(result.standard_error)
    assert json.loads(json.dumps(result.summary(), allow_nan=False))["standard_error"] is None


def test_greedy_takes_the_most_probable_action_and_stands_in_the_name(fake_games):
    """Action 7 has 0.99 of the probability: greedy returns are full, sampled ones are not in 100 episodes."""
    logits = [math.log(0.99 if action == 7 else 0.01 / 14) for action in range(15)]
    config = EvalConfig(episodes=100, num_envs=20)
    sampled = evaluate(fixed_agent(logits), LevelSet("bigfish"), config)
    greedy = evaluate(fixed_agent(logits), LevelSet("bigfish"), replace(config, greedy=True))
    assert (greedy.protocol, sampled.protocol) == ("clop-v1-greedy", "clop-v1")
    assert greedy.mean == 10.5
    assert (greedy.rows.returns == greedy.rows.lengths).all()
    assert 9.5 < sampled.mean < 10.5  # expected 10.395


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(fake_games):
    config = EvalConfig(episodes=40, num_envs=8)

    def rows(seed):
        return evaluate(fixed_agent([0.0] * 15), LevelSet("bigfish"), replace(config, seed=seed)).csv()

    assert rows(1) == rows(1) != rows(2)
    assert fake_games[0].seed == fake_games[1].seed != fake_games[2].seed


# ---- which levels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "split", "expected", "text"),
    [
        ("easy", "train", (30, 200), "levels 30 to 229"),
        ("easy", "test", (0, 0), "all levels"),
        ("hard", "train", (30, 200), "levels 30 to 229"),
        ("hard", "test", (500, 1000), "levels 500 to 1499"),
    ],
)
def test_levels_are_those_of_the_paper(fake_games, mode, split, expected, text):
    trained = LevelSet("bigfish", mode, start_level=30, num_levels=200)
    result = evaluate(fixed_agent(), trained, EvalConfig(split=split, episodes=1))
    opened = fake_games[0].opened
    assert (opened.start_level, opened.num_levels) == expected
    assert opened.distribution_mode == result.distribution_mode == mode
    assert (result.split, result.level_text) == (split, text)


def test_seen_and_unseen_levels_are_drawn_with_different_seeds(fake_games):
    for split in ("train", "test"):
        evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(split=split, episodes=1))
    assert fake_games[0].seed != fake_games[1].seed


@pytest.mark.parametrize(("start", "number", "overlaps"), [(0, 500, False), (0, 501, True), (1499, 1, True)])
def test_hard_test_levels_that_were_trained_on_are_refused(start, number, overlaps):
    trained = LevelSet("bigfish", "hard", start, number)
    if not overlaps:
        assert trained.split("test") == LevelSet("bigfish", "hard", 500, 1000)
    else:
        with pytest.raises(UsageError, match="levels 500 to 1499, and training has levels"):
            trained.split("test")


def test_an_agent_trained_on_all_levels_is_not_tested_on_some_of_them_as_if_unseen():
    """Fails when hard mode says 500 to 1499 whatever the agent has seen."""
    trained = LevelSet("bigfish", "hard", 0, 0)
    assert trained.split("test") == trained


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "clop-v3"}, "unknown protocol 'clop-v3'; did you mean 'clop-v[12]'"),
        ({"split": "tset"}, "unknown split 'tset'; did you mean 'test'"),
        ({"episodes": 0}, "at least 1, got 0"),
        ({"protocol": "strict-v1", "episodes": 20}, "plays 1000 levels once each, got episodes=20"),
        ({"protocol": "strict-v1", "split": "train"}, "use the protocol clop-v1"),
    ],
)
def test_settings_without_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        EvalConfig(**settings)


def test_a_negative_seed_is_refused(fake_games):
    with pytest.raises(UsageError, match=r"seed must be at least 0 .*, got -1"):
        evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(seed=-1))


def test_an_agent_trained_on_all_levels_has_no_strict_list():
    with pytest.raises(UsageError, match="has no unseen ones"):
        held_out_levels(LevelSet("bigfish", num_levels=0))


# ---- the agent is left as it was -------------------------------------------------------------------------------------


def test_modes_and_randomness_of_training_are_given_back(fake_games):
    """Also of a part that was frozen, and when the games fail. Batch norm must learn nothing from test frames."""
    agent = network_agent(BatchNorm(), Clop())
    agent.model.encoder.block1.eval()
    before = [part.training for part in agent.model.modules()]
    weights = {name: tensor.clone() for name, tensor in agent.model.state_dict().items()}
    noise = agent.ctx.generator.get_state()
    seen = []
    agent.model.register_forward_hook(lambda *_: seen.append(any(part.training for part in agent.model.modules())))

    evaluate(agent, LevelSet("coinrun"), EvalConfig(episodes=2))
    with pytest.raises(ZeroDivisionError), agent.playing(0):
        raise ZeroDivisionError

    assert seen == [False, False]
    assert [part.training for part in agent.model.modules()] == before
    assert True in before
    assert False in before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in agent.model.state_dict().items())
    assert torch.equal(agent.ctx.generator.get_state(), noise)


def test_a_method_that_draws_while_it_acts_is_honoured_and_repeats_with_the_seed(fake_games):
    """As Monte-Carlo evaluation does. Training draws from the same generator and must not notice."""

    class Noisy(Method):
        def act(self, obs, stage, ctx):
            logits = 5 * torch.randn((len(obs), 15), generator=ctx.generator)
            return Output(logits, torch.zeros(len(obs)))

    agent = Agent(torch.nn.Identity(), Noisy(), context(), SPEC)
    config = EvalConfig(episodes=30, num_envs=10, greedy=True)
    first = evaluate(agent, LevelSet("bigfish"), config).csv()
    expected = torch.Generator().manual_seed(5)
    assert torch.equal(torch.rand(3, generator=agent.ctx.generator), torch.rand(3, generator=expected))
    assert evaluate(agent, LevelSet("bigfish"), config).csv() == first
    assert evaluate(agent, LevelSet("bigfish"), replace(config, seed=1)).csv() != first


# ---- real games ------------------------------------------------------------------------------------------------------


@needs_games
def test_real_games_repeat_with_the_seed_and_clop_is_off():
    """Two agents with the same weights, one with CLOP: the same episodes, since the layer is off in evaluation."""
    config = EvalConfig(split="train", episodes=4, num_envs=4)
    trained = LevelSet("dodgeball", num_levels=5)
    with_clop = evaluate(network_agent(Clop(alpha=1.0)), trained, config)
    assert evaluate(network_agent(Clop(alpha=1.0)), trained, config).csv() == with_clop.csv()
    assert evaluate(network_agent(), trained, config).csv() == with_clop.csv()
    assert set(with_clop.rows.level_seeds.tolist()) <= set(range(5))
    assert len(with_clop.rows.envs) == 4


@needs_games
def test_no_level_of_the_strict_list_begins_like_a_training_level_or_another():
    """In ninja, some of the first 120 candidates begin like one of 200 training levels: a naive list has them."""
    trained, count = LevelSet("ninja"), 120

    def first_frames(levels):
        for level in levels:
            with trained.single(level).open(1, seed=1) as games:
                yield games.observe().obs.tobytes()

    chosen = held_out_levels(trained, count)
    seen, ours = set(first_frames(range(200))), list(first_frames(chosen))
    assert len(chosen) == len(set(chosen)) == len(set(ours)) == count
    assert not seen & set(ours)
    assert chosen == held_out_levels(LevelSet("ninja"), count)
    naive = range(chosen[0], chosen[0] + count)
    assert seen & set(first_frames(naive))


@needs_games
def test_the_strict_list_of_coinrun_has_a_thousand_distinct_levels():
    chosen = held_out_levels(LevelSet("coinrun"))
    assert len(set(chosen)) == STRICT_LEVELS == 1000
    assert list(chosen) == sorted(chosen)
    assert chosen[-1] - chosen[0] > 1000


def test_levels_that_all_begin_alike_are_told_with_what_to_do(fake_games):
    """As the fake games do. Fails for the advice to train on fewer levels, which would not help."""
    with pytest.raises(UsageError) as refused:
        held_out_levels(LevelSet("bigfish"), 5)
    assert str(refused.value) == (
        "all levels of bigfish begin with the same frame, and strict-v1 plays levels that begin otherwise than those "
        "of training; use the protocol clop-v1, or draw the first frame from the seed of reset"
    )


def test_too_few_levels_with_a_first_frame_of_their_own_are_told(monkeypatch):
    """Of a game with three first frames, all of which 200 training levels have shown."""
    monkeypatch.setattr("clop.rl.envs.levels.first_frame", lambda _, level, backend: bytes([level % 3]))
    with pytest.raises(UsageError, match=r"only 0 of 50 unseen levels of bigfish .* train on fewer levels than 200"):
        held_out_levels(LevelSet("bigfish"), 5, backend="any")


def test_strict_plays_its_list_and_says_so(monkeypatch, fake_games):
    monkeypatch.setattr(module, "held_out_levels", lambda trained, backend: tuple(range(900, 1900)))
    result = evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(protocol="strict-v1", num_envs=300))
    assert result.episodes == 1000
    assert result.protocol == "strict-v1"
    assert result.mean == 1
    assert [games.opened.start_level for games in fake_games] == list(range(900, 1900))
    assert result.level_text == "1000 levels from 900 on with first frames unlike those of levels 0 to 199"
    assert all(games.closed for games in fake_games)


@needs_games
def test_each_level_of_a_list_is_played_once_as_if_it_were_alone():
    """Frames decide the actions here, so a frame handed to the wrong level would show in its episode."""
    trained, levels = LevelSet("leaper"), [1_000_000_007, 3, 1_000_000_001, 77]

    def act(obs):
        return obs.flatten(1).sum(1, dtype=torch.int64) % 15

    together = play_list(act, trained, levels, 3, "procgen-mirror", lambda episodes: None)
    assert together.level_seeds.tolist() == levels
    assert together.envs.tolist() == [0, 1, 2, 3]
    for index, level in enumerate(levels):
        alone = play_list(act, trained, [level], 1, "procgen-mirror", lambda episodes: None)
        assert (alone.returns[0], alone.lengths[0]) == (together.returns[index], together.lengths[index])


# ---- blocks that processes share -------------------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(protocols, "_BLOCK", 5)


def in_blocks(processes=1, agent=None, progress=None, **settings):
    config = EvalConfig(protocol="clop-v2", **{"episodes": 23, "num_envs": 3, **settings})
    agent = agent or fixed_agent([0.0] * 15)
    return evaluate(agent, LevelSet("bigfish"), config, processes=processes, progress=progress)


def test_blocks_are_cut_and_their_quota_is_rounded_up():
    """Eight blocks of 32 envs with 4 episodes each, unless there are few."""
    sizes = {
        number: (config.blocks, config.envs, config.quota, config.total)
        for number in (1, 20, 128, 129, 1000)
        for config in [EvalConfig(protocol="clop-v2", episodes=number)]
    }
    assert sizes == {
        1: (1, 1, 1, 1),
        20: (1, 20, 1, 20),
        128: (1, 32, 4, 128),
        129: (2, 32, 3, 192),
        1000: (8, 32, 4, 1024),
    }


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("processes", [2, 3, 9])
def test_the_episodes_of_blocks_are_the_same_whatever_the_number_of_processes(
    fake_games, small_blocks, processes, split
):
    """Fails if actions are drawn in the order of play, or if blocks come back in another order."""
    alone, shared = in_blocks(split=split), in_blocks(processes, split=split)
    assert alone.csv() == shared.csv()
    assert alone.rows.envs.tolist() == [env for env in range(15) for _ in range(2)]
    assert alone.csv() != in_blocks(split=split, seed=1).csv()


def test_blocks_have_games_and_actions_of_their_own(fake_games, small_blocks):
    """Fails if every block plays the levels of the first, which would count each episode five times."""
    in_blocks()
    assert len({games.seed for games in fake_games}) == 5
    assert len({np.concatenate(games.actions).tobytes() for games in fake_games}) == 5
    assert all(games.closed for games in fake_games)


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_counts_the_episodes_of_all_processes(fake_games, small_blocks, processes):
    with Progress("test", 30, "episodes", stream=io.StringIO()) as progress:
        in_blocks(processes, progress=progress)
    assert progress.done == 30


def test_only_blocks_are_shared(fake_games):
    with pytest.raises(UsageError, match="2 processes share the episodes of clop-v2 on a CPU alone"):
        evaluate(fixed_agent(), LevelSet("bigfish"), EvalConfig(episodes=4), processes=2)


@needs_games
def test_two_processes_play_real_games_as_one_does(monkeypatch):
    """A real network and real games: fails if the passes of a block depend on who plays it."""
    monkeypatch.setattr(protocols, "_BLOCK", 3)
    config = EvalConfig(protocol="clop-v2", episodes=6)
    agent, trained = network_agent(), LevelSet("leaper")
    alone, shared = (evaluate(agent, trained, config, processes=count) for count in (1, 2))
    assert alone.csv() == shared.csv()
