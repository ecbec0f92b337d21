"""The law of the drawn permutations, and the stream of random words they are made from.

The oracle is the paper's Figure 1 in plain Python. It asks a ``choose`` for every random decision, so that the same
lines can be walked through with all decisions there are, which gives the exact law on a small map.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from clop.functional import sample_permutation
from clop.kernels import draw as drawing

THRESHOLD = 1e-6
DRAWS = 20_000
ALPHAS = [0.3, 0.7, 1.0]
SMALL = [(2, 2), (1, 3)]


def places(size):
    """All positions, row-major."""
    return list(itertools.product(*map(range, size)))


def uniform(values):
    values = list(values)
    return {value: 1 / len(values) for value in values}


@functools.cache
def neighbours(p, size):
    steps = [(axis, step) for axis in range(len(size)) for step in (-1, 1)]
    moved = [tuple(x + step * (a == axis) for a, x in enumerate(p)) for axis, step in steps]
    return [q for q in moved if all(0 <= x < extent for x, extent in zip(q, size, strict=True))]


def swap(content, p, q):
    content[p], content[q] = content[q], content[p]


def figure_1(size, alpha, choose):
    """Bertoin and Rachelson (2022), Figure 1: where each position's content comes from in the end."""
    content = {p: p for p in places(size)}
    waiting = places(size)
    while waiting:
        p = choose(uniform(waiting))
        waiting.remove(p)
        q = choose(uniform(neighbours(p, size)))
        if choose({True: alpha, False: 1 - alpha}):
            swap(content, p, q)
    return content


def not_local(size, alpha, choose):
    """The paper's ablation: the partner is any other position."""
    content = {p: p for p in places(size)}
    waiting = places(size)
    while waiting:
        p = choose(uniform(waiting))
        waiting.remove(p)
        if choose({True: alpha, False: 1 - alpha}):
            swap(content, p, choose(uniform(q for q in places(size) if q != p)))
    return content


def clamp(size, alpha, choose):
    """Specification §2.3: each direction with alpha / 4, and no swap if it leads outside. For maps (H, W)."""
    content = {p: p for p in places(size)}
    waiting = places(size)
    while waiting:
        p = choose(uniform(waiting))
        waiting.remove(p)
        near = neighbours(p, size)
        q = choose({p: 1 - alpha * len(near) / 4} | dict.fromkeys(near, alpha / 4))
        swap(content, p, q)
    return content


def raster(size, alpha, choose):
    """Specification §2.2: n-1, …, 1, 0, 1, …, n-1; each flat offset with alpha / 8; a swap only if 0 < q < n."""
    n, at = math.prod(size), places(size)
    content = {p: p for p in at}
    for i in [*range(n - 1, -1, -1), *range(1, n)]:
        near = [i + offset for offset in (1, -1, size[-1], -size[-1]) if 0 < i + offset < n]
        j = choose({i: 1 - alpha * len(near) / 8} | dict.fromkeys(near, alpha / 8))
        swap(content, at[i], at[j])
    return content


def visited_with_replacement(size, alpha, choose):
    content = {p: p for p in places(size)}
    for _ in content:
        p = choose(uniform(content))
        if choose({True: alpha, False: 1 - alpha}):
            swap(content, p, choose(uniform(neighbours(p, size))))
    return content


def fixed_order(size, alpha, choose):
    content = {p: p for p in places(size)}
    for p in places(size):
        if choose({True: alpha, False: 1 - alpha}):
            swap(content, p, choose(uniform(neighbours(p, size))))
    return content


def two_sweeps_of_half_alpha(size, alpha, choose):
    content = {p: p for p in places(size)}
    for p in [*reversed(places(size)), *places(size)]:
        near = neighbours(p, size)
        swap(content, p, choose({p: 1 - alpha / 2} | dict.fromkeys(near, alpha / 2 / len(near))))
    return content


class Walk:
    """The choices of one way through a rule: those of ``path``, then the first option of each further decision."""

    def __init__(self, path):
        self.path, self.depth, self.probability, self.others = list(path), 0, 1.0, []

    def choose(self, options):
        options = [(value, probability) for value, probability in options.items() if probability > 1e-12]
        if self.depth == len(self.path):
            self.others += [(*self.path, other) for other in range(1, len(options))]
            self.path.append(0)
        value, probability = options[self.path[self.depth]]
        self.depth += 1
        self.probability *= probability
        return value


