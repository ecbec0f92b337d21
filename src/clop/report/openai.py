"""Our PPO beside OpenAI's: its published logs of three runs on each game, easy, 200 levels, at thirteen moments."""

import textwrap
from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from clop.report import drawing, settings
from clop.report.commands import sweep_command
from clop.report.drawing import Line
from clop.report.efficiency import Curve, curve_of, return_at
from clop.report.paper_agents import steps_text
from clop.report.published import read_table
from clop.report.runs import AgentRun, Runs
from clop.report.stats import student_estimate
from clop.report.tables import Row, Table, Value
from clop.rl.games import GAMES

if TYPE_CHECKING:
    from clop.report.figures import Figure

_SPLITS = ("train", "test")
_SCALE = "OpenAI's code: impala, easy, 200 levels"
_NAME = "OpenAI"


def published() -> dict[tuple[str, str], list[Curve]]:
    """The curves of the three runs, by game and split."""
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in read_table("openai_ppo_easy_curves"):
        curves = found.setdefault((row["game"], row["split"]), {})
        curves.setdefault(row["run"], []).append((float(row["steps"]), float(row["mean_return"])))
    return {where: [sorted(curve) for curve in curves.values()] for where, curves in found.items()}


def departures(run: AgentRun) -> str:
    """In what a run differs from OpenAI's settings, which are those of ``procgen-easy``; theirs in brackets."""
    theirs = settings.known()["presets"]["procgen-easy"]
    mine = theirs | settings.flat(run.config)  # a setting that came later had its default before
    names = [n for n in theirs if n not in settings.NOT_SCALE and n != "total_timesteps" and mine[n] != theirs[n]]
    words = [f"{n.removeprefix('ppo.')} {settings.word(mine[n])} ({settings.word(theirs[n])})" for n in names]
    return f"other than OpenAI's: {', '.join(words)}" if words else "settings are OpenAI's"


def _ours(runs: Runs) -> dict[str, list[AgentRun]]:
    """Runs of PPO on easy games, by scale; the longest of a seed, which stands for those that ended before."""
    chosen = [run for run in runs.agents if run.variant == "ppo" and run.mode == "easy" and run.game in GAMES]
    longest = {(run.scale_key, run.game, run.seed): run for run in sorted(chosen, key=lambda run: run.end.env_steps)}
    found: dict[str, list[AgentRun]] = {}
    for run in sorted(longest.values(), key=lambda run: (run.scale, run.scale_key, run.game, run.seed)):
        found.setdefault(run.scale_key, []).append(run)
    return found


def figure(runs: Runs) -> Iterator["Figure"]:
    """A drawing for each scale, a panel for each game; OpenAI's curves go as far as ours and one moment beyond."""
    logs = published()
    for same in _ours(runs).values():
        panels: dict[str, list[Line]] = {}
        for game in dict.fromkeys(run.game for run in same):
            several = [run for run in same if run.game == game]
            end = max(run.end.env_steps for run in several)
            for split in _SPLITS:
                dashed = split == "test"
                panels.setdefault(game, []).append(Line("ppo", [curve_of(run, split) for run in several], dashed))
                cut = [_until(curve, end) for curve in logs[game, split]]
                panels[game].append(Line(_NAME, cut, dashed))
        seeds = sorted({sum(run.game == game for run in same) for game in panels})
        counts = " to ".join(dict.fromkeys(map(str, (seeds[0], seeds[-1]))))
        title = f"PPO, ours and OpenAI's three runs\n{same[0].scale}; {counts} {'seed' if seeds[-1] == 1 else 'seeds'}"
        drawn = drawing.panels(title, panels)
        width = int(14 * drawn.get_figwidth())
        drawn.legends[0].set_title("\n".join(textwrap.wrap(departures(same[0]), width)))
        drawn.legends[0].get_title().set_fontsize(8)
        yield drawn


def _until(curve: Curve, end: float) -> Curve:
    beyond = [point for point in curve if point[0] > end]
    return [point for point in curve if point[0] <= end] + list(beyond[:1])


def table(runs: Runs) -> Table:
    """Returns at each of OpenAI's moments that our runs have reached."""
    logs, rows = published(), []
    notes = ["± over runs; in brackets the 95 % interval of the mean from three seeds on."]
    by_scale = _ours(runs)
    notes += dict.fromkeys(f"{same[0].scale}: {departures(same[0])}." for same in by_scale.values())
    for game in GAMES:
        moments = [steps for steps, _ in logs[game, "test"][0]]
        ours = [[run for run in same if run.game == game] for same in by_scale.values()]
        found = {at: [row for several in ours if (row := _row(game, several, at))] for at in moments}
        for at in moments:
            if found[at] or at == moments[-1]:
                values = {split: _log_value([return_at(c, at) for c in logs[game, split]]) for split in _SPLITS}
                rows += [Row((game,), _NAME, values, "3", steps_text(int(at)), _SCALE), *found[at]]
        if not found[moments[-1]]:
            command = sweep_command("paper-easy", games=[game], methods=["ppo"])
            rows.append(Row((game,), "ours", {}, "0", steps_text(int(moments[-1])), _SCALE, command))
    return Table("openai", "PPO, ours and OpenAI's", ("game",), _SPLITS, tuple(rows), tuple(notes))


def _log_value(values: Sequence[float | None]) -> Value:
    known = [value for value in values if value is not None]
    return Value(round(mean(known), 2), round(stdev(known), 2)) if len(known) > 1 else Value(None)


def _row(game: str, runs: Sequence[AgentRun], at: float) -> Row | None:
    """Ours at a moment, if all runs have got there; without the return that was not measured on the way."""
    values = {}
    for split in _SPLITS:
        found = [return_at(curve_of(run, split), at) for run in runs]
        known = [value for value in found if value is not None]
        if runs and len(known) == len(runs):
            spread = stdev(known) if len(known) > 1 else None
            values[split] = Value.of(student_estimate(known), [run.path for run in runs], spread)
    if not values:
        return None
    values = {split: values.get(split, Value(None)) for split in _SPLITS}
    return Row((game,), "ours", values, str(len(runs)), steps_text(int(at)), runs[0].scale)
