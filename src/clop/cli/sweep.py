"""``clop sweep``: the paper's experiments, or one's own, as many runs with one command."""

import argparse
import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clop.cli.flags import integer, number, positive
from clop.errors import UsageError

if TYPE_CHECKING:
    from clop.experiments.sweep.grids import Sweep
    from clop.experiments.sweep.jobs import Job

_EXECUTORS = ("local", "ray", "slurm")
_SHOWN = 40  # runs that a plan lists


def add_sweep(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="many runs with one command, on this machine or a cluster",
        description="Run the paper's experiments, or a file of your own, as many runs. Each is an ordinary run folder; "
        "the folders are all the state there is, so after any interruption the same command goes on.",
    )
    actions = parser.add_subparsers(title="actions", metavar="action", dest="action", required=True)

    listing = actions.add_parser("list", help="named sweeps: runs, steps, hours on this machine")
    listing.add_argument("--scale", default="full", help="full or small (default: %(default)s)")
    listing.set_defaults(run=_list)

    plan = actions.add_parser("plan", help="what a sweep would run, what is done already, and how long it takes")
    _add_selection(plan)
    plan.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the sweep, to see what is done in it")
    plan.add_argument("--jobs", type=positive, default=1, help="runs at a time (default: %(default)s)")
    plan.set_defaults(run=_plan)

    run = actions.add_parser("run", help="run a sweep, or go on with it")
    _add_selection(run)
    run.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the sweep (default: sweeps/NAME)")
    _add_execution(run)
    run.set_defaults(run=_run)

    status = actions.add_parser("status", help="what runs, waits, is done or failed; rate and time left")
    status.add_argument("folder", type=Path, help="folder of the sweep")
    status.add_argument("--json", action="store_true", help="print JSON for machines")
    status.set_defaults(run=_status)

    retry = actions.add_parser("retry", help="run those that failed once more")
    retry.add_argument("folder", type=Path, help="folder of the sweep")
    _add_execution(retry)
    retry.set_defaults(run=_retry)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", help="a name from `clop sweep list`, or a file that ends in .toml")
    parser.add_argument(
        "--scale", default="full", help="size of a named sweep: full, or small for a CPU (default: full)"
    )
    parser.add_argument("--games", type=_names, default=(), metavar="A,B", help="only runs on these games, or tasks")
    parser.add_argument("--methods", type=_methods, default=(), metavar="A,B", help="only runs with these methods")
    parser.add_argument("--seeds", type=_seeds, default=(), metavar="N|A,B", help="number of seeds, or a list of them")
    parser.add_argument("--preset", metavar="NAME", help="preset of the agents, in place of the sweep's")
    parser.add_argument(
        "--total-timesteps",
        type=positive,
        metavar="N",
        help="env steps of each agent, in place of the sweep's; runs that ended with fewer go on",
    )
    parser.add_argument(
        "--done",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="folder of recorded runs that need not be run again; may be given again",
    )


def _add_execution(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="runs at a time (default: one for each core, or what a cluster has)"
    )
    parser.add_argument("--on", choices=_EXECUTORS, default="local", help="where to run (default: %(default)s)")
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder that holds the data sets of classifiers")
    parser.add_argument(
        "--checkpoint-minutes",
        type=number,
        default=2.0,
        metavar="X",
        help="minutes between checkpoints (default: %(default)s)",
    )
    cluster = parser.add_argument_group("on a cluster")
    cluster.add_argument("--address", help="address of a running Ray cluster (default: one is started here)")
    cluster.add_argument(
        "--cpus", type=number, default=None, metavar="X", help="cores of a run (default: processes times threads)"
    )
    cluster.add_argument("--gpus", type=number, default=0.0, metavar="X", help="GPUs of a run, or a part of one")
    cluster.add_argument("--partition", help="partition of Slurm")
    cluster.add_argument("--hours", type=number, default=24.0, metavar="X", help="time limit of a Slurm job")
    cluster.add_argument("--print-only", action="store_true", help="write the sbatch file of Slurm and submit nothing")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _methods(text: str) -> tuple[str, ...]:
    """Names between commas, which may have settings with commas in brackets."""
    from clop.fields import split_outside_brackets

    return tuple(part.strip() for part in split_outside_brackets(text, ",") if part.strip())


def _seeds(text: str) -> tuple[int, ...]:
    from clop.experiments.sweep.grids import seeds_of

    values = [integer(part) for part in text.split(",")]
    try:
        return seeds_of(values if "," in text else values[0])
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("seeds: ")) from None


def _sweep(arguments: argparse.Namespace) -> "Sweep":
    from clop.experiments.sweep.grids import read_sweep
    from clop.experiments.sweep.named import named_sweep

    if arguments.sweep.endswith(".toml"):
        if arguments.scale != "full":
            raise UsageError("--scale is for named sweeps; a file says itself how large its runs are")
        sweep = read_sweep(Path(arguments.sweep))
    else:
        sweep = named_sweep(arguments.sweep, arguments.scale)
    total = arguments.total_timesteps
    settings = {} if total is None else {"total_timesteps": total}
    sweep = sweep.changed(arguments.games, arguments.methods, arguments.seeds, arguments.preset, settings)
    if not sweep.grids:
        raise UsageError(f"{sweep.name} has no run with these games and methods together")
    return sweep


