"""What the user decides about an ingestion."""

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
        undirected: add the reverse of every edge: right behind it and with the same fields and number, a self-loop staying one edge, where
            both ends are of one type; as another edge type otherwise.
        duplicates: "drop" keeps the first of equal (src, dst) pairs.
        self_loops: "drop" drops them; only where both ends are of one type.
        dangling: "drop" leaves out edges whose ends are not both nodes: not in the table of ids, or not below the number of nodes.
        feature_dtype: of `x`, one of `FEATURE_DTYPES`; None keeps what there is, but float64 becomes float32.
        edge_ids: store the number of each edge; None where there are fields.
        allow_nan: take NaN and infinite values as they are; missing values of floating-point fields are NaN.
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
