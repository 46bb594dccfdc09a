"""Folders of images: what each kind of file becomes, which files are read in which order, and what is refused."""

from __future__ import annotations

import struct
import sys
import time
import tracemalloc
import zlib

import numpy as np
import pytest

from s2e import images
from s2e.errors import InvalidInput, UnreadableData
from s2e.image_folders import image_files, natural_order, read_image_folder
from s2e.images import choose_side, read_images

Image = pytest.importorskip("PIL.Image")

GENERATOR = np.random.default_rng(0)
GREY = GENERATOR.integers(0, 256, (20, 20), dtype=np.uint8)
COLOUR = GENERATOR.integers(0, 256, (20, 20, 3), dtype=np.uint8)
RED, WHITE = (200, 10, 30), (255, 255, 255)
JPEG_ERROR = 4  # how far compression may move a level


def save(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(path, **options)
    return path


def write(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def mode_of(path):
    with Image.open(path) as image:
        return image.mode


def two_classes(root, image=GREY):
    save(root / "cat" / "a.png", image)
    save(root / "dog" / "b.png", image)
    return root


def flat(colour, size=(20, 20), mode="RGB"):
    return Image.new(mode, size, colour)


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


# Files, parts and order


def test_the_natural_order_puts_2_before_10_in_every_folder_of_a_path():
    names = ["b/1", "a10/x2", "a2/x10", "a2/x9", "A3/x", "a02/x", "a2", "10", "9", "x-1", "x.1"]
    ordered = ["9", "10", "a2", "a02/x", "a2/x9", "a2/x10", "A3/x", "a10/x2", "b/1", "x-1", "x.1"]
    assert sorted(names, key=natural_order) == ordered


def test_rows_names_labels_and_pixels_belong_together(tmp_path):
    for level, name in enumerate(["9/2.png", "9/10.PNG", "9/deep/er/1.jpeg", "10/x.bmp", "11/y.tif", "11/z.webp"]):
        save(tmp_path / name, flat(level * 40, mode="L").convert("RGB" if "webp" in name else "L"))
    made = read_image_folder(tmp_path)
    assert made.names == {"train": ("9/2.png", "9/10.PNG", "9/deep/er/1.jpeg", "10/x.bmp", "11/y.tif", "11/z.webp")}
    assert made.train.class_names == ("9", "10", "11")
    assert made.train.labels.tolist() == [0, 0, 0, 1, 2, 2]
    assert made.train.inputs.shape == (6, 3, 20, 20)
    assert np.abs(made.train.inputs[:, 0, 5, 5] - np.arange(6) * 40.0).max() <= JPEG_ERROR
    assert made.train.rows.tolist() == list(range(6))
    assert (made.valid, made.test, made.skipped) == (None, None, [])


def test_many_files_keep_their_order_across_threads(tmp_path):
    for level in range(60):
        save(tmp_path / f"{level % 2}" / f"{level}.png", flat(level, (16, 16 + 900 * (level % 7 == 0)), "L"))
    made = read_image_folder(tmp_path)
    assert made.train.inputs[:, 0, 0, 0].tolist() == [*range(0, 60, 2), *range(1, 60, 2)]


@pytest.mark.parametrize("valid", ["val", "valid", "validation", "Val"])
def test_folders_with_the_names_of_parts_are_parts(tmp_path, valid):
    two_classes(tmp_path / "train")
    two_classes(tmp_path / valid)
    save(tmp_path / "test" / "dog" / "only.png", COLOUR)
    (tmp_path / "test" / "cat").mkdir()
    made = read_image_folder(tmp_path)
    assert (len(made.train), len(made.valid), len(made.test)) == (2, 2, 1)
    assert made.names == {
        "train": ("train/cat/a.png", "train/dog/b.png"),
        "valid": (f"{valid}/cat/a.png", f"{valid}/dog/b.png"),
        "test": ("test/dog/only.png",),
    }
    assert made.test.class_names == ("cat", "dog")
    assert made.test.labels.tolist() == [1]
    assert made.train.sample_shape == made.test.sample_shape == (3, 20, 20)  # one colour image makes all colour


def test_a_class_named_train_is_a_class_unless_other_parts_lie_beside_it(tmp_path):
    for name in ("bus", "train"):
        save(tmp_path / name / "x.png", GREY)
    assert read_image_folder(tmp_path).train.class_names == ("bus", "train")


def test_folders_beside_the_parts_are_ignored_and_named(tmp_path, caplog):
    two_classes(tmp_path / "Training")
    two_classes(tmp_path / "Testing")
    two_classes(tmp_path / "raw")
    assert set(read_image_folder(tmp_path).names) == {"train", "test"}
    assert "ignored: raw" in caplog.text


def test_hidden_and_foreign_files_are_ignored(tmp_path, caplog):
    two_classes(tmp_path)
    for name in ("cat/Thumbs.db", "cat/.hidden.png", ".git/x.png", "cat/.thumbs/x.png", "cat/notes.txt", "loose.png"):
        write(tmp_path / name)
    for name in ("__MACOSX/x.png", "cat/@eaDir/x.png"):
        save(tmp_path / name, GREY)
    (tmp_path / "cat" / "folder.png").mkdir()
    made = read_image_folder(tmp_path)
    assert made.names == {"train": ("cat/a.png", "dog/b.png")}
    assert made.skipped == []
    assert [record.getMessage() for record in caplog.records] == [
        f"1 image(s) directly in {tmp_path}, outside of its class folders, are ignored"
    ]


def test_links_to_files_and_to_classes_are_followed_and_none_in_circles(tmp_path):
    outside = two_classes(tmp_path / "outside")
    root = two_classes(tmp_path / "root")
    (root / "cat" / "linked.png").symlink_to(outside / "cat" / "a.png")
    (root / "elsewhere").symlink_to(outside / "dog")
    (root / "self").symlink_to(root)
    (root / "above").symlink_to(tmp_path)
    (root / "cat" / "round").symlink_to(root / "cat")
    (root / "cat" / "nowhere.png").symlink_to(tmp_path / "gone.png")
    (root / "cat" / "circle.png").symlink_to(root / "cat" / "circle.png")
    made = read_image_folder(root)
    assert made.names["train"] == ("cat/a.png", "cat/linked.png", "dog/b.png", "elsewhere/b.png")
    assert [name for name, _ in made.skipped] == ["cat/circle.png", "cat/nowhere.png"]
    assert made.skipped[1][1] == "No such file or directory"


def test_one_channel_is_used_only_when_every_image_is_grey(tmp_path):
    two_classes(tmp_path)
    shades = Image.new("P", (20, 20), 1)
    shades.putpalette([0, 0, 0, 90, 90, 90])
    save(tmp_path / "cat" / "palette.png", shades)
    save(tmp_path / "cat" / "deep.png", np.full((20, 20), 257, dtype=np.uint16))
    save(tmp_path / "cat" / "clear.png", flat((9, 255), mode="LA"))
    made = read_image_folder(tmp_path)
    assert made.train.inputs.shape == (5, 1, 20, 20)
    by_name = dict(zip(made.names["train"], made.train.inputs[:, 0, 0, 0].tolist(), strict=True))
    assert (by_name["cat/palette.png"], by_name["cat/deep.png"], by_name["cat/clear.png"]) == (90, 1, 9)
    shades.putpalette([0, 0, 0, 90, 90, 91])
    save(tmp_path / "cat" / "palette.png", shades)
    assert read_image_folder(tmp_path).train.inputs.shape == (5, 3, 20, 20)


# Broken files


def claimed(width, height):
    """A PNG file that claims a size and holds no pixels."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"IDAT" + zlib.compress(b"")]
    framed = [struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def test_files_that_do_not_decode_are_left_out_listed_and_counted_once(tmp_path, caplog, monkeypatch):
    two_classes(tmp_path / "train", COLOUR)
    two_classes(tmp_path / "test", COLOUR)
    whole = save(tmp_path / "whole.jpg", GENERATOR.integers(0, 256, (200, 200, 3), dtype=np.uint8)).read_bytes()
    cat = tmp_path / "train" / "cat"
    write(cat / "0.jpg", whole[: len(whole) // 2])
    write(cat / "1.jpg", b"this is text, not an image")
    write(cat / "2.png")
    write(cat / "3.png", claimed(100_000, 100_000))
    write(cat / "4.png", claimed(0, 4))
    write(cat / "5.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    save(cat / "6.png", flat(0, (300, 300), "L"))  # between once and twice the limit, where Pillow only warns
    write(tmp_path / "test" / "dog" / "t.gif", b"GIF89a" + bytes(7) + b",\0\0\0\0\0\0\0\0\0\x02\0;")  # 0 x 0
    made = read_image_folder(tmp_path)
    reasons = dict(made.skipped)
    assert list(reasons) == [
        *(f"train/cat/{number}" for number in ("0.jpg", "1.jpg", "2.png", "3.png", "4.png", "5.png", "6.png")),
        "test/dog/t.gif",
    ]
    assert "truncated" in reasons["train/cat/0.jpg"]
    for name in ("train/cat/1.jpg", "train/cat/4.png", "train/cat/5.png", "test/dog/t.gif"):
        assert reasons[name] == "not a readable image (PNG, JPEG, BMP, GIF, WEBP, TIFF)"
    assert reasons["train/cat/2.png"] == "empty file"
    assert reasons["train/cat/3.png"] == reasons["train/cat/6.png"] == "more than 50000 pixels"
    assert made.names == {"train": ("train/cat/a.png", "train/dog/b.png"), "test": ("test/cat/a.png", "test/dog/b.png")}
    assert (made.train.inputs == COLOUR.transpose(2, 0, 1)).all()
    assert made.train.labels.tolist() == [0, 1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "8 of 12 images" in caplog.text
    assert "train/cat/0.jpg" in caplog.text


@pytest.mark.parametrize("content", [b"no image", "truncated"])
def test_a_class_whose_images_are_all_broken_is_refused(tmp_path, content):
    two_classes(tmp_path)
    whole = save(tmp_path / "whole.png", COLOUR).read_bytes()
    write(tmp_path / "cow" / "c.png", whole[:-500] if content == "truncated" else content)
    with pytest.raises(
        UnreadableData, match=r"an image that decodes for every class, but all are broken of cow \(cow/c"
    ):
        read_image_folder(tmp_path)


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


def test_new_files_are_found_in_a_folder_however_deep_or_given_one_by_one(tmp_path):
    with pytest.raises(InvalidInput, match=r"must hold images .* but got none"):
        image_files(tmp_path)
    made = [save(tmp_path / name, GREY) for name in ("2.png", "10.png", "b/c/1.png")]
    write(tmp_path / "notes.txt")
    assert image_files(tmp_path) == made
    assert image_files(str(made[0])) == made[:1]
    with pytest.raises(UnreadableData, match=r"must be an image or a folder of images, but .*gone does not exist"):
        image_files(tmp_path / "gone")


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


def test_the_side_is_that_of_the_training_images_and_the_budget_counts_all_parts(tmp_path):
    two_classes(tmp_path / "train")
    large = np.zeros((60, 60), dtype=np.uint8)
    save(two_classes(tmp_path / "test", large) / "cat" / "third.png", large)
    assert read_image_folder(tmp_path).test.sample_shape == (1, 20, 20)
    assert read_image_folder(tmp_path, budget=5 * 18**2).train.sample_shape == (1, 18, 18)
    assert read_image_folder(tmp_path, side=3).test.sample_shape == (1, 3, 3)


def test_memory_holds_the_budget_and_no_second_copy(tmp_path):
    for number in range(40):
        save(tmp_path / f"{number % 2}" / f"{number}.png", flat(number, (300, 300), "L"))
    read_image_folder(tmp_path, side=1)  # imports are made here, not while counting
    tracemalloc.start()
    made = read_image_folder(tmp_path, side=256, budget=40 * 256**2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.train.inputs.nbytes == 40 * 256**2
    assert peak < 40 * 256**2 + (6 * images.THREADS + 2) * 256**2  # what is decoded ahead, in small


def test_no_more_images_are_opened_ahead_than_threads_can_use(tmp_path):
    path = save(tmp_path / "x.png", GREY)
    taken = []

    def stored():
        for number in range(100):
            taken.append(number)
            yield path

    outcomes = images._in_order(lambda image: image.size, stored())
    next(outcomes)
    assert len(taken) == 2 * images.THREADS + 1
    assert len([*outcomes]) == 99


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    inside = []
    plain = images.as_pixels

    def counted(*given):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return plain(*given)

    monkeypatch.setattr(images, "as_pixels", counted)
    monkeypatch.setattr(images, "THREADS", 4)
    path = save(tmp_path / "x.png", GREY)
    for large, expected in ((399, 1), (400, 4)):  # the image has 400 pixels
        most = []
        monkeypatch.setattr(images, "LARGE", large)
        read_images([path] * 12, 4, 1)
        assert (max(most) == 1) == (expected == 1)


# Refusals


def refused(path, match, error=InvalidInput):
    with pytest.raises(error, match=match):
        read_image_folder(path)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    refused(tmp_path / "gone", "`path` must be a folder of class folders .*gone does not exist", UnreadableData)
    refused(write(tmp_path / "x.png"), r"but .*x\.png is a file; check the path", UnreadableData)


def test_images_without_class_folders_are_refused(tmp_path):
    refused(tmp_path, "must hold one folder of images for each class, but got no folders; move")
    save(tmp_path / "a.png", GREY)
    refused(tmp_path, r"but got 1 image\(s\) directly in it and no folders; move the images of each class")
    two_classes(tmp_path / "train")
    save(tmp_path / "test" / "a.png", GREY)
    refused(tmp_path, r"test must hold one folder of images for each class, but got 1 image\(s\)")


def test_one_class_is_refused_and_the_folder_one_level_down_suggested(tmp_path):
    two_classes(tmp_path / "images")
    refused(tmp_path, r"at least two classes, but got one, images; if the classes are .* \(cat, dog\), pass that path")
    save(tmp_path / "lone" / "cat" / "a.png", GREY)
    refused(tmp_path / "lone", "at least two classes, but got one, cat; add the other classes")


def test_class_folders_without_images_are_refused_with_what_they_hold(tmp_path):
    write(two_classes(tmp_path) / "cow" / "photo.HEIC")
    (tmp_path / "eel").mkdir()
    refused(tmp_path, r"2 of 4 hold none: cow \(it holds \.heic files\), eel; remove those folders or add images")


def test_classes_that_training_lacks_are_refused_with_the_nearest(tmp_path):
    two_classes(tmp_path / "train")
    save(tmp_path / "test" / "dgo" / "a.png", GREY)
    save(tmp_path / "test" / "zebra" / "a.png", GREY)
    refused(tmp_path, r"test must hold only classes that .*train holds, but got dgo \(nearest: dog\), zebra; rename")


def test_parts_that_are_empty_or_there_twice_are_refused(tmp_path):
    two_classes(tmp_path / "train")
    (tmp_path / "test" / "cat").mkdir(parents=True)
    refused(tmp_path, "test must hold images, but got none; remove it")
    two_classes(tmp_path / "Testing")
    refused(tmp_path, "one folder for each part, but test and Testing both name `test`; merge or rename one")


def test_without_pillow_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    refused(two_classes(tmp_path), r"needs Pillow; install it with: pip install 's2e\[images\]'", UnreadableData)
    with pytest.raises(UnreadableData, match="needs Pillow"):
        read_images([], 20, 3)
