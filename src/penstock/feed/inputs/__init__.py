"""What a loader loads from, all made to look alike."""

from penstock.feed.inputs.arrays import ArrayInput
from penstock.feed.inputs.base import Input
from penstock.feed.inputs.open import open_input
from penstock.feed.inputs.remote import RemoteInput

__all__ = ["ArrayInput", "Input", "RemoteInput", "open_input"]
