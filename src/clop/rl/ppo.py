"""The learner: proximal policy optimisation (Schulman et al., 2017) with places for methods.

It reads from top to bottom: collect a rollout, estimate advantages, update in minibatches. What distinguishes one
method from another happens in the hooks of :class:`~clop.rl.methods.base.Method`; no branch here depends on a method.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from clop.distributed import Workers
from clop.errors import DivergedError, UsageError
from clop.rl.envs.vector import Episodes, VectorGames
from clop.rl.losses import clipped_policy_loss, clipped_value_loss
from clop.rl.methods.base import Context, Method, Phase, Plan
from clop.rl.network import Network, Output
from clop.rl.reward_norm import RewardNormaliser
from clop.rl.rollout import Minibatch, Rollout
from clop.seeds import mixed


@dataclass(frozen=True)
class PPOConfig:
    """What the learner is told; the defaults are those of OpenAI's Procgen agents."""

    num_envs: int = 64
    num_steps: int = 256
    """Steps of a rollout in each env."""
    epochs: int = 3
    minibatches: int = 8
    """Of an epoch; one optimiser step each."""
    micro_batch: int = 128
    """Frames in one pass, at most; gradients accumulate over the minibatch. Few frames stay in the cache."""
    gamma: float = 0.999
    gae_lambda: float = 0.95
    learning_rate: float = 5e-4
    schedule: Literal["constant", "linear"] = "constant"
    """Of the learning rate; ``linear`` goes to 0 at the end of training."""
    clip: float = 0.2
    """Of the ratio, and of the value's change."""
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 0.5
    adam_epsilon: float = 1e-5
    advantage_norm: Literal["minibatch", "batch", "micro"] = "minibatch"
    """Over which transitions advantages are normalised: those of one optimiser step, the rollout, or one micro-batch,
    as each worker of OpenAI's code does with its share."""
    advantage_std: Literal["population", "unbiased"] = "population"
    advantage_epsilon: float = 1e-8
    accumulate: Literal["mean", "sum"] = "mean"
    """Whether the losses of micro-batches are averaged, as they should, or added, as the authors' code does."""
    reward_gamma: float = 0.99
    """Discount of the reward normaliser, not the agent's: so in all code that came from baselines."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "num_steps", "epochs", "minibatches", "micro_batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"ppo.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "clip", "max_grad_norm", "adam_epsilon", "advantage_epsilon"):
            if getattr(self, name) < 0:
                raise UsageError(f"ppo.{name} must not be negative, got {getattr(self, name)}")
        if self.batch % self.minibatches:
            raise UsageError(
                f"minibatches={self.minibatches} does not divide num_envs * num_steps = {self.batch}; "
                "the last minibatch would be smaller"
            )
        for name in ("gamma", "gae_lambda", "reward_gamma"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"ppo.{name} must lie in [0, 1], got {getattr(self, name)}")

    @property
    def batch(self) -> int:
        return self.num_envs * self.num_steps


class Learner:
    """One process's part of a training run: games, network, optimisers and where they stand."""

    def __init__(
        self,
        plan: Plan,
        method: Method,
        games: Callable[[Plan], VectorGames],
        total_steps: int,
        seed: int,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
    ) -> None:
        self.workers = workers or Workers()
        self.method, self.total_steps = method, total_steps
        self.device = torch.device(device)
        # Weights are the same in every process; what is drawn while learning and acting is not.
        self.model: Network = build_network(plan, method, seed).to(self.device)
        self.noise = plan.generator.manual_seed(mixed(seed, self.workers.rank, 1))
        self.dice = torch.Generator().manual_seed(mixed(seed, self.workers.rank, 2))
        self.shuffle = torch.Generator().manual_seed(mixed(seed, self.workers.rank, 3))
        self.config = plan.ppo
        self.rollout_mode = plan.rollout_mode
        self.games = games(plan)
        self.optimisers = {
            name: torch.optim.Adam(group, self.config.learning_rate, eps=self.config.adam_epsilon)
            for name, group in self.model.groups().items()
        }
        self.rollout = Rollout(self.config.num_steps, self.games.num_envs, plan.frames)
        check_share(self.config, len(self.rollout))
        self.rewards = RewardNormaliser(self.games.num_envs, self.config.reward_gamma, workers=self.workers)
        self.iteration = self.env_steps = 0

    # ---- one iteration -----------------------------------------------------------------------------------------

    def iterate(self) -> tuple[dict[str, float], list[Episodes]]:
        """Collect and update; returns what to log and the episodes that ended."""
        self.method.begin_iteration(self.context())
        episodes = self.collect()
        self.method.prepare(self.rollout, self.context())
        metrics = self.update()
        self.workers.average_statistics(self.model)
        self.iteration += 1
        self.env_steps += self.config.batch
        if self.config.schedule == "linear":
            rate = self.config.learning_rate * max(0.0, 1 - self.env_steps / self.total_steps)
            for optimiser in self.optimisers.values():
                optimiser.param_groups[0]["lr"] = rate
        return metrics, episodes

    def context(self) -> Context:
        where = (self.iteration, self.env_steps, self.total_steps, self.device)
        return Context(*where, self.noise, self.rollout_mode, self.model, self.workers)

    def collect(self) -> list[Episodes]:
        """Fill the rollout with T steps of every env, and its advantages."""
        rollout, ctx = self.rollout, self.context()
        finished = []
        for t in range(self.config.num_steps):
            frames = self.games.observe()
            rollout.obs[t] = seen = self.method.observe(torch.from_numpy(frames.obs), ctx)
            output = self._act(seen, ctx)
            actions = output.sample(self.dice)
            step = self.games.step(actions.numpy())
            rollout.actions[t] = actions
            rollout.log_probs[t] = output.log_prob(actions)
            rollout.values[t] = output.known_value
            rollout.rewards[t] = torch.from_numpy(step.rewards)
            rollout.dones[t] = torch.from_numpy(step.dones)
            rollout.level_seeds[t] = torch.from_numpy(frames.level_seeds)
            rollout.episode_steps[t] = torch.from_numpy(frames.episode_steps)
            if len(step.finished.envs):
                finished.append(step.finished)
        last = self._act(self.method.observe(torch.from_numpy(self.games.observe().obs), ctx), ctx)
        rollout.rewards = torch.from_numpy(self.rewards(rollout.rewards.numpy(), rollout.dones.numpy()))
        rollout.finish(last.known_value, self.config.gamma, self.config.gae_lambda)
        return finished

    def _act(self, obs: Tensor, ctx: Context) -> Output:
        """What policy and critic say of the frames, on the CPU."""
        return self.method.act(self.model, obs.to(self.device, non_blocking=True), "rollout", ctx).cpu()

    def update(self) -> dict[str, float]:
        """All phases of one update; the mean of what was logged, over optimiser steps and processes."""
        config, rollout, ctx = self.config, self.rollout, self.context()
        if config.advantage_norm == "batch":
            rollout.advantages = self._normalised([rollout.advantages])[0]
        logs: dict[str, list[Tensor]] = {}
        self.model.train()
        for phase in self.method.phases(config, ctx):
            if self.iteration % phase.every:
                continue
            for _ in range(phase.epochs):
                for index in rollout.shuffled(phase.minibatches, self.shuffle):
                    for name, value in self._step(index, phase, ctx).items():
                        logs.setdefault(name, []).append(value)
        metrics = {name: torch.stack(values).mean().item() for name, values in logs.items()}
        metrics["learning_rate"] = next(iter(self.optimisers.values())).param_groups[0]["lr"]
        metrics["explained_variance"] = _explained_variance(rollout)
        metrics = self.workers.mean(metrics)
        bad = [name for name, value in metrics.items() if not np.isfinite(value)]
        if bad:
            raise DivergedError(f"{bad[0]} is no longer a number in the update after {self.env_steps} steps")
        return metrics

    def _step(self, index: Tensor, phase: Phase, ctx: Context) -> dict[str, Tensor]:
        """One step of the optimiser on one minibatch, in micro-batches."""
        config = self.config
        batches = [self.method.batch(self._fetch(part), ctx) for part in index.split(config.micro_batch)]
        if config.advantage_norm == "minibatch":
            advantages = self._normalised([batch.advantages for batch in batches])
            batches = [b.replace(advantages=a) for b, a in zip(batches, advantages, strict=True)]
        elif config.advantage_norm == "micro":
            batches = [b.replace(advantages=self._normalised([b.advantages], alone=True)[0]) for b in batches]
        self.method.before_step(batches, phase, ctx)
        optimiser = self.optimisers[phase.group]
        optimiser.zero_grad()
        logs: dict[str, Tensor] = {}
        # Added up, they are as many as one process alone would have made of the whole minibatch.
        added = 1 if config.accumulate == "mean" else -(-len(index) * self.workers.size // config.micro_batch)
        for batch in batches:
            share = len(batch) / len(index)
            loss, values = self._loss(batch, phase, ctx)
            (loss * (share * added)).backward()
            for name, value in values.items():
                logs[name] = logs.get(name, 0) + share * value.detach()
        parameters = optimiser.param_groups[0]["params"]
        self.workers.average_gradients(parameters)
        logs["grad_norm"] = torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        optimiser.step()
        return logs

    def _fetch(self, index: Tensor) -> Minibatch:
        return self.rollout.minibatch(index).to(self.device)

    def _loss(self, batch: Minibatch, phase: Phase, ctx: Context) -> tuple[Tensor, dict[str, Tensor]]:
        """PPO's terms averaged over the views, and the method's penalty; terms with coefficient 0 are not computed."""
        views = self.method.views(self.model, batch, phase, ctx)
        total = torch.zeros((), device=self.device)
        logs: dict[str, Tensor] = {}

        def add(name: str, weight: float, coefficient: float, term: Tensor) -> None:
            nonlocal total
            total = total + weight * coefficient * term
            logs[name] = logs.get(name, 0) + weight * term

        for weight, output in views:
            if phase.policy:
                log_probs = output.log_prob(batch.actions)
                loss = clipped_policy_loss(log_probs, batch.log_probs, batch.advantages, self.config.clip)
                add("policy_loss", weight, phase.policy, loss)
                change = (log_probs - batch.log_probs).detach()
                logs["approx_kl"] = logs.get("approx_kl", 0) + weight * (change.exp() - 1 - change).mean()
                outside = ((change.exp() - 1).abs() > self.config.clip).float().mean()
                logs["clip_fraction"] = logs.get("clip_fraction", 0) + weight * outside
            if phase.value:
                loss = clipped_value_loss(output.known_value, batch.values, batch.returns, self.config.clip)
                add("value_loss", weight, phase.value, loss)
            if phase.entropy:
                add("entropy", weight, -phase.entropy, output.entropy().mean())
        penalty, values = self.method.penalty(self.model, batch, views, phase, ctx)
        if penalty is not None:
            total = total + penalty
        return total, logs | dict(values)

    def _normalised(self, parts: list[Tensor], alone: bool = False) -> list[Tensor]:
        """Advantages with mean 0 and standard deviation 1 over all parts, and over all processes unless ``alone``."""

        def total(tensor: Tensor) -> Tensor:
            return tensor.sum() if alone else self.workers.sum(tensor.sum())

        flat = torch.cat([part.flatten() for part in parts]).double()
        count = len(flat) * (1 if alone else self.workers.size)
        mean = total(flat) / count
        correction = 1 if self.config.advantage_std == "unbiased" else 0
        std = (total((flat - mean) ** 2) / (count - correction)).sqrt()
        return [((part - mean) / (std + self.config.advantage_epsilon)).to(part.dtype) for part in parts]

    # ---- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on bit for bit, between two iterations."""
        return {
            "model": self.model.state_dict(),
            "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()},
            "method": self.method.state(),
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "games": self.games.state(),
            "rewards": self.rewards.state(),
            "generators": {name: getattr(self, name).get_state() for name in ("noise", "dice", "shuffle")},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self.model.load_state_dict(state["model"])
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])
        self.method.load(state["method"])
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.games.restore(state["games"])
        self.rewards.restore(state["rewards"])
        for name, bits in state["generators"].items():
            getattr(self, name).set_state(bits)


def check_share(config: PPOConfig, transitions: int) -> None:
    """A :class:`UsageError` if one process cannot make equal minibatches of its transitions."""
    if transitions % config.minibatches:
        raise UsageError(
            f"minibatches={config.minibatches} does not divide the {transitions} transitions of one process; the last "
            "minibatch would be smaller"
        )


def build_network(plan: Plan, method: Method, seed: int) -> Network:
    """Let the method edit the plan, and build it: the same weights for the same seed."""
    torch.manual_seed(seed)
    method.configure(plan)
    return plan.build()


def _explained_variance(rollout: Rollout) -> float:
    """1 if the critic predicts returns perfectly, 0 if no better than their mean."""
    spread = rollout.returns.var()
    return float(1 - (rollout.returns - rollout.values).var() / spread) if spread > 0 else 0.0
