"""Play with an agent that was exported to ONNX; of clop, only the games are used.

clop export runs/a --to onnx --out a-onnx
python examples/onnx_policy.py a-onnx --steps 500
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime

from clop.rl import make_vec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--num-envs", type=int, default=16)
    arguments = parser.parse_args()
    about = json.loads((arguments.folder / "config.json").read_text())
    session = onnxruntime.InferenceSession(str(arguments.folder / about["file"]))
    rng = np.random.default_rng(0)
    envs = make_vec(about["config"]["game"], arguments.num_envs, "test", about["config"]["num_levels"])
    frames, _ = envs.reset(seed=0)
    returns: list[float] = []
    for _ in range(arguments.steps):
        logits, _ = session.run(["logits", "value"], {"frames": frames})
        actions = (logits + rng.gumbel(size=logits.shape)).argmax(1)  # a sample from the policy
        frames, _, _, _, info = envs.step(actions)
        if "final_info" in info:
            returns += info["final_info"]["return"][info["_final_info"]].tolist()
    envs.close()
    print(f"{len(returns)} episodes on unseen levels, mean return {np.mean(returns) if returns else float('nan'):.2f}")


if __name__ == "__main__":
    main()
