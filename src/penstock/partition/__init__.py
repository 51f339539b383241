"""Graphs in parts, one for each machine: who owns which node, and what is written for each part."""

from penstock.partition.book import Book, EdgeShares, Shares, make_book
from penstock.partition.part import Part
from penstock.partition.writer import write_parts

__all__ = ["Book", "EdgeShares", "Part", "Shares", "make_book", "write_parts"]
