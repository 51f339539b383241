"""Two trainings on one store at once, by two processes: both end with the weights of one that is alone."""

import json
import os
import subprocess
import sys

from tests.train.stores import make_store

PLANS = [dict(recipe="ginex", window=4, cache="20%"), dict(features="disk", policy="fifo", cache="10%"), {}]
SCRIPT = """
import json, os, sys, time
from pathlib import Path
import torch
from penstock.train import Observer, TrainConfig, train

store, folder, plans = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])

class Meets(Observer):
    # The first batch of each waits for those of all others, so that they do train at the same time.
    def __init__(self, number, others):
        self.number, self.others = number, others

    def batch_done(self, record, batches_per_epoch):
        (folder / f"begun-{self.number}").touch()
        while not all((folder / f"begun-{other}").exists() for other in self.others):
            time.sleep(0.002)

def begin(number, others):
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        config = dict(num_neighbors=(4, 3), batch_size=16, hidden=8, epochs=4, dropout=0.3, torch_threads=1, **plans[number])
        result = train(TrainConfig(store=store, **config), folder / str(number), observer=Meets(number, others))
        (folder / f"digest-{number}").write_text(result.weights_digest)
        os._exit(0)
    return child

def end(child):
    assert os.waitpid(child, 0)[1] == 0

*together, alone = range(len(plans))
for child in [begin(number, together) for number in together]:
    end(child)
end(begin(alone, []))
print(json.dumps([(folder / f"digest-{number}").read_text() for number in range(len(plans))]))
"""


def test_two_trainings_on_one_store(tmp_path):
    store = make_store(tmp_path / "store").path
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(store), str(tmp_path), json.dumps(PLANS)],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(set(json.loads(done.stdout))) == 1