@functools.cache
def law(rule: Callable, size: tuple[int, ...], alpha: float) -> Counter:
    """The probability of each permutation, exactly: over all orders, decisions and partners."""
    result, todo = Counter(), [()]
    while todo:
        walk = Walk(todo.pop())
        content = rule(size, alpha, walk.choose)
        todo += walk.others
        result[tuple(int(np.ravel_multi_index(content[p], size)) for p in places(size))] += walk.probability
    return result


def p_value(expected: Counter, drawn: torch.Tensor) -> float:
    """Of the draws under a law, by chi-square; permutations rarer than five in the sample count as one."""
    observed = Counter(map(tuple, drawn.tolist()))
    if not observed.keys() <= expected.keys():
        return 0.0
    rare = {permutation for permutation, probability in expected.items() if probability * len(drawn) < 5}
    common = sorted(expected.keys() - rare)
    counts, probabilities = [observed[p] for p in common], [expected[p] for p in common]
    if rare:
        counts.append(sum(observed[p] for p in rare))
        probabilities.append(sum(expected[p] for p in rare))
    return stats.chisquare(counts, len(drawn) * np.array(probabilities) / sum(probabilities)).pvalue


def draws(size, alpha, **settings):
    return sample_permutation(size, alpha, num=DRAWS, generator=torch.Generator().manual_seed(0), **settings)


def test_the_oracle_swaps_two_positions_with_the_closed_form():
    """Two positions may both swap and two swaps cancel: P(swapped) = 2 alpha (1 - alpha)."""
    assert law(figure_1, (1, 2), 0.3) == pytest.approx({(0, 1): 0.58, (1, 0): 0.42})


@pytest.mark.parametrize("rule", [figure_1, not_local, clamp, raster])
@pytest.mark.parametrize("size", SMALL)
def test_the_laws_of_the_oracle_sum_to_one(rule, size):
    assert sum(law(rule, size, 0.7).values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", SMALL)
@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (figure_1, {}),
        (not_local, {"local": False}),
        (not_local, {"variant": "clamp", "local": False}),
        (clamp, {"variant": "clamp"}),
        (raster, {"variant": "raster"}),
    ],
)
def test_draws_follow_the_exact_law(rule, settings, size, alpha):
    assert p_value(law(rule, size, alpha), draws(size, alpha, **settings)) > THRESHOLD


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("size", SMALL)
@pytest.mark.parametrize("mistake", [clamp, visited_with_replacement, fixed_order, two_sweeps_of_half_alpha, raster])
def test_the_law_of_a_mistake_is_told_from_the_paper_s(mistake, size, alpha):
    """The negative controls: a draw that may leave the map, a position visited twice, an order that is not random, …

    The same assertion as above with the wrong law must fail, or it would not notice the mistake.
    """
    assert p_value(law(mistake, size, alpha), draws(size, alpha)) <= THRESHOLD


@pytest.mark.parametrize(
    ("variant", "rule"),
    [("paper", not_local), ("clamp", raster), ("raster", clamp), ("clamp", figure_1), ("raster", figure_1)],
)
def test_the_variants_are_told_from_each_other(variant, rule):
    assert p_value(law(rule, (2, 2), 0.7), draws((2, 2), 0.7, variant=variant)) <= THRESHOLD


def distances(permutations: torch.Tensor, size: tuple[int, ...]) -> np.ndarray:
    """City-block distance between source and destination of each value, (num, positions)."""
    at = np.array(places(size))
    return np.abs(at[permutations.numpy()] - at).sum(-1)


@pytest.mark.parametrize(
    ("alpha", "variant", "unmoved", "near", "far", "mean", "furthest", "corner"),
    [
        (0.3, "paper", 0.531, 0.394, 0.005, 0.55, 2.3, 0.59),
        (0.3, "clamp", 0.579, 0.360, 0.004, 0.49, 2.2, None),
        (0.3, "raster", 0.584, 0.324, 0.035, 0.69, 6.1, 0.92),
        (0.6, "paper", 0.274, 0.498, 0.033, 0.99, 3.1, None),
        (0.6, "clamp", 0.328, 0.482, 0.026, 0.89, 3.0, None),
        (0.6, "raster", 0.363, 0.407, 0.084, 1.21, 7.7, None),
        (0.8, "paper", 0.184, 0.481, 0.068, 1.23, 3.5, 0.26),
        (0.8, "clamp", 0.228, 0.486, 0.052, 1.12, 3.3, None),
        (0.8, "raster", 0.278, 0.404, 0.125, 1.49, 8.2, 0.79),
        (1.0, "paper", 0.137, 0.430, 0.111, 1.43, 3.8, 0.21),
        (1.0, "clamp", 0.167, 0.456, 0.088, 1.31, 3.7, None),
        (1.0, "raster", 0.227, 0.377, 0.164, 1.71, 8.4, 0.75),
    ],
)
def test_statistics_on_8x8_are_those_that_other_code_found(alpha, variant, unmoved, near, far, mean, furthest, corner):
    """Found with plain Python, written from the paper alone. The three variants differ by more than the tolerances."""
    drawn = draws((8, 8), alpha, variant=variant)
    moved = distances(drawn, (8, 8))
    fractions = [np.mean(moved == 0), np.mean(moved == 1), np.mean(moved >= 3)]
    assert fractions == pytest.approx([unmoved, near, far], abs=0.015)
    assert moved.mean() == pytest.approx(mean, abs=0.05)
    assert moved.max(1).mean() == pytest.approx(furthest, abs=0.2)
    if corner is not None:
        assert np.mean(moved[:, 0] == 0) == pytest.approx(corner, abs=0.015)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0])
