"""Advantages against numbers worked by hand and a sum over episodes, and how a rollout is cut into minibatches."""

import dataclasses

import pytest
import torch

from clop.rl.rollout import Batch, Rollout, gae

FRAME = (64, 64, 3)


def column(*values):
    """One env, (T, 1)."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def estimate(rewards, values, dones, last_value, gamma, gae_lambda):
    dones = torch.tensor(dones, dtype=torch.bool)[:, None]
    last_value = torch.tensor([last_value], dtype=torch.float64)
    advantages, returns = gae(column(*rewards), column(*values), dones, last_value, gamma, gae_lambda)
    return advantages[:, 0].tolist(), returns[:, 0].tolist()


def test_two_steps_worked_by_hand():
    """delta_1 = 2 + 0.5 * 4 - 3 = 1, delta_0 = 1 + 0.5 * 3 - 2 = 0.5, A_0 = 0.5 + 0.5 * 0.8 * 1 = 0.9."""
    advantages, returns = estimate([1, 2], [2, 3], [0, 0], 4, gamma=0.5, gae_lambda=0.8)
    assert advantages == pytest.approx([0.9, 1.0])
    assert returns == pytest.approx([2.9, 4.0])


def test_an_end_cuts_the_value_and_the_advantage_that_follow():
    """With d_0 = 1: A_0 = r_0 - V_0 = -1. Cutting only the value gives -0.6, only the advantage 0.5, none 0.9."""
    advantages, _ = estimate([1, 2], [2, 3], [1, 0], 4, gamma=0.5, gae_lambda=0.8)
    assert advantages == pytest.approx([-1.0, 1.0])


def test_an_end_at_the_last_step_cuts_the_bootstrap():
    advantages, returns = estimate([1, 2], [2, 3], [0, 1], 1000, gamma=0.5, gae_lambda=0.8)
    assert advantages == pytest.approx([0.5 - 0.4, -1.0])
    assert returns == pytest.approx([2.1, 2.0])


def test_a_done_says_how_its_own_step_ended_not_the_one_before():
    """Fails for code that stores the done of the previous step and shifts nothing."""
    ended_first, ended_last = (estimate([1, 1], [0, 0], dones, 8, 1.0, 1.0)[0] for dones in ([1, 0], [0, 1]))
    assert ended_first == [1, 9]
    assert ended_last == [2, 1]


def test_many_episodes_against_a_sum_over_each():
    """A_t = sum over k of (gamma lambda)^k delta_{t+k}, up to the end of the episode or of the rollout."""
    steps, envs, gamma, gae_lambda = 40, 6, 0.97, 0.9
    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(steps, envs, dtype=torch.float64, generator=generator) for _ in range(2))
    dones = torch.rand(steps, envs, generator=generator) < 0.15
    dones[-1] = torch.arange(envs) % 2 == 0  # an end at the border too
    last_value = torch.randn(envs, dtype=torch.float64, generator=generator)
    assert dones[:-1].any(0).all()

    expected = torch.zeros(steps, envs, dtype=torch.float64)
    for env in range(envs):
        for t in range(steps):
            for k in range(t, steps):
                following = values[k + 1, env] if k + 1 < steps else last_value[env]
                delta = rewards[k, env] + gamma * (0 if dones[k, env] else following) - values[k, env]
                expected[t, env] += (gamma * gae_lambda) ** (k - t) * delta
                if dones[k, env]:
                    break
    advantages, returns = gae(rewards, values, dones, last_value, gamma, gae_lambda)
    torch.testing.assert_close(advantages, expected)
    torch.testing.assert_close(returns, expected + values)


def test_lambda_one_gives_the_discounted_return_and_lambda_zero_one_step():
    _, monte_carlo = estimate([1, 2, 4], [7, 8, 9], [0, 0, 0], 8, gamma=0.5, gae_lambda=1.0)
    assert monte_carlo == pytest.approx([1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4])
    _, one_step = estimate([1, 2, 4], [7, 8, 9], [0, 0, 0], 8, gamma=0.5, gae_lambda=0.0)
    assert one_step == pytest.approx([1 + 4, 2 + 4.5, 4 + 4])


def test_a_critic_that_is_right_leaves_no_advantage():
    """Reward 1 for ever is worth 1 / (1 - gamma)."""
    advantages, returns = estimate([1] * 5, [10] * 5, [0] * 5, 10, gamma=0.9, gae_lambda=0.95)
    assert advantages == pytest.approx([0] * 5)
    assert returns == pytest.approx([10] * 5)


def test_inputs_stay_as_they_are():
    rewards, values, last = torch.ones(3, 2), torch.ones(3, 2), torch.ones(2)
    gae(rewards, values, torch.zeros(3, 2, dtype=torch.bool), last, 0.9, 0.9)
    assert (rewards == 1).all()
    assert (values == 1).all()
    assert (last == 1).all()


# ---- rollout and minibatches ---------------------------------------------------------------------------------------


def numbered(steps=3, envs=4):
    """A rollout whose every column says t * 10 + env at its place."""
    rollout = Rollout(steps, envs, FRAME)
    place = torch.arange(steps)[:, None] * 10 + torch.arange(envs)
    for name in ("actions", "log_probs", "values", "rewards", "level_seeds", "episode_steps", "advantages", "returns"):
        getattr(rollout, name).copy_(place)
    rollout.obs.copy_(place[..., None, None, None].expand_as(rollout.obs))
    rollout.dones.copy_(place % 2 == 1)
    rollout.extra["label"] = place.clone()
    return rollout


def test_all_columns_of_a_minibatch_speak_of_the_same_transition():
    rollout = numbered()
    index = torch.tensor([5, 0, 11, 6])
    batch = rollout.batch(index)
    place = torch.tensor([11, 0, 23, 12])
    assert torch.equal(batch.index, index)
    for field in dataclasses.fields(batch):
        if field.name not in ("index", "obs", "dones", "extra"):
            assert torch.equal(getattr(batch, field.name).long(), place), field.name
    assert torch.equal(batch.obs[:, 1, 1, 2].long(), place)
    assert torch.equal(batch.dones, place % 2 == 1)
    assert torch.equal(batch.extra["label"], place)


def test_a_part_of_a_minibatch_keeps_its_columns_together():
    batch = numbered().batch(torch.tensor([5, 0, 11, 6]))
    part = batch[torch.tensor([2, 0])]
    assert len(part) == 2
    assert part.actions.tolist() == part.level_seeds.tolist() == part.extra["label"].tolist() == [23, 11]
    assert len(batch[1:]) == 3


def test_a_changed_minibatch_leaves_the_first_and_the_rollout_as_they_are():
    rollout = numbered()
    batch = rollout.batch(torch.arange(4))
    changed = batch.replace(actions=batch.actions + 1)
    assert changed.actions.tolist() == [1, 2, 3, 4]
    assert batch.actions.tolist() == [0, 1, 2, 3]
    changed.obs.zero_()
    batch.advantages.zero_()
    assert torch.equal(rollout.obs, numbered().obs)
    assert torch.equal(rollout.advantages, numbered().advantages)


def test_a_minibatch_that_is_on_the_device_is_not_copied():
    batch = numbered().batch(torch.arange(4))
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    assert isinstance(moved, Batch)
    assert {moved.obs.device.type, moved.index.device.type, moved.extra["label"].device.type} == {"meta"}


def test_an_epoch_visits_each_transition_once_in_equal_parts():
    rollout = numbered(steps=4, envs=6)
    parts = list(rollout.shuffled(8, torch.Generator().manual_seed(0)))
    assert [len(part) for part in parts] == [3] * 8
    assert sorted(torch.cat(parts).tolist()) == list(range(24))


def test_each_epoch_has_an_order_of_its_own_that_follows_from_the_generator():
    rollout, generator = numbered(steps=8, envs=8), torch.Generator().manual_seed(0)
    first, second = (torch.cat(list(rollout.shuffled(1, generator))) for _ in range(2))
    again = torch.cat(list(rollout.shuffled(1, torch.Generator().manual_seed(0))))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.arange(64))


def test_finishing_fills_raw_advantages_and_their_returns():
    """Fails when advantages are normalised before the returns are made of them."""
    rollout = numbered(steps=2, envs=1)
    rollout.rewards.copy_(torch.tensor([[1.0], [2.0]]))
    rollout.values.copy_(torch.tensor([[2.0], [3.0]]))
    rollout.dones.zero_()
    assert rollout.finish(torch.tensor([4.0]), 0.5, 0.8) is rollout
    torch.testing.assert_close(rollout.advantages, torch.tensor([[0.9], [1.0]]))
    torch.testing.assert_close(rollout.returns, torch.tensor([[2.9], [4.0]]))


def test_frames_are_kept_as_bytes():
    rollout = Rollout(2, 3, FRAME)
    assert rollout.obs.dtype == torch.uint8
    assert rollout.obs.nbytes == 2 * 3 * 64 * 64 * 3
    assert Rollout(2, 3, FRAME, "floats").batch(torch.tensor([0])).obs.shape == (1, 3, 64, 64)
    assert len(rollout) == 6
