"""Decoding of image files, the choice of their side, and refusals."""

from __future__ import annotations

import struct
import time
import zlib

import numpy as np
import pytest

from image_files import COLOUR, GENERATOR, GREY, JPEG_ERROR, Image, flat, save, write
from s2e.data import image_decoding
from s2e.data.image_decoding import check_side, choose_side, decode_images, read_images
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
        for index in range(side):
            distance = np.abs(centres - (start + (index + 0.5) * step))
            weights = np.maximum(0, 1 - distance / max(step, 1))
            rows.append(np.tensordot(weights / weights.sum(), result, axes=(0, axis)))
        result = np.stack(rows, axis=axis)
    return result


def read_one(path, side=20, channels=3):
    return read_images([path], side, channels)[0]


# Pixels


def test_an_image_of_the_right_size_is_unchanged(tmp_path):
    grey, colour = save(tmp_path / "g.png", GREY), save(tmp_path / "c.png", COLOUR)
    assert (read_one(grey, channels=1) == GREY[None]).all()
    assert (read_one(grey, channels=3) == GREY[None]).all()
    assert (read_one(colour) == COLOUR.transpose(2, 0, 1)).all()


@pytest.mark.parametrize("shape", [(40, 20), (20, 46), (33, 32), (7, 50)])
def test_resizing_equals_the_triangle_filter(tmp_path, shape):
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    path = save(tmp_path / "x.png", pixels)
    for side in (1, 16, 33):
        assert np.abs(read_one(path, side, 1)[0] - triangle(pixels, side)).max() <= 1.01  # rounded after each axis


def test_the_centre_of_a_wide_image_is_cropped(tmp_path):
    pixels = np.concatenate([np.full_like(GREY, 9), GREY, np.full_like(GREY, 99)], axis=1)
    assert (read_one(save(tmp_path / "x.png", pixels), channels=1)[0] == GREY).all()
    assert (read_one(save(tmp_path / "y.png", pixels.T.copy()), channels=1)[0] == GREY.T).all()


def test_a_crop_by_half_a_pixel_averages_neighbours(tmp_path):
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


@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_transparent_pixels_become_white(tmp_path, suffix):
    options = {"lossless": True, "exact": True} if suffix == "webp" else {}
    got = read_one(save(tmp_path / f"x.{suffix}", rgba_half(), **options))
    assert (got[:, :, :10] == 255).all()
    assert np.abs(got[:, 0, 15].astype(int) - [224, 204, 204]).max() <= 1


def test_colours_of_transparent_pixels_are_not_averaged(tmp_path):
    pixels = np.zeros((32, 32, 4), dtype=np.uint8)
    pixels[:, 16:] = (*WHITE, 255)  # transparent black next to opaque white
    assert (read_one(save(tmp_path / "x.png", Image.fromarray(pixels)), 5) >= 254).all()


def test_transparent_grey_becomes_lighter_grey(tmp_path):
    pixels = np.stack([np.full((20, 20), 100), np.full((20, 20), 51)], axis=2).astype(np.uint8)
    path = save(tmp_path / "x.png", Image.fromarray(pixels))
    assert mode_of(path) == "LA"
    assert np.abs(read_one(path, channels=1).astype(int) - 224).max() <= 1
    path = save(tmp_path / "one_level.png", flat(7, mode="L"), transparency=7)
    assert (read_one(path, channels=1) == 255).all()


def test_palettes_are_resolved_before_averaging(tmp_path):
    image = Image.new("P", (20, 20))
    image.putpalette([*RED, 0, 0, 255, *WHITE])
    image.paste(2, (10, 0, 20, 20))
    for suffix in ("png", "gif"):
        got = read_one(save(tmp_path / f"x.{suffix}", image), 10)
        assert (got[:, 3, 2].tolist(), got[:, 3, 8].tolist()) == (list(RED), list(WHITE)), suffix
    path = save(tmp_path / "hole.png", image, transparency=0)
    assert read_one(path)[:, 3, 2].tolist() == list(WHITE)


