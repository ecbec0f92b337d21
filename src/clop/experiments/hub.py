"""An agent as a folder for a model hub: the export, its scores, a video and a card, as Hugging Face shows them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clop.errors import UsageError
from clop.experiments.agents import KIND, load_agent, read_summary
from clop.experiments.export import FRAMES, export
from clop.experiments.run_folder import RunFolder
from clop.experiments.summaries import AgentSummary, EvaluationSummary
from clop.files import write_atomic, write_json
from clop.rl.build import split_levels
from clop.rl.config import TrainConfig
from clop.rl.exported import Parity
from clop.rl.watch import WatchConfig, watch

VIDEO = "replay.mp4"
"""The name that the hub looks for."""


def export_hub(run: Path | str, out: Path | str, *, frames: int = FRAMES) -> Parity:
    """Write the weights of a run that has ended with its config, its scores, a video of an unseen level, and a card.

    Args:
        run: The folder of the run.
        out: A folder that does not exist yet, or is empty.
        frames: Frames of the game on which the weights that were written are compared with the agent.
    """
    run, out = Path(run), Path(out)
    folder = RunFolder.open(run, KIND)
    summary = read_summary(folder)
    if summary is None:
        raise UsageError(f"a card needs the scores of a run that has ended; go on with: {folder.resume_command}")
    parity = export(run, "safetensors", out, frames=frames)
    config = folder.read_config(TrainConfig.fromdict)
    played = WatchConfig(episodes=1)
    returns = watch(
        load_agent(run), split_levels(config, played.split), out / VIDEO, played, backend=config.backend
    ).returns
    write_json(out / "results.json", summary.asdict())
    text = card(config, summary, folder.about(), parity, float(returns[0]), out.name)
    write_atomic(out / "README.md", lambda draft: draft.write_text(text))
    return parity


def upload(folder: Path, repository: str) -> str:
    """Create the repository on the hub if need be, upload the folder, and return its address."""
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise UsageError("huggingface_hub is not installed: pip install huggingface_hub") from None
    try:
        api = HfApi()
        address = str(api.create_repo(repository, exist_ok=True))
        api.upload_folder(folder_path=folder, repo_id=repository)
    except Exception as error:  # of the login, the name, the network: they have no class in common
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"{folder} is written and was not uploaded ({reason}); log in with hf auth login, then: "
            f"hf upload {repository} {folder}"
        ) from error
    return address


def card(
    config: TrainConfig,
    summary: AgentSummary,
    about: Mapping[str, Any],
    parity: Parity,
    replay_return: float,
    name: str,
) -> str:
    """The text of README.md: metadata for the hub, then words and a table for people."""
    evaluations = (summary.train, summary.test)
    rows = "\n".join(_row(evaluation) for evaluation in evaluations)
    metadata = {
        "library_name": "clop",
        "pipeline_tag": "reinforcement-learning",
        "tags": _tags(config),
        "model-index": [{"name": name, "results": [_result(evaluation) for evaluation in evaluations]}],
    }
    metadata_text = "\n".join(_yaml(metadata))
    where, which = ("levels it has seen and on unseen ones", "an unseen") if summary.has_unseen else ("all levels", "a")
    return f"""---
{metadata_text}
---

# {config.game} with {summary.method_text}

A PPO agent, trained for {summary.env_steps} steps on {config.levels.text} of {config.levels.title} (preset
{config.preset_name}, training seed {config.seed}), evaluated at the end on {where}.
One run: another seed gives another score.

| levels | which | mean return | standard error | normalised | solved | episodes | protocol | seed |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |
{rows}

The normalised return is 0 for an agent that sees nothing and 1 for the best one known, on Procgen's published scale.
The standard error is over episodes. `{VIDEO}` shows one episode on {which} level, with a return of {replay_return:g}.

## Use

```python
import clop

agent = clop.load_agent(".")  # in this folder
actions = agent.act(frames)  # uint8 frames (N, H, W, C) as the game shows them
```

Without clop, `model.safetensors` holds the weights by name and `config.json` the settings; `clop export --to onnx`
writes the network as a graph that needs no clop.

## How it was made

```
{about["command"]}
```

Commit {about["commit"] or "unknown"}. The weights here were compared with the agent on {parity.frames} frames of the
game: logits differ by at most {parity.logits_difference:.1e}, the most probable action on {parity.greedy_differences}
(`parity.json`). `results.json` has the scores, `config.json` all settings.
"""


def _tags(config: TrainConfig) -> list[str]:
    methods = list(config.methods)
    return ["reinforcement-learning", "deep-reinforcement-learning", "ppo", *methods, config.game.replace(":", "-")]


def _row(evaluation: EvaluationSummary) -> str:
    error = "" if evaluation.standard_error is None else f"{evaluation.standard_error:.2f}"
    normalised = "" if evaluation.normalised_mean is None else f"{evaluation.normalised_mean:.3f}"
    return (
        f"| {evaluation.split} | {evaluation.level_text} | {evaluation.mean:.2f} | {error} | {normalised} | "
        f"{evaluation.success_rate:.0%} | {evaluation.episodes} | {evaluation.protocol} | {evaluation.seed} |"
    )


def _result(evaluation: EvaluationSummary) -> dict[str, Any]:
    """One entry of the model index."""
    text = f"{evaluation.mean:.2f}"
    if evaluation.standard_error is not None:
        text += f" +/- {evaluation.standard_error:.2f}"
    return {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {
            "name": f"{evaluation.game}, {evaluation.split} levels",
            "type": evaluation.game,
            "config": evaluation.distribution_mode,
            "split": evaluation.split,
        },
        "metrics": [
            {
                "type": "mean_reward",
                "name": f"mean return of {evaluation.episodes} episodes, {evaluation.protocol}, seed {evaluation.seed}",
                "value": text,
                "verified": False,
            }
        ],
    }


def _yaml(value: Any) -> list[str]:
    """Lines of YAML for mappings, lists and plain values; a plain value in JSON is the same in YAML."""
    if isinstance(value, list):
        return [f"{'  ' if k else '- '}{line}" for item in value for k, line in enumerate(_yaml(item))]
    if isinstance(value, dict):
        lines = []
        for name, inner in value.items():
            nested = isinstance(inner, dict | list)
            lines += [f"{name}:", *(f"  {line}" for line in _yaml(inner))] if nested else [f"{name}: {_yaml(inner)[0]}"]
        return lines
    return [json.dumps(value, ensure_ascii=False)]
