"""Image files as pixels: what each kind of file becomes, its side and what that costs, and what is refused."""

from __future__ import annotations

import time

import numpy as np
import pytest

from image_files import COLOUR, GENERATOR, GREY, JPEG_ERROR, Image, flat, save, write
from s2e.data import image_decoding
from s2e.data.image_decoding import choose_side, read_images
from s2e.errors import InvalidInput, UnreadableData

RED, WHITE = (200, 10, 30), (255, 255, 255)


def mode_of(path):
    with Image.open(path) as image:
        return image.mode


def triangle(pixels, side):
    """Resize the largest centred square of (H, W) by the definition of the filter: weights 1 - |distance| / support."""
    square = min(pixels.shape)
    step = square / side
    result = pixels.astype(float)
    for axis in (0, 1):
        start, centres = (pixels.shape[axis] - square) / 2, np.arange(pixels.shape[axis]) + 0.5
        rows = []
        for place in range(side):
            distance = np.abs(centres - (start + (place + 0.5) * step))
            weights = np.maximum(0, 1 - distance / max(step, 1))
            rows.append(np.tensordot(weights / weights.sum(), result, axes=(0, axis)))
        result = np.stack(rows, axis=axis)
    return result


def read_one(path, side=20, channels=3):
    return read_images([path], side, channels)[0]


# Pixels


def test_an_image_of_the_right_size_is_not_changed(tmp_path):
    grey, colour = save(tmp_path / "g.png", GREY), save(tmp_path / "c.png", COLOUR)
    assert (read_one(grey, channels=1) == GREY[None]).all()
    assert (read_one(grey, channels=3) == GREY[None]).all()
    assert (read_one(colour) == COLOUR.transpose(2, 0, 1)).all()


@pytest.mark.parametrize("shape", [(20, 20), (40, 20), (20, 46), (33, 32), (7, 50), (90, 61)])
@pytest.mark.parametrize("side", [1, 16, 20, 33])
def test_resizing_and_cropping_equal_the_filter_written_out(tmp_path, shape, side):
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    got = read_one(save(tmp_path / "x.png", pixels), side, 1)[0]
    assert np.abs(got - triangle(pixels, side)).max() <= 1.01  # rounded after either axis


def test_of_a_wide_image_the_middle_third_is_taken(tmp_path):
    pixels = np.concatenate([np.full_like(GREY, 9), GREY, np.full_like(GREY, 99)], axis=1)
    assert (read_one(save(tmp_path / "x.png", pixels), channels=1)[0] == GREY).all()
    assert (read_one(save(tmp_path / "y.png", pixels.T.copy()), channels=1)[0] == GREY.T).all()


def test_half_a_pixel_of_crop_averages_two_neighbours(tmp_path):
    pixels = np.tile(np.arange(17, dtype=np.uint8) * 4, (16, 1))
    got = read_one(save(tmp_path / "x.png", pixels), 16, 1)[0]
    assert (got == np.arange(16) * 4 + 2).all()


def test_halving_weights_four_neighbours_by_1_3_3_1(tmp_path):
    pixels = np.tile(np.array([0, 0, 0, 80, 0, 0, 0, 0], dtype=np.uint8), (8, 1))
    assert read_one(save(tmp_path / "x.png", pixels), 4, 1)[0][0].tolist() == [0, 30, 10, 0]


def rgba_half():
    pixels = np.zeros((20, 20, 4), dtype=np.uint8)
    pixels[:, :, 0] = 100
    pixels[:, 10:, 3] = 51  # a fifth opaque: 0.2 · 100 + 0.8 · 255 = 224 and 0.8 · 255 = 204
    return Image.fromarray(pixels)


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff"])
def test_what_is_transparent_lies_on_white(tmp_path, suffix):
    options = {"lossless": True, "exact": True} if suffix == "webp" else {}
    got = read_one(save(tmp_path / f"x.{suffix}", rgba_half(), **options))
    assert (got[:, :, :10] == 255).all()
    assert np.abs(got[:, 0, 15].astype(int) - [224, 204, 204]).max() <= 1


def test_colours_of_transparent_pixels_do_not_bleed_into_their_neighbours(tmp_path):
    pixels = np.zeros((32, 32, 4), dtype=np.uint8)
    pixels[:, 16:] = (*WHITE, 255)  # black but invisible beside opaque white: all white
    assert (read_one(save(tmp_path / "x.png", Image.fromarray(pixels)), 5) >= 254).all()


