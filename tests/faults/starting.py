"""Processes of a training that begin at once: forked from one that has imported what they take, which is most of what a short one costs.

`start` gives a process as `python -m MODULE ARGUMENTS` does, but for the imports: with an environment, a current folder, an output of its
own, and an end as any other's. It has one thread when it begins. Where starting itself is looked at, tests start Python.

python -m tests.faults.starting    (a request on each line of standard input; an answer on each of standard output)
"""

import atexit
import json
import os
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

OMP_NUM_THREADS = "1"
"""Of all of them: it is looked at when torch is imported."""
_numbers = count()


class Started:
    """A process, as of `subprocess.Popen` with pipes for text. `returncode`: None until it has been waited for."""

    def __init__(self, parent, pid, output):
        self.pid, self.returncode, self._parent, self._output = pid, None, parent, output
        self._file, self._end = os.pidfd_open(pid), select.poll()
        self._end.register(self._file, select.POLLIN)

    def poll(self):
        return self._reap(0)

    def wait(self, timeout):
        if self._reap(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def communicate(self, timeout=20):
        """Wait; its output and its errors."""
        self.wait(timeout)
        return tuple(Path(file).read_text() for file in self._output)

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self):
        """And wait for its end."""
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)
            self.wait(20)

    def _reap(self, timeout):
        if self.returncode is None and self._end.poll(1000 * timeout):
            self.returncode = _ask(self._parent, {"ended": self.pid})
            os.close(self._file)
        return self.returncode


def start(module, *arguments, environment=None, cwd=None):
    """Start a process. `environment`: what it has beyond that of this one."""
    output = [f"{_folder()}/{next(_numbers)}" for _ in range(2)]
    known = {**os.environ, "OMP_NUM_THREADS": OMP_NUM_THREADS, **(environment or {})}
    request = {"module": module, "arguments": list(map(str, arguments)), "environment": known, "cwd": str(cwd or os.getcwd())}
    parent = _parent(known.get("TRITON_INTERPRET"))
    return Started(parent, _ask(parent, request | {"output": output}), output)


@cache
def _folder():
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def _parent(interprets):
    """The one to ask: another one for who interprets the kernels of a device, which is decided by imports."""
    environment = {**os.environ, "OMP_NUM_THREADS": OMP_NUM_THREADS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.faults.starting"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process


def _ask(parent, request):
    parent.stdin.write(json.dumps(request) + "\n")
    parent.stdin.flush()
    return json.loads(parent.stdout.readline())


def answer_requests():
    """Fork and wait as asked; in a process that was forked, return its request."""
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "ended" in request:
            said = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
        else:
            said = os.fork()
            if said == 0:
                return request
        print(said, flush=True)
    return None


def become(request):
    """What a process is told when Python starts."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    for number, name in enumerate((os.devnull, *request["output"])):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def main():
    import torch.distributed

    import penstock.cli
    import penstock.report.live  # noqa: F401 (and the trainer)
    from penstock.kernels._compile import load_compiler

    assert torch.get_num_threads() == int(OMP_NUM_THREADS)
    load_compiler()
    others = {task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()}
    assert others <= {"jemalloc_bg_thd"}, f"{others}: threads do not come along into a process that is forked, but for PyArrow's"
    if (request := answer_requests()) is not None:
        become(request)


if __name__ == "__main__":
    main()
