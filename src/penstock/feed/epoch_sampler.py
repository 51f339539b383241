"""`loader.sampler` of a loader that shuffles and was given no sampler: torch's interface, `set_epoch` included.

In: a loader that shuffles. Out: the positions of its next pass; `set_epoch` sets which pass that is. Invariant: epochs only go forward, so
that no pass comes twice: a caller that counts from 0 again, as a second trainer over the same loader does, gets the epochs that follow.
Why: Lightning calls `set_epoch` before each epoch. When it resumes from a checkpoint taken at the end of an epoch, that call is all that a
loader hears: Lightning loads the loader's own state only when it resumes in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from penstock.errors import UsageError
from penstock.feed.engine import Engine, Position


class EpochSampler(Sampler[int]):
    """The seeds of a loader, in the order of its next pass.

    Args:
        engine: of a loader that shuffles.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __len__(self) -> int:
        return len(self._engine.maker.seeds)

    def __iter__(self) -> Iterator[int]:
        maker, at = self._engine.maker, self._engine.at
        epoch = at.epoch if at.is_fresh else at.epoch + 1
        for index in range(maker.order.num_batches(maker.batch_size, False)):
            yield from maker.order.batch(epoch, index, maker.batch_size).tolist()

    def set_epoch(self, epoch: int) -> None:
        """Make epoch `epoch` the next pass, unless the loader is already there or further."""
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or epoch < 0:
            raise UsageError(f"set_epoch takes the number of an epoch, from 0 on; got {epoch!r}")
        if epoch > self._engine.at.epoch:
            self._engine.at = Position(int(epoch))
