"""How concentrated maps are, over networks and in words."""

import pytest

from clop.errors import UsageError
from clop.experiments.record import RunRecord
from clop.report.saliency import groups, table


def record(*means, kind="saliency"):
    networks = [
        {
            "label": "clop",
            "seed": seed,
            "run": "",
            "empty": 0.25,
            "entropy": interval(mean),
            "half_mass": interval(mean),
        }
        for seed, mean in enumerate(means)
    ]
    metrics = {"frames": 1000, "levels": 40, "source": "bigfish", "networks": networks}
    return RunRecord(kind, {"target": "logit"}, metrics, "complete", "", None, "", 0.0, {})


def interval(mean):
    return {"mean": mean, "low": None if mean is None else mean - 0.1, "high": None if mean is None else mean + 0.1}


def test_intervals_are_over_networks_from_three_on_and_over_levels_of_one():
    """Fails if the levels' interval of one network is passed off as one over seeds."""
    (group,) = groups(record(0.1, 0.2, 0.3))
    found = group.estimate("entropy")
    assert (found.value, found.high) == pytest.approx((0.2, 0.2 + 0.1 * 4.30265 / 3**0.5), abs=1e-5)
    assert groups(record(0.1, 0.2))[0].estimate("entropy").low is None
    assert groups(record(0.5))[0].estimate("entropy").high == pytest.approx(0.6)


def test_networks_whose_maps_are_all_empty_are_left_out_and_counted():
    (group,) = groups(record(0.1, None))
    assert group.estimate("entropy").value == 0.1
    assert group.empty == 0.25
    assert "n/a" in table(record(None))


def test_another_record_is_refused():
    with pytest.raises(UsageError, match="expected a record of kind 'saliency', got 'bench layer'"):
        groups(record(0.1, kind="bench layer"))
