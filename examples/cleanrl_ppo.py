"""PPO in one file, in the style of CleanRL, with CLOP on the actor's map.

python examples/cleanrl_ppo.py --game starpilot --total-timesteps 100000
"""

import argparse

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from clop import CLOP
from clop.rl import make_vec


def layer_init(layer: nn.Module, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """The encoder is shared; the actor reads its map through CLOP, the critic as it is."""

    def __init__(self, num_actions: int, alpha: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 32)):
            layers += [layer_init(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)), nn.ReLU()]
        self.encoder = nn.Sequential(*layers)  # 64×64 frames to a 32×8×8 map
        self.clop = CLOP(alpha)
        self.actor_dense = nn.Sequential(nn.Flatten(), layer_init(nn.Linear(32 * 8 * 8, 256)), nn.ReLU())
        self.critic_dense = nn.Sequential(nn.Flatten(), layer_init(nn.Linear(32 * 8 * 8, 256)), nn.ReLU())
        self.actor = layer_init(nn.Linear(256, num_actions), 0.01)
        self.critic = layer_init(nn.Linear(256, 1), 1.0)

    def forward(self, frames: Tensor) -> tuple[Categorical, Tensor]:
        features = self.encoder(frames.permute(0, 3, 1, 2).float() / 255)
        logits = self.actor(self.actor_dense(self.clop(features)))
        return Categorical(logits=logits), self.critic(self.critic_dense(features)).squeeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="starpilot")
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--num-levels", type=int, default=50)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    gamma, gae_lambda, clip_coef, ent_coef, vf_coef = 0.99, 0.95, 0.2, 0.01, 0.5
    torch.manual_seed(args.seed)
    envs = make_vec(args.game, args.num_envs, "train", args.num_levels)
    agent = Agent(envs.single_action_space.n, args.alpha)
    optimizer = torch.optim.Adam(agent.parameters(), 5e-4, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros((*shape, *envs.single_observation_space.shape), dtype=torch.uint8)
    actions = torch.zeros(shape, dtype=torch.long)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    next_obs, _ = envs.reset(seed=args.seed)
    global_step, returns = 0, []

    while global_step < args.total_timesteps:
        agent.eval()  # CLOP acts in updates alone; leave this line out to have it in rollouts too, as the authors do
        for step in range(args.num_steps):
            obs[step] = torch.from_numpy(next_obs)
            with torch.no_grad():
                policy, values[step] = agent(obs[step])
            actions[step] = policy.sample()
            logprobs[step] = policy.log_prob(actions[step])
            next_obs, reward, terminations, truncations, info = envs.step(actions[step].numpy())
            rewards[step] = torch.from_numpy(reward)
            # Procgen shows no last frame, and its time limits are ends of the game: nothing to bootstrap after a done.
            dones[step] = torch.from_numpy(terminations | truncations)
            if "final_info" in info:
                returns += info["final_info"]["return"][info["_final_info"]].tolist()
        global_step += obs[:, :, 0, 0, 0].numel()

        with torch.no_grad():
            next_value = agent(torch.from_numpy(next_obs))[1]
        advantages, last = torch.zeros(shape), torch.zeros(args.num_envs)
        for step in reversed(range(args.num_steps)):
            after = next_value if step == args.num_steps - 1 else values[step + 1]
            going_on = 1 - dones[step]
            delta = rewards[step] + gamma * going_on * after - values[step]
            advantages[step] = last = delta + gamma * gae_lambda * going_on * last
        targets = advantages + values

        agent.train()
        flat = [tensor.flatten(0, 1) for tensor in (obs, actions, logprobs, advantages, targets)]
        for _ in range(args.update_epochs):
            for batch in torch.randperm(len(flat[0])).chunk(args.num_minibatches):
                b_obs, b_actions, b_logprobs, b_advantages, b_targets = (tensor[batch] for tensor in flat)
                policy, value = agent(b_obs)
                ratio = (policy.log_prob(b_actions) - b_logprobs).exp()
                normed = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                policy_loss = torch.max(-normed * ratio, -normed * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()
                value_loss = 0.5 * (value - b_targets).square().mean()
                loss = policy_loss + vf_coef * value_loss - ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        recent = f"{np.mean(returns[-100:]):.2f}" if returns else "none yet"
        print(f"global_step {global_step}, episodic_return {recent}")
    envs.close()


if __name__ == "__main__":
    main()
