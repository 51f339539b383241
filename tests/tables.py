"""Reading tables whole, and checking what every table promises."""

import numpy as np
import pyarrow as pa

CHUNK_SIZES = (1, 3, 64, 1 << 16)


def read_all(table, max_rows=1 << 16, names=None):
    """Return column name -> array of all rows; checks row numbers and sizes of the chunks on the way."""
    pieces, rows = {}, 0
    for chunk in table.chunks(max_rows, names):
        assert chunk.first_row == rows
        assert 0 < chunk.num_rows <= max_rows
        rows += chunk.num_rows
        assert list(chunk.columns) == list(table.columns if names is None else names)
        for name, values in chunk.columns.items():
            column = table.columns[name]
            if isinstance(values, np.ndarray):
                assert (values.dtype, values.shape) == (column.dtype, (chunk.num_rows, *column.row_shape))
            else:
                assert column.dtype == object
                assert pa.types.is_string(values.type)
                values = values.to_numpy(zero_copy_only=False)
            pieces.setdefault(name, []).append(values.copy())
    assert table.num_rows in (None, rows)
    columns = table.columns if names is None else {name: table.columns[name] for name in names}
    empty = {name: np.empty((0, *column.row_shape), column.dtype) for name, column in columns.items()}
    return {name: np.concatenate([empty[name], *pieces.get(name, [])]) for name in columns}


def check_table(table, chunk_sizes=CHUNK_SIZES):
    """Read a table in chunks of several sizes, column by column, while another reading stands and after one that was left: always the same
    rows. Returns them: a test compares them with what it wrote, for only that shows a row that is never there."""
    expected = read_all(table)
    if expected and next(iter(expected.values())).shape[0]:
        standing = table.chunks(1)
        first = next(standing)
        assert_same_columns(read_all(table, 2), expected)
        assert next(standing, first).first_row == min(1, len(next(iter(expected.values()))) - 1)
        standing.close()
        assert table.where(0)
    for max_rows in chunk_sizes:
        assert_same_columns(read_all(table, max_rows), expected)
    for name in table.columns:
        assert_same_columns(read_all(table, 100, (name,)), {name: expected[name]})
    return expected


def assert_same_columns(left, right):
    """Equal names, dtypes, shapes and values, NaN included."""
    assert list(left) == list(right)
    for name in left:
        assert left[name].dtype == right[name].dtype
        np.testing.assert_array_equal(left[name], right[name])


def edges_of(source, edge_type=None):
    """Return int64[2, E] of one edge type."""
    edges = source.edges[next(iter(source.edges)) if edge_type is None else edge_type]
    columns = read_all(edges.table, names=("src", "dst"))
    return np.stack([columns["src"], columns["dst"]]).astype(np.int64)