def test_raster_leaves_position_0_with_probability_alpha_over_4(alpha):
    """It is a source once and a target never. Fails if 0 may be a target (0 <= q), or is visited twice."""
    left = (draws((8, 8), alpha, variant="raster")[:, 0] != 0).sum().item()
    assert stats.binomtest(left, DRAWS, alpha / 4).pvalue > THRESHOLD


def single_swaps(size, variant="paper", local=True):
    """The transpositions among many draws with hardly any swap: what one swap can do."""
    generator = torch.Generator().manual_seed(0)
    drawn = sample_permutation(size, 1e-4, num=200_000, variant=variant, local=local, generator=generator)
    moved = drawn != torch.arange(drawn.shape[1])
    return {tuple(row.nonzero().flatten().tolist()) for row in moved[moved.sum(1) == 2]}


@pytest.mark.parametrize("size", [(1, 7), (7,), (5, 3), (3, 1), (2, 3, 2)])
def test_one_swap_of_the_paper_exchanges_direct_neighbours_and_any_two_of_them(size):
    """Fails for neighbours across a row's end, or unflattened with the number of rows instead of columns."""
    pairs = {frozenset((p, q)) for p in places(size) for q in neighbours(p, size)}
    at = places(size)
    assert {frozenset((at[i], at[j])) for i, j in single_swaps(size)} == pairs


def test_one_swap_of_raster_wraps_from_a_row_s_end_to_the_next_row_s_start():
    swaps = single_swaps((4, 3), "raster")
    assert {(2, 3), (5, 6), (8, 9)} <= swaps
    assert not {(2, 3), (5, 6), (8, 9)} & single_swaps((4, 3), "clamp")
    assert {j - i for i, j in swaps} == {1, 3}


def test_one_swap_without_locality_exchanges_any_two_positions():
    assert single_swaps((3, 2), local=False) == set(itertools.combinations(range(6), 2))


def test_without_locality_values_travel_as_far_as_between_two_random_positions():
    """At alpha 1; the mean city-block distance of two different random positions of an 8x8 map is 16 / 3."""
    uniform_distance = np.mean([np.abs(np.subtract(p, q)).sum() for p, q in itertools.permutations(places((8, 8)), 2)])
    assert uniform_distance == pytest.approx(16 / 3)
    assert distances(draws((8, 8), 1.0, local=False), (8, 8)).mean() == pytest.approx(uniform_distance, rel=0.05)
    assert distances(draws((8, 8), 1.0), (8, 8)).mean() < uniform_distance / 3


def test_permutations_of_one_draw_are_independent():
    """Two that follow each other have the product law. Fails when permutations of one call share random words."""
    drawn = draws((1, 3), 0.7)
    single = law(figure_1, (1, 3), 0.7)
    pairs = Counter({(*a, *b): single[a] * single[b] for a in single for b in single})
    assert p_value(pairs, drawn.view(-1, 6)) > THRESHOLD


