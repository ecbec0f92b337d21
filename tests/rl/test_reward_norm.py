import numpy as np
import pytest
import torch

from clop.errors import UsageError
from clop.rl.reward_norm import RewardNormaliser

STEPS, ENVS = 200, 5


@pytest.fixture
def played():
    """Rewards and ends of episodes, with a mean far from zero so that centring would show."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(3, 2, (STEPS, ENVS)) * (rng.random((STEPS, ENVS)) < 0.3)
    return rewards, rng.random((STEPS, ENVS)) < 0.05


def trackers(rewards, dones, gamma):
    """The discounted return that each env has collected in its episode, at each step."""
    values = np.zeros(rewards.shape)
    for env in range(rewards.shape[1]):
        running = 0.0
        for step in range(len(rewards)):
            running = gamma * running + rewards[step, env]
            values[step, env] = running
            if dones[step, env]:
                running = 0.0
    return values


def one_step(normaliser, rewards, dones):
    return normaliser([rewards], [dones])[0]


def two_pass_variance(values):
    """Of all values, and of a ten-thousandth of a sample with mean 0 and variance 1 that the moments start from."""
    count = values.size + 1e-4
    mean = values.sum() / count
    return (((values - mean) ** 2).sum() + 1e-4 * (1 + mean**2)) / count


@pytest.mark.parametrize("gamma", [0.99, 0.999, 0.0])
def test_each_step_is_divided_by_the_deviation_of_all_trackers_up_to_and_with_it(played, gamma):
    """Fails when the variance lags a step behind, when rewards are centred, and when trackers are zeroed too early."""
    rewards, dones = played
    normaliser, values = RewardNormaliser(ENVS, gamma), trackers(rewards, dones, gamma)
    for step in range(STEPS):
        scaled = one_step(normaliser, rewards[step], dones[step])
        variance = two_pass_variance(values[: step + 1])
        assert normaliser.variance == pytest.approx(variance, rel=1e-10)
        expected = np.clip(rewards[step] / np.sqrt(variance + 1e-8), -10, 10)
        np.testing.assert_allclose(scaled, expected, rtol=1e-6)


def test_a_rollout_is_normalised_step_by_step(played):
    """The same bits as one step after another; fails when early steps are divided by what later ones have shown."""
    rewards, dones = played
    whole, single = RewardNormaliser(ENVS), RewardNormaliser(ENVS)
    steps = [one_step(single, *step) for step in zip(rewards, dones, strict=True)]
    assert np.array_equal(whole(rewards, dones), np.stack(steps))
    assert np.array_equal(whole.trackers, single.trackers)
    assert (whole.mean, whole.variance, whole.count) == (single.mean, single.variance, single.count)


def test_the_default_discount_is_not_the_agents():
    assert RewardNormaliser(1).gamma == 0.99


def test_a_tracker_is_zeroed_after_the_division_and_not_before():
    """One env, rewards 1, 2 | 4: the trackers are 1, 2.99 and then 4.

    If the end of the episode zeroed the tracker first, the second would be 0; if nothing did, the third 6.9601.
    """
    normaliser = RewardNormaliser(1)
    one_step(normaliser, [1.0], [False])
    one_step(normaliser, [2.0], [True])
    assert normaliser.variance == pytest.approx(two_pass_variance(np.array([1, 2.99])))
    assert normaliser.variance != pytest.approx(two_pass_variance(np.array([1, 0.0])))
    assert normaliser.trackers == [0]
    one_step(normaliser, [4.0], [False])
    assert normaliser.variance == pytest.approx(two_pass_variance(np.array([1, 2.99, 4])))
    assert normaliser.variance != pytest.approx(two_pass_variance(np.array([1, 2.99, 6.9601])))


def test_large_rewards_are_clipped_on_both_sides():
    normaliser = RewardNormaliser(2)
    for _ in range(300):
        one_step(normaliser, [0.01, -0.01], [True, True])
    assert one_step(normaliser, [100, -100], [False, False]).tolist() == [10, -10]


def test_results_are_float32_and_the_given_rewards_stay_as_they_are():
    rewards = np.array([[1.0, 2.0]], np.float32)
    assert RewardNormaliser(2)(rewards, [[False, True]]).dtype == np.float32
    assert rewards.tolist() == [[1, 2]]


def test_a_restored_normaliser_goes_on_with_the_same_bits(played, tmp_path):
    rewards, dones = played
    first, second = RewardNormaliser(ENVS), RewardNormaliser(ENVS)
    first(rewards[:100], dones[:100])
    torch.save(first.state(), tmp_path / "state.pt")
    first(rewards[100:110], dones[100:110])  # the saved state must not follow what comes after
    second.restore(torch.load(tmp_path / "state.pt", weights_only=True))
    second(rewards[100:110], dones[100:110])
    assert np.array_equal(first(rewards[110:], dones[110:]), second(rewards[110:], dones[110:]))


def test_mistakes_are_told():
    with pytest.raises(UsageError, match=r"rewards and dones must have the shape \(T, 3\), got \(1, 2\) and \(1, 3\)"):
        RewardNormaliser(3)([[1, 2]], [[False] * 3])
    with pytest.raises(UsageError, match=r"gamma is a discount and must lie in \[0, 1\], got 1.5"):
        RewardNormaliser(3, gamma=1.5)
    with pytest.raises(UsageError, match="num_envs must be at least 1, got 0"):
        RewardNormaliser(0)
    with pytest.raises(UsageError, match="clip must be positive, got 0"):
        RewardNormaliser(3, clip=0)
    with pytest.raises(UsageError, match="the saved state is one of 2 envs, but here are 3"):
        RewardNormaliser(3).restore(RewardNormaliser(2).state())
