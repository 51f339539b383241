"""Rows of any width, any set of rows, at any places: what a disk tier brings equals the array."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.disks import DEVICES, make_tier, read


@settings(max_examples=60)
@given(st.data())
def test_reads_equal_the_array(data):
    num_rows = data.draw(st.integers(1, 90), label="num_rows")
    num_fields, random = data.draw(st.integers(1, 3), label="num_fields"), np.random.default_rng(data.draw(st.integers(0, 99)))
    widths = [data.draw(st.one_of(st.integers(0, 40), st.sampled_from([512, 600, 4096, 20_001])), label="width") for _ in range(num_fields)]
    arrays = [random.integers(0, 256, (num_rows, width), np.uint8) for width in widths]
    options = dict(
        device=data.draw(st.sampled_from(DEVICES)), depth=data.draw(st.integers(1, 9)), direct=data.draw(st.booleans()),
        block_bytes=data.draw(st.sampled_from([None, 512, 4096])), max_read_bytes=4096 * data.draw(st.integers(1, 5)),
        gap_bytes=data.draw(st.sampled_from([0, 100, 4096, 30_000])), max_channels=data.draw(st.integers(1, 3)),
        offset=data.draw(st.sampled_from([0, 128, 4096, 4097])),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        tier = make_tier(Path(folder), arrays, **options)
        for _ in range(3):
            rows = np.array(data.draw(st.lists(st.integers(0, num_rows - 1), max_size=120)), np.int64)
            places = random.permutation(rows.size + 10)[: rows.size]
            outs = read(tier, rows, places, rows.size + 10)
            for array, out in zip(arrays, outs, strict=True):
                expected = np.full((rows.size + 10, array.shape[1]), 0xAB, np.uint8)
                expected[places] = array[rows]
                assert out.tobytes() == expected.tobytes()
        tier.close()
