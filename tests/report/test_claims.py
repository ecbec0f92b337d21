"""Verdicts on the paper's claims follow from records, and the page shows those of the committed ones."""

import json
from pathlib import Path

import pytest

from clop.report.build import claims_page
from clop.report.claim_evidence import Evidence
from clop.report.claim_rules import RULES
from clop.report.claim_words import BEYOND, TESTS
from clop.report.claims import VERDICTS, Comparison, decide, read_claims, verdicts
from clop.report.runs import Runs
from clop.report.stats import Estimate
from clop.rl.games import GAMES

ROOT = Path(__file__).parents[2]
ABOVE, BELOW, ACROSS = (1.0, 0.5, 1.5), (-1.0, -1.5, -0.5), (0.2, -0.5, 0.9)


def comparisons(**by_subject):
    return [
        Comparison(subject, subject, Estimate(*numbers, 3), "scale", (Path(subject),))
        for subject, numbers in by_subject.items()
    ]


@pytest.mark.parametrize(
    ("found", "subjects", "every", "mark"),
    [
        (comparisons(a=ABOVE, b=ABOVE), "ab", False, "reproduced"),
        (comparisons(a=ABOVE), "ab", False, "partly"),  # b was not run
        (comparisons(a=ABOVE, b=ACROSS), "ab", False, "partly"),
        (comparisons(a=ABOVE, b=BELOW), "ab", False, "partly"),
        (comparisons(a=ABOVE, b=BELOW), "ab", True, "contradicted"),  # said of every one
        (comparisons(a=BELOW, b=ACROSS), "ab", False, "contradicted"),
        (comparisons(a=ACROSS), "a", False, "not tested"),
        (comparisons(a=(5.0, None, None)), "a", False, "not tested"),  # too few seeds for an interval
        ([], "a", False, "not tested"),
    ],
)
def test_a_verdict_follows_from_intervals(found, subjects, every, mark):
    """Fails if a point without an interval decides, or if what was not run is passed over."""
    assert decide(found, subjects, every=every).mark == mark


def marks(path, *numbers):
    found = {claim.number: verdict for claim, verdict in verdicts(Evidence(Runs.find([path])), RULES, TESTS, BEYOND)}
    return [found[number].mark for number in numbers]


@pytest.fixture
def agents(tmp_path, write_agent):
    """CLOP better than PPO on unseen levels of bigfish and dodgeball, with a smaller gap, and even on jumper."""
    for seed in range(3):
        for game, gain in (("bigfish", 4.0), ("dodgeball", 3.0), ("jumper", 0.0)):
            noise = (seed - 1) / 10
            write_agent(tmp_path / f"p{game}{seed}", game, "ppo", seed, 12.0 + noise, 6.0 - noise)
            write_agent(tmp_path / f"c{game}{seed}", game, "clop", seed, 12.0 - noise, 6.0 + gain + noise)
            write_agent(tmp_path / f"l{game}{seed}", game, "clop(local=false)", seed, 12.0, 5.0 + noise)
    return tmp_path


def test_claims_about_agents_are_decided_by_their_runs(agents):
    """94 names three games of which two were run; 105 speaks of training return, which is the same here."""
    assert marks(agents, 94, 107, 105, 131, 132) == ["partly", "partly", "not tested", "partly", "contradicted"]
    assert marks(agents, 100) == ["partly"]  # nothing against it, but most games are missing
    assert marks(agents, 108) == ["partly"]  # jumper is even, coinrun was not run


def test_one_game_contradicts_what_is_said_of_every_game(agents, write_agent):
    for seed in range(3):
        write_agent(agents / f"px{seed}", "heist", "ppo", seed, 8.0 + seed / 10, 6.0)
        write_agent(agents / f"cx{seed}", "heist", "clop", seed, 8.0 + seed / 10, 3.0)
    assert marks(agents, 100, 94) == ["contradicted", "partly"]


