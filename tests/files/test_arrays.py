"""Arrays: equal to NumPy's, or refused; never more memory than their file states, never other data."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mutations import written_array
from s2e.errors import InvalidInput, UnreadableData
from s2e.files import regular
from s2e.files.arrays import npz_content, read_npy, read_npz

GENERATOR = np.random.default_rng(0)
ARRAYS = {
    "floats": GENERATOR.normal(size=(3, 4)),
    "columns first": np.asfortranarray(GENERATOR.normal(size=(3, 4))),
    "big-endian": np.arange(5, dtype=">i4"),
    "text": np.array(["a", "größer", "😀"]),
    "bytes": np.array([b"ab", b"c"]),
    "booleans": np.array([True, False]),
    "a number": np.array(2.5, dtype=np.float16),
    "none": np.zeros((0, 7), dtype=np.uint8),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "complex": np.array([1 + 2j]),
}


def with_member(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_equal_those_of_numpy(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "x.npz"
    (np.savez_compressed if compressed else np.savez)(path, **ARRAYS)
    found = read_npz(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("=")
        assert found[name].flags.writeable
    for name, array in ARRAYS.items():
        np.save(tmp_path / "x.npy", array)
        np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), array, err_msg=name)


def test_only_chosen_arrays_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3), b=np.array([None]))
    assert list(read_npz(tmp_path / "x.npz", lambda names: [name for name in names if name == "a"])) == ["a"]
    with pytest.raises(InvalidInput, match="`b` must hold numbers or strings, but got Python objects"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("compressed", [False, True])
def test_no_flipped_bit_gives_other_data(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "x.npz"
    arrays = {"x": np.arange(6.0), "y_train_clean": np.arange(3), "class_names": np.array(["a", "b"])}
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    whole, unreadable = path.read_bytes(), 0
    for position in range(len(whole)):
        for bit in range(0, 8, 3):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                found = read_npz(path)
            except UnreadableData:
                unreadable += 1
                continue
            assert {name: array.tolist() for name, array in found.items()} == {
                name: array.tolist() for name, array in arrays.items()
            }, (position, bit)
    assert unreadable > len(whole)


@pytest.mark.parametrize(
    ("descr", "shape"),
    [
        ("'<f8'", "(10**12,)"),
        ("'<f8'", "(1000000000000,)"),
        ("'<f8'", "(-1,)"),
        ("'<f8'", "(2305843009213693952, 8)"),
        ("'<U1000000000'", "(9,)"),
        ("'<U0'", "(1000000000,)"),
        ("'|V8'", "(2,)"),
        ("[('a', '<f8')]", "(2,)"),
        ("('<f8', (2,))", "(1,)"),
        ("'junk'", "(2,)"),
        ("'<f8'", "'x'"),
        ("'<f8'", "(" * 3000),
        ("'<f8'", "(1.5,)"),
    ],
)
def test_headers_that_the_data_contradict_are_refused(tmp_path: Path, descr: str, shape: str) -> None:
    content = header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n") + bytes(16)
    (tmp_path / "x.npy").write_bytes(content)
    for read, path in ((read_npz, with_member(tmp_path / "x.npz", "x.npy", content)), (read_npy, tmp_path / "x.npy")):
        with pytest.raises(UnreadableData, match=path.name):
            read(path)


def test_data_before_and_after_an_array_are_refused(tmp_path: Path) -> None:
    content = written_array(np.arange(4))
    for changed in (content + b"x", content[:-1], b"x" + content, content[:5], b""):
        (tmp_path / "x.npy").write_bytes(changed)
        with pytest.raises(UnreadableData):
            read_npz(with_member(tmp_path / "x.npz", "x.npy", changed))
        with pytest.raises(UnreadableData):
            read_npy(tmp_path / "x.npy")


def test_a_small_archive_cannot_ask_for_more_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(2**21))
    assert path.stat().st_size < 2**15
    monkeypatch.setattr(regular, "available_memory", lambda: 2**20)
    with pytest.raises(UnreadableData, match=r"must hold at most 524,288 bytes, but holds 16,777,216 bytes or more"):
        read_npz(path)


def test_text_that_is_not_unicode_and_other_booleans_are_refused(tmp_path: Path) -> None:
    for code_point in (0xD800, 0x110000, 0xFFFFFFFF):
        text = np.array([ord("a"), code_point], dtype=np.uint32).view("<U1")
        path = with_member(tmp_path / "x.npz", "x.npy", written_array(text))
        with pytest.raises(UnreadableData, match="not Unicode"):
            read_npz(path)
    with pytest.raises(UnreadableData, match="booleans must be 0 or 1"):
        read_npz(with_member(tmp_path / "x.npz", "x.npy", written_array(np.array([2], dtype=np.uint8).view(bool))))


def test_two_members_of_one_name_and_other_compressions_are_refused(tmp_path: Path) -> None:
    content = written_array(np.arange(4))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("x.npy", content)
        archive.writestr("x", content)
    (tmp_path / "x.npz").write_bytes(written.getvalue())
    with pytest.raises(UnreadableData, match="two arrays of one name"):
        read_npz(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(UnreadableData, match="a compression that NumPy does not use"):
        read_npz(tmp_path / "x.npz")


def test_an_archive_with_a_comment_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", written_array(np.arange(4)))
        archive.comment = b"made by another program"
    np.testing.assert_array_equal(read_npz(tmp_path / "x.npz")["x"], np.arange(4))


def test_written_arrays_are_read_again_under_any_name(tmp_path):
    arrays = {"file": np.arange(3), "a/b": np.array(["x", "yz"]), "self": np.ones((2, 0))}
    (tmp_path / "a.npz").write_bytes(npz_content(arrays))
    found = read_npz(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    with np.load(tmp_path / "a.npz") as loaded:
        assert loaded["a/b"].tolist() == ["x", "yz"]
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        npz_content({"x": np.array([None])})
