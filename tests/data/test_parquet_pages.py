"""What parquet files say of their sizes, and what is refused in it."""

import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin.data import load, thrift
from merlin.data.parquet import Table
from merlin.data.parquet_pages import FOOTER, PAGE, find_chunks, unpacked_bytes
from merlin.data.thrift import INT32, INT64, read_struct
from merlin.errors import MerlinError

NUMBERS = [0, 1, -1, 63, -64, 1000, 2**31 - 1, 2**40, -(2**63)]


def number(value):
    """A number in zigzag order, seven bits in a byte."""
    value = value << 1 ^ value >> 63
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def page(unpacked, packed, count):
    """The header of a page, with statistics that are as short as they can be."""
    sizes = b"".join(b"\x15" + number(size) for size in (0, unpacked, packed))
    return sizes + b"\x2c\x15" + number(count) + b"\x15\0\x15\0\x15\0\0\0"


def place(*ends):
    return np.array(ends, np.int64).reshape(1, -1, 2)


def write(path, rows=60, groups=7):
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(rng.normal(size=3 * rows).astype(np.float32), 3)
    content = {"state": vectors, "action": vectors, "episode": np.arange(rows) // 20}
    text = [f"text {row}" * 20 for row in range(rows)]  # the statistics of which are long
    content["lists"] = pa.array([[row, -row] for row in range(rows)])
    pq.write_table(pa.table({**content, "text": text}), path, row_group_size=groups)
    return path


def footer(path):
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    return content[-8 - length : -8]


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers(value):
    content = b"\x16" + number(value) + b"\0"
    assert read_struct(content, {1: INT64}) == ({1: value}, len(content))
    assert read_struct(b"\x16" + number(5) + content, {1: INT64, 3: INT64})[0] == {1: 5}


def test_chunks_and_pages_are_those_that_pyarrow_tells_of(tmp_path):
    path = write(tmp_path / "a.parquet")
    about = pq.ParquetFile(path).metadata
    chunks = find_chunks(path, 5)
    assert chunks.shape == (9, 5, 2)
    for group in range(9):
        for column in range(5):
            told = about.row_group(group).column(column)
            begin = told.dictionary_page_offset or told.data_page_offset
            assert chunks[group, column].tolist() == [begin, begin + told.total_compressed_size]
            numbers = unpacked_bytes(path, chunks[group : group + 1, column : column + 1])
            assert numbers >= 8 * told.num_values


@pytest.mark.parametrize("wanted", [FOOTER, PAGE, {1: INT32}], ids=["footer", "page", "first"])
def test_the_quick_way_to_skip_says_what_the_slow_way_says(tmp_path, monkeypatch, wanted):
    """On good metadata, and on metadata with wrong bytes."""
    path = write(tmp_path / "a.parquet")
    good = footer(path)
    if wanted is not FOOTER:
        begin = find_chunks(path, 5)[0, 0, 0]
        good = path.read_bytes()[begin : begin + 400]
    contents = [good]
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        bad = bytearray(good)
        for at in rng.integers(len(bad) if wanted is FOOTER else 60, size=rng.integers(1, 4)):
            bad[at] = int(rng.integers(256))
        contents.append(bytes(bad))

    def results():
        for content in contents:
            try:
                yield read_struct(content, wanted)
            except (ValueError, IndexError) as error:
                yield type(error)

    quick = list(results())
    monkeypatch.setattr(thrift, "_rest_of_struct", lambda: re.compile(b"(?!)"))
    assert quick == list(results())
    assert sum(isinstance(result, tuple) for result in quick) > 50
    assert sum(not isinstance(result, tuple) for result in quick) > 50


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x16\x02\x06" + number(1) + b"\x04\0", "field 1 twice"),
        (b"\x15\x02\0", "kind 5 where none is supported"),
        (b"\x06" + number(65537) + b"\x02\0", "has a field 65537"),
        (b"\x2c" * 40 + b"\0" * 40, "nested too deeply"),
        (b"\x20\0", "a field of kind 0"),
        (b"\x16" + b"\xff" * 10 + b"\1\0", "too many bytes"),
    ],
)
def test_what_two_readers_could_understand_differently(content, said):
    with pytest.raises(ValueError, match=said):
        read_struct(content, {1: INT64})


def test_metadata_that_ends_too_early(tmp_path):
    content = footer(write(tmp_path / "a.parquet"))
    for length in range(0, len(content), 7):
        with pytest.raises(IndexError):
            read_struct(content[:length], FOOTER)


@pytest.mark.parametrize("sizes", [(-1, 9, 9), (9, 1 << 32, 9), (9, 9, -5), (9, 9, 1 << 31)])
def test_a_page_of_an_impossible_size(tmp_path, sizes):
    """Other readers keep 32 bits of a size, and would find the next page elsewhere."""
    (tmp_path / "a").write_bytes(b"PAR1" + page(*sizes))
    with pytest.raises(ValueError, match="a page has an impossible size"):
        unpacked_bytes(tmp_path / "a", place(4, 20))


def test_pages_are_counted_to_the_end_of_a_column(tmp_path):
    one = page(1000, 7, 50) + bytes(7)
    (tmp_path / "a").write_bytes(b"PAR1" + 3 * one)
    assert unpacked_bytes(tmp_path / "a", place(4, 4 + 3 * len(one))) == 3 * (1000 + 8 * 50)
    with pytest.raises(ValueError, match="its columns overlap"):
        unpacked_bytes(tmp_path / "a", place(4, 4 + 3 * len(one), 4, 4 + len(one)))


def test_a_column_that_goes_by_another_name_in_its_row_group(tmp_path):
    """Columns are read by their place in the schema, so that is how they must be checked."""
    path = tmp_path / "a.parquet"
    values = pa.array(np.zeros(4 * 10**7, np.float32))
    state = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    pq.write_table(pa.table({"state": state, "action": [[0.0]], "episode": [0]}), path)
    content = path.read_bytes()
    at = content.index(b"state", content.index(b"state", content.index(b"schema")) + 1)
    path.write_bytes(content[:at] + b"other" + content[at + 5 :])
    with pytest.raises(MerlinError, match=r"a\.parquet: claims to hold 32\d{7} bytes"):
        load(path)


def test_many_files_that_claim_a_little_each(tmp_path):
    pq.write_table(pa.table({"x": np.zeros(1 << 22)}), tmp_path / "0.parquet")
    for copy in range(1, 16):
        os.link(tmp_path / "0.parquet", tmp_path / f"{copy}.parquet")
    files = sorted(tmp_path.iterdir())
    assert len(Table(files[:2]).read(["x"])["x"]) == 2 << 22
    with pytest.raises(MerlinError, match=r"parquet: claims to hold \d{9} bytes in a file of"):
        Table(files).read(["x"])


@pytest.mark.parametrize("count", [1, 3])
def test_the_rows_of_several_files_come_in_order(tmp_path, count):
    files = [tmp_path / f"{k}.parquet" for k in range(count)]
    for k, file in enumerate(files):
        values = np.arange(20_000) + 20_000 * k
        pq.write_table(pa.table({"x": values, "y": [[float(k)]] * 20_000}), file)
    found = Table(files).read(["x", "y"])
    assert (found["x"] == np.arange(20_000 * count)).all()
    assert (found["y"][:, 0] == found["x"] // 20_000).all()
