"""``clop evaluate``, ``clop watch`` and ``clop plot``: what a trained agent does, and how it came to that."""

import argparse
from pathlib import Path
from typing import Any

from clop.cli.flags import find_device, integer
from clop.errors import UsageError


def add_evaluate(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="play a trained agent on seen or unseen levels",
        description="Play complete episodes by a named protocol, and keep every one of them beside the run.",
        epilog="protocols: clop-v1, the same number of episodes in each env; strict-v1, 1000 unseen levels, once each, "
        "none of which begins like a training level; peer-clop-v1, peer-openai-v1 and peer-idaac-v1, as other code "
        "does it, for comparison with its numbers",
    )
    parser.add_argument("--protocol", default="clop-v1", metavar="NAME", help="see below (default: %(default)s)")
    _add_play(parser, episodes=None)
    parser.set_defaults(run=_evaluate)


def add_watch(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "watch",
        help="a video of a trained agent",
        description="Write a video of whole episodes: the game, the probabilities of actions, and the critic's value.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="an .mp4 or .gif")
    _add_play(parser, episodes=4)
    parser.set_defaults(run=_watch)


def add_plot(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "plot",
        help="learning curves of runs",
        description="Draw the returns of runs on one game over their steps, and the evaluations at their ends.",
    )
    parser.add_argument("run_folders", type=Path, nargs="+", metavar="FOLDER", help="runs, as made by clop train")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="such as curve.png")
    parser.add_argument(
        "--anchor",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "STEPS", "RETURN"),
        help="a published return to draw beside them; may be given again",
    )
    parser.set_defaults(run=_plot)


def _add_play(parser: argparse.ArgumentParser, episodes: int | None) -> None:
    """Whose episodes, and which."""
    parser.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run, as made by clop train")
    parser.add_argument(
        "--levels", choices=("train", "test"), default="test", help="seen or unseen (default: %(default)s)"
    )
    number = "the protocol's, 1000 for clop-v1" if episodes is None else "%(default)s"
    parser.add_argument("--episodes", type=integer, default=episodes, metavar="N", help=f"default: {number}")
    parser.add_argument("--greedy", action="store_true", help="take the most probable action instead of a sampled one")
    parser.add_argument("--seed", type=integer, default=0, metavar="N", help="default: %(default)s")
    parser.add_argument("--device", help="default: cuda if there is one, else cpu")


def _evaluate(arguments: argparse.Namespace) -> None:
    import torch

    from clop import machine
    from clop.experiments.agents import KIND, evaluate_run, load_agent, method_text
    from clop.experiments.run_folder import RunFolder
    from clop.rl.evaluate import EvalConfig

    machine.keep_memory()
    config = EvalConfig(
        levels=arguments.levels,
        protocol=arguments.protocol,
        greedy=arguments.greedy,
        episodes=arguments.episodes,
        seed=arguments.seed,
    )
    folder = RunFolder.open(arguments.run_folder, KIND)
    trained, agent = load_agent(folder, find_device(arguments.device))
    torch.set_num_threads(trained.threads)  # as the evaluation at the end of training, whose numbers this repeats
    result, path = evaluate_run(folder, trained, agent, config)
    print(
        f"{trained.game} with {method_text(trained.method, agent.notes())}, {trained.preset}, "
        f"{agent.ctx.env_steps} steps: "
        f"{result.mean:.2f} ± {result.standard_error:.2f} (standard error of {result.episodes} episodes), normalised "
        f"{result.normalised_mean:.3f}, on {result.levels} levels ({result.level_text}), {result.protocol}"
    )
    print(f"the episodes are in {path}")


def _watch(arguments: argparse.Namespace) -> None:
    from clop.experiments.agents import KIND, load_agent, method_text, train_levels
    from clop.experiments.run_folder import RunFolder
    from clop.progress import Progress
    from clop.rl.watch import WatchConfig, check_suffix, watch

    check_suffix(arguments.out)
    config = WatchConfig(
        levels=arguments.levels, episodes=arguments.episodes, greedy=arguments.greedy, seed=arguments.seed
    )
    trained, agent = load_agent(RunFolder.open(arguments.run_folder, KIND), find_device(arguments.device))
    with Progress(f"{trained.game}, {arguments.levels} levels", config.episodes, "episodes") as progress:
        levels = train_levels(trained, config.levels)
        played = watch(agent, levels, arguments.out, config, backend=trained.backend, progress=progress)
    returns = ", ".join(f"{value:g}" for value in played.returns)
    method = method_text(trained.method, agent.notes())
    print(f"wrote {arguments.out}: {trained.game} with {method}, {trained.preset}: returns {returns}")


def _plot(arguments: argparse.Namespace) -> None:
    from clop.report.agents import plot_runs

    try:
        anchors = {name: (integer(steps), float(value)) for name, steps, value in arguments.anchor}
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"--anchor takes a name, a number of steps and a return: {error}") from None
    plot_runs(arguments.run_folders, arguments.out, anchors)
    print(f"wrote {arguments.out}")
