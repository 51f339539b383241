"""What a loader loads from, all made to look alike."""

from penstock.feed.inputs.arrays import ArrayInput, FindPacked, find_packed, no_packed
from penstock.feed.inputs.base import Input, Seeds
from penstock.feed.inputs.open import open_input
from penstock.feed.inputs.remote import RemoteInput

__all__ = ["ArrayInput", "FindPacked", "Input", "RemoteInput", "Seeds", "find_packed", "no_packed", "open_input"]