def test_grey_with_transparency_stays_grey_on_white(tmp_path):
    pixels = np.stack([np.full((20, 20), 100), np.full((20, 20), 51)], axis=2).astype(np.uint8)
    path = save(tmp_path / "x.png", Image.fromarray(pixels))
    assert mode_of(path) == "LA"
    assert np.abs(read_one(path, channels=1).astype(int) - 224).max() <= 1
    path = save(tmp_path / "one_level.png", flat(7, mode="L"), transparency=7)
    assert (read_one(path, channels=1) == 255).all()


def test_palettes_are_looked_up_before_averaging(tmp_path):
    image = Image.new("P", (20, 20))
    image.putpalette([*RED, 0, 0, 255, *WHITE])
    image.paste(2, (10, 0, 20, 20))
    for suffix in ("png", "gif", "bmp", "tiff"):
        got = read_one(save(tmp_path / f"x.{suffix}", image), 10)
        assert (got[:, 3, 2].tolist(), got[:, 3, 8].tolist()) == (list(RED), list(WHITE)), suffix
    path = save(tmp_path / "hole.png", image, transparency=0)
    assert read_one(path)[:, 3, 2].tolist() == list(WHITE)


def test_cmyk_becomes_the_colours_one_sees(tmp_path):
    for suffix, most in (("tiff", 0), ("jpg", JPEG_ERROR)):
        path = save(tmp_path / f"x.{suffix}", flat(RED).convert("CMYK"))
        assert mode_of(path) == "CMYK"
        assert np.abs(read_one(path)[:, 3, 3].astype(int) - RED).max() <= most


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_scaled_to_eight_not_cut_off(tmp_path, suffix):
    levels = np.tile(np.linspace(0, 65535, 20).round().astype(np.uint16), (20, 1))
    path = save(tmp_path / f"x.{suffix}", levels)
    assert mode_of(path).startswith("I")
    assert (read_one(path, channels=1)[0][0] == np.rint(levels[0] / 257)).all()
    assert (read_one(path, channels=3)[2][0] == np.rint(levels[0] / 257)).all()


def test_black_and_white_images_are_grey(tmp_path):
    path = save(tmp_path / "x.png", Image.fromarray(GREY > 127))
    assert (read_one(path, channels=1)[0] == np.where(GREY > 127, 255, 0)).all()
    assert set(np.unique(read_one(path, 7, 1))) - {0, 255}  # averaged, not picked


def test_thirty_two_bit_levels_are_read_within_sixteen_bits_and_fractions_are_not(tmp_path):
    path = save(tmp_path / "x.tiff", np.full((20, 20), 65535, dtype=np.int32))
    assert mode_of(path) == "I"
    assert (read_one(path, channels=1) == 255).all()
    for name, pixels in (("i", np.full((20, 20), 65536, np.int32)), ("f", np.zeros((20, 20), np.float32))):
        with pytest.raises(UnreadableData, match="no known range; save it with 8 or 16 bits"):
            read_one(save(tmp_path / f"{name}.tiff", pixels))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tiff", "webp"])
def test_the_orientation_a_camera_noted_is_undone(tmp_path, orientation, suffix):
    tall = GENERATOR.integers(0, 256, (31, 20, 3), dtype=np.uint8)  # odd: the crop begins at half a pixel
    undo = {1: lambda x: x, 2: np.fliplr, 3: lambda x: np.rot90(x, 2), 4: np.flipud, 5: lambda x: np.swapaxes(x, 0, 1)}
    undo |= {6: lambda x: np.rot90(x, -1), 7: lambda x: np.swapaxes(np.rot90(x, 2), 0, 1), 8: np.rot90}
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / f"x.{suffix}", tall, exif=exif, **({"lossless": True} if suffix == "webp" else {}))
    upright = save(tmp_path / "upright.png", np.ascontiguousarray(undo[orientation](tall)))
    assert (read_one(path) == read_one(upright)).all()


def test_damaged_notes_of_the_camera_do_not_spoil_an_image(tmp_path):
    path = save(tmp_path / "x.png", COLOUR, exif=b"Exif\x00\x00garbage that is no TIFF header")
    assert (read_one(path) == COLOUR.transpose(2, 0, 1)).all()


