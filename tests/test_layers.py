"""The import order of the house: a package imports only from packages above it in this list."""

import ast
from pathlib import Path

import pytest

HOUSE = [
    "errors",
    "records",
    "rng",
    "threads",
    "kernels",
    "sources",
    "store",
    "order",
    "partition",
    "sample",
    "exchange",
    "cache",
    "gather",
    "plan",
    "feed",
    "inference",
    "train",
    "report",
    "study",
    "cli",
]
SOURCE = Path(__file__).parents[1] / "src" / "penstock"


def imports_of(path: Path) -> set[str]:
    """Names of the rooms that a file imports from, relative to the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("penstock.")}
    return found & set(HOUSE)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py").replace("__main__", "cli")


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upwards(path):
    room = room_of(path)
    assert room in HOUSE, f"{room} has no place in the house; add it to HOUSE and to docs/tour.md"
    below = {other for other in imports_of(path) if HOUSE.index(other) > HOUSE.index(room)}
    assert not below, f"{path.name} is in {room} and imports from {sorted(below)}, further down the house"


def test_every_room_is_a_room():
    present = {room_of(path) for path in FILES}
    assert present <= set(HOUSE)