def test_fewer_than_three_seeds_decide_nothing(tmp_path, write_agent):
    for seed in range(2):
        write_agent(tmp_path / f"p{seed}", "bigfish", "ppo", seed, 12.0, 6.0)
        write_agent(tmp_path / f"c{seed}", "bigfish", "clop", seed, 12.0, 12.0)
    assert marks(tmp_path, 94, 107) == ["not tested", "not tested"]


def test_claims_about_classifiers_are_decided_by_their_runs(tmp_path, write_classifier):
    tests = {"plain": 74.0, "dropout": 73.0, "batch_norm": 66.0, "clop": 86.0}
    for method, test in tests.items():
        for seed in range(3):
            write_classifier(tmp_path / f"{method}-{seed}", method, seed, test + seed / 10)
    assert marks(tmp_path, 48, 49, 54, 147) == ["reproduced", "reproduced", "partly", "not tested"]
    for seed in range(3):
        where = {"changed": {"clop": {"slot": "stage1"}}, "slot": "stage1"}
        write_classifier(tmp_path / f"first-{seed}", "clop", seed, 90.0 + seed / 10, **where)
    assert marks(tmp_path, 147) == ["contradicted"]


def test_scarcity_is_decided_by_the_difference_of_two_gains(tmp_path, write_classifier):
    for images, gain in ((500, 12.0), (10_000, 4.0)):
        scale = {"train_images": images, "scale": f"{images} images"}
        for seed in range(3):
            write_classifier(tmp_path / f"p{images}{seed}", "plain", seed, 70.0 + seed / 10, **scale)
            write_classifier(tmp_path / f"c{images}{seed}", "clop", seed, 70.0 + gain - seed / 10, **scale)
    assert marks(tmp_path, 68) == ["reproduced"]


def test_claims_about_looks_are_decided_by_the_measurement(tmp_path):
    """The agents without locality look more widely than those of CLOP, and these no less widely than random weights."""
    entropies = {"clop": 0.6, "clop(local=False)": 0.8, "ppo": 0.5, "random weights": 0.6}
    networks = [
        {"label": label, "seed": seed, "entropy": {"mean": entropy + (seed - 1) / 100}}
        for label, entropy in entropies.items()
        for seed in range(3)
    ]
    metrics = {"frames": 1000, "levels": 40, "source": "bigfish", "networks": networks}
    (tmp_path / "looks.json").write_text(json.dumps({"kind": "saliency", "metrics": metrics}))
    assert marks(tmp_path, 140, 141, 142, 143) == ["reproduced", "not tested", "reproduced", "not tested"]


def timed(path, kind, **ratios):
    """A record of a benchmark on both data sets; names of ratios are methods."""
    scales = {"mnist": "small_cnn, 60000 images", "imagenette": "vgg9, 2000 images"}
    rows = [
        {"dataset": dataset, "method": method, "seconds": 1.0, "ratio": ratio, "scale": scale}
        for dataset, scale in scales.items()
        for method, ratio in ratios.items()
    ]
    record = {"kind": kind, "metrics": {"rows": rows}, "machine": {"processor": "made up"}}
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("ratios", "mark"),
    [
        ({"clop": 1.0, "crop": 1.1, "rotation": 1.2, "cutout": 1.1, "random_conv": 1.3}, "reproduced"),
        ({"clop": 1.0, "crop": 1.0, "rotation": 1.2, "cutout": 1.1, "random_conv": 1.3}, "partly"),
        ({"clop": 1.2, "crop": 1.0, "rotation": 1.0, "cutout": 1.0, "random_conv": 1.0}, "contradicted"),
        ({"clop": 1.0, "crop": 1.04, "rotation": 1.03, "cutout": 0.97, "random_conv": 1.0}, "not tested"),
    ],
)
def test_times_that_differ_by_less_than_the_noise_decide_nothing(tmp_path, ratios, mark):
    """Fails if three hundredths of a second in one record are a verdict."""
    timed(tmp_path / "augment.json", "bench augment", **ratios)
    found = {
        claim.number: verdict for claim, verdict in verdicts(Evidence(Runs.find([tmp_path])), RULES, TESTS, BEYOND)
    }
    assert found[28].mark == mark
    assert found[28].scale == "small_cnn, 60000 images, made up; vgg9, 2000 images, made up"