def test_cmyk_becomes_rgb(tmp_path):
    for suffix, most in (("tiff", 0), ("jpg", JPEG_ERROR)):
        path = save(tmp_path / f"x.{suffix}", flat(RED).convert("CMYK"))
        assert mode_of(path) == "CMYK"
        assert np.abs(read_one(path)[:, 3, 3].astype(int) - RED).max() <= most


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_scaled_to_eight(tmp_path, suffix):
    levels = np.tile(np.linspace(0, 65535, 20).round().astype(np.uint16), (20, 1))
    path = save(tmp_path / f"x.{suffix}", levels)
    assert mode_of(path).startswith("I")
    assert (read_one(path, channels=1)[0][0] == np.rint(levels[0] / 257)).all()
    assert (read_one(path, channels=3)[2][0] == np.rint(levels[0] / 257)).all()


def test_black_and_white_images_are_grey(tmp_path):
    path = save(tmp_path / "x.png", Image.fromarray(GREY > 127))
    assert (read_one(path, channels=1)[0] == np.where(GREY > 127, 255, 0)).all()
    assert set(np.unique(read_one(path, 7, 1))) - {0, 255}  # averaged, not sampled


def test_pixels_of_unknown_range_are_refused(tmp_path):
    path = save(tmp_path / "x.tiff", np.full((20, 20), 65535, dtype=np.int32))
    assert mode_of(path) == "I"
    assert (read_one(path, channels=1) == 255).all()
    for name, pixels in (("i", np.full((20, 20), 65536, np.int32)), ("f", np.zeros((20, 20), np.float32))):
        with pytest.raises(UnreadableData, match="is unknown; save it with 8 or 16 bits"):
            read_one(save(tmp_path / f"{name}.tiff", pixels))


@pytest.mark.parametrize(
    ("suffix", "orientation"), [*(("png", orientation) for orientation in range(1, 9)), ("tiff", 6), ("webp", 7)]
)
def test_the_exif_orientation_is_applied(tmp_path, orientation, suffix):
    tall = GENERATOR.integers(0, 256, (31, 20, 3), dtype=np.uint8)  # odd: the crop begins at half a pixel
    undo = {1: lambda x: x, 2: np.fliplr, 3: lambda x: np.rot90(x, 2), 4: np.flipud, 5: lambda x: np.swapaxes(x, 0, 1)}
    undo |= {6: lambda x: np.rot90(x, -1), 7: lambda x: np.swapaxes(np.rot90(x, 2), 0, 1), 8: np.rot90}
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / f"x.{suffix}", tall, exif=exif, **({"lossless": True} if suffix == "webp" else {}))
    upright = save(tmp_path / "upright.png", np.ascontiguousarray(undo[orientation](tall)))
    assert (read_one(path) == read_one(upright)).all()


