"""Folders of images: files, order, splits, classes and refusals."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

from image_files import COLOUR, GREY, JPEG_ERROR, Image, flat, save, write
from s2e.data import image_decoding
from s2e.data.image_decoding import read_images
from s2e.data.image_folders import image_files, read_image_folder
from s2e.data.input_readers import ImageReader
from s2e.errors import InvalidInput, UnreadableData


def two_classes(root, image=GREY):
    save(root / "cat" / "a.png", image)
    save(root / "dog" / "b.png", image)
    return root


# Files, splits and order


def test_files_are_in_natural_order_folder_by_folder(tmp_path):
    folders = ["a/1.png", "a2/x9.png", "a2/x10.png", "A3/x.png", "a10/x2.png", "a-b/2.png", "b/1.png"]
    ordered = ["9.png", "10.png", *folders]
    for name in reversed(ordered):
        write(tmp_path / name)
    assert [file.relative_to(tmp_path).as_posix() for file in image_files(tmp_path)] == ordered


def test_ids_labels_and_pixels_match(tmp_path):
    for level, name in enumerate(["9/2.png", "9/10.PNG", "9/deep/er/1.jpeg", "10/x.bmp", "11/y.tif", "11/z.webp"]):
        save(tmp_path / name, flat(level * 40, mode="L").convert("RGB" if "webp" in name else "L"))
    made = read_image_folder(tmp_path)
    assert made.ids == ("9/2.png", "9/10.PNG", "9/deep/er/1.jpeg", "10/x.bmp", "11/y.tif", "11/z.webp")
    assert made.train.class_names == ("9", "10", "11")
    assert made.train.labels.tolist() == [0, 0, 0, 1, 2, 2]
    assert made.train.inputs.shape == (6, 3, 20, 20)
    assert np.abs(made.train.inputs[:, 0, 5, 5] - np.arange(6) * 40.0).max() <= JPEG_ERROR
    assert made.train.rows.tolist() == list(range(6))
    assert (made.valid, made.test, made.reader) == (None, None, ImageReader(20, 3))


def test_threads_keep_the_order(tmp_path):
    for level in range(60):
        save(tmp_path / f"{level % 2}" / f"{level}.png", flat(level, (16, 16 + 900 * (level % 7 == 0)), "L"))
    made = read_image_folder(tmp_path)
    assert made.train.inputs[:, 0, 0, 0].tolist() == [*range(0, 60, 2), *range(1, 60, 2)]


@pytest.mark.parametrize("valid", ["validation", "Val"])
def test_folders_named_like_splits_are_splits(tmp_path, valid):
    two_classes(tmp_path / "train")
    two_classes(tmp_path / valid)
    save(tmp_path / "test" / "dog" / "only.png", COLOUR)
    (tmp_path / "test" / "cat").mkdir()
    made = read_image_folder(tmp_path)
    assert (len(made.train), len(made.valid), len(made.test)) == (2, 2, 1)
    assert made.ids == ("train/cat/a.png", "train/dog/b.png")
    assert made.test.class_names == ("cat", "dog")
    assert made.test.labels.tolist() == [1]
    assert made.train.sample_shape == made.test.sample_shape == (3, 20, 20)  # one colour image makes all colour


def test_train_is_a_class_if_there_are_no_other_splits(tmp_path):
    for name in ("bus", "train"):
        save(tmp_path / name / "x.png", GREY)
    assert read_image_folder(tmp_path).train.class_names == ("bus", "train")


def test_other_folders_next_to_splits_are_ignored(tmp_path, caplog):
    two_classes(tmp_path / "Training")
    two_classes(tmp_path / "Testing")
    two_classes(tmp_path / "raw")
    made = read_image_folder(tmp_path)
    assert (len(made.train), made.valid, len(made.test)) == (2, None, 2)
    assert "ignored: raw" in caplog.text


def test_hidden_and_other_files_are_ignored(tmp_path, caplog):
    two_classes(tmp_path)
    for name in ("cat/Thumbs.db", "cat/.hidden.png", ".git/x.png", "cat/.thumbs/x.png", "cat/notes.txt", "loose.png"):
        write(tmp_path / name)
    for name in ("__MACOSX/x.png", "cat/@eaDir/x.png"):
        save(tmp_path / name, GREY)
    (tmp_path / "cat" / "folder.png").mkdir()
    made = read_image_folder(tmp_path)
    assert made.ids == ("cat/a.png", "dog/b.png")
    assert [record.getMessage() for record in caplog.records] == [
        f"1 image(s) in {tmp_path}, outside its class folders, are ignored"
    ]


def test_links_to_files_and_classes_are_followed(tmp_path, caplog):
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
    assert made.ids == ("cat/a.png", "cat/linked.png", "dog/b.png", "elsewhere/b.png")
    assert "2 of 6 images" in caplog.text
    assert "cat/circle.png" in caplog.text


def test_one_channel_if_every_image_is_grey(tmp_path):
    two_classes(tmp_path)
    shades = Image.new("P", (20, 20), 1)
    shades.putpalette([0, 0, 0, 90, 90, 90])
    save(tmp_path / "cat" / "palette.png", shades)
    save(tmp_path / "cat" / "deep.png", np.full((20, 20), 257, dtype=np.uint16))
    save(tmp_path / "cat" / "clear.png", flat((9, 255), mode="LA"))
    made = read_image_folder(tmp_path)
    assert made.train.inputs.shape == (5, 1, 20, 20)
    by_name = dict(zip(made.ids, made.train.inputs[:, 0, 0, 0].tolist(), strict=True))
    assert (by_name["cat/palette.png"], by_name["cat/deep.png"], by_name["cat/clear.png"]) == (90, 1, 9)
    shades.putpalette([0, 0, 0, 90, 90, 91])
    save(tmp_path / "cat" / "palette.png", shades)
    assert read_image_folder(tmp_path).train.inputs.shape == (5, 3, 20, 20)


def test_image_files_of_folders_and_single_files(tmp_path):
    with pytest.raises(InvalidInput, match=r"must hold images .* but got none"):
        image_files(tmp_path)
    made = [save(tmp_path / name, GREY) for name in ("2.png", "10.png", "b/c/1.png")]
    write(tmp_path / "notes.txt")
    assert image_files(tmp_path) == made
    assert image_files(str(made[0])) == made[:1]
    with pytest.raises(UnreadableData, match=r"must be an image or a folder of images, but .*gone does not exist"):
        image_files(tmp_path / "gone")


# Broken files


def test_broken_files_are_left_out_with_one_warning(tmp_path, caplog):
    two_classes(tmp_path / "train", COLOUR)
    two_classes(tmp_path / "test", COLOUR)
    whole = save(tmp_path / "whole.png", np.zeros((200, 200, 3), dtype=np.uint8)).read_bytes()
    write(tmp_path / "train" / "cat" / "0.png", whole[:-30])  # the header is intact
    write(tmp_path / "train" / "cat" / "1.jpg", b"this is text, not an image")
    write(tmp_path / "test" / "dog" / "t.gif")
    made = read_image_folder(tmp_path)
    assert made.ids == ("train/cat/a.png", "train/dog/b.png")
    assert (made.train.inputs == COLOUR.transpose(2, 0, 1)).all()
    assert made.train.labels.tolist() == made.test.labels.tolist() == [0, 1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "3 of 7 images" in caplog.text
    assert "train/cat/0.png: " in caplog.text


@pytest.mark.parametrize("content", [b"no image", "truncated"])
def test_a_class_of_broken_images_is_refused(tmp_path, content):
    two_classes(tmp_path)
    whole = save(tmp_path / "whole.png", COLOUR).read_bytes()
    write(tmp_path / "cow" / "c.png", whole[:-500] if content == "truncated" else content)
    with pytest.raises(UnreadableData, match=r"can be decoded for every class, but has none of cow \(cow/c"):
        read_image_folder(tmp_path)


# Side and budget


def test_the_side_follows_training_and_the_budget_all_splits(tmp_path, monkeypatch):
    two_classes(tmp_path / "train")
    large = np.zeros((60, 60), dtype=np.uint8)
    save(two_classes(tmp_path / "test", large) / "cat" / "third.png", large)
    assert read_image_folder(tmp_path).test.sample_shape == (1, 20, 20)
    monkeypatch.setattr(image_decoding, "BUDGET", 5 * 18**2)
    assert read_image_folder(tmp_path).train.sample_shape == (1, 18, 18)


def test_a_given_side_is_used_for_all_splits(tmp_path, monkeypatch):
    two_classes(tmp_path / "train")
    two_classes(tmp_path / "test", np.zeros((60, 60), dtype=np.uint8))
    monkeypatch.setattr(image_decoding, "BUDGET", 1)  # bounds the automatic choice only
    for side in (8, 100):
        made = read_image_folder(tmp_path, side=side)
        assert made.train.sample_shape == made.test.sample_shape == (1, side, side)
        assert made.reader == ImageReader(side, 1)
        np.testing.assert_array_equal(made.test.inputs[:1], read_images([tmp_path / "test/cat/a.png"], side, 1))


def test_images_are_not_copied(tmp_path, monkeypatch):
    for number in range(40):
        save(tmp_path / f"{number % 2}" / f"{number}.png", flat(number, (300, 300), "L"))
    read_image_folder(tmp_path)  # imports
    monkeypatch.setattr(image_decoding, "LARGEST_SIDE", 256)
    tracemalloc.start()
    made = read_image_folder(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.train.inputs.nbytes == 40 * 256**2
    assert peak < 40 * 256**2 + (6 * image_decoding.THREADS + 2) * 256**2  # small images decoded ahead


# Refusals


def refused(path, match, error=InvalidInput):
    with pytest.raises(error, match=match):
        read_image_folder(path)


def test_other_paths_are_refused(tmp_path):
    refused(tmp_path / "gone", "`path` must be a folder of class folders .*gone does not exist", UnreadableData)
    refused(write(tmp_path / "x.png"), r"but .*x\.png is a file; check the path", UnreadableData)


def test_images_without_class_folders_are_refused(tmp_path):
    refused(tmp_path, "must hold one folder of images for each class, but got no folders; move")
    save(tmp_path / "a.png", GREY)
    refused(tmp_path, r"but got 1 image\(s\) and no folders; move the images of each class")
    two_classes(tmp_path / "train")
    save(tmp_path / "test" / "a.png", GREY)
    refused(tmp_path, r"test must hold one folder of images for each class, but got 1 image\(s\)")


def test_one_class_is_refused_with_a_suggestion(tmp_path):
    two_classes(tmp_path / "images")
    refused(tmp_path, r"at least two classes, but got one, images; if the classes are .* \(cat, dog\), pass that path")
    save(tmp_path / "lone" / "cat" / "a.png", GREY)
    refused(tmp_path / "lone", "at least two classes, but got one, cat; add the other classes")


def test_class_folders_without_images_are_refused(tmp_path):
    write(two_classes(tmp_path) / "cow" / "photo.HEIC")
    (tmp_path / "eel").mkdir()
    refused(tmp_path, r"2 of 4 hold none: cow \(it holds \.heic files\), eel; remove those folders or add images")


def test_classes_missing_in_training_are_refused(tmp_path):
    two_classes(tmp_path / "train")
    save(tmp_path / "test" / "dgo" / "a.png", GREY)
    save(tmp_path / "test" / "zebra" / "a.png", GREY)
    refused(tmp_path, r"test must hold only classes of .*train \(cat, dog\), but got dgo, zebra; rename")


def test_empty_and_duplicate_splits_are_refused(tmp_path):
    two_classes(tmp_path / "train")
    (tmp_path / "test" / "cat").mkdir(parents=True)
    refused(tmp_path, "test must hold images, but got none; remove it")
    two_classes(tmp_path / "Testing")
    refused(tmp_path, "one folder for each split, but test and Testing both mean `test`; merge or rename one")


def test_without_pillow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    refused(two_classes(tmp_path), r"needs Pillow; install it with: pip install 's2e\[images\]'", UnreadableData)
    with pytest.raises(UnreadableData, match="needs Pillow"):
        read_images([], 20, 3)
