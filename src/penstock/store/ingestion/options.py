"""The user's options of an ingestion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.errors import UsageError, argument
from penstock.store.format import BFLOAT16

FEATURE_DTYPES = ("float16", BFLOAT16, "float32", "float64")
KeepOrDrop = Literal["keep", "drop"]
RefuseOrDrop = Literal["refuse", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """See `ingest`.

    Attributes:
        undirected: add the reverse of every edge. If both ends are of one type, it comes right after the edge, with the same fields and
            row number, and a self-loop stays one edge; otherwise it belongs to another edge type.
        duplicates: "drop" keeps only the first of equal (src, dst) pairs.
        self_loops: "drop" leaves them out, in edge types whose ends are of one type.
        dangling: "drop" leaves out edges with an end that is not a node: not in the table of ids, or not below the number of nodes.
        feature_dtype: of `x`, one of `FEATURE_DTYPES`; None keeps the dtype, except that float64 becomes float32.
        edge_ids: store the row number of each edge; None: if edges have fields.
        allow_nan: accept NaN and infinite values; missing values of floating-point fields become NaN.
    """

    undirected: bool = False
    duplicates: KeepOrDrop = "keep"
    self_loops: KeepOrDrop = "keep"
    dangling: RefuseOrDrop = "refuse"
    feature_dtype: str | None = None
    edge_ids: bool | None = None
    allow_nan: bool = False

    def __post_init__(self) -> None:
        for name in ("duplicates", "self_loops"):
            if getattr(self, name) not in ("keep", "drop"):
                raise UsageError(f"{argument(name)} must be 'keep' or 'drop', got {getattr(self, name)!r}")
        if self.dangling not in ("refuse", "drop"):
            raise UsageError(f"{argument('dangling')} must be 'refuse' or 'drop', got {self.dangling!r}")
        if self.feature_dtype is not None and self.feature_dtype not in FEATURE_DTYPES:
            raise UsageError(f"{argument('feature_dtype')} must be one of {', '.join(FEATURE_DTYPES)}, got {self.feature_dtype!r}")
