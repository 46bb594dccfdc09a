"""Reading tables from text and parquet files."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import random
import sys

import pandas as pd
import pytest

from s2e.data.table_files import read_table
from s2e.errors import InvalidInput, UnreadableData
from s2e.files import regular

EXPECTED = pd.DataFrame({"size": [1.5, 2.0], "colour": ["red", "blue"], "count": [3, 4]})


def written(tmp_path, content, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path, error=UnreadableData):
    with pytest.raises(error) as caught:
        read_table(path)
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    return message


class TestText:
    def test_windows_1252_is_read_with_a_warning(self, tmp_path, caplog):
        path = written(tmp_path, "größe;farbe\n1,5;rot\n2;€\n".encode("cp1252"))
        expected = pd.DataFrame({"größe": [1.5, 2.0], "farbe": ["rot", "€"]})
        pd.testing.assert_frame_equal(read_table(path), expected)
        assert "is read as Windows-1252, with characters such as 'ö'" in caplog.text

    def test_utf16_with_a_mark_is_read(self, tmp_path, caplog):
        path = written(tmp_path, "größe\tfarbe\n1.5\trot\n2\tblau\n".encode("utf-16"))
        pd.testing.assert_frame_equal(read_table(path), pd.DataFrame({"größe": [1.5, 2.0], "farbe": ["rot", "blau"]}))
        assert not caplog.text

    @pytest.mark.parametrize(
        "text",
        [
            "size,colour,count\r\n1.5,red,3\r\n2,blue,4",
            "size,colour,count\r1.5,red,3\r2,blue,4\r",
            "size;colour;count\n1.5;red;3\n2.0;blue;4\n",
            "size\tcolour\tcount\n1.5\tred\t3\n2\tblue\t4\n",
            ' size, "colour", count\n1.5, "red", 3\n2, "blue", 4\n',
            "\n\nsize,colour,count\n\n1.5,red,3\n   \n2,blue,4\n\n",
            '\n\nsize,"colour",count\n\n1.5,red,3\n   \n2,blue,4\n\n',
            "\ufeffsize,colour,count\n1.5,red,3\n2,blue,4\n",
        ],
    )
    def test_all_forms_of_a_table_are_equal(self, tmp_path, text):
        frame = read_table(written(tmp_path, text))
        frame["size"] = frame["size"].astype(float)  # with semicolons, a decimal point is text
        pd.testing.assert_frame_equal(frame, EXPECTED, check_exact=True)

    def test_decimal_commas_with_semicolons(self, tmp_path):
        pd.testing.assert_frame_equal(
            read_table(written(tmp_path, "size;colour;count\n1,5;red;3\n2,0;blue;4\n")), EXPECTED
        )

    @pytest.mark.parametrize("name", ["T.TSV.GZ", "t.csv"])
    def test_gzip_is_detected_by_content(self, tmp_path, name):
        path = written(tmp_path, gzip.compress(b"size,colour,count\n1.5,red,3\n2,blue,4\n"), name)
        pd.testing.assert_frame_equal(read_table(path), EXPECTED)

    def test_separators_and_line_ends_in_quotes(self, tmp_path):
        frame = read_table(written(tmp_path, 'a,b\n"x,y","two\nlines"\n"say ""no""",z\n'))
        assert frame.to_numpy().tolist() == [["x,y", "two\nlines"], ['say "no"', "z"]]

    def test_the_separator_fits_header_and_rows(self, tmp_path):
        frame = read_table(written(tmp_path, "a,b\nx;y;z,1\nu;v;w,2\n"))
        assert frame.columns.tolist() == ["a", "b"]
        frame = read_table(written(tmp_path, "a,b,c;d\n1;2\n3;4\n"))
        assert frame.columns.tolist() == ["a,b,c", "d"]
        assert read_table(written(tmp_path, "a\n1\n\n2\n"))["a"].tolist() == [1, 2]

    def test_only_numbers_with_leading_zeros_stay_text(self, tmp_path):
        frame = read_table(written(tmp_path, "n,id,f,z\n10,12345,0.5,0\n0,00420,0.25,0\n"))
        assert frame["id"].tolist() == ["12345", "00420"]
        assert [frame[name].dtype.kind for name in ("n", "f", "z")] == ["i", "f", "i"]

        for row in ('"007",1', " 007,1", "007 ,1"):
            assert read_table(written(tmp_path, f"id,n\n{row}\n"))["id"].str.strip().tolist() == ["007"]

    def test_none_is_not_missing(self, tmp_path):
        rows = ["", "NA", "NaN", "null", "?", "#N/A", "None", "none"]
        frame = read_table(written(tmp_path, "a,b\n" + "".join(f"{row},1\n" for row in rows)))
        assert frame["a"].isna().tolist() == [True] * 6 + [False] * 2

    def test_a_line_of_tabs_is_a_row(self, tmp_path):
        frame = read_table(written(tmp_path, "a\tb\n1\t2\n\t\n3\t4\n"))
        assert frame.isna().to_numpy().tolist() == [[False, False], [True, True], [False, False]]
        assert "line 3 has 3" in refusal(written(tmp_path, "a\tb\n1\t2\n\t\t\n3\t4\n"))

    def test_unnamed_columns(self, tmp_path):
        frame = read_table(written(tmp_path, ",a,\n0,x,\n1,y,\n"))
        assert frame.columns.tolist() == ["Unnamed: 0", "a", "Unnamed: 2"]

    def test_random_tables_equal_the_csv_module(self, tmp_path):
        generator = random.Random(0)
        for number in range(20):
            width = generator.randint(2, 5)
            rows = [
                ["x" + "".join(generator.choices('ab ,;\t"\n\r0é', k=generator.randint(0, 6))) for _ in range(width)]
                for _ in range(generator.randint(1, 20))
            ]
            text = io.StringIO(newline="")
            writer = csv.writer(text, delimiter=generator.choice(",;\t"), lineterminator="\r\n")
            writer.writerows([[f"c{position}" for position in range(width)], *rows])
            frame = read_table(written(tmp_path, text.getvalue(), f"{number}.csv"))
            assert frame.to_numpy().tolist() == rows


