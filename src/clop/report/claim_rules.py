"""Which records decide which claim, by its number, and what to run where there are none."""

from collections.abc import Mapping, Sequence

from clop.report.claim_costs import cheaper_than_pixels, cost_of_training, negligible, pass_costs
from clop.report.claim_evidence import (
    ALL,
    Find,
    agent_sum,
    agents,
    all_of,
    focus,
    insensitive,
    over_games,
    same,
    vision,
)
from clop.report.claim_kinds import (
    Decide,
    around,
    both,
    by_intervals,
    far_from_the_top,
    faster,
    fits,
    gap_reduction,
    lead_of_starpilot,
    majority,
    mean_reduction,
    normalised_lead,
    printed_accuracies,
    scarce,
    training_times,
)
from clop.report.claims import Rule
from clop.report.commands import sweep_command
from clop.report.paper_agents import METHODS

_LOSING = ("caveflyer", "ninja", "plunder")
_EVEN = ("coinrun", "jumper")
_MUCH = ("bigfish", "chaser", "leaper")
_STUDIED = ("bigfish", "dodgeball", "chaser")
_HARD = ("miner", "chaser", "dodgeball")
_FIRST = ("bigfish", "chaser", "dodgeball", "fruitbot", "leaper", "miner", "starpilot")
_TREND = ("bigfish", "chaser", "climber", "dodgeball", "fruitbot", "jumper", "leaper", "maze", "miner", "starpilot")
_TOP_IN_TRAINING = (*_FIRST, "bossfight", "heist", "jumper")
_JOINED = ("chaser", "dodgeball", "fruitbot", "heist", "leaper", "starpilot")
_IDAAC_WINS = ("bossfight", "climber", "coinrun", "jumper", "ninja")
_TASKS = ("mnist-usps", "imagenette", "stl10", "imagewoof")
_SCARCE = ("stl10", "imagewoof", "imagenette")
_FOUR = ("plain", "dropout", "batch_norm", "clop")
_FIVE = ("plain", "clop", "mixup", "dropout", "batch_norm")
_NO_LOCALITY, _NO_CONSISTENCY = "clop(local=false)", "clop(channel_consistent=false)"
_RANDOM = "random weights"


def _without(games: Sequence[str], *others: str) -> tuple[str, ...]:
    return tuple(game for game in games if game not in others)


def _rule(decide: Decide, sweep: str, games: Sequence[str] = (), methods: Sequence[str] = ()) -> Rule:
    return Rule(decide, sweep_command(sweep, games=games if len(games) < len(ALL) else (), methods=methods))


def _easy(find: Find, games: Sequence[str], methods: Sequence[str] = ("ppo", "clop"), *, every: bool = False) -> Rule:
    return _rule(by_intervals(find, games, every=every), "paper-easy", games, methods)


def _hard(find: Find, games: Sequence[str], methods: Sequence[str] = ()) -> Rule:
    return _rule(by_intervals(find, games), "paper-hard", games, methods)


def _task(decide: Decide, *tasks: str) -> Rule:
    return Rule(decide, " && ".join(sweep_command(f"paper-{task}") for task in tasks))


def _leads(method: str, games: Sequence[str], quantity: str = "test", besides: Sequence[str] = ()) -> Find:
    """A method is above each of the paper's others."""
    others = [other for other in METHODS if other != method and other not in besides]
    return all_of(*(agents(method, other, quantity, games) for other in others))


def _beats(method: str, others: Sequence[str], tasks: Sequence[str], quantity: str = "test") -> Find:
    return all_of(*(vision(method, other, tasks, quantity) for other in others))


def _ablations(games: Sequence[str], tasks: Sequence[str] = ("mnist-usps",)) -> Find:
    return all_of(
        agents("clop", _NO_LOCALITY, games=games),
        agents("clop", _NO_CONSISTENCY, games=games),
        vision("clop", "clop(local=False)", tasks),
        vision("clop", "clop(channel_consistent=False)", tasks),
    )


