"""Methods by name, and as objects."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from s2e.errors import InvalidInput
from s2e.methods import METHODS, SEARCHABLE, CoteachingPlus, JoCoR, method


def test_method_is_found_by_its_own_name():
    assert all(method(name) is one and one.name == name for name, one in METHODS.items())


def test_method_object_is_returned_as_it_is():
    one = CoteachingPlus(warm_up=3)
    assert method(one) is method(one, "cifar10-cnn") is one


def test_method_has_the_published_settings_for_its_network():
    assert method("coteaching+") == method("coteaching+", "mlp") == CoteachingPlus(warm_up=0)
    assert method("coteaching+", "cifar10-cnn") == CoteachingPlus(warm_up=20)
    assert method("coteaching+", "cifar100-cnn") == CoteachingPlus(warm_up=5)
    assert method("jocor") == method("jocor", "cifar10-cnn") == JoCoR(agreement=0.9)
    assert method("jocor", "cifar100-cnn") == JoCoR(agreement=0.85)
    assert method("coteaching", "cifar100-cnn") is METHODS["coteaching"]


def test_schedules_of_methods_with_a_keep_rate_are_searchable():
    assert set(SEARCHABLE) == {"mentornet", "coteaching", "coteaching+", "jocor"}


def test_unknown_name_is_refused_with_the_known_ones_nearest_first():
    with pytest.raises(InvalidInput, match=r"`method` must be one of coteaching, .*, but got 'coteachin'\.") as refused:
        method("coteachin")
    assert all(name in str(refused.value) for name in METHODS)
    with pytest.raises(InvalidInput, match="`method` must be one of mentornet, "):
        method("MentorNet")


class OnlyNamed:
    name = "unfinished"
    networks = 1


@dataclass
class NotFrozen:
    name = "not-frozen"
    networks = 1
    needs = frozenset()
    may_select_nothing = False
    objective = None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (OnlyNamed(), "but got OnlyNamed without needs, may_select_nothing, objective"),
        (JoCoR, "but got the class JoCoR"),
        (None, "but got NoneType without name, "),
        (NotFrozen(), "must be hashable, but NotFrozen is not"),
    ],
)
def test_other_object_is_refused_with_the_missing_attributes(given, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        method(given)
    assert isinstance(refused.value, TypeError)
