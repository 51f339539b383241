"""Strings in the order of their bytes."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.ids import Strings, from_arrow
from penstock.store.ingestion.string_sort import sort_distinct

TEXTS = st.lists(st.text(st.sampled_from("ab\x00\u00e9\u4e16"), max_size=30))


@given(TEXTS, st.sampled_from(["", "http://example.org/entity/", "12345678"]))
def test_distinct_strings_in_order_of_bytes(texts, prefix):
    texts = [prefix + text for text in texts]
    rows = sort_distinct(from_arrow(pa.array(texts, type=pa.large_string())))
    assert [texts[row] for row in rows] == sorted(set(texts), key=str.encode)


def test_nul_bytes_count():
    texts = [b"a\0\0", b"a", b"a\0", b"a\0\0\0\0\0\0\0\0", b"a\0\0\0\0\0\0\0b", b"", b"\0"]
    strings = Strings(np.cumsum([0, *map(len, texts)]), np.frombuffer(b"".join(texts), np.uint8))
    assert [texts[row] for row in sort_distinct(strings)] == sorted(texts)
