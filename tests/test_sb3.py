"""CLOP in Stable-Baselines3: the actor's map is permuted in updates, the critic's never."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason='not installed: pip install "clop[sb3]"')

import gymnasium
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from clop.errors import UsageError
from clop.rl.envs.backends import PROCGEN, installed_backends
from clop.sb3 import ClopCnnPolicy, ClopExtractor, SB3Games, make_vec_env

SMALL = {"alpha": 1.0, "encoder": "small", "width": 0.5}
SHORT = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "device": "cpu", "seed": 0}


class Sides(gymnasium.Env):
    """A bright half, left or right; the action that names it is rewarded. An episode is four frames."""

    observation_space = Box(0, 255, (36, 36, 3), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.frame(), {}

    def frame(self):
        self.side = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 60, (36, 36, 3)).astype(np.uint8)
        picture[:, 18 * self.side : 18 * self.side + 18] += 150
        return picture

    def step(self, action):
        reward = float(action == self.side)
        self.steps += 1
        return self.frame(), reward, self.steps == 4, False, {}


def policy_of(**settings):
    """A policy whose opinions are strong enough to be seen."""
    model = PPO(ClopCnnPolicy, DummyVecEnv([Sides]), policy_kwargs=SMALL | settings, **SHORT)
    with torch.no_grad():
        model.policy.action_net.weight.mul_(100)
    return model.policy


@pytest.fixture
def frames():
    return torch.randint(0, 256, (6, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_environment_of_these_tests_is_one_of_theirs():
    check_env(Sides())


@pytest.mark.parametrize("topology", ["shared", "split", "decoupled"])
def test_an_update_permutes_the_actors_map_and_leaves_the_value_untouched(topology, frames):
    """Fails for a CLOP in the shared extractor, which moves the value, and for one that never acts."""
    policy = policy_of(topology=topology)
    actions = torch.zeros(6, dtype=torch.long)
    policy.set_training_mode(False)
    clean_value, clean_log_prob, _ = policy.evaluate_actions(frames, actions)
    policy.set_training_mode(True)
    value, log_prob, _ = policy.evaluate_actions(frames, actions)
    torch.testing.assert_close(value, clean_value, rtol=0, atol=1e-6)
    torch.testing.assert_close(policy.predict_values(frames), clean_value, rtol=0, atol=1e-6)
    assert (log_prob - clean_log_prob).abs().max() > 1e-3


def test_what_actor_and_critic_share_is_as_asked():
    """Fails if a topology is ignored: nothing else in training would show it."""
    parameters = {
        name: sum(p.numel() for p in policy_of(topology=name).parameters()) for name in ("shared", "split", "decoupled")
    }
    assert parameters["shared"] < parameters["split"] < parameters["decoupled"]


@pytest.mark.parametrize(("rollout_mode", "permuted"), [("eval", False), ("train", True)])
def test_rollouts_are_permuted_if_asked_and_predictions_never(rollout_mode, permuted, frames):
    policy = policy_of(rollout_mode=rollout_mode)
    seen = []
    policy.mlp_extractor.neck.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    policy.set_training_mode(False)  # as their collect_rollouts does
    with torch.no_grad():
        policy(frames)
        clean = policy.features_extractor(policy.obs_to_tensor(frames.numpy())[0].float() / 255)
    assert (not torch.allclose(seen[0], clean, atol=1e-6)) == permuted
    assert not policy.clop.training
    before = policy.get_distribution(frames).distribution.logits
    torch.testing.assert_close(policy.get_distribution(frames).distribution.logits, before)
    np.testing.assert_array_equal(*(policy.predict(frames.numpy(), deterministic=True)[0] for _ in range(2)))


def test_with_alpha_0_two_updates_are_those_of_their_own_policy_with_the_same_network():
    """Fails if anything but the permutation differs: weights, what the critic reads, a lost gradient."""
    theirs = {"features_extractor_class": ClopExtractor, "features_extractor_kwargs": SMALL | {"alpha": 0.0}}
    ours = SMALL | {"alpha": 0.0}
    weights = []
    for policy, settings in ((ClopCnnPolicy, ours), ("CnnPolicy", theirs | {"net_arch": []}), (ClopCnnPolicy, SMALL)):
        model = PPO(policy, DummyVecEnv([Sides]), policy_kwargs=settings, **SHORT).learn(16)
        weights.append(torch.cat([p.detach().flatten() for p in model.policy.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-5)
    assert (weights[0] - weights[2]).abs().max() > 1e-4  # the layer does change what is learnt


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_a_saved_model_is_the_same_after_loading(algorithm, tmp_path, frames):
    """Fails if a setting is not saved: the network of another topology or width would not load."""
    settings = SMALL | {"topology": "split", "rollout_mode": "train", "layer": {"variant": "raster"}, "alpha": 0.3}
    rest = SHORT if algorithm is PPO else {"n_steps": 8, "device": "cpu", "seed": 0}
    model = algorithm(ClopCnnPolicy, DummyVecEnv([Sides]), policy_kwargs=settings, **rest)
    model.learn(8)
    model.save(tmp_path / "model.zip")
    loaded = algorithm.load(tmp_path / "model.zip", device="cpu")
    model.policy.save(tmp_path / "policy.pt")
    for policy in (loaded.policy, ClopCnnPolicy.load(tmp_path / "policy.pt", device="cpu")):
        assert (policy.clop.alpha, policy.clop.variant, policy.settings["rollout_mode"]) == (0.3, "raster", "train")
        for one in (model.policy, policy):
            one.set_training_mode(False)
        torch.testing.assert_close(
            *(one.get_distribution(frames).distribution.logits for one in (model.policy, policy)), rtol=0, atol=0
        )


@pytest.mark.slow
@pytest.mark.parametrize("rollout_mode", ["eval", "train"])
def test_an_agent_learns_under_clop_and_is_evaluated_by_their_own_function(rollout_mode):
    """A coin is right in 2 of 4 frames. Fails if gradients do not pass the layer, or if the policy is left permuted."""
    settings = SMALL | {"alpha": 0.5, "rollout_mode": rollout_mode}
    envs = DummyVecEnv([Sides] * 8)
    model = PPO(ClopCnnPolicy, envs, policy_kwargs=settings, n_steps=16, batch_size=64, n_epochs=4, device="cpu")
    model.set_random_seed(0)
    model.learn(768)
    mean, _ = evaluate_policy(model, DummyVecEnv([Sides]), n_eval_episodes=20, warn=False)
    assert mean > 3.5


def test_the_extractor_permutes_in_the_updates_of_an_algorithm_that_is_not_on_policy(frames):
    """Fails for a CLOP that never acts there, or acts in predictions too."""
    extractor = {"features_extractor_class": ClopExtractor, "features_extractor_kwargs": SMALL}
    settings = {"learning_starts": 8, "buffer_size": 32, "batch_size": 8, "train_freq": 8, "device": "cpu"}
    model = DQN("CnnPolicy", DummyVecEnv([Sides]), policy_kwargs=extractor, **settings)
    model.learn(32)
    with torch.no_grad():
        model.policy.set_training_mode(False)
        clean, again = model.q_net(frames), model.q_net(frames)
        model.policy.set_training_mode(True)
        permuted = model.q_net(frames)
    torch.testing.assert_close(clean, again, rtol=0, atol=0)
    assert (permuted - clean).abs().max() > 1e-4


@pytest.mark.skipif(not set(PROCGEN) & set(installed_backends()), reason="no Procgen is installed")
def test_ppo_trains_and_is_evaluated_on_procgen_through_the_wrapper():
    """Fails for spaces, ends or infos that are not as theirs expect."""
    envs = make_vec_env("starpilot", num_envs=4, num_levels=5)
    model = PPO(ClopCnnPolicy, envs, policy_kwargs=SMALL, **SHORT)
    model.learn(128)
    assert model.num_timesteps == 128
    test = make_vec_env("starpilot", num_envs=4, split="test", num_levels=5)
    returns, lengths = evaluate_policy(model, test, n_eval_episodes=4, deterministic=False, return_episode_rewards=True)
    assert min(returns) >= 0
    assert max(lengths) <= 1000
    envs.close()
    test.close()


def test_returns_and_last_frames_of_episodes_are_handed_on(monkeypatch):
    """Fails if the value after a truncation would be taken at the first frame of the next episode."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "rl" / "envs")
    games = make_vec_env("tiny_games:truncated", num_envs=2)
    games.reset()
    for _ in range(3):
        obs, _, dones, infos = games.step(np.array([1, 2]))
    assert dones.all()
    for env, info in enumerate(infos):
        assert info["episode"] == {"r": 3.0 * (env + 1), "l": 3}
        assert info["TimeLimit.truncated"]
        assert (info["terminal_observation"][4:] == 3).all()
        assert (obs[env][4:] == 0).all()
    games.close()


def test_an_environment_that_resets_in_the_next_step_is_refused():
    """Fails if its step without an action would be taken for one of the agent's."""
    with pytest.raises(UsageError, match="SAME_STEP"):
        SB3Games(gymnasium.vector.SyncVectorEnv([Sides]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"topology": "shred"}, "did you mean 'shared'"),
        ({"rollout_mode": "test"}, "rollout_mode"),
        ({"encoder": "impla"}, "did you mean 'impala'"),
        ({"features_extractor_class": ClopExtractor}, "leave out features_extractor_class"),
        ({"share_features_extractor": False}, "decoupled"),
        ({"alpha": 2.0}, "alpha"),
    ],
)
def test_mistakes_are_told_in_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        policy_of(**settings)


def test_frames_too_small_for_the_encoder_are_refused():
    class Dot(Sides):
        observation_space = Box(0, 255, (8, 8, 3), np.uint8)

    with pytest.raises(UsageError, match="enlarge them"):
        PPO(ClopCnnPolicy, DummyVecEnv([Dot]), policy_kwargs={"encoder": "impala"})
