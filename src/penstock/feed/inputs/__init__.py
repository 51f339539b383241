"""What a loader loads from, all made to look alike."""

from penstock.feed.inputs.arrays import ArrayInput
from penstock.feed.inputs.base import Input, Seeds
from penstock.feed.inputs.open import open_input
from penstock.feed.inputs.remote import RemoteInput

__all__ = ["ArrayInput", "Input", "RemoteInput", "Seeds", "open_input"]