def _still(agent: str, classifier: str) -> Find:
    return all_of(agents(agent, "ppo", games=_STUDIED), vision(classifier, "plain", ("mnist-usps",)))


_NOT_LOCAL = _still(_NO_LOCALITY, "clop(local=False)")
_NOT_CONSISTENT = _still(_NO_CONSISTENCY, "clop(channel_consistent=False)")
_ANY_ALPHA = all_of(agents("clop(alpha=*", "ppo", games=_STUDIED), vision("clop(alpha=*", "plain", ("mnist-usps",)))
_LARGE_ALPHA = all_of(
    agents("clop(alpha=1)", "ppo", "train", _STUDIED, share=0.5),
    vision("clop(alpha=1.0)", "plain", ("mnist-usps",), "running", share=0.5),
)
_PLACES = all_of(agents("clop", "clop(slot=*", games=_STUDIED), vision("clop", "clop(slot=*", ("mnist-usps", "stl10")))
_CRITIC = agents("clop", "clop(critic=*", games=_STUDIED)
_FOCUSED = all_of(focus(_RANDOM, "ppo"), focus(_RANDOM, "clop(channel_consistent=False)"))
_RETURNS = all_of(agents("clop", "ppo"), agents("clop", _NO_CONSISTENCY))
_LOOK = "clop saliency RUNS --measure looks.json"
_AUGMENT = "clop bench augment --json"
_BENCH = "clop bench methods --json && " + _AUGMENT
_TRAIN = "for m in ppo weight_decay dropout batch_norm; do clop train coinrun --method $m; done"

