"""``clop evaluate``, ``clop watch`` and ``clop plot``: what a trained agent does, and how it came to that."""

import argparse
import os
from pathlib import Path
from typing import Any

from clop.cli.flags import find_device, integer, positive
from clop.errors import UsageError


def add_evaluate(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="play a trained agent on seen or unseen levels",
        description="Play complete episodes by a named protocol, and keep every one of them beside the run.",
        epilog="protocols: clop-v1, the same number of episodes in each env; clop-v2, episodes that processes share; "
        "strict-v1, 1000 unseen levels, once each, none of which begins like a training level; peer-clop-v1, "
        "peer-openai-v1 and peer-idaac-v1, as other code does it, for comparison with its numbers",
    )
    parser.add_argument(
        "--protocol", default="clop-v1", metavar="NAME", help="one of those listed below (default: %(default)s)"
    )
    parser.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="number of processes that share the episodes of clop-v2, whose number decides nothing but the time "
        "(default: one for each core of a CPU)",
    )
    _add_play(parser, episodes=None)
    parser.set_defaults(run=_evaluate)


def add_watch(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "watch",
        help="a video of a trained agent",
        description="Write a video of whole episodes: the game, the probabilities of actions, and the critic's value.",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="video to write, an .mp4, .webm or .gif"
    )
    parser.add_argument(
        "--saliency",
        choices=("policy", "value"),
        help="show beside the frame what raises the logit of the chosen action, or the value",
    )
    _add_play(parser, episodes=4)
    parser.set_defaults(run=_watch)


def add_plot(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "plot",
        help="learning curves of runs",
        description="Draw the returns of runs on one game over their steps, and the evaluations at their ends.",
    )
    parser.add_argument("run_folders", type=Path, nargs="+", metavar="FOLDER", help="runs, as made by clop train")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="picture to write, such as curve.png")
    parser.add_argument(
        "--anchor",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "STEPS", "RETURN"),
        help="a published return to draw beside the curves; may be given again",
    )
    parser.set_defaults(run=_plot)


def _add_play(parser: argparse.ArgumentParser, episodes: int | None) -> None:
    """Whose episodes, and which."""
    parser.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run, as made by clop train")
    parser.add_argument(
        "--split",
        "--levels",
        choices=("train", "test"),
        default="test",
        help="levels seen in training, or unseen ones (default: %(default)s)",
    )
    number = "the protocol's, 1000 for clop-v1" if episodes is None else "%(default)s"
    parser.add_argument(
        "--episodes", type=integer, default=episodes, metavar="N", help=f"number of episodes (default: {number})"
    )
    parser.add_argument("--greedy", action="store_true", help="take the most probable action instead of a sampled one")
    parser.add_argument(
        "--seed", type=integer, default=0, metavar="N", help="seed of levels and actions (default: %(default)s)"
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")


def _evaluate(arguments: argparse.Namespace) -> None:
    import torch

    from clop import machine
    from clop.experiments.agents import KIND, evaluate_run, load_agent, read_config
    from clop.experiments.run_folder import RunFolder
    from clop.experiments.summaries import method_text
    from clop.rl.protocols import EvalConfig

    machine.keep_memory()
    config = EvalConfig(
        split=arguments.split,
        protocol=arguments.protocol,
        greedy=arguments.greedy,
        episodes=arguments.episodes,
        seed=arguments.seed,
    )
    folder = RunFolder.open(arguments.run_folder, KIND)
    trained, agent = read_config(folder.path), load_agent(folder.path, find_device(arguments.device))
    torch.set_num_threads(trained.threads)  # as the evaluation at the end of training, whose numbers this repeats
    shared = config.counts == "blocks" and agent.ctx.device.type == "cpu"
    processes = arguments.processes or ((os.cpu_count() or 1) if shared else 1)
    result, path = evaluate_run(folder, trained, agent, config, processes)
    print(
        f"{trained.game} with {method_text(trained.method, agent.notes())}, {trained.preset_name}, "
        f"{agent.ctx.env_steps} steps: {result.mean:.2f} ± {result.standard_error:.2f} (standard error of "
        f"{result.episodes} episodes){_normalised(result.normalised_mean)}, {result.success_rate:.0%} solved, on "
        f"{result.split} levels ({result.level_text}), {result.protocol}"
    )
    print(f"the episodes are in {path}")


def _normalised(mean: float | None) -> str:
    return "" if mean is None else f", normalised {mean:.3f}"


def _watch(arguments: argparse.Namespace) -> None:
    from clop.experiments.agents import load_agent, read_config
    from clop.experiments.summaries import method_text
    from clop.progress import Progress
    from clop.rl.build import split_levels
    from clop.rl.video import check_suffix
    from clop.rl.watch import WatchConfig, watch

    check_suffix(arguments.out)
    config = WatchConfig(
        split=arguments.split,
        episodes=arguments.episodes,
        greedy=arguments.greedy,
        seed=arguments.seed,
        saliency=arguments.saliency,
    )
    trained = read_config(arguments.run_folder)
    agent = load_agent(arguments.run_folder, find_device(arguments.device))
    with Progress(f"{trained.game}, {arguments.split} levels", config.episodes, "episodes") as progress:
        levels = split_levels(trained, config.split)
        played = watch(agent, levels, arguments.out, config, backend=trained.backend, progress=progress)
    returns = ", ".join(f"{value:g}" for value in played.returns)
    method = method_text(trained.method, agent.notes())
    print(f"wrote {arguments.out}: {trained.game} with {method}, {trained.preset_name}: returns {returns}")


def _plot(arguments: argparse.Namespace) -> None:
    from clop.report.agents import plot_runs

    try:
        anchors = {name: (integer(steps), float(value)) for name, steps, value in arguments.anchor}
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"--anchor takes a name, a number of steps and a return: {error}") from None
    plot_runs(arguments.run_folders, arguments.out, anchors)
    print(f"wrote {arguments.out}")
