"""PPO of Stable-Baselines3 on Procgen, with CLOP on the actor's map.

python examples/sb3_ppo.py --game starpilot --steps 100000
"""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from clop.sb3 import ClopCnnPolicy, make_vec_env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="starpilot")
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--encoder", default="small")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--num-levels", type=int, default=50)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rollout", type=int, default=64, help="steps of a rollout in each env")
    parser.add_argument("--episodes", type=int, default=32)
    arguments = parser.parse_args()
    envs = make_vec_env(arguments.game, arguments.num_envs, "train", arguments.num_levels)
    model = PPO(
        ClopCnnPolicy,
        VecNormalize(envs, norm_obs=False),  # rewards alone
        policy_kwargs={"alpha": arguments.alpha, "encoder": arguments.encoder},
        n_steps=arguments.rollout,
        batch_size=arguments.num_envs * arguments.rollout // 4,
        n_epochs=3,
        learning_rate=5e-4,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )
    model.learn(arguments.steps)
    for split in ("train", "test"):
        games = make_vec_env(arguments.game, arguments.num_envs, split, arguments.num_levels)
        mean, _ = evaluate_policy(model, games, arguments.episodes, deterministic=False)
        print(f"{split} levels: {mean:.2f}")
        games.close()


if __name__ == "__main__":
    main()
