"""What stands in the place of torch's sampler on a loader that was given none.

In: a loader that shuffles. Out: the positions of its next pass, and the way to tell it of epochs. Invariant: it goes forward only, so that
no pass comes twice: who counts from 0 again, as a second trainer does over the same loader, gets batches that follow.
Why: Lightning tells samplers before each of its epochs which one that is. Of a checkpoint from the end of an epoch a loader hears nothing
else: the state that is kept there is loaded only where training goes on in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Sampler

from penstock.errors import UsageError
from penstock.feed.epoch import Position

if TYPE_CHECKING:
    from penstock.feed.loader import Loader


class ToldOfEpochs(Sampler[int]):
    """The seeds of a loader, in the order of its next pass.

    Args:
        loader: whose.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader.dataset)

    def __iter__(self) -> Iterator[int]:
        loader, at = self._loader, self._loader._at
        epoch = at.epoch if at.is_fresh else at.epoch + 1
        for index in range(loader._maker.order.num_batches(loader.batch_size, False)):
            yield from loader._maker.order.batch(epoch, index, loader.batch_size).tolist()

    def set_epoch(self, epoch: int) -> None:
        """Have the next pass be that of an epoch, if it is not there or further already."""
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or epoch < 0:
            raise UsageError(f"set_epoch takes the number of an epoch, from 0 on; got {epoch!r}")
        if epoch > self._loader._at.epoch:
            self._loader._at = Position(int(epoch))
