"""Specifications: values by name and back, defaults, and refused numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

import pytest

from s2e import methods, specs
from s2e.errors import InvalidInput
from s2e.specs import (
    CompareOptions,
    DataSpec,
    SamplersOptions,
    SearchOptions,
    SearchSpec,
    SpacesOptions,
    TableOptions,
    TrainingSpec,
    TrainOptions,
    assemble,
    convert_options,
    flatten,
    leaves,
    parse_named_options,
    short_time,
    to_boolean,
    to_number,
    to_seconds,
)

OPTIONS = [SearchOptions, TrainOptions, CompareOptions, SpacesOptions, SamplersOptions, TableOptions]


def test_assemble_inverts_flatten() -> None:
    for options in OPTIONS:
        training = type(options().training)("mlp", epochs=3, batch_size=7, learning_rate=0.25)
        given = replace(options(), training=training, seed=9)
        assert assemble(options, flatten(given)) == given
        assert assemble(options, json.loads(json.dumps(flatten(given)))) == given  # lists become tuples


def test_names_are_unique_across_nested_specs() -> None:
    for options in OPTIONS:
        names = [leaf.name for leaf, _ in leaves(options)]
        assert max(Counter(names).values()) == 1
        assert set(names) == flatten(options()).keys()
        assert getattr(options, "MUTABLE_ON_RESUME", frozenset()) <= set(names)


def test_leaves_have_the_defaults_and_a_help_text() -> None:
    for options in OPTIONS:
        assert {leaf.name: default for leaf, default in leaves(options)} == flatten(options())
        assert all(leaf.metadata["help"] for leaf, _ in leaves(options))


def test_missing_values_keep_the_defaults_of_the_command() -> None:
    assert assemble(SamplersOptions, {"seed": 3}).training.epochs == 40
    assert assemble(SearchOptions, {"seed": 3}) == SearchOptions(seed=3)


def test_excluded_fields_of_a_nested_spec_are_no_options() -> None:
    assert "sampler" not in flatten(SamplersOptions())


def test_method_names_equal_the_registries() -> None:
    assert tuple(methods.METHODS) == specs.METHODS
    assert tuple(methods.SEARCHABLE) == specs.SEARCHABLE_METHODS


def test_all_bad_numbers_are_reported_in_one_error() -> None:
    with pytest.raises(InvalidInput) as refused:
        TrainingSpec(epochs=0, batch_size=2.5, learning_rate=float("nan"))
    assert str(refused.value) == (
        "`epochs` must be an integer of at least 1 or None, but got 0. "
        "`batch_size` must be an integer of at least 1 or None, but got 2.5. "
        "`learning_rate` must be positive and finite, but got nan."
    )


def test_bad_numbers_are_refused_by_name() -> None:
    cases: list[tuple[type, dict[str, object]]] = [
        (DataSpec, {"validation_share": 1.0}),
        (DataSpec, {"validation_share": "half", "image_size": 7}),
        (DataSpec, {"image_size": 32.5}),
        (TrainingSpec, {"epochs": True}),
        (TrainingSpec, {"learning_rate": float("inf")}),
        (SearchSpec, {"trials": 0, "generation_size": "many"}),
        (SearchOptions, {"restarts": 0}),
        (CompareOptions, {"seeds": 0, "noise_rate": 1.0, "noises": ()}),
        (SpacesOptions, {"draws": 0, "sets": 0, "seeds": 0, "together": 0}),
        (SamplersOptions, {"repeats": 0, "jobs": 0}),
        (TableOptions, {"draws": 0, "times": 0, "rounds": -1, "together": 1}),
    ]
    for spec, values in cases:
        with pytest.raises(InvalidInput) as refused:
            spec(**values)
        for name in values:
            assert f"`{name}`" in str(refused.value)


def test_specs_are_immutable_and_hashable() -> None:
    for spec in (DataSpec(), TrainingSpec(), SearchSpec(), *(options() for options in OPTIONS)):
        assert hash(spec) == hash(replace(spec))
        with pytest.raises(AttributeError):
            setattr(spec, fields(spec)[0].name, None)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("wrn-16-4", "wrn-16-4", {}),
        ("sgd:momentum=0.9,weight_decay=5e-4", "sgd", {"momentum": "0.9", "weight_decay": "5e-4"}),
        (" mlp : widths = 512-256 , dropout=0.2", "mlp", {"widths": "512-256", "dropout": "0.2"}),
        ("step:at=a=b:c", "step", {"at": "a=b:c"}),  # only the first separator of each kind counts
    ],
)
def test_names_with_options_are_split(text: str, name: str, options: dict[str, str]) -> None:
    assert parse_named_options("network", text) == (name, options)


@pytest.mark.parametrize("text", ["", ":a=1", "mlp:", "mlp:a", "mlp:a=", "mlp:=1", "mlp:a=1,", "mlp:a=1,a=2"])
def test_misshapen_options_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^`network` must .*, but got '.*'\.$"):
        parse_named_options("network", text)


def test_options_become_values_by_their_converters() -> None:
    converters: dict[str, Callable[[str], object]] = {
        "nesterov": to_boolean,
        "momentum": partial(to_number, minimum=0, below=1),
    }
    convert = partial(convert_options, "optimizer", "sgd", converters=converters)
    assert convert({"momentum": "0.9", "nesterov": "True"}) == {"momentum": 0.9, "nesterov": True}
    for options, message in [
        ({"speed": "1"}, "options of `optimizer` sgd must be one of nesterov, momentum, but got 'speed'."),
        ({"nesterov": "1"}, "`nesterov` of optimizer sgd must be true or false, but got '1'."),
        (
            {"momentum": "nan"},
            "`momentum` of optimizer sgd must be a finite number of at least 0 and below 1, but got 'nan'.",
        ),
        ({"momentum": "x"}, "`momentum` of optimizer sgd must be a finite number of at least 0 and below 1, but got"),
    ]:
        with pytest.raises(InvalidInput) as refused:
            convert(options)
        assert str(refused.value).startswith(message)
    with pytest.raises(InvalidInput, match="options of `network` linear must not be given, but got 'bias'"):
        convert_options("network", "linear", {"bias": "true"}, {})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90), ("90", 90), (90, 90), ("2m", 120), ("1h", 3600), ("1h30m", 5400), ("0.5h", 1800), ("1m 5s", 65)],
)
def test_times_are_numbers_of_seconds_or_texts(given: float | str, seconds: float) -> None:
    assert to_seconds("time_budget", given) == seconds
    assert to_seconds("time_budget", short_time(seconds)) == seconds


def test_no_time_is_none_and_other_texts_are_refused() -> None:
    assert to_seconds("time_budget", None) is to_seconds("time_budget", "none") is None
    for wrong in ("", "soon", "5x", "-1m", "0s", 0, -3, True, "1s1h", float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="`time_budget` must be a time such as 90s, 2m or 1h"):
            to_seconds("time_budget", wrong)


def test_short_times_are_written_in_the_largest_units() -> None:
    times = {0.2: "1s", 59: "59s", 60: "1m", 90: "90s", 120: "2m", 150: "2m30s", 3600: "1h", 5400: "1h30m"}
    assert {seconds: short_time(seconds) for seconds in times} == times