def _list(arguments: argparse.Namespace) -> None:
    from clop.experiments.sweep.named import NAMES, named_sweep
    from clop.experiments.sweep.rates import seconds_of
    from clop.report.tables import markdown

    rows = []
    for name in NAMES:
        sweep = named_sweep(name, arguments.scale)
        jobs = sweep.jobs()
        hours = seconds_of(jobs) / 3600
        rows.append([name, str(len(jobs)), _steps(jobs), f"{hours:,.0f}".replace(",", " "), sweep.about])
    print(markdown(["sweep", "runs", "steps", "hours", "what"], rows))
    print("\nHours are those of training alone, one run after the other on this machine, from a measured rate.")


def _steps(jobs: list["Job"]) -> str:
    total = sum(job.total for job in jobs if job.kind == "agent")
    return f"{total / 1e6:,.0f} M".replace(",", " ") if total else "–"


def _plan(arguments: argparse.Namespace) -> None:
    from clop.experiments.sweep.check import check_jobs
    from clop.experiments.sweep.plan import Plan, recorded_runs
    from clop.experiments.sweep.rates import seconds_of

    sweep = _sweep(arguments)
    jobs = sweep.jobs()
    plan = Plan(
        arguments.out or Path("sweeps") / sweep.name, sweep.name, jobs, frozenset(recorded_runs(arguments.done))
    )
    states = {job: plan.state(job) for job in jobs}
    waiting = [job for job in jobs if states[job] != "done"]
    check_jobs(waiting)
    for job in jobs[:_SHOWN]:
        print(f"{states[job]:8} {job.title}, {job.total} {job.unit}")
    if len(jobs) > _SHOWN:
        print(f"and {len(jobs) - _SHOWN} more")
    hours = seconds_of(waiting) / 3600 / arguments.jobs
    print(
        f"{sweep.name}: {len(jobs)} runs, {len(jobs) - len(waiting)} done; {_steps(waiting)} steps to go, about "
        f"{hours:.1f} hours of training on this machine with {arguments.jobs} at a time, evaluations not counted"
    )


def _run(arguments: argparse.Namespace) -> None:
    from clop.experiments.sweep.check import check_jobs
    from clop.experiments.sweep.plan import Plan, recorded_runs

    if arguments.print_only and arguments.on != "slurm":
        raise UsageError("--print-only writes the sbatch file of Slurm; add --on slurm")
    sweep = _sweep(arguments)
    jobs = sweep.jobs()
    root = arguments.out or Path("sweeps") / sweep.name
    recorded = frozenset(recorded_runs(arguments.done))
    looked = Plan(root, sweep.name, jobs, recorded)
    check_jobs([job for job in jobs if not looked.is_done(job)], data=arguments.data, root=root)
    _execute(Plan.create(root, sweep.name, jobs, recorded), arguments)


def _execute(plan: Any, arguments: argparse.Namespace) -> None:
    from clop.experiments.sweep.drive import drive
    from clop.experiments.sweep.supervise import Options

    data = None if arguments.data is None else str(arguments.data.absolute())
    words = (Path(sys.argv[0]).name, *sys.argv[1:])
    options = Options(arguments.device, data, 60 * arguments.checkpoint_minutes, words)
    if arguments.on == "slurm":
        from clop.experiments.sweep.on_slurm import Resources, submit

        resources = Resources(arguments.cpus, arguments.gpus, arguments.hours, arguments.partition, arguments.jobs)
        print(submit(plan, options, resources, print_only=arguments.print_only))
        return
    if arguments.on == "ray":
        from clop.experiments.sweep.on_ray import run_on_ray

        jobs = arguments.jobs or 0
        shares = {"cpus": arguments.cpus, "gpus": arguments.gpus}
        execute: Any = partial(run_on_ray, address=arguments.address, jobs=jobs, options=options, **shares)
    else:
        from clop.experiments.sweep.local import run_local

        jobs = arguments.jobs or _cores()
        execute = partial(run_local, jobs=jobs, options=options)
    print(drive(plan, jobs, execute))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _status(arguments: argparse.Namespace) -> None:
    from clop.experiments.sweep.board import seconds_left
    from clop.experiments.sweep.plan import Plan, read_json
    from clop.progress import clock

    plan = Plan.open(arguments.folder)
    statuses = plan.statuses()
    counts = Counter(status.state for status in statuses)
    running = [status for status in statuses if status.state == "running"]
    left = seconds_left(statuses, len(running))
    if arguments.json:
        jobs = [
            {"name": status.job.name, "title": status.job.title, "state": status.state, "share": status.share}
            | {"progress": status.progress}
            for status in statuses
        ]
        print(json.dumps({"sweep": plan.name, "counts": counts, "seconds_left": left, "jobs": jobs}, indent=2))
        return
    from clop.experiments.sweep.board import line_of

    for status in running:
        print(line_of(status))
    for status in statuses:
        if status.state == "failed":
            print(f"failed: {status.job.title}: {read_json(plan.failure(status.job)).get('log', '')}")
    text = ", ".join(f"{counts[state]} {state}" for state in ("done", "running", "waiting", "failed") if counts[state])
    print(f"{plan.name}: {text}" + (f", about {clock(left)} left" if left and running else ""))


def _retry(arguments: argparse.Namespace) -> None:
    from clop.experiments.sweep.plan import Plan

    plan = Plan.open(arguments.folder)
    failed = plan.forget_failures()
    if not failed:
        print(f"nothing has failed in {arguments.folder}")
        return
    _execute(plan, arguments)
