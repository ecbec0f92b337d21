import numpy as np
import pytest

from clop.errors import UsageError
from clop.rl.games import DISTRIBUTION_MODES, GAMES, find_game, normalised_return, return_range


def test_the_sixteen_games_are_there_in_alphabetical_order():
    assert len(GAMES) == 16
    assert list(GAMES) == sorted(GAMES)


@pytest.mark.parametrize("mode", DISTRIBUTION_MODES)
@pytest.mark.parametrize("game", GAMES)
def test_the_ends_of_the_range_become_0_and_1(game, mode):
    low, high = return_range(game, mode)
    assert low < high
    assert normalised_return([low, high, (low + high) / 2], game, mode) == pytest.approx([0, 1, 0.5])


def test_returns_outside_the_range_are_not_clipped():
    assert normalised_return(0, "bigfish") == pytest.approx(-1 / 39)
    assert normalised_return(50, "bigfish", "hard") == pytest.approx(1.25)


def test_the_shape_is_kept():
    assert normalised_return(np.zeros((5, 3)), "maze").shape == (5, 3)


@pytest.mark.parametrize(("game", "code"), [("jumper", 1), ("leaper", 1.5)])
def test_jumper_and_leaper_start_at_3_as_in_the_paper_and_not_as_in_the_code(game, code):
    assert return_range(game) == (3, 10)
    assert return_range(game, ranges="openai-code") == (code, 10)
    assert return_range(game, "hard", ranges="openai-code") == return_range(game, "hard")


def test_the_paper_and_the_code_agree_on_all_other_games():
    for game in GAMES.keys() - {"jumper", "leaper"}:
        assert return_range(game, ranges="openai-code") == return_range(game)


def test_hard_ranges_are_those_of_the_procgen_paper():
    assert {name: game.hard for name, game in GAMES.items()} == {
        "bigfish": (0, 40),
        "bossfight": (0.5, 13),
        "caveflyer": (2, 13.4),
        "chaser": (0.5, 14.2),
        "climber": (1, 12.6),
        "coinrun": (5, 10),
        "dodgeball": (1.5, 19),
        "fruitbot": (-0.5, 27.2),
        "heist": (2, 10),
        "jumper": (1, 10),
        "leaper": (1.5, 10),
        "maze": (4, 10),
        "miner": (1.5, 20),
        "ninja": (2, 10),
        "plunder": (3, 30),
        "starpilot": (1.5, 35),
    }


def test_the_best_augmentations_are_those_of_the_drac_paper():
    other_than_crop = {n: game.best_augmentation for n, game in GAMES.items() if game.best_augmentation != "crop"}
    assert other_than_crop == {
        "bossfight": "flip",
        "caveflyer": "rotate",
        "climber": "color_jitter",
        "coinrun": "random_conv",
        "jumper": "random_conv",
        "miner": "color_jitter",
        "ninja": "color_jitter",
    }


def test_time_limits_are_those_of_procgens_source():
    other_than_1000 = {name: game.time_limit for name, game in GAMES.items() if game.time_limit != 1000}
    assert other_than_1000 == {"bigfish": 6000, "bossfight": 4000, "leaper": 500, "maze": 500, "plunder": 4000}


def test_alpha_is_that_of_the_papers_table():
    other_than_03 = {name: game.clop_alpha for name, game in GAMES.items() if game.clop_alpha != 0.3}
    assert other_than_03 == {"bigfish": 0.6, "chaser": 0.8, "dodgeball": 0.6, "leaper": 0.8}


def test_the_papers_returns_become_the_papers_normalised_scores():
    """Test return and normalised score (percent) that the CLOP paper prints for itself, easy.

    Fails if an easy range is mistyped; jumper and leaper fail with the minima of openai/train-procgen.
    """
    printed = {
        "bigfish": (19.2, 46.7),
        "bossfight": (9.7, 73.6),
        "caveflyer": (5.0, 17.6),
        "chaser": (8.7, 65.6),
        "climber": (7.4, 50.9),
        "coinrun": (9.1, 82.0),
        "dodgeball": (7.2, 32.6),
        "fruitbot": (29.8, 92.3),
        "heist": (4.5, 15.4),
        "jumper": (5.6, 37.1),
        "leaper": (9.2, 88.6),
        "maze": (5.9, 18.0),
        "miner": (9.8, 72.2),
        "ninja": (5.8, 35.4),
        "plunder": (5.4, 3.5),
        "starpilot": (40.9, 62.4),
    }
    assert printed.keys() == GAMES.keys()
    for game, (value, score) in printed.items():
        low, high = return_range(game)
        # Both are rounded to one decimal: half a unit of the return, scaled, and half a unit of the score.
        rounding = 100 * 0.05 / (high - low) + 0.05 + 1e-9
        assert 100 * normalised_return(value, game) == pytest.approx(score, abs=rounding), game
    for game in ("jumper", "leaper"):
        value, score = printed[game]
        assert abs(100 * normalised_return(value, game, ranges="openai-code") - score) > 1


def test_a_misspelt_name_is_answered_with_the_right_one():
    with pytest.raises(UsageError, match=r"unknown game 'bigfsh'; did you mean 'bigfish'\?"):
        find_game("bigfsh")
    with pytest.raises(UsageError, match=r"unknown distribution_mode 'esy'; did you mean 'easy'\?"):
        return_range("bigfish", "esy")
    with pytest.raises(UsageError, match=r"unknown ranges 'papr'; did you mean 'paper'\?"):
        return_range("bigfish", ranges="papr")
