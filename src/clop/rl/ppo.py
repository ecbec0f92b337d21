"""The learner: proximal policy optimisation (Schulman et al., 2017) with places for methods.

It reads from top to bottom: collect a rollout, estimate advantages, update in minibatches. What distinguishes one
method from another happens in the hooks of :class:`~clop.rl.methods.base.Method`; no branch here depends on a method.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clop.distributed import Workers
from clop.errors import DivergedError
from clop.rl.adam import ADAMS
from clop.rl.envs.spec import Episodes, Step
from clop.rl.envs.vector import VectorGames
from clop.rl.losses import clipped_policy_loss, clipped_value_loss
from clop.rl.methods.base import Context, Method, Phase, Settings
from clop.rl.network import Network, Output, slots_of
from clop.rl.reward_norm import RewardNormaliser
from clop.rl.rollout import Batch, Rollout
from clop.seeds import mixed

_GENERATORS = ("method_rng", "action_rng", "shuffle_rng")


class Learner:
    """One process's part of a training run: games, network, optimisers and where they stand."""

    def __init__(
        self,
        settings: Settings,
        method: Method,
        games: Callable[[Settings], VectorGames],
        total_timesteps: int,
        seed: int,
        device: torch.device | str = "cpu",
        workers: Workers | None = None,
        network: type[Network] = Network,
    ) -> None:
        self.workers = workers or Workers()
        self.method, self.total_timesteps = method, total_timesteps
        self.device = torch.device(device)
        self.settings = settings = method.configure(settings)
        # Weights are the same in every process; what is drawn while learning and acting is not.
        self.method_rng = torch.Generator()
        self.model = build_network(settings, method, seed, self.method_rng, network).to(self.device)
        self.method_rng.manual_seed(mixed(seed, self.workers.rank, 1))
        self.action_rng = torch.Generator().manual_seed(mixed(seed, self.workers.rank, 2))
        self.shuffle_rng = torch.Generator().manual_seed(mixed(seed, self.workers.rank, 3))
        self.config = settings.ppo
        self.games = games(settings)
        self.optimisers = {
            name: ADAMS[self.config.adam](group, self.config.learning_rate, eps=self.config.adam_epsilon)
            for name, group in self.model.groups().items()
        }
        self.rollout = Rollout(self.config.num_steps, self.games.num_envs, settings.spec.obs_shape, settings.frames)
        self._sent: Rollout | None = None  # the rollout on the device, during an update
        self.config.check_share(len(self.rollout))
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
        self.env_steps += self.config.batch_size
        if self.config.schedule == "linear":
            rate = self.config.learning_rate * max(0.0, 1 - self.env_steps / self.total_timesteps)
            for optimiser in self.optimisers.values():
                optimiser.param_groups[0]["lr"] = rate
        return metrics, episodes

    def context(self) -> Context:
        where = (self.iteration, self.env_steps, self.device)
        return Context(*where, self.method_rng, self.settings.rollout_mode, self.model, self.workers)

    def collect(self) -> list[Episodes]:
        """Fill the rollout with T steps of every env, and its advantages."""
        rollout, ctx = self.rollout, self.context()
        finished: list[Episodes] = []
        cut_off: list[tuple[int, Step]] = []
        # Frames go from the games straight into the rollout, unless they become floats on the way.
        place = rollout.obs.numpy() if rollout.obs.dtype == torch.uint8 else [None] * self.config.num_steps
        for t in range(self.config.num_steps):
            frames = self.games.observe(out=place[t])
            raw = torch.from_numpy(frames.obs)
            seen = self.method.observe(raw, ctx)
            if seen is not raw or place[t] is None:
                rollout.obs[t] = seen
            output = self._act(seen, ctx)
            actions = output.sample(self.action_rng)
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
            if step.cut_off:
                cut_off.append((t, step))
        final_obs = self.games.observe().obs
        last = self._act(self.method.observe(torch.from_numpy(final_obs), ctx), ctx)
        rollout.rewards = torch.from_numpy(self.rewards(rollout.rewards.numpy(), rollout.dones.numpy()))
        if cut_off:
            rollout.rewards += self.config.gamma * self._values_beyond(cut_off, final_obs, ctx)
        rollout.finish(last.known_value, self.config.gamma, self.config.gae_lambda)
        return finished

    def _values_beyond(self, cut_off: list[tuple[int, Step]], frames: NDArray[np.uint8], ctx: Context) -> Tensor:
        """(T, E) What the critic says of the frames at which a time limit cut episodes off, 0 elsewhere.

        Added to the last reward, it stands for what would have come: the limit is no part of the game. A pass has one
        frame of each env, as methods expect it; so many passes are made as the busiest env was cut off.
        """
        values = torch.zeros_like(self.rollout.rewards)
        waiting = {(t, env): frame for t, step in cut_off for env, frame in step.cut_off}
        while waiting:
            batch, places = frames.copy(), {env: (t, env) for t, env in reversed(waiting)}
            for env, place in places.items():
                batch[env] = waiting.pop(place)
            seen = self._act(self.method.observe(torch.from_numpy(batch), ctx), ctx).known_value
            for env, place in places.items():
                values[place] = seen[env]
        return values

    def _act(self, obs: Tensor, ctx: Context) -> Output:
        """What policy and critic say of the frames, on the CPU."""
        return self.method.act(obs.to(self.device, non_blocking=True), "rollout", ctx).cpu()

    def update(self) -> dict[str, float]:
        """All phases of one update; the mean of what was logged, over optimiser steps and processes."""
        config, rollout, ctx = self.config, self.rollout, self.context()
        if config.advantage_norm == "batch":
            rollout.advantages = self._normalised([rollout.advantages])[0]
        logs: dict[str, list[Tensor]] = {}
        self.model.train()
        # Sent once, and not with each minibatch of each epoch, where half of the device's memory is left for the rest.
        self._sent = rollout.to(self.device) if 2 * rollout.obs.nbytes <= free_memory(self.device) else None
        for phase in self.method.phases(config, ctx):
            if self.iteration % phase.every:
                continue
            for _ in range(phase.epochs):
                for index in rollout.shuffled(phase.num_minibatches, self.shuffle_rng):
                    for name, value in self._step(index, phase, ctx).items():
                        logs.setdefault(name, []).append(value)
        self._sent = None
        metrics = {name: torch.stack(values).mean().item() for name, values in logs.items()}
        metrics["learning_rate"] = next(iter(self.optimisers.values())).param_groups[0]["lr"]
        metrics["explained_variance"] = _explained_variance(rollout)
        metrics |= self.method.metrics()
        metrics = self.workers.mean(metrics)
        bad = [name for name, value in metrics.items() if not np.isfinite(value)]
        if bad:
            raise DivergedError(f"{bad[0]} is no longer a number in the update after {self.env_steps} steps")
        return metrics

    def _step(self, index: Tensor, phase: Phase, ctx: Context) -> dict[str, Tensor]:
        """One step of the optimiser on one minibatch, in micro-batches."""
        config = self.config
        batches = [self.method.transform(self._fetch(part), ctx) for part in index.split(config.micro_batch)]
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

    def _fetch(self, index: Tensor) -> Batch:
        source = self.rollout if self._sent is None else self._sent
        return source.batch(index).to(self.device)

    def _loss(self, batch: Batch, phase: Phase, ctx: Context) -> tuple[Tensor, dict[str, Tensor]]:
        """PPO's terms averaged over the views, and the method's penalty; terms with coefficient 0 are left out."""
        views = self.method.views(batch, phase, ctx)
        total = torch.zeros((), device=self.device)
        logs: dict[str, Tensor] = {}

        def add(name: str, weight: float, coefficient: float, term: Tensor) -> None:
            nonlocal total
            total = total + weight * coefficient * term
            logs[name] = logs.get(name, 0) + weight * term

        for weight, output in views:
            if phase.policy_coef:
                log_probs = output.log_prob(batch.actions)
                loss = clipped_policy_loss(log_probs, batch.log_probs, batch.advantages, self.config.clip_coef)
                add("policy_loss", weight, phase.policy_coef, loss)
                change = (log_probs - batch.log_probs).detach()
                logs["approx_kl"] = logs.get("approx_kl", 0) + weight * (change.exp() - 1 - change).mean()
                outside = ((change.exp() - 1).abs() > self.config.clip_coef).float().mean()
                logs["clip_fraction"] = logs.get("clip_fraction", 0) + weight * outside
            if phase.vf_coef:
                clip = self.config.clip_coef if self.config.clip_vloss else math.inf
                loss = clipped_value_loss(output.known_value, batch.values, batch.returns, clip)
                add("value_loss", weight, phase.vf_coef, loss)
            if phase.ent_coef:
                add("entropy", weight, -phase.ent_coef, output.entropy().mean())
            elif phase.policy_coef:  # a learner without the bonus is watched all the same
                logs["entropy"] = logs.get("entropy", 0) + weight * output.entropy().mean()
        penalty, values = self.method.penalty(batch, views, phase, ctx)
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
            "generators": {name: getattr(self, name).get_state() for name in _GENERATORS},
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


def build_network(
    settings: Settings, method: Method, seed: int, generator: torch.Generator, make: type[Network] = Network
) -> Network:
    """The network of settings that the method has edited, with the method's layers: the same weights for one seed."""
    slots = slots_of(settings.network.encoder)
    method.fill(slots, settings)
    torch.manual_seed(seed)
    model = make(settings.network, settings.spec, slots, generator)
    method.attach(model, settings)
    return model


def free_memory(device: torch.device) -> float:
    """Bytes that are free on a GPU; no limit is known of other devices."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


def _explained_variance(rollout: Rollout) -> float:
    """1 if the critic predicts returns perfectly, 0 if no better than their mean."""
    spread = rollout.returns.var()
    return float(1 - (rollout.returns - rollout.values).var() / spread) if spread > 0 else 0.0
