"""Claims that no records decide: those that a test of this repository holds, and those that no run could decide."""

from collections.abc import Mapping

_F, _L, _D = "tests/test_functional.py::", "tests/test_layer.py::", "tests/kernels/test_draw.py::"
_N, _M, _G = "tests/rl/test_network.py::", "tests/rl/methods/test_layers.py::", "tests/rl/test_games.py::"
_VM, _VT, _K = "tests/vision/test_models.py::", "tests/vision/test_tasks.py::", "tests/vision/test_methods.py::"
_O, _E = "tests/report/test_outcomes.py::", "tests/rl/test_evaluate.py::"
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
    13: _D + "test_statistics_on_8x8_are_those_that_other_code_found",
    14: _D + "test_without_locality_values_travel_as_far_as_between_two_random_positions",
    15: _F + "test_evaluation_and_alpha_0_return_the_very_tensor_and_use_no_randomness",
    16: "tests/test_picture.py::test_disorder_grows_with_alpha",
    18: "tests/test_insertion.py::test_the_layer_lands_after_the_deepest_map",
    19: _K + "test_clop_comes_after_the_last_stage_with_the_papers_alpha",
    20: _M + "test_clop_goes_where_it_is_told",
    31: _D + "test_without_locality_values_travel_as_far_as_between_two_random_positions",
    38: _O + "test_gaps_of_all_three_kinds",
    39: _O + "test_gaps_of_all_three_kinds",
    40: _O + "test_gaps_of_all_three_kinds",
    42: _G + "test_the_papers_returns_become_the_papers_normalised_scores",
    43: _VT + "test_mnist_is_trained_on_and_usps_tested",
    45: _K + "test_dropout_has_both_readings",
    51: _VT + "test_the_protocols_are_the_papers",
    55: _VT + "test_the_protocols_are_the_papers",
    69: _G + "test_the_sixteen_games_are_there_in_alphabetical_order",
    71: "tests/rl/test_config.py::test_presets_are_the_published_settings",
    72: _N + "test_the_whole_is_the_network_of_the_papers",
    73: _N + "test_the_value_is_the_same_bits_with_clop_before_the_policy_and_without",
    74: _E + "test_levels_are_those_of_the_paper",
    75: _E + "test_levels_are_those_of_the_paper",
    87: "tests/experiments/sweep/test_named.py::test_the_sizes_are_those_of_the_paper",
    127: _G + "test_alpha_is_that_of_the_papers_table",
    129: _D + "test_without_locality_values_travel_as_far_as_between_two_random_positions",
    130: "tests/test_picture.py::test_every_tile_with_channels_kept_together_holds_the_colours_of_the_image",
    150: _M + "test_whom_the_permutation_reaches",
    155: "tests/rl/methods/test_idaac.py::test_with_clop_the_two_frames_have_permutations_of_their_own",
    175: _VM + "test_the_small_cnn_is_the_papers",
    176: _VM + "test_the_small_cnn_is_the_papers",
    177: _VM + "test_batch_norm_follows_the_relu_in_the_small_cnn_and_comes_before_it_in_vggs",
    178: _VT + "test_the_protocols_are_the_papers",
    179: _VM + "test_vggs_have_as_many_parameters_as_torchvisions",
    180: _VM + "test_vgg9_is_vgg11_without_its_last_stage_with_batch_norm_too",
    181: _VM + "test_vggs_have_as_many_parameters_as_torchvisions",
    182: _K + "test_clop_comes_after_the_last_stage_with_the_papers_alpha",
    183: "tests/vision/test_train.py::test_half_of_the_images_are_mirrored_where_the_protocol_says_so",
    184: _VT + "test_the_protocols_are_the_papers",
    186: _N + "test_parameter_counts_are_those_of_the_published_agents",
    195: "tests/rl/methods/test_mixreg.py::test_the_mixture_by_hand",
    196: "tests/rl/methods/test_rand_fm.py::test_a_filter_is_a_convolution_with_zeros_around",
    197: "tests/rl/methods/test_rad.py::test_collect_changes_each_env_alike_for_a_rollout_and_otherwise_in_the_next",
    198: "tests/rl/methods/test_ibac_sni.py::test_the_loss_is_the_weighted_sum_of_both_views_and_the_information",
    199: "tests/rl/methods/test_idaac.py::test_the_policys_term_goes_through_the_updated_classifier_and_both_frames",
    200: _K + "test_mixup_mixes_what_the_network_sees",
    211: _N + "test_the_value_is_the_same_bits_with_clop_before_the_policy_and_without",
}
"""Tests that hold our code to a definition or a setting of the paper."""

_ARGUMENT = "an argument or a conjecture: no run decides it"
_DEFINITION = "a definition: nothing to measure"
_ACCOUNT = "says what the paper did, used or cites: nothing to measure"
_NAMES = "a list of names: nothing to measure"
_DRAWN = "says what the paper shows; ours: `clop report RUNS --what figure{}`"
_REASONS: Mapping[str, tuple[int, ...]] = {
    _ARGUMENT: (22, 23, 24, 27, 33, 41, 46, 58, 92, 119, 149, 153, 154, 161, 169),
    _DEFINITION: (17, 34, 35, 36, 37),
    _ACCOUNT: (44, 57, 61, 76, 77, 78, 86, 166, 168, 185, *range(187, 195), 202),
    _NAMES: tuple(range(217, 227)),
    "of its data, which we read as they are": (59, 60, 70),
    "of complexity: no benchmark of ours varies channels; ours draws in O(H′W′) and moves every channel": (21,),
    "needs people to look; `clop picture` draws it": (128,),
    "a drawing; ours: `clop picture`": (203, 204, 208),
    "a picture of levels; ours: `clop watch`": (144, 205),
    "a picture; ours: `clop saliency RUNS --out looks.png`": (139, 210),
    _DRAWN.format(4): (79, 206),
    _DRAWN.format(5): (121, 207),
    _DRAWN.format(7): (209,),
    _DRAWN.format(10): (111, 212),
    _DRAWN.format(11): (118, 213),
    _DRAWN.format(12): (163, 214),
    _DRAWN.format(13): (134, 215),
    _DRAWN.format(14): (146, 216),
}
BEYOND: Mapping[int, str] = {number: reason for reason, numbers in _REASONS.items() for number in numbers}
"""Why no run could decide a claim."""