def splitmix64(seed: int, size, num, alpha, variant="paper", local=True):
    """The documented stream in Python's own integers, an independent second implementation of ``drawing.draw``."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    n, at = math.prod(size), places(size)
    strides = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    for i in range(num):
        key = mix((seed + (i + 1) * golden) & mask)
        words = (mix((key + j * golden) & mask) for j in itertools.count(1))

        def below(bound, words=words):
            return next(w * bound >> 32 for w in (word >> 32 for word in words) if w * bound % 2**32 >= 2**32 % bound)

        index, waiting = list(range(n)), list(range(n))
        for p in [*range(n - 1, -1, -1), *range(1, n)] if variant == "raster" else [None] * n:
            if p is None:
                ahead = below(len(waiting))
                p, waiting[ahead] = waiting[ahead], waiting[0]
                waiting.pop(0)
            if (next(words) >> 11) / 2**53 >= (alpha / 2 if variant == "raster" else alpha):
                continue
            steps = [(axis, step) for axis in reversed(range(len(size))) for step in (-1, 1)]
            flat = [p + step * strides[axis] for axis, step in steps]
            inside = [0 <= at[p][axis] + step < size[axis] for axis, step in steps]
            if not local:
                partners = [q for q in range(n) if q != p]
            elif variant == "paper":
                partners = [q for q, ok in zip(flat, inside, strict=True) if ok]
            elif variant == "clamp":
                partners = [q if ok else p for q, ok in zip(flat, inside, strict=True)]
            else:
                partners = [q if 0 < q < n else p for q in flat]
            if partners:
                swap(index, p, partners[below(len(partners))])
        yield index


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("variant", ["paper", "raster", "clamp"])
@pytest.mark.parametrize("size", [(1,), (7,), (1, 1), (1, 7), (5, 3), (2, 3, 4)])
def test_drawing_reads_the_documented_stream(size, variant, local):
    for seed in [0, 1, -1, 2**63 - 1, -(2**63), 0x0123456789ABCDEF]:
        expected = list(splitmix64(seed, size, 3, 0.6, variant, local))
        assert drawing.draw(seed, size, (3,), 0.6, variant, local).tolist() == expected


@pytest.mark.parametrize(
    ("seed", "size", "alpha", "variant", "local", "permutation"),
    [
        (0, (2, 3), 0.5, "paper", True, [3, 1, 5, 4, 0, 2]),
        (1, (7,), 0.8, "paper", True, [0, 1, 2, 5, 6, 3, 4]),
        (
            -1,
            (2, 3, 4),
            0.5,
            "paper",
            True,
            [0, 13, 3, 2, 4, 9, 6, 19, 8, 5, 23, 11, 16, 15, 17, 14, 12, 1, 18, 7, 21, 20, 22, 10],
        ),
        (2, (2, 3), 1.0, "raster", True, [0, 2, 1, 3, 5, 4]),
        (3, (2, 3), 1.0, "clamp", True, [4, 0, 2, 3, 1, 5]),
        (4, (7,), 0.5, "paper", False, [0, 1, 3, 2, 4, 5, 6]),
        (
            20220406,
            (8, 8),
            0.5,
            "paper",
            True,
            [
                0,
                1,
                2,
                3,
                5,
                12,
                6,
                15,
                17,
                9,
                10,
                19,
                4,
                13,
                23,
                7,
                8,
                24,
                27,
                11,
                20,
                21,
                22,
                14,
                25,
                16,
                18,
                28,
                29,
                26,
                30,
                31,
                32,
                33,
                34,
                35,
                36,
                37,
                46,
                38,
                48,
                49,
                41,
                43,
                44,
                45,
                39,
                47,
                56,
                42,
                52,
                50,
                51,
                62,
                54,
                55,
                40,
                57,
                59,
                58,
                60,
                53,
                61,
                63,
            ],
        ),
        (
            9223372036854775807,
            (8, 8),
            0.5,
            "raster",
            True,
            [
                0,
                1,
                10,
                11,
                4,
                5,
                6,
                7,
                15,
                9,
                19,
                3,
                21,
                14,
                13,
                16,
                8,
                23,
                2,
                18,
                12,
                20,
                22,
                31,
                17,
                25,
                26,
                27,
                28,
                29,
                30,
                24,
                32,
                33,
                34,
                43,
                35,
                37,
                46,
                39,
                49,
                40,
                42,
                44,
                36,
                53,
                47,
                38,
                48,
                41,
                50,
                51,
                45,
                52,
                62,
                56,
                55,
                57,
                59,
                58,
                61,
                60,
                54,
                63,
            ],
        ),
    ],
)
def test_a_seed_means_the_same_permutation_for_ever(seed, size, alpha, variant, local, permutation):
    """Committed vectors; a change here changes every result obtained with a seed so far."""
    assert drawing.draw(seed, size, (1,), alpha, variant, local).tolist() == [permutation]


def test_more_permutations_of_a_seed_start_with_the_same_ones():
    assert (
        drawing.draw(7, (5, 3), (9,), 0.5, "paper", True)[:4].tolist()
        == drawing.draw(7, (5, 3), (4,), 0.5, "paper", True).tolist()
    )