RULES: Mapping[int, Rule] = {
    25: _easy(
        all_of(*(agents("clop", other) for other in ("mixreg", "rand_fm", "ucb_drac", "rad"))),
        ALL,
        ("clop", "mixreg", "rand_fm", "ucb_drac", "rad"),
    ),
    26: _rule(by_intervals(_PLACES, (*_STUDIED, "mnist-usps", "stl10")), "paper-depth"),
    28: Rule(cheaper_than_pixels, _AUGMENT),
    29: _easy(agents("clop", "ppo", "gap", less=True), ALL),
    30: _rule(
        by_intervals(
            all_of(vision("clop", "dropout*", ("mnist-usps",)), agents("clop", "dropout", games=_HARD, mode="hard")),
            ("mnist-usps", *_HARD),
        ),
        "paper-hard",
        _HARD,
        ("clop", "dropout"),
    ),
    32: _rule(by_intervals(all_of(_NOT_LOCAL, _NOT_CONSISTENT), _STUDIED), "paper-ablation", _STUDIED),
    47: _task(printed_accuracies("mnist-usps", _FOUR), "mnist-usps"),
    48: _task(
        by_intervals(_beats("clop", ("plain", "dropout*", "batch_norm"), ("mnist-usps",)), ["mnist-usps"]), "mnist-usps"
    ),
    49: _task(by_intervals(_beats("plain", ("dropout*", "batch_norm"), ("mnist-usps",)), ["mnist-usps"]), "mnist-usps"),
    50: _task(printed_accuracies("mnist-usps", _FOUR, "running"), "mnist-usps"),
    52: _task(printed_accuracies("imagenette", _FOUR), "imagenette"),
    53: _task(
        by_intervals(_beats("clop", ("plain", "dropout*", "batch_norm"), ("imagenette",)), ["imagenette"]), "imagenette"
    ),
    54: _task(by_intervals(vision("clop", "plain", _TASKS), _TASKS), *_TASKS),
    56: _task(printed_accuracies("imagenet", ("plain", "clop")), "imagenet"),
    62: _task(printed_accuracies("stl10", _FIVE), "stl10"),
    63: _task(printed_accuracies("imagewoof", _FIVE), "imagewoof"),
    64: _task(printed_accuracies("imagenette", _FIVE), "imagenette"),
    65: _task(
        by_intervals(_beats("clop", ("plain", "mixup", "dropout*", "batch_norm"), _SCARCE, "gap"), _SCARCE, every=True),
        *_SCARCE,
    ),
    66: _task(
        by_intervals(vision("plain", "mixup", ("stl10", "imagewoof")), ("stl10", "imagewoof")), "stl10", "imagewoof"
    ),
    67: _task(
        by_intervals(
            fits({"stl10": _FIVE, "imagenette": _FIVE, "imagewoof": ("plain", "clop", "dropout", "batch_norm")}, 99.3),
            _SCARCE,
        ),
        *_SCARCE,
    ),
    68: _task(scarce("mnist-usps"), "mnist-usps", *_SCARCE),
    80: _hard(agents("clop", "rad*", games=_HARD, mode="hard"), _HARD),
    81: _hard(agents("clop", "ppo", games=_HARD, mode="hard"), _HARD, ("ppo", "clop")),
    82: _hard(faster("clop", "ppo", "test", _HARD, "hard"), _HARD, ("ppo", "clop")),
    83: Rule(cost_of_training, "clop bench methods --json"),
    84: _hard(agents("ppo", "rad(aug=cutout*", games=_HARD, mode="hard"), _HARD),
    85: _hard(agents("clop", "dropout", games=_HARD, mode="hard"), _HARD, ("clop", "dropout")),
    88: _easy(_leads("clop", _FIRST), _FIRST, METHODS),
    89: _easy(
        all_of(
            agents("idaac", "clop", games=("bossfight", "climber")),
            agents("ibac_sni", "clop", games=("heist",)),
            _leads("clop", ("bossfight", "climber"), besides=("idaac",)),
            _leads("clop", ("heist",), besides=("ibac_sni",)),
        ),
        ("bossfight", "climber", "heist"),
        METHODS,
    ),
    90: _easy(
        all_of(
            _leads("idaac", ("bossfight", "climber", "coinrun", "plunder")),
            _leads("ibac_sni", ("caveflyer", "heist", "maze", "ninja")),
            _leads("rad", ("jumper",)),
        ),
        _without(ALL, *_FIRST),
        METHODS,
    ),
    91: _easy(_leads("clop", ("dodgeball", "starpilot")), ("dodgeball", "starpilot"), METHODS),
    93: _easy(agents("ppo", "clop", games=_LOSING), _LOSING),
    94: _easy(agents("clop", "ppo", games=("bigfish", "dodgeball", "heist")), ("bigfish", "dodgeball", "heist")),
    95: _easy(_leads("clop", _TOP_IN_TRAINING, "train"), _TOP_IN_TRAINING, METHODS),
    96: _easy(
        all_of(agents("ppo", "clop", "train", ("plunder",)), agents("clop", "ppo", "train", ("bigfish",))),
        ("bigfish", "plunder"),
    ),
    97: _rule(
        by_intervals(all_of(*(over_games(("clop", m), (1, -1)) for m in METHODS if m != "clop")), ("mean",)),
        "paper-easy",
    ),
    98: _easy(_leads("clop", ALL), ALL, METHODS),
    99: _easy(all_of(agents("clop", "ppo", "train"), agents("clop", "ppo")), ALL),
    100: _easy(agents("clop", "ppo", "gap", less=True), ALL, every=True),
    101: _rule(
        around(gap_reduction(mean_reduction, "mean reduction of the gap, %"), 30), "paper-easy", ALL, ("ppo", "clop")
    ),
    102: _rule(
        by_intervals(
            gap_reduction(lead_of_starpilot, "reduction of the gap, %: starpilot − the largest other"), ("gap",)
        ),
        "paper-easy",
        ALL,
        ("ppo", "clop"),
    ),
    103: _easy(
        all_of(
            agents("ppo", "clop", "train", _LOSING), agents("clop", "ppo", "train", _without(ALL, *_LOSING), share=0.8)
        ),
        ALL,
    ),
    104: _easy(
        agents("clop", "ppo", "train", _without(ALL, *_LOSING, *_MUCH), share=0.8), _without(ALL, *_LOSING, *_MUCH)
    ),
    105: _easy(all_of(agents("clop", "ppo", "train", _MUCH), faster("clop", "ppo", "train", _MUCH)), _MUCH),
    106: _easy(
        all_of(agents("ppo", "clop", games=_LOSING), agents("clop", "ppo", games=_without(ALL, *_LOSING), share=0.8)),
        ALL,
    ),
    107: _easy(agents("clop", "ppo", games=_without(ALL, *_LOSING, *_EVEN)), _without(ALL, *_LOSING, *_EVEN)),
    108: _easy(same("clop", "ppo", games=_EVEN), _EVEN, every=True),
    109: _easy(agents("clop", "ppo", "gap", _LOSING, less=True), _LOSING),
    110: _easy(agents("clop", "ppo", "ratio"), ALL, every=True),
    112: _rule(
        around(normalised_lead("idaac", "clop", ("plunder",)), 70.2), "paper-easy", ("plunder",), ("idaac", "clop")
    ),
    113: _easy(normalised_lead("idaac", "clop", _IDAAC_WINS, 15.4), _IDAAC_WINS, ("idaac", "clop")),
    114: _easy(
        normalised_lead("clop", "idaac", _without(ALL, "plunder", *_IDAAC_WINS), 22.9),
        _without(ALL, "plunder", *_IDAAC_WINS),
        ("idaac", "clop"),
    ),
    115: _rule(
        around(over_games(("clop", "idaac"), (1, -1), games=_without(ALL, "plunder")), 3.7),
        "paper-easy",
        ALL,
        ("idaac", "clop"),
    ),
    116: _rule(around(over_games(("clop", "idaac"), (1, -1), "train"), 13.5), "paper-easy", ALL, ("idaac", "clop")),
    117: _easy(
        far_from_the_top(("starpilot", "caveflyer", "dodgeball", "bigfish")),
        ("starpilot", "caveflyer", "dodgeball", "bigfish"),
        METHODS,
        every=True,
    ),
    120: _rule(
        by_intervals(
            all_of(
                *(over_games((a, b), (1, -1)) for a in ("clop", "idaac") for b in METHODS if b not in ("clop", "idaac"))
            ),
            ("mean",),
        ),
        "paper-easy",
    ),
    122: _rule(by_intervals(_LARGE_ALPHA, _STUDIED, every=True), "paper-alpha", _STUDIED),
    123: _rule(
        by_intervals(agents("clop(alpha=1)", "ppo", games=("chaser",)), ("chaser",)), "paper-alpha", ("chaser",)
    ),
    124: _rule(by_intervals(insensitive(_STUDIED, ("mnist-usps",)), _STUDIED, every=True), "paper-alpha", _STUDIED),
    125: _rule(by_intervals(_ANY_ALPHA, _STUDIED, every=True), "paper-alpha", _STUDIED),
    126: _rule(
        by_intervals(all_of(_ANY_ALPHA, insensitive(_STUDIED, ("mnist-usps",))), _STUDIED), "paper-alpha", _STUDIED
    ),
    131: _rule(by_intervals(_ablations(_STUDIED), _STUDIED), "paper-ablation", _STUDIED),
    132: _rule(by_intervals(_NOT_LOCAL, _STUDIED), "paper-ablation", _STUDIED),
    133: _rule(by_intervals(_NOT_CONSISTENT, _STUDIED), "paper-ablation", _STUDIED),
    135: _rule(by_intervals(_ablations(_TREND, ()), _TREND), "paper-ablation", _TREND),
    136: _rule(
        by_intervals(
            all_of(
                *(agents(a, "clop", games=("bossfight", "coinrun", "heist")) for a in (_NO_LOCALITY, _NO_CONSISTENCY))
            ),
            ("bossfight", "coinrun", "heist"),
        ),
        "paper-ablation",
        ("bossfight", "coinrun", "heist"),
    ),
    137: _rule(
        by_intervals(
            all_of(*(agents("ppo", a, games=_LOSING) for a in ("clop", _NO_LOCALITY, _NO_CONSISTENCY))), _LOSING
        ),
        "paper-ablation",
        _LOSING,
    ),
    138: _easy(
        all_of(agents("ibac_sni", "idaac", games=("caveflyer", "ninja")), _leads("idaac", ("plunder",))),
        _LOSING,
        METHODS,
    ),
    140: Rule(by_intervals(focus("clop(local=False)", "clop"), ("looks",)), _LOOK),
    141: Rule(by_intervals(focus(_RANDOM, "clop"), ("looks",)), _LOOK),
    142: Rule(by_intervals(_FOCUSED, ("looks",)), _LOOK),
    143: Rule(both(_FOCUSED, _RETURNS), _LOOK),
    145: _rule(by_intervals(agents("clop", "clop(slot=*", games=_STUDIED), _STUDIED), "paper-depth", _STUDIED),
    147: _rule(
        by_intervals(vision("clop", "clop(slot=*", ("mnist-usps", "stl10")), ("mnist-usps", "stl10")), "paper-depth"
    ),
    148: _rule(by_intervals(_PLACES, (*_STUDIED, "mnist-usps", "stl10")), "paper-depth"),
    151: _rule(
        by_intervals(all_of(_CRITIC, agents("clop", "clop(critic=*", "gap", _STUDIED, less=True)), _STUDIED),
        "paper-critic",
        _STUDIED,
    ),
    152: _rule(by_intervals(_CRITIC, _STUDIED), "paper-critic", _STUDIED),
    156: _rule(
        by_intervals(
            all_of(over_games(("idaac+clop", "idaac"), (1, -0.8)), over_games(("idaac+clop", "idaac"), (-1, 1.2))),
            ("mean",),
        ),
        "paper-idaac",
    ),
    157: _rule(
        by_intervals(agents("idaac+clop", "idaac", games=("bigfish",)), ("bigfish",)), "paper-idaac", ("bigfish",)
    ),
    158: _rule(
        by_intervals(agents("idaac", "idaac+clop", games=("plunder",)), ("plunder",)), "paper-idaac", ("plunder",)
    ),
    159: _rule(
        by_intervals(
            same("idaac+clop", "idaac", games=_without(ALL, "bigfish", "plunder")),
            _without(ALL, "bigfish", "plunder"),
            every=True,
        ),
        "paper-idaac",
    ),
    160: _rule(by_intervals(agents("clop", "idaac+clop", games=_JOINED), _JOINED), "paper-idaac", _JOINED),
    162: Rule(
        by_intervals(agent_sum(("clop", "ppo", "idaac+clop", "idaac"), (1, -1, -1, 1)), ALL),
        "clop sweep run paper-easy --methods ppo,clop && clop sweep run paper-idaac",
    ),
    164: _rule(majority(agents("clop", "ppo", mode="hard"), 9), "paper-hard", ALL, ("ppo", "clop")),
    165: _hard(
        all_of(*(faster("clop", "ppo", split, ALL, "hard") for split in ("train", "test"))), ALL, ("ppo", "clop")
    ),
    167: _rule(majority(agents("clop", "mixreg", mode="hard"), 10), "paper-hard", ALL, ("mixreg", "clop")),
    170: _rule(training_times("jumper", 1.006), "paper-cost", ("jumper",), ("ppo", "clop")),
    171: _rule(training_times("caveflyer", 1.006), "paper-cost", ("caveflyer",), ("ppo", "clop")),
    172: Rule(pass_costs("mnist", {"crop": 2.55, "rotation": 2.74, "cutout": 1.05, "clop": 1.00}), _AUGMENT),
    173: Rule(
        pass_costs("imagenette", {"crop": 1.00, "rotation": 1.30, "cutout": 1.00, "random_conv": 1.02, "clop": 1.00}),
        _AUGMENT,
    ),
    174: Rule(negligible, _BENCH),
    201: Rule(
        by_intervals(
            all_of(*(agents(method, "ppo") for method in ("weight_decay", "dropout", "batch_norm"))), ("coinrun",)
        ),
        _TRAIN,
    ),
}