def test_a_cost_is_negligible_where_every_record_says_so(tmp_path):
    """Fails if agents are passed over where only classifiers were timed, or the other way round."""
    timed(tmp_path / "augment.json", "bench augment", clop=1.01)
    assert marks(tmp_path, 83, 174) == ["not tested", "partly"]
    timed(tmp_path / "methods.json", "bench methods", clop=1.02)
    assert marks(tmp_path, 83, 174) == ["reproduced", "reproduced"]
    timed(tmp_path / "methods.json", "bench methods", clop=1.2)
    assert marks(tmp_path, 83, 174) == ["contradicted", "partly"]


def test_a_printed_accuracy_that_ours_misses_is_said_to_be_missed(tmp_path, write_classifier):
    scale = {"train_images": 60_000, "scale": "small_cnn, 60000 images of mnist, 32 px, 30 epochs", "epochs": 30}
    for method, test in (("plain", 82.0), ("batch_norm", 90.0)):
        run = write_classifier(tmp_path / method, method, 0, test, **scale)
        values = json.loads((run / "config.json").read_text())
        values["config"]["image_size"] = 32
        (run / "config.json").write_text(json.dumps(values))
    found = {
        claim.number: verdict for claim, verdict in verdicts(Evidence(Runs.find([tmp_path])), RULES, TESTS, BEYOND)
    }
    assert found[47].mark == "partly"
    assert "plain 82.0 (n 1) against 81.6 ± 1.2;" in found[47].statistic
    assert "batch_norm 90.0 (n 1) against 65.6 ± 7.7, outside" in found[47].statistic


def test_the_gap_of_classifiers_is_that_of_training_and_test(tmp_path, write_classifier):
    """Fails if the test accuracy is taken for the gap: then the better one would have the larger gap."""
    for seed in range(3):
        for method, test in (("plain", 60.0), ("clop", 70.0)):
            write_classifier(tmp_path / f"{method}{seed}", method, seed, test + seed / 10, "stl10")
    assert marks(tmp_path, 65) == ["partly"]


def test_a_majority_is_counted_in_games(tmp_path, write_agent):
    for number, game in enumerate(GAMES):
        for seed in range(3):
            for method, test in (("ppo", 6.0), ("clop", 9.0 if number < 9 else 3.0)):
                where = tmp_path / f"{game}{method}{seed}"
                write_agent(where, game, method, seed, 12.0, test + seed / 10, preset="procgen-hard")
    assert marks(tmp_path, 164, 81) == ["reproduced", "partly"]


def test_the_list_is_whole_and_rules_and_tests_are_of_claims_in_it():
    claims = read_claims()
    assert [claim.number for claim in claims] == list(range(1, 227))
    assert all(claim.claim and claim.place and claim.paper for claim in claims)
    assert sorted([*RULES, *TESTS, *BEYOND]) == list(range(1, 227))  # each has one of the three
    found = verdicts(Evidence(Runs()), RULES, TESTS, BEYOND)
    assert {verdict.mark for _, verdict in found} == {"reproduced", "not tested"} < set(VERDICTS)
    without_runs = {claim.number: verdict for claim, verdict in found if claim.number in RULES}
    assert {verdict.mark for verdict in without_runs.values()} == {"not tested"}  # no rule decides without records
    assert all("; to run: `clop " in v.statistic or "; to run: `for " in v.statistic for v in without_runs.values())


def test_the_tests_that_hold_our_code_to_definitions_exist():
    """Fails for a test that was renamed or taken away: the claim it stood for would no longer be checked."""
    for number, name in TESTS.items():
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), number


def test_the_page_of_claims_has_the_verdicts_of_the_records(monkeypatch):
    """Fails for a page made by hand, or before the last run."""
    monkeypatch.chdir(ROOT)
    text = claims_page(Runs.find(["results"]), ["results"], Path("docs"))
    assert Path("docs/claims.md").read_text() == text, "run: clop report results --what claims --out docs"
