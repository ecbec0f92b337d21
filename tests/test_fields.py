"""Fields of dataclasses as people write them."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import pytest

from clop.errors import UsageError
from clop.fields import checked, parse_call, split_outside_brackets
from clop.rl.config import TrainConfig
from clop.rl.methods import METHODS, parse
from clop.rl.settings import NetworkConfig, PPOConfig


@dataclass(frozen=True)
class Sample:
    count: int = 1
    share: float = 0.5
    name: str = "a"
    active: bool = False
    kind: Literal["wide", "narrow"] = "wide"
    maybe: float | None = None
    maybe_kind: Literal["wide", "narrow"] | None = None
    parts: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


# ---- checked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ("count", 3, 3),
        ("count", 3.0, 3),  # as 5e5 is read
        ("share", 1, 1.0),
        ("share", 0.25, 0.25),
        ("name", "b", "b"),
        ("active", True, True),
        ("kind", "narrow", "narrow"),
        ("maybe", None, None),
        ("maybe", 2, 2.0),
        ("maybe_kind", None, None),
        ("maybe_kind", "narrow", "narrow"),
        ("parts", ["x", "y"], ("x", "y")),
        ("parts", (), ()),
        ("sizes", [1.0, 2], (1, 2)),
    ],
)
def test_a_value_becomes_one_of_the_declared_type(field, given, expected):
    result = checked(Sample, {field: given})
    assert result == {field: expected}
    assert type(result[field]) is type(expected)
    assert getattr(Sample(**result), field) == expected


@pytest.mark.parametrize(
    ("field", "given", "sentence"),
    [
        ("cuont", 3, r"unknown setting 'cuont'; did you mean 'count'\?"),
        ("other", 3, r"unknown setting 'other'; expected one of count, share, name"),
        ("count", 2.5, r"count: expected an integer, got 2\.5"),
        ("count", "3", "count: expected an integer, got '3'"),
        ("count", True, "count: expected an integer, got True"),
        ("count", None, "count: expected an integer, got None"),
        ("share", "much", "share: expected a number, got 'much'"),
        ("share", False, "share: expected a number, got False"),
        ("name", 3, "name: expected a name, got 3"),
        ("active", 1, "active: expected true or false, got 1"),
        ("active", "yes", "active: expected true or false, got 'yes'"),
        ("kind", "wid", r"unknown kind 'wid'; did you mean 'wide'\?"),
        ("kind", None, "unknown kind None; expected one of wide, narrow"),
        ("maybe", "none", "maybe: expected a number, got 'none'"),
        ("maybe_kind", "wid", r"unknown maybe_kind 'wid'; did you mean 'wide'\?"),
        ("parts", "xy", "parts: expected a list, got 'xy'"),
        ("parts", ["x", 3], "parts: expected a name, got 3"),
    ],
)
def test_a_name_or_value_that_is_none_is_refused(field, given, sentence):
    """A misspelt choice that may also be None was once let through."""
    with pytest.raises(UsageError, match=f"^{sentence}"):
        checked(Sample, {field: given})


def test_messages_have_the_name_of_the_group():
    with pytest.raises(UsageError, match=r"^unknown setting 'box\.cuont'; did you mean 'box\.count'\?$"):
        checked(Sample, {"cuont": 3}, "box")
    with pytest.raises(UsageError, match=r"^box\.count: expected an integer, got 'x'$"):
        checked(Sample, {"count": "x"}, "box")
    with pytest.raises(UsageError, match=r"^unknown box\.kind 'x'"):
        checked(Sample, {"kind": "x"}, "box")


@pytest.mark.parametrize(
    "default",
    [TrainConfig("maze"), PPOConfig(), NetworkConfig(), *(config() for config in METHODS.values())],
    ids=lambda config: type(config).__name__,
)
def test_every_config_accepts_its_own_defaults(default):
    values = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    assert checked(type(default), values) == values


# ---- parse_call ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("clop", "clop", {}),
        (" clop ", "clop", {}),
        ("clop()", "clop", {}),
        ("clop(alpha=0.3)", "clop", {"alpha": 0.3}),
        (" clop ( alpha = 0.3 , per_sample = true ,) ", "clop", {"alpha": 0.3, "per_sample": True}),
        ("a(x=1, y=-2.5, z=1e-3)", "a", {"x": 1, "y": -2.5, "z": 1e-3}),
        ("a(x=True, y=FALSE, z=none, w=None)", "a", {"x": True, "y": False, "z": None, "w": None}),
        ("rad(aug=color_jitter)", "rad", {"aug": "color_jitter"}),
        ("rad(aug='crop', where=collect-step)", "rad", {"aug": "crop", "where": "collect-step"}),
        ("a(x=)", "a", {"x": ""}),
    ],
)
def test_a_call_is_a_name_and_its_settings(text, name, settings):
    found = parse_call(text)
    assert found == (name, settings)
    assert [type(value) for value in found[1].values()] == [type(value) for value in settings.values()]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("clop(alpha=0.3", r"'clop\(alpha=0\.3' lacks its closing bracket; write for example clop\(alpha=0\.3\)"),
        ("clop(", "lacks its closing bracket"),
        ("clop(0.3)", r"'0\.3' in 'clop\(0\.3\)' is no setting; write for example clop\(alpha=0\.3\)"),
        ("clop(alpha=0.3 per_sample)+", "lacks its closing bracket"),
        ("clop(alpha=0.3, alpha=0.4)", "alpha is set twice in 'clop"),
    ],
)
def test_what_is_no_call_is_refused(text, sentence):
    with pytest.raises(UsageError, match=sentence):
        parse_call(text)


# ---- split_outside_brackets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("", [""]),
        ("a+b+c", ["a", "b", "c"]),
        ("a(x=1e+3)+b", ["a(x=1e+3)", "b"]),
        ("a((+)+)+b(+)", ["a((+)+)", "b(+)"]),
        ("a+", ["a", ""]),
        ("a(x+b", ["a(x+b"]),
    ],
)
def test_separators_inside_brackets_do_not_split(text, parts):
    assert split_outside_brackets(text, "+") == parts


def test_methods_are_read_with_their_settings():
    """The three together: a plus sign in a number is not the one between two methods."""
    found = parse("weight_decay(coef=1e+0)+clop(alpha=0.3, per_sample=true)")
    assert list(found) == ["weight_decay", "clop"]
    assert (found["clop"].alpha, found["clop"].per_sample) == (0.3, True)
    assert found["weight_decay"] == METHODS["weight_decay"](coef=1.0)