class TestRefusedText:
    def test_missing_files_and_folders(self, tmp_path):
        assert "does not exist" in refusal(tmp_path / "none.csv")
        (tmp_path / "folder.csv").mkdir()
        assert "is a directory" in refusal(tmp_path / "folder.csv")

    def test_other_suffixes(self, tmp_path):
        message = refusal(written(tmp_path, b"PK", "table.xlsx"), InvalidInput)
        assert ".csv.gz" in message
        assert ".parquet" in message

    @pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
    def test_empty_files(self, tmp_path, name):
        assert "is empty" in refusal(written(tmp_path, b"", name))

    def test_tables_without_rows(self, tmp_path):
        assert "is empty" in refusal(written(tmp_path, b"\xef\xbb\xbf\n \n"))
        assert "only the 2 column names" in refusal(written(tmp_path, "a,b\n"))

    @pytest.mark.parametrize(
        ("content", "where"),
        [
            (b"\xef\xbb\xbfa,b\n1,x\n2,caf\xe9\n", "0xe9 on line 3 (byte 17 of the file)"),
            (b"a,b\n1,x\n2,caf\x81\n", "0x81 on line 3 (byte 14 of the file)"),
            (b"a,b\n1,x\n2,\x07\xe9\n", "0xe9 on line 3 (byte 12 of the file)"),
        ],
        ids=["after a mark", "in no encoding", "beside control characters"],
    )
    def test_bytes_that_are_not_text_are_named_with_their_line(self, tmp_path, content, where):
        message = refusal(written(tmp_path, content))
        assert where in message
        assert "iconv -f ENCODING -t UTF-8 table.csv > utf8-table.csv" in message

    def test_half_a_utf16_character_and_zero_bytes(self, tmp_path):
        assert "ends within a character" in refusal(written(tmp_path, "a,b\n1,2\n".encode("utf-16")[:-1]))
        assert "zero byte on line 2" in refusal(written(tmp_path, b"a,b\n1,\0\n"))

    def test_rows_of_wrong_length_are_named_by_line(self, tmp_path):
        for quote in ("", '"'):
            message = refusal(written(tmp_path, f"a,{quote}b{quote}\n1,2\n\n1,2,3\n4\n"))
            assert "must have 2 fields" in message
            assert "line 4 has 3, line 5 has 1" in message
        assert "line 4 has 3;" in refusal(written(tmp_path, 'a,b\n"x\ny",2\n1,2,3\n'))
        message = refusal(written(tmp_path, "a,b\n" + "1,2\n" * 60 + "1\n" * 9))
        assert "line 66 has 1, …;" in message
        assert "line 67" not in message

    @pytest.mark.parametrize("broken", ['"x,2\n3,4\n', '"x" y,2\n3,4\n', '"x,2\n3,4\n"z",5\n'])
    def test_broken_quotes_are_named_by_line(self, tmp_path, broken):
        message = refusal(written(tmp_path, "a,b\n1,2\n" + broken))
        assert "begins on line 3" in message
        assert "quotes must be closed" in message

    def test_duplicate_names_and_wrong_rows_are_reported_together(self, tmp_path):
        message = refusal(written(tmp_path, "a,b, a\n1,2\n"))
        assert "got more than once: a;" in message
        assert "line 2 has 2" in message

    def test_truncated_gzip_files(self, tmp_path):
        packed = gzip.compress(b"a,b\n" + b"1,2\n" * 100)
        assert "could not be read" in refusal(written(tmp_path, packed[:-12], "table.csv.gz"))


