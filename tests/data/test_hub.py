"""Data sets of the Hub, on local folders that the same library loads."""

from __future__ import annotations

import io
import sys

import pytest

from s2e.data.hub import HubTable, load_hub
from s2e.data.input_readers import ImageReader
from s2e.data.samples import Source
from s2e.errors import InvalidInput, UnreadableData

NAMES = ("cat", "dog", "eel")


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read when it was imported
    datasets.disable_progress_bars()
    yield datasets
    datasets.enable_progress_bars()


def load(folder, **options):
    return load_hub(str(folder), cache=folder.parent / "cache", **options)


def encoded(level, size=(20, 20), mode="L"):
    from PIL import Image

    content = io.BytesIO()
    Image.new(mode, size, level).save(content, "PNG")
    return {"bytes": content.getvalue(), "path": "elsewhere.png"}


def write_images(library, folder, **splits):
    """Write one parquet file for each split, of (image, label) pairs."""
    features = library.Features({"image": library.Image(), "label": library.ClassLabel(names=list(NAMES))})
    folder.mkdir()
    for split, pairs in splits.items():
        images, labels = zip(*pairs, strict=True)
        made = library.Dataset.from_dict({"image": list(images), "label": list(labels)}, features=features)
        made.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    return folder


def write_table(folder, **splits):
    folder.mkdir()
    for split, text in splits.items():
        (folder / f"{split}.csv").write_text(text)
    return folder


def test_images_are_decoded_by_split(library, tmp_path, monkeypatch):
    folder = write_images(
        library,
        tmp_path / "set",
        train=[(encoded(level, (20 + level, 20)), level % 3) for level in range(7)],
        validation=[(encoded(50), 2)],
        test=[(encoded(60, (40, 90)), 1), (encoded(70), 0)],
    )
    made = load(folder)
    assert isinstance(made, Source)
    assert made.train.inputs.shape == (7, 1, 20, 20)
    assert made.train.inputs[:, 0, 3, 3].tolist() == list(range(7))
    assert made.train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert made.train.class_names == made.test.class_names == NAMES
    assert (made.valid.inputs[:, 0, 0, 0].tolist(), made.valid.labels.tolist()) == ([50], [2])
    assert (made.test.inputs[:, 0, 0, 0].tolist(), made.test.labels.tolist()) == ([60, 70], [1, 0])
    assert made.reader == ImageReader(20, 1)
    monkeypatch.setattr("s2e.data.image_decoding.BUDGET", 10 * 17**2)
    assert load(folder).train.sample_shape == (1, 17, 17)


def test_images_are_resized_to_a_given_side(library, tmp_path):
    folder = write_images(library, tmp_path / "set", train=[(encoded(9), 0), (encoded(8), 1)], test=[(encoded(7), 1)])
    made = load(folder, side=11)
    assert made.train.sample_shape == made.test.sample_shape == (1, 11, 11)
    assert made.reader == ImageReader(11, 1)


def test_one_colour_image_makes_all_images_colour(library, tmp_path):
    pairs = [(encoded(9), 0), (encoded((1, 2, 3), mode="RGB"), 1)]
    made = load(write_images(library, tmp_path / "set", train=pairs))
    assert made.train.inputs[:, :, 0, 0].tolist() == [[9, 9, 9], [1, 2, 3]]
    assert (made.valid, made.test) == (None, None)


def test_unlabelled_and_broken_images_are_left_out(library, tmp_path, caplog):
    broken, cut = {"bytes": b"no image", "path": None}, encoded(4, (200, 200))
    cut["bytes"] = cut["bytes"][:-30]
    pairs = [(broken, 0), (encoded(1), 1), (encoded(2), -1), (encoded(3), 2), (cut, 0), (encoded(5), 0), (None, 1)]
    made = load(write_images(library, tmp_path / "set", train=pairs, test=[(encoded(6), -1), (encoded(7), None)]))
    assert made.train.rows.tolist() == [1, 3, 5]
    assert made.train.labels.tolist() == [1, 2, 0]
    assert made.train.inputs[:, 0, 0, 0].tolist() == [1, 3, 5]
    assert made.test is None
    assert "left out: 4 of 7 in train, 2 of 2 in test" in caplog.text
    with pytest.raises(
        UnreadableData, match="must hold training images that can be decoded and have a label, but got none"
    ):
        load(write_images(library, tmp_path / "nothing", train=[(broken, 0), (encoded(1), -1)]))


def test_image_folders_are_read(library, tmp_path):
    for split, name, level in (("train", "a", 10), ("train", "b", 20), ("test", "b", 30)):
        path = tmp_path / "set" / split / name / "x.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(encoded(level)["bytes"])
    made = load(tmp_path / "set")
    assert made.train.inputs[:, 0, 0, 0].tolist() == [10, 20]
    assert (made.test.inputs[0, 0, 0, 0], made.test.labels[0], made.test.class_names) == (30, 1, ("a", "b"))


