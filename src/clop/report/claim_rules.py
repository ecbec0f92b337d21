"""Which records decide which claim: a rule or a test for each claim that has one, by its number."""

from collections.abc import Mapping, Sequence
from typing import Any

from clop.report.claim_kinds import (
    Find,
    agents,
    all_of,
    best_of,
    cost_of_training,
    negligible,
    pass_costs,
    printed_accuracies,
    rule,
    same,
    scarce,
    vision,
)
from clop.report.claims import Rule
from clop.report.paper_agents import METHODS
from clop.rl.games import GAMES

_LOSING = ("caveflyer", "ninja", "plunder")
_EVEN = ("coinrun", "jumper")
_WINNING = tuple(game for game in GAMES if game not in (*_LOSING, *_EVEN))
_STUDIED = ("bigfish", "dodgeball", "chaser")
_TREND = ("bigfish", "chaser", "climber", "dodgeball", "fruitbot", "jumper", "leaper", "maze", "miner", "starpilot")
_DEEPER = all_of(vision("clop", "clop(slot=*", ("mnist-usps", "stl10")))
_EARLIER = agents("clop", "clop(slot=*", "test", _STUDIED)
_TASKS = ("mnist-usps", "imagenette", "stl10", "imagewoof")
_SCARCE = ("stl10", "imagewoof", "imagenette")


def _ablations(games: Sequence[str]) -> Find:
    return all_of(
        agents("clop", "clop(local=false)", "test", games),
        agents("clop", "clop(channel_consistent=false)", "test", games),
        vision("clop", "clop(local=False)", ("mnist-usps",)),
        vision("clop", "clop(channel_consistent=False)", ("mnist-usps",)),
    )


def _mine(method: str, base: str, games: Sequence[str] = tuple(GAMES), quantity: str = "test", **more: Any) -> Find:
    return agents(method, base, quantity, games, **more)


_OTHERS = ("plain", "dropout*", "batch_norm")

RULES: Mapping[int, Rule] = {
    47: printed_accuracies("mnist-usps", ("plain", "dropout", "batch_norm", "clop")),
    48: rule(
        all_of(*(vision("clop", m, ("mnist-usps",)) for m in ("plain", "dropout*", "batch_norm"))), ["mnist-usps"]
    ),
    49: rule(all_of(*(vision("plain", m, ("mnist-usps",)) for m in ("dropout*", "batch_norm"))), ["mnist-usps"]),
    52: printed_accuracies("imagenette", ("plain", "dropout", "batch_norm", "clop")),
    53: rule(
        all_of(*(vision("clop", m, ("imagenette",)) for m in ("plain", "dropout*", "batch_norm"))), ["imagenette"]
    ),
    54: rule(vision("clop", "plain", _TASKS), _TASKS),
    62: printed_accuracies("stl10", ("plain", "clop", "mixup", "dropout", "batch_norm")),
    63: printed_accuracies("imagewoof", ("plain", "clop", "mixup", "dropout", "batch_norm")),
    64: printed_accuracies("imagenette", ("plain", "clop", "mixup", "dropout", "batch_norm")),
    65: rule(
        all_of(*(vision("clop", m, _SCARCE, "gap") for m in ("plain", "mixup", "dropout*", "batch_norm"))),
        _SCARCE,
        every=True,
    ),
    66: rule(vision("plain", "mixup", ("stl10", "imagewoof")), ("stl10", "imagewoof")),
    68: scarce("mnist-usps"),
    80: rule(
        all_of(*(_mine("clop", m, ("miner", "chaser", "dodgeball"), mode="hard") for m in ("rad", "dropout"))),
        ("miner", "chaser", "dodgeball"),
    ),
    81: rule(_mine("clop", "ppo", ("miner", "chaser", "dodgeball"), mode="hard"), ("miner", "chaser", "dodgeball")),
    83: cost_of_training,
    85: rule(_mine("clop", "dropout", ("miner", "chaser", "dodgeball"), mode="hard"), ("miner", "chaser", "dodgeball")),
    88: best_of(("bigfish", "chaser", "dodgeball", "fruitbot", "leaper", "miner", "starpilot")),
    93: rule(_mine("ppo", "clop", _LOSING), _LOSING),
    94: rule(_mine("clop", "ppo", ("bigfish", "dodgeball", "heist")), ("bigfish", "dodgeball", "heist")),
    98: rule(all_of(*(_mine("clop", m) for m in METHODS if m != "clop")), tuple(GAMES)),
    100: rule(_mine("clop", "ppo", quantity="gap", sign=-1), tuple(GAMES), every=True),
    105: rule(_mine("clop", "ppo", ("bigfish", "chaser", "leaper"), "train"), ("bigfish", "chaser", "leaper")),
    106: rule(_mine("ppo", "clop", _LOSING), _LOSING),
    107: rule(_mine("clop", "ppo", _WINNING), _WINNING),
    108: same(_EVEN),
    109: rule(_mine("clop", "ppo", _LOSING, "gap", sign=-1), _LOSING),
    110: rule(_mine("clop", "ppo", quantity="ratio"), tuple(GAMES), every=True),
    123: rule(_mine("clop(alpha=1)", "ppo", ("chaser",)), ("chaser",)),
    125: rule(
        all_of(_mine("clop(alpha=*", "ppo", _STUDIED), vision("clop(alpha=*", "plain", ("mnist-usps",))),
        _STUDIED,
        every=True,
    ),
    131: rule(_ablations(_STUDIED), _STUDIED),
    132: rule(
        all_of(_mine("clop(local=false)", "ppo", _STUDIED), vision("clop(local=False)", "plain", ("mnist-usps",))),
        _STUDIED,
    ),
    133: rule(
        all_of(
            _mine("clop(channel_consistent=false)", "ppo", _STUDIED),
            vision("clop(channel_consistent=False)", "plain", ("mnist-usps",)),
        ),
        _STUDIED,
    ),
    135: rule(_ablations(_TREND), _TREND),
    145: rule(_EARLIER, _STUDIED),
    147: rule(_DEEPER, ("mnist-usps", "stl10")),
    152: rule(_mine("clop", "clop(critic=*", _STUDIED), _STUDIED),
    157: rule(_mine("idaac+clop", "idaac", ("bigfish",)), ("bigfish",)),
    158: rule(_mine("idaac", "idaac+clop", ("plunder",)), ("plunder",)),
    160: rule(
        _mine("clop", "idaac+clop", ("chaser", "dodgeball", "fruitbot", "heist", "leaper", "starpilot")),
        ("chaser", "dodgeball", "fruitbot", "heist", "leaper", "starpilot"),
    ),
    164: rule(_mine("clop", "ppo", mode="hard"), tuple(GAMES)),
    167: rule(_mine("clop", "mixreg", mode="hard"), tuple(GAMES)),
    172: pass_costs("mnist", {"crop": 2.55, "rotation": 2.74, "cutout": 1.05, "clop": 1.00}),
    173: pass_costs("imagenette", {"crop": 1.00, "rotation": 1.30, "cutout": 1.00, "random_conv": 1.02, "clop": 1.00}),
    174: negligible,
}

