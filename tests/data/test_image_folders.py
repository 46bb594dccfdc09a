"""Folders of images: which files are read, in which order, into which parts and classes, and what is refused."""

from __future__ import annotations

import struct
import sys
import tracemalloc
import zlib

import numpy as np
import pytest

from image_files import COLOUR, GENERATOR, GREY, JPEG_ERROR, Image, flat, save, write
from s2e.data import image_decoding
from s2e.data.image_decoding import read_images
from s2e.data.image_folders import image_files, natural_order, read_image_folder
from s2e.errors import InvalidInput, UnreadableData


def two_classes(root, image=GREY):
    save(root / "cat" / "a.png", image)
    save(root / "dog" / "b.png", image)
    return root


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


def test_new_files_are_found_in_a_folder_however_deep_or_given_one_by_one(tmp_path):
    with pytest.raises(InvalidInput, match=r"must hold images .* but got none"):
        image_files(tmp_path)
    made = [save(tmp_path / name, GREY) for name in ("2.png", "10.png", "b/c/1.png")]
    write(tmp_path / "notes.txt")
    assert image_files(tmp_path) == made
    assert image_files(str(made[0])) == made[:1]
    with pytest.raises(UnreadableData, match=r"must be an image or a folder of images, but .*gone does not exist"):
        image_files(tmp_path / "gone")


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


# Side and budget


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
    assert peak < 40 * 256**2 + (6 * image_decoding.THREADS + 2) * 256**2  # what is decoded ahead, in small


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