def test_of_an_animation_the_first_frame_is_taken(tmp_path):
    frames = [flat(colour) for colour in (RED, (0, 0, 255), WHITE)]
    path = save(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    with Image.open(path) as image:
        assert image.n_frames == 3
    assert (read_one(path) == np.array(RED)[:, None, None]).all()


def test_large_jpegs_are_decoded_small_with_almost_the_same_result(tmp_path):
    y, x = np.mgrid[:640, :800]
    pixels = (127 + 60 * np.sin(x / 90) + 60 * np.cos(y / 70)).astype(np.uint8)
    got = read_one(save(tmp_path / "x.jpg", pixels, quality=95), 20, 1)[0]
    assert np.abs(got - triangle(pixels, 20)).max() < 3


@pytest.mark.parametrize("size", [20, 39, 60, 79])
def test_jpegs_below_four_times_the_side_are_decoded_in_full(tmp_path, size):
    pixels = np.random.default_rng(2).integers(0, 256, (size, size), dtype=np.uint8)
    got = read_one(save(tmp_path / "x.jpg", pixels, quality=100), 20, 1)[0]
    assert np.abs(got - triangle(pixels, 20)).max() < 3


# Side and budget


@pytest.mark.parametrize(
    ("shorter_sides", "side"),
    [([20], 20), ([20, 40, 400], 40), ([20, 30], 20), ([3, 4, 5], 16), ([500, 900, 30], 64), ([64, 65, 65], 64)],
)
def test_the_side_is_the_median_of_the_shorter_sides_within_bounds(shorter_sides, side):
    assert choose_side(shorter_sides, len(shorter_sides), 3, None, 2**30) == side


@pytest.mark.parametrize("channels", [1, 3])
def test_the_chosen_side_is_the_largest_that_fits_the_budget(channels):
    for budget in range(10 * channels * 16**2, 10 * channels * 40**2, 997):
        side = choose_side([64] * 10, 10, channels, None, budget)
        assert 10 * channels * side**2 <= budget < 10 * channels * (side + 1) ** 2


def test_images_that_cannot_fit_the_budget_are_refused_with_a_side_that_fits():
    exactly = 10 * 3 * 16**2
    assert choose_side([64], 10, 3, None, exactly) == 16
    with pytest.raises(InvalidInput, match=r"`budget` of 7679 bytes, but 10 of 16 x 16 .* take 7680; pass a `side` of"):
        choose_side([64], 10, 3, None, exactly - 1)
    with pytest.raises(
        InvalidInput, match=r"10 of 100 x 100 pixels and 3 channel\(s\) take 300000; .* at most 16, a larg"
    ):
        choose_side([64], 10, 3, 100, exactly)
    with pytest.raises(InvalidInput, match="take 7680; pass a larger budget, or fewer images"):
        choose_side([64], 10, 3, None, 0)
    assert choose_side([64], 10, 3, 2, 120) == 2
    with pytest.raises(InvalidInput, match="`side` must be at least 1 pixel, but got 0"):
        choose_side([64], 10, 3, 0, exactly)


# How many at a time


def test_no_more_images_are_opened_ahead_than_threads_can_use(tmp_path):
    path = save(tmp_path / "x.png", GREY)
    taken = []

    def stored():
        for number in range(100):
            taken.append(number)
            yield path

    outcomes = image_decoding._in_order(lambda image: image.size, stored())
    next(outcomes)
    assert len(taken) == 2 * image_decoding.THREADS + 1
    assert len([*outcomes]) == 99


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    inside = []
    plain = image_decoding.as_pixels

    def counted(*given):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return plain(*given)

    monkeypatch.setattr(image_decoding, "as_pixels", counted)
    monkeypatch.setattr(image_decoding, "THREADS", 4)
    path = save(tmp_path / "x.png", GREY)
    for large, expected in ((399, 1), (400, 4)):  # the image has 400 pixels
        most = []
        monkeypatch.setattr(image_decoding, "LARGE", large)
        read_images([path] * 12, 4, 1)
        assert (max(most) == 1) == (expected == 1)


# Refusals


def test_new_files_that_are_broken_are_refused_together(tmp_path):
    good, bad = save(tmp_path / "a.png", GREY), write(tmp_path / "b.png")
    with pytest.raises(UnreadableData, match=r"2 of 3 do not: .*b\.png \(empty file\), .*c\.png \(No such file"):
        read_images([good, bad, tmp_path / "c.png"], 20, 1)
    with pytest.raises(InvalidInput, match=r"`channels` must be 1 \(grey\) or 3 \(colour\), but got 4"):
        read_images([good], 20, 4)
    with pytest.raises(InvalidInput, match="`side` must be at least 1 pixel, but got 0"):
        read_images([good], 0, 1)
    assert read_images([], 20, 3).shape == (0, 3, 20, 20)
    assert read_images([str(good), good], 5, 1).shape == (2, 1, 5, 5)