def test_damaged_exif_data_are_ignored(tmp_path):
    path = save(tmp_path / "x.png", COLOUR, exif=b"Exif\x00\x00garbage that is no TIFF header")
    assert (read_one(path) == COLOUR.transpose(2, 0, 1)).all()


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [flat(colour) for colour in (RED, (0, 0, 255), WHITE)]
    path = save(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    with Image.open(path) as image:
        assert image.n_frames == 3
    assert (read_one(path) == np.array(RED)[:, None, None]).all()


def test_large_jpegs_are_decoded_at_reduced_size(tmp_path):
    y, x = np.mgrid[:640, :800]
    pixels = (127 + 60 * np.sin(x / 90) + 60 * np.cos(y / 70)).astype(np.uint8)
    got = read_one(save(tmp_path / "x.jpg", pixels, quality=95), 20, 1)[0]
    assert np.abs(got - triangle(pixels, 20)).max() < 3


@pytest.mark.parametrize("size", [20, 79])
def test_small_jpegs_are_decoded_at_full_size(tmp_path, size):
    pixels = np.random.default_rng(2).integers(0, 256, (size, size), dtype=np.uint8)
    got = read_one(save(tmp_path / "x.jpg", pixels, quality=100), 20, 1)[0]
    assert np.abs(got - triangle(pixels, 20)).max() < 3


# Side and budget


def test_the_side_is_a_bounded_median():
    for shorter_sides, side in (([20, 40, 400], 40), ([20, 30], 20), ([3, 4, 5], 16), ([500, 900, 30], 64)):
        assert choose_side(shorter_sides, len(shorter_sides), 3) == side


@pytest.mark.parametrize("channels", [1, 3])
def test_the_side_is_the_largest_that_fits_the_budget(channels, monkeypatch):
    for budget in range(10 * channels * 16**2, 10 * channels * 40**2, 997):
        monkeypatch.setattr(image_decoding, "BUDGET", budget)
        side = choose_side([64] * 10, 10, channels)
        assert 10 * channels * side**2 <= budget < 10 * channels * (side + 1) ** 2


def test_images_beyond_the_budget_are_refused(monkeypatch):
    monkeypatch.setattr(image_decoding, "BUDGET", 10 * 3 * 16**2)
    assert choose_side([64], 10, 3) == 16
    monkeypatch.setattr(image_decoding, "BUDGET", 10 * 3 * 16**2 - 1)
    with pytest.raises(InvalidInput, match=r"fit into 7679 bytes, but 10 of 16 x 16 .* take 7680; use fewer images"):
        choose_side([64], 10, 3)


def test_a_given_side_is_bounded_by_the_memory(monkeypatch):
    monkeypatch.setattr(image_decoding, "available_memory", lambda: 2 * 10 * 3 * 300**2)
    check_side(300, 10, 3)
    with pytest.raises(InvalidInput, match=r"`image_size` must .* but 10 of 301 x 301 pixels and 3 channel\(s\) take"):
        check_side(301, 10, 3)
    monkeypatch.setattr(image_decoding, "available_memory", lambda: None)
    check_side(10**6, 10, 3)


# Threads


def test_few_images_are_opened_ahead(tmp_path):
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
    for large, one_at_a_time in ((399, True), (400, False)):  # the image has 400 pixels
        most = []
        monkeypatch.setattr(image_decoding, "LARGE", large)
        read_images([path] * 12, 4, 1)
        assert (max(most) == 1) == one_at_a_time


# Broken files


def claimed(width, height):
    """Return a PNG file with a size in its header and no pixels."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"IDAT" + zlib.compress(b"")]
    framed = [struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def test_broken_images_have_a_reason(tmp_path, monkeypatch):
    whole = save(tmp_path / "whole.jpg", GENERATOR.integers(0, 256, (200, 200, 3), dtype=np.uint8)).read_bytes()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    stored = [
        whole[: len(whole) // 2],
        b"",
        claimed(100_000, 100_000),
        save(tmp_path / "large.png", flat(0, (300, 300), "L")),  # above the limit, where Pillow only warns
        b"this is text, not an image",
        claimed(0, 4),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"GIF89a" + bytes(7) + b",\0\0\0\0\0\0\0\0\0\x02\0;",  # 0 x 0 pixels
    ]
    inputs, reasons = decode_images([save(tmp_path / "x.png", GREY), *stored], 9, 20, 1)
    assert (inputs == GREY).all()
    truncated, *others = reasons.values()
    assert "truncated" in truncated
    unreadable = "not a readable image (PNG, JPEG, BMP, GIF, WEBP, TIFF)"
    assert others == ["empty file", *["more than 50,000 pixels; resize it"] * 2, *[unreadable] * 4]


def test_broken_files_are_refused_together(tmp_path):
    good, bad = save(tmp_path / "a.png", GREY), write(tmp_path / "b.png")
    with pytest.raises(UnreadableData, match=r"2 of 3 cannot be decoded: .*b\.png \(empty file\), .*c\.png \(No such"):
        read_images([good, bad, tmp_path / "c.png"], 20, 1)
    assert read_images([], 20, 3).shape == (0, 3, 20, 20)
    assert read_images([str(good), good], 5, 1).shape == (2, 1, 5, 5)


def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    path = save(tmp_path / "x.png", Image.new("1", (6000, 6000)))
    assert path.stat().st_size < 2**15
    monkeypatch.setattr(image_decoding, "as_pixels", lambda *_: pytest.fail("decoded"))
    with pytest.raises(UnreadableData, match=r"x\.png \(more than 33,554,432 pixels; resize it\)"):
        read_images([path], 20, 1)


def test_large_jpeg_files_are_decoded_at_a_fraction_of_their_size(tmp_path, monkeypatch):
    path = save(tmp_path / "x.jpg", np.full((400, 400), 9, dtype=np.uint8), quality=95)
    monkeypatch.setattr(image_decoding, "LARGEST", 60 * 60)
    assert np.abs(read_one(path, 20, 1)[0].astype(int) - 9).max() <= JPEG_ERROR