class TestParquet:
    @pytest.fixture(autouse=True)
    def _parquet(self):
        pytest.importorskip("pyarrow")

    def test_a_table_is_read_as_written(self, tmp_path):
        frame = EXPECTED.assign(flag=[True, False], kind=pd.Categorical(["u", "v"]))
        frame.to_parquet(tmp_path / "table.parquet")
        pd.testing.assert_frame_equal(read_table(tmp_path / "table.parquet"), frame)

    def test_only_a_named_index_is_a_column(self, tmp_path):
        EXPECTED.set_index("colour").to_parquet(tmp_path / "named.parquet")
        EXPECTED.set_axis([7, 5]).to_parquet(tmp_path / "unnamed.parquet")
        assert set(read_table(tmp_path / "named.parquet").columns) == set(EXPECTED.columns)
        pd.testing.assert_frame_equal(read_table(tmp_path / "unnamed.parquet"), EXPECTED)

    @pytest.mark.parametrize("content", [pickle.dumps({}), b"PAR1 cut off"])
    def test_other_formats_are_refused(self, tmp_path, content):
        assert "must be a parquet file" in refusal(written(tmp_path, content, "table.parquet"))

    def test_damaged_files_are_refused(self, tmp_path):
        EXPECTED.to_parquet(tmp_path / "whole.parquet")
        content = bytearray((tmp_path / "whole.parquet").read_bytes())
        content[-200:-8] = bytes(192)
        assert "could not be read" in refusal(written(tmp_path, bytes(content), "damaged.parquet"))

    def test_text_that_is_not_utf8_is_refused(self, tmp_path):
        pd.DataFrame({"a": ["marker", "x"]}).to_parquet(tmp_path / "whole.parquet", compression="none")
        content = (tmp_path / "whole.parquet").read_bytes().replace(b"marker", b"mark\xb4r")
        assert "could not be read" in refusal(written(tmp_path, content, "damaged.parquet"))

    def test_a_small_file_cannot_ask_for_more_than_memory_holds(self, tmp_path, monkeypatch):
        pd.DataFrame({"a": [1.5] * 10**6}).to_parquet(tmp_path / "equal.parquet")
        assert (tmp_path / "equal.parquet").stat().st_size < 10**4
        monkeypatch.setattr(regular, "available_memory", lambda: 2**20)
        assert "must hold at most 524,288 bytes, but holds 8,000,000" in refusal(tmp_path / "equal.parquet")

    def test_duplicate_names_are_refused(self, tmp_path):
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "twice.parquet")
        assert "got more than once: a;" in refusal(tmp_path / "twice.parquet")


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refusal(written(tmp_path, b"PAR1PAR1", "table.parquet"))


# JSON lines


class TestJsonLines:
    def test_objects_are_rows_and_lacking_fields_are_missing(self, tmp_path):
        content = b'\xef\xbb\xbf{"a": 1, "b": "x"}\r\n\r\n{"b": "y", "c": true}\n'
        frame = read_table(written(tmp_path, content, "table.jsonl"))
        assert list(frame.columns) == ["a", "b", "c"]
        assert frame["b"].tolist() == ["x", "y"]
        assert frame["a"].isna().tolist() == [False, True]
        packed = read_table(written(tmp_path, gzip.compress(content), "table.ndjson.gz"))
        assert packed.equals(frame)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b'{"a": 1}\n[1, 2]\n', "line 2 must hold an object with named fields, but holds '[1, 2]'"),
            (b'{"a": 1}\n{"a": \n', "line 2' could not be read: it is not JSON"),
            (b"[" * 10_000 + b"\n", "nested"),
            (b"\n\n", "must hold rows"),
        ],
    )
    def test_other_lines_are_named(self, tmp_path, content, message):
        assert message in refusal(written(tmp_path, content, "table.jsonl"))

    def test_objects_with_different_fields_cannot_take_all_memory(self, tmp_path, monkeypatch):
        content = b"".join(b'{"field%d": 1}\n' % number for number in range(2_000))
        monkeypatch.setattr("s2e.files.regular.available_memory", lambda: 4_000_000)
        assert "must hold at most" in refusal(written(tmp_path, content, "table.jsonl"))
