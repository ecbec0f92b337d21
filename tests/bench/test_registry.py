"""Benchmarks on the command line: each owns its flags and its table, and their records keep their form."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clop.bench.methods import Passes
from clop.bench.registry import BENCHES
from clop.bench.time_to_return import Point
from clop.cli import main
from clop.cli.flags import field_texts
from clop.experiments.record import RunRecord

RESULTS = Path(__file__).parents[2] / "results" / "bench"
RECORDS = {name: RESULTS / f"{name}.json" for name in BENCHES} | {"train": RESULTS / "train-encoders.json"}
COSTS = {"shared": 1.01, "split": 1.02}


@pytest.fixture(autouse=True)
def _same_process_after(monkeypatch):
    """Benchmarks set threads and the C library's memory of a whole process, which the other tests share."""
    threads = torch.get_num_threads()
    monkeypatch.setattr("clop.machine.keep_memory", lambda: None)
    yield
    torch.set_num_threads(threads)


def replayed(name, monkeypatch):
    """A benchmark that measures what its committed record says."""
    if not RECORDS[name].exists():
        pytest.skip(f"not measured yet: {RECORDS[name].name}")
    module, record = BENCHES[name].load(), RunRecord.read(RECORDS[name])
    fields = {field.name for field in dataclasses.fields(module.Row)}
    rows = []
    for values in record.metrics["rows"]:
        values = {key: value for key, value in values.items() if key in fields}
        if name == "methods":
            values["passes"] = Passes(**values["passes"])
        if name == "return":
            values["tests"] = [Point(**point) for point in values["tests"]]
            values["scores"] = sorted(float(score) for score in record.config["reach"].split(","))
        rows.append(module.Row(**values))
    beside = {"sweep": "killed", "report": "load", "evaluate": "scaling"}.get(name)
    measured = (rows, record.metrics[beside]) if beside else rows
    monkeypatch.setattr(module, "measure", lambda settings, report: report("measured") or measured)
    if name == "train":
        costs = record.metrics["cost_of_clop"]
        monkeypatch.setattr(module, "cost_of", lambda method, game, pairs, topology, encoder: costs[encoder][topology])
    return record


@pytest.mark.parametrize("name", BENCHES)
def test_a_record_has_the_form_of_the_committed_one(name, monkeypatch, capsys):
    """Fails for a setting or metric that is renamed, added or dropped, and for one in another unit."""
    committed = replayed(name, monkeypatch)
    asked = ["--reach", committed.config["reach"]] if name == "return" else []
    assert main(["bench", name, "--json", *asked]) == 0
    captured = capsys.readouterr()
    record = RunRecord(**json.loads(captured.out))
    assert record.kind == committed.kind
    assert list(record.config) == list(committed.config)
    assert record.metrics == committed.metrics
    assert captured.err.endswith("measured\n"), "progress does not go between the lines of the record"


@pytest.mark.parametrize("name", BENCHES)
def test_a_table_has_a_line_for_each_row(name, monkeypatch, capsys):
    committed = replayed(name, monkeypatch)
    assert main(["bench", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(committed.metrics["rows"])
    assert len({line.count("|") for line in table}) == 1
    assert lines[: len(table)] == table, "the note comes last"


def test_the_costs_of_clop_are_under_the_table_of_learners(monkeypatch, capsys):
    module = BENCHES["train"].load()
    monkeypatch.setattr(module, "measure", lambda settings, report: [])
    monkeypatch.setattr(module, "cost_of", lambda method, game, pairs, topology, encoder: COSTS[topology])
    assert main(["bench", "train", "--pairs", "3", "--encoder", "small,impala"]) == 0
    *_, first, second = capsys.readouterr().out.splitlines()
    assert "small, one process, median of 3 pairs: 1.010 (shared network), 1.020 (split network)" in first
    assert "impala, one process, median of 3 pairs:" in second


@pytest.mark.parametrize("name", BENCHES)
def test_every_setting_has_a_help_text_and_a_default(name):
    """Help texts lose their capital, which a name must not: none starts with one."""
    module = BENCHES[name].load()
    texts = field_texts(module.Settings)
    assert module.Settings() is not None
    assert texts.keys() == {field.name for field in dataclasses.fields(module.Settings)}
    assert all(text[0].isupper() and text[1].islower() and text.endswith(".") for text in texts.values())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train", {"game": "starpilot", "encoder": "impala,small,nature", "rounds": 3, "num_steps": 64, "pairs": 16}),
        ("train fruitbot --num-steps 1e3 --without-sb3", {"game": "fruitbot", "num_steps": 1000, "without_sb3": True}),
        ("train --encoder small", {"encoder": "small", "without_sb3": False}),
        ("return", {"game": "starpilot", "reach": "5", "minutes": 20.0, "num_levels": 50, "processes": 2}),
        ("return bigfish --reach 2.5 --minutes 3", {"game": "bigfish", "reach": "2.5", "minutes": 3.0}),
        ("methods fruitbot --rounds 3", {"game": "fruitbot", "rounds": 3}),
        ("vision --batches 2", {"rounds": 20, "batches": 2, "threads": None}),
        ("augment", {"data": None, "images": None, "image_size": 96, "network": "vgg9", "passes": 1, "threads": None}),
        ("augment --data sets --network vgg11", {"data": Path("sets"), "network": "vgg11"}),
        ("pixels", {"rounds": 100, "threads": None}),
    ],
)
def test_flags_become_settings(words, expected, monkeypatch):
    """Fails for a default said twice, a path left as text, or a game that became a flag."""
    given = []
    name, *flags = words.split()
    module = BENCHES[name].load()
    monkeypatch.setattr(module, "measure", lambda settings, report: given.append(settings) or [])
    if name == "train":
        monkeypatch.setattr(module, "cost_of", lambda *_: 1.0)
    assert main(["bench", name, *flags, "--json"]) == 0
    assert expected.items() <= dataclasses.asdict(given[0]).items()


@pytest.mark.parametrize("flag", ["--rounds", "--threads"])
def test_a_count_below_one_is_refused(flag, capsys):
    """Zero threads would mean all of them, zero rounds a median of nothing."""
    assert main(["bench", "layer", flag, "0"]) == 2
    assert capsys.readouterr().err == f"clop: {flag.removeprefix('--')} must be at least 1, got 0\n"


def test_the_list_of_benchmarks_imports_none_of_them():
    """Fails when the help of all benchmarks waits for the imports of each, or that of one for the others'."""
    code = "import sys; from clop.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: print(*sys.modules)"
    for words, loaded in (["bench", "--help"], set()), (["bench", "layer", "--help"], {"layer"}):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        modules = set(done.stdout.split())
        assert {name for name, entry in BENCHES.items() if entry.module in modules} == loaded
        assert not modules & {"clop.rl", "clop.vision"}
