"""What a loader loads from, all made to look alike."""

from penstock.feed.inputs.arrays import ArrayInput, StoreFeatures
from penstock.feed.inputs.base import Input
from penstock.feed.inputs.open import open_input
from penstock.feed.inputs.remote import RemoteInput

__all__ = ["ArrayInput", "Input", "RemoteInput", "StoreFeatures", "open_input"]
