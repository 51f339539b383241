"""A training run that is killed again and again until it ends: the process of `test_train_killed.py`.

    python killed_training.py STORE FOLDER MODEL SEED KILLS WITHIN [SETTINGS]

Forks one child per attempt (imports are done once), kills it with SIGKILL and lets the next one resume. One kill in five comes after a
random time of at most WITHIN seconds, and mostly meets the set-up; the others come some batches after training has begun. SETTINGS, as
JSON, go into the configuration, such as a recipe. Prints, as JSON, the weights' digest, the losses, how many children were killed, how
many of them after their first checkpoint, and the seconds of the attempt that came to the end. Without kills it trains twice; the
second line counts.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from penstock.train import Observer, TrainConfig, train


def configure(store: str, model: str, settings: dict[str, Any]) -> TrainConfig:
    usual = dict(
        num_neighbors=(4, 3), batch_size=16, hidden=16, epochs=6, lr=0.01, dropout=0.3, num_workers=2, torch_threads=1,
        checkpoint_every_s=0.05,
    )  # fmt: skip
    return TrainConfig(store=store, model=model, **{**usual, **settings})


class Beats(Observer):
    """Writes a byte for every batch."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def batch_done(self, record, num_batches) -> None:
        os.write(self.pipe, b".")


def attempt(config: TrainConfig, folder: Path, pipe: int) -> None:
    """The child: train to the end, or until the kill."""
    torch.set_num_threads(1)
    result = train(config, folder, resume=True, observer=Beats(pipe))
    (folder / "result.json").write_text(json.dumps({"digest": result.weights_digest, "losses": [r.loss for r in result.history]}))
    os._exit(0)


def wait_for_the_moment(beats: int, within: float) -> None:
    """Return when the child shall be killed; at its end at the latest, unless it is by the clock."""
    if random.random() < 0.2:
        time.sleep(random.uniform(0.02, within))
        return
    for _ in range(random.randint(1, 12)):
        if not os.read(beats, 1):
            return
    time.sleep(random.uniform(0, 0.02))


def main(config: TrainConfig, folder: Path, seed: int, kills: int, within: float) -> None:
    random.seed(seed)
    killed, at_checkpoint = 0, 0
    while True:
        started = time.perf_counter()
        beats, pipe = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(beats)
            attempt(config, folder, pipe)
        os.close(pipe)
        if killed < kills:
            wait_for_the_moment(beats, within)
            os.kill(child, signal.SIGKILL)
        else:
            while os.read(beats, 1 << 16):
                pass
        os.close(beats)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, status
            break
        killed += 1
        at_checkpoint += (folder / "checkpoint.pt").exists()
    print(
        json.dumps(
            {
                **json.loads((folder / "result.json").read_text()),
                "killed": killed,
                "after_a_checkpoint": at_checkpoint,
                "seconds": time.perf_counter() - started,
            }
        )
    )


if __name__ == "__main__":
    config = configure(sys.argv[1], sys.argv[3], json.loads(sys.argv[7]) if len(sys.argv) > 7 else {})
    folder, seed, kills, within = Path(sys.argv[2]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
    if not kills:  # the first run may compile kernels, which takes its time
        main(config, folder.with_name(f"{folder.name} first"), seed, kills, within)
    main(config, folder, seed, kills, within)