def test_tables_of_numbers_are_returned_as_frames(library, tmp_path):
    folder = write_table(tmp_path / "set", train="a,b,label\n1,2.5,x\n3,,y\n", test="a,b,label\n5,6.5,x\n")
    made = load(folder)
    assert isinstance(made, HubTable)
    assert (made.label, list(made.train.columns), made.valid) == ("label", ["a", "b", "label"], None)
    assert made.train["a"].tolist() == [1, 3]
    assert made.train["b"].isna().tolist() == [False, True]
    assert made.train["label"].tolist() == ["x", "y"]
    assert made.test["b"].tolist() == [6.5]


def test_declared_classes_of_a_table_are_names(library, tmp_path):
    features = library.Features({"x": library.Value("float32"), "kind": library.ClassLabel(names=list(NAMES))})
    rows = library.Dataset.from_dict({"x": [1.0, 2.0, 3.0, 4.0], "kind": [2, 0, -1, None]}, features=features)
    (tmp_path / "set").mkdir()
    rows.to_parquet(str(tmp_path / "set" / "train.parquet"))
    made = load(tmp_path / "set")
    assert made.label == "kind"
    assert made.train["kind"].tolist()[:2] == ["eel", "cat"]
    assert made.train["kind"].isna().tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("tables", "options", "match"),
    [
        ({"train": "label\n1\n"}, {}, "besides the label `label`, but got no other column"),
        ({"train": "a,b\n1,2\n"}, {}, "one label column, but got none; pass `label`, one of a, b"),
        ({"train": "a,label\n1,2\n"}, {"label": "lable"}, "`label` must be one of label, a, but got 'lable'"),
        ({"train": "a,label\n1,2\n"}, {"side": 32}, "`image_size` must be given for images only, but got 32 for "),
        ({"test": "a,label\n1,2\n"}, {}, "must have a split named train, but has test"),
    ],
)
def test_other_tables_are_refused(library, tmp_path, tables, options, match):
    with pytest.raises(InvalidInput, match=match):
        load(write_table(tmp_path / "set", **tables), **options)


def test_several_label_columns_need_a_choice(library, tmp_path):
    classes = library.ClassLabel(names=list(NAMES))
    features = library.Features({"x": library.Value("int8"), "fine": classes, "coarse": classes, "y": library.Image()})
    rows = {"x": [1, 2], "fine": [0, 1], "coarse": [1, 2], "y": [encoded(1), encoded(2)]}
    (tmp_path / "set").mkdir()
    library.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "set" / "train.parquet"))
    with pytest.raises(InvalidInput, match=r"got several: fine, coarse; pass `label`, one of x, fine, coarse, y"):
        load(tmp_path / "set")
    assert load(tmp_path / "set", label="coarse").train.labels.tolist() == [1, 2]
    with pytest.raises(
        InvalidInput, match=r"the label `x` of images must declare its classes \(ClassLabel\), but is int8"
    ):
        load(tmp_path / "set", label="x")


def test_unknown_splits_are_ignored_with_a_warning(library, caplog, monkeypatch):
    table = library.Dataset.from_dict({"a": [1, 2], "label": [0, 1]})
    splits = {"train": table, "unsupervised": table}
    monkeypatch.setattr(library, "load_dataset", lambda *_, **__: splits)
    assert len(load_hub("hf:some/set").train) == 2
    assert "some/set: unknown splits are ignored: unsupervised" in caplog.text
    splits |= {"val": table, "validation": table}
    with pytest.raises(InvalidInput, match="one split for `valid`, but has validation and val"):
        load_hub("some/set")


def test_a_configuration_follows_a_colon(library, tmp_path, monkeypatch):
    calls = []
    table = library.Dataset.from_dict({"a": [1, 2], "label": [0, 1]})

    def record(path, config, cache_dir):
        calls.append((path, config, cache_dir))
        return {"train": table}

    monkeypatch.setattr(library, "load_dataset", record)
    load_hub("hf:owner/set:small")
    load_hub("owner/set")
    (tmp_path / "a:b").mkdir()
    load_hub(f"{tmp_path}/a:b")
    assert calls == [("owner/set", "small", None), ("owner/set", None, None), (f"{tmp_path}/a:b", None, None)]


def test_the_cause_of_a_failure_is_named(library, tmp_path, monkeypatch):
    with pytest.raises(UnreadableData, match=r"check the name .*hf auth login") as caught:
        load_hub("hf:owner/set")
    assert "owner/set must be a reachable data set of the Hub" in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableData, match="contain any data files"):
        load(tmp_path / "empty")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "train.json").write_text("{nope")
    with pytest.raises(InvalidInput, match="JSON parse error"):
        load(tmp_path / "bad")

    def no_config(path, config, cache_dir):
        raise ValueError("Config name is missing.\nPlease pick one")

    monkeypatch.setattr(library, "load_dataset", no_config)
    with pytest.raises(InvalidInput, match=r"it failed: Config name is missing; .* hf:owner/set:CONFIG"):
        load_hub("owner/set")


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UnreadableData, match=r"needs the package datasets; install it with: pip install 's2e\[hub\]'"):
        load_hub("owner/set")
