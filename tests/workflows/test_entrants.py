"""The entrants of a comparison: their names, and what each needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from s2e.errors import InvalidInput
from s2e.methods import METHODS, Coteaching, CoteachingPlus, JoCoR, method
from s2e.workflows.entrants import Entrant, Setting, check_entrant_names, entrants_for
from small_tasks import setting

NEEDS_RATE = "needs a noise rate for its schedule; give an estimate with --noise-rate, or search with s2e"
NEEDS_CLEAN = "needs clean validation samples to train with; give some with --validation FILE"


def entrants(*names: str, settings: Sequence[Setting] = (), noise_rate: float | None = None) -> list[Entrant]:
    return entrants_for(names, settings or [setting()], noise_rate=noise_rate)[0]


def test_all_selects_the_methods_and_the_search() -> None:
    every = entrants("all")
    assert [each.name for each in every] == [*METHODS, "s2e"]
    assert [each.method for each in every] == [*METHODS.values(), Coteaching()]
    assert [each.searched for each in every] == [False] * len(METHODS) + [True]


def test_names_keep_their_order_and_count_once() -> None:
    assert [each.name for each in entrants("jocor", "s2e", "standard", "jocor")] == ["jocor", "s2e", "standard"]
    assert [each.name for each in entrants("s2e", "all", "s2e:jocor")] == ["s2e", *METHODS, "s2e:jocor"]


def test_search_is_for_coteaching_unless_a_method_is_named() -> None:
    assert entrants("s2e", "s2e:jocor") == [
        Entrant("s2e", Coteaching(), searched=True),
        Entrant("s2e:jocor", JoCoR(), searched=True),
    ]


def test_colour_images_get_the_settings_published_for_them() -> None:
    photos = [setting(shape=(3, 32, 32))]
    expected = method("coteaching+", "cifar10-cnn")
    assert expected != CoteachingPlus()
    assert [each.method for each in entrants("coteaching+", "s2e:coteaching+", settings=photos)] == [expected] * 2


def test_unknown_names_are_refused_with_the_nearest_first() -> None:
    nearest = {"co-teaching": "coteaching", "S2E": "s2e", "s2e:jocr": "s2e:jocor", "s2e:reweight": "s2e:", "s2e:": ""}
    for name, first in nearest.items():
        with pytest.raises(InvalidInput, match=rf"^`methods` must be one of {first}.*, but got '{name}'\.$"):
            check_entrant_names(["all", "standard", name])


@pytest.mark.parametrize("names", [("{}",), ("all", "{}")], ids=["alone", "with all"])
@pytest.mark.parametrize("name", ["jocor", "reweight"])
def test_named_method_must_be_possible(name: str, names: tuple[str, ...]) -> None:
    unknown = [setting(noise_rate=None, validation="noisy")]
    reason = NEEDS_CLEAN if name == "reweight" else NEEDS_RATE
    with pytest.raises(InvalidInput, match=rf"^{name} {reason}\.$"):
        entrants(*(each.format(name) for each in names), settings=unknown)


def test_impossible_methods_of_all_are_left_out_with_the_reason() -> None:
    found, left_out = entrants_for(["all"], [setting(noise_rate=None, validation="noisy")], noise_rate=0.2)
    assert left_out == [{"method": "reweight", "reason": NEEDS_CLEAN}]
    assert len(found) == len(METHODS)


def test_every_setting_must_provide_what_a_method_needs() -> None:
    known, unknown, noisy = setting(), setting(noise_rate=None), setting(validation="noisy")
    with pytest.raises(InvalidInput, match="mentornet needs a noise rate"):
        entrants("mentornet", settings=[known, unknown])
    with pytest.raises(InvalidInput, match="reweight needs clean"):
        entrants("reweight", settings=[known, noisy])
    assert entrants("mentornet", "reweight", settings=[known, unknown], noise_rate=0.0)
    assert entrants("mentornet", settings=[setting(noise_rate=0.0)])


def test_searched_schedule_needs_no_noise_rate() -> None:
    assert entrants("s2e", "s2e:mentornet", settings=[setting(noise_rate=None, validation="noisy")])
