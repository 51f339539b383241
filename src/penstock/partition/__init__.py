"""Partitions of a graph, a part per machine: choosing which part owns each node, measuring the result, and writing the parts."""

from penstock.partition.book import Book, EdgesByPlace, EdgeShares, Shares, make_book
from penstock.partition.checking import check_partition
from penstock.partition.methods import MAX_PARTS, METHODS, assign
from penstock.partition.part import Part, describe_partition, is_partition
from penstock.partition.quality import Quality, measure
from penstock.partition.run import partition_store
from penstock.partition.writer import write_parts

__all__ = [
    "MAX_PARTS",
    "METHODS",
    "Book",
    "EdgeShares",
    "EdgesByPlace",
    "Part",
    "Quality",
    "Shares",
    "assign",
    "check_partition",
    "describe_partition",
    "is_partition",
    "make_book",
    "measure",
    "partition_store",
    "write_parts",
]
