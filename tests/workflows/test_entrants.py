"""Who takes part in a comparison: names, and what each needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from s2e.errors import InvalidInput
from s2e.methods import (
    METHODS,
    Coteaching,
    CoteachingPlus,
    JoCoR,
    method,
)
from s2e.workflows.entrants import Entrant, Setting, taking_part
from small_tasks import setting

KEEP_RATE = ("mentornet", "coteaching", "coteaching+", "jocor")
NEEDS_RATE = "needs a noise rate to make its schedule from; give your guess with --noise-rate, or search with s2e"
NEEDS_CLEAN = "needs clean validation samples to train with; give some with --validation FILE.npz"


def of(*names: str, settings: Sequence[Setting] | None = None, told: float | None = None) -> list[Entrant]:
    return taking_part(names, settings or [setting()], told=told)[0]


def test_all_are_the_methods_and_the_search() -> None:
    everyone = of("all")
    assert [each.name for each in everyone] == [*METHODS, "s2e"]
    assert [each.method for each in everyone] == [*METHODS.values(), Coteaching()]
    assert [each.searched for each in everyone] == [False] * len(METHODS) + [True]


def test_names_keep_their_order_and_count_once() -> None:
    assert [each.name for each in of("jocor", "s2e", "standard", "jocor")] == ["jocor", "s2e", "standard"]
    assert [each.name for each in of("s2e", "all", "s2e:jocor")] == ["s2e", *METHODS, "s2e:jocor"]


def test_the_search_is_for_coteaching_unless_another_method_is_named() -> None:
    assert of("s2e", "s2e:jocor", "s2e:coteaching+") == [
        Entrant("s2e", Coteaching(), searched=True),
        Entrant("s2e:jocor", JoCoR(), searched=True),
        Entrant("s2e:coteaching+", CoteachingPlus(), searched=True),
    ]


def test_colour_images_bring_the_settings_published_for_them() -> None:
    photos = [setting(shape=(3, 32, 32))]
    expected = method("coteaching+", "cifar10-cnn")
    assert expected != CoteachingPlus()
    assert [each.method for each in of("coteaching+", "s2e:coteaching+", settings=photos)] == [expected] * 2


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("jocar", "jocor, "),
        ("co-teaching", "coteaching, "),
        ("decopling", "decoupling, "),
        ("S2E", "s2e, "),
        ("s2e:jocr", "s2e:jocor, "),
        ("s2e:mentornett", "s2e:mentornet, "),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_first(name: str, nearest: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^`methods` must be one of {nearest}.*, but got '{name}'\.$"):
        of("standard", name)


@pytest.mark.parametrize("name", ["s2e:standard", "s2e:reweight", "s2e:", "s2e:all", "s2e:s2e"])
def test_what_has_no_keep_rate_cannot_be_searched_for(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"must be one of (s2e:(mentornet|coteaching\+?|jocor)(, )?){4}, but got"):
        of(name)


@pytest.mark.parametrize("names", [("{}",), ("{}", "all"), ("all", "{}")], ids=["alone", "before all", "after all"])
@pytest.mark.parametrize("name", [*KEEP_RATE, "reweight"])
def test_a_method_that_is_named_must_be_able_to_take_part(name: str, names: tuple[str, ...]) -> None:
    unknown = [setting(noise_rate=None, validation="noisy")]
    reason = NEEDS_CLEAN if name == "reweight" else NEEDS_RATE
    with pytest.raises(InvalidInput, match=rf"^{name.replace('+', '.')} {reason}\.$"):
        of(*(each.format(name) for each in names), settings=unknown)


def test_every_setting_must_give_what_a_method_needs() -> None:
    known, unknown, noisy = setting(), setting(noise_rate=None), setting(validation="noisy")
    for settings in ([known, unknown], [unknown, known]):
        with pytest.raises(InvalidInput, match="mentornet needs a noise rate"):
            of("mentornet", settings=settings)
        assert of("mentornet", "reweight", settings=settings, told=0.0)
    for settings in ([known, noisy], [noisy, known]):
        with pytest.raises(InvalidInput, match="reweight needs clean"):
            of("reweight", settings=settings, told=0.3)


def test_labels_that_are_known_to_be_right_have_a_noise_rate_too() -> None:
    assert of("mentornet", settings=[setting(noise_rate=0.0)])


def test_a_searched_schedule_needs_no_noise_rate() -> None:
    assert of("s2e", "s2e:mentornet", settings=[setting(noise_rate=None, validation="noisy")])