_F, _L, _D = "tests/test_functional.py::", "tests/test_layer.py::", "tests/kernels/test_draw.py::"
_N, _M, _G = "tests/rl/test_network.py::", "tests/rl/methods/test_layers.py::", "tests/rl/test_games.py::"
_VM, _VT, _K = "tests/vision/test_models.py::", "tests/vision/test_tasks.py::", "tests/vision/test_methods.py::"
TESTS: Mapping[int, str] = {
    1: _L + "test_the_layer_is_the_function",
    2: _L + "test_evaluation_returns_the_very_tensor",
    3: _L + "test_evaluation_returns_the_very_tensor",
    4: _F + "test_the_same_seed_gives_the_same_permutation_and_the_next_call_another",
    5: _D + "test_draws_follow_the_exact_law",
    6: _D + "test_draws_follow_the_exact_law",
    7: _D + "test_the_oracle_swaps_two_positions_with_the_closed_form",
    8: _D + "test_draws_follow_the_exact_law",
    9: _F + "test_maps_move_by_the_permutation_drawn_and_the_same_in_all_samples_and_channels",
    10: _F + "test_maps_move_by_the_permutation_drawn_and_the_same_in_all_samples_and_channels",
    11: _F + "test_a_draw_is_a_permutation_of_every_size",
    12: _D + "test_one_swap_of_the_paper_exchanges_direct_neighbours_and_any_two_of_them",
    15: _F + "test_evaluation_and_alpha_0_return_the_very_tensor_and_use_no_randomness",
    16: "tests/test_picture.py::test_disorder_grows_with_alpha",
    19: _K + "test_clop_comes_after_the_last_stage_with_the_papers_alpha",
    20: _M + "test_clop_goes_where_it_is_told",
    42: _G + "test_the_papers_returns_become_the_papers_normalised_scores",
    69: _G + "test_the_sixteen_games_are_there_in_alphabetical_order",
    71: "tests/rl/test_config.py::test_presets_are_the_published_settings",
    72: _N + "test_the_whole_is_the_network_of_the_papers",
    73: _N + "test_the_value_is_the_same_bits_with_clop_before_the_policy_and_without",
    127: _G + "test_alpha_is_that_of_the_papers_table",
    129: _D + "test_without_locality_values_travel_as_far_as_between_two_random_positions",
    130: "tests/test_picture.py::test_every_tile_with_channels_kept_together_holds_the_colours_of_the_image",
    175: _VM + "test_the_small_cnn_is_the_papers",
    176: _VM + "test_the_small_cnn_is_the_papers",
    178: _VT + "test_the_protocols_are_the_papers",
    182: _K + "test_clop_comes_after_the_last_stage_with_the_papers_alpha",
    184: _VT + "test_the_protocols_are_the_papers",
    186: _N + "test_parameter_counts_are_those_of_the_published_agents",
}
"""Tests that hold our code to a definition or a setting of the paper."""
