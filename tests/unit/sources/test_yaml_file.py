"""The part of YAML in which metadata is written."""

import pytest

from penstock.errors import InputError
from penstock.sources.yaml_file import read_yaml

WRITTEN_BY_HAND = """
---
    dataset_name: "a # b"   # a comment
    graph: # another
      nodes:
        - type: user
          num: 1_000

        - num: 20
          type: 'it''s'
      edges:
      - type: user:like:item
        path: edges/a-b c.csv#1
      -
        type: "a\\u0062:r:c"
        path: /x/y.npy
    # in between
    tasks:
    - - 1
      - - -2
        - 03
    -
    flag: True
    nothing: ~
    empty:
    "last": ["x", {"y": 1}]
"""


def read(tmp_path, text):
    (tmp_path / "m.yaml").write_text(text)
    return read_yaml(tmp_path / "m.yaml")


def test_written_by_hand(tmp_path):
    assert read(tmp_path, WRITTEN_BY_HAND) == {
        "dataset_name": "a # b",
        "graph": {
            "nodes": [{"type": "user", "num": 1000}, {"num": 20, "type": "it's"}],
            "edges": [{"type": "user:like:item", "path": "edges/a-b c.csv#1"}, {"type": "ab:r:c", "path": "/x/y.npy"}],
        },
        "tasks": [[1, [-2, "03"]], None],
        "flag": True,
        "nothing": None,
        "empty": None,
        "last": ["x", {"y": 1}],
    }


def test_written_by_a_program(tmp_path):
    """Keys are sorted, and items are indented as much as their key."""
    text = "feature_data:\n- domain: node\n  extra:\n  - a\n  - b\n  path: x.npy\n  type: null\ngraph_topology:\n  path: g.pt\ntasks: []\n"
    assert read(tmp_path, text) == {
        "feature_data": [{"domain": "node", "extra": ["a", "b"], "path": "x.npy", "type": None}],
        "graph_topology": {"path": "g.pt"},
        "tasks": [],
    }
    assert read(tmp_path, "") is None
    assert read(tmp_path, "---\n- 1\n- x: 2.0\n") == [1, {"x": "2.0"}]
    assert read(tmp_path, "alone") == "alone"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: &x 1", 1),
        ("a: 1\nb: *x", 2),
        ("a: !!python/object 1", 1),
        ("a: |\n  text", 1),
        ("a: some text\n  that goes on", 2),
        ("a: 1\n  b: 2", 2),
        ("a:\n    b: 1\n  c: 2", 3),
        ("- 1\na: 2", 2),
        ("a: 1\n- 2", 2),
        ("a: b: c", 1),
        ("a: 'open", 1),
        ('a: "\\x41"', 1),
        ("a: [1, 2", 1),
        ("a: [b, c]", 1),
        ("a:\n\tb: 1", 2),
        ("? a\n: b", 1),
        (" ---\na: 1", 2),
    ],
)
def test_what_is_not_understood_names_its_line(tmp_path, text, line):
    with pytest.raises(InputError, match=rf"m.yaml, line {line}: .* is not understood"):
        read(tmp_path, text)


def test_other_faults(tmp_path):
    with pytest.raises(InputError, match=r"m.yaml, line 3: 'a' is there a second time"):
        read(tmp_path, "a: 1\nb: 2\na: 3")
    with pytest.raises(InputError, match=r"m.yaml: not a YAML file that can be read \(.*recursion"):
        read(tmp_path, "- " * 100_000 + "1")
    (tmp_path / "m.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"m.yaml: not a YAML file that can be read"):
        read_yaml(tmp_path / "m.yaml")
