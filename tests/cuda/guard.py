"""Have torch believe in CUDA devices, before it is imported."""

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path

NUM_DEVICES = 2
library: ctypes.CDLL
"""It knows the current device of each thread."""


def load(folder):
    """Compile `guard.cpp`, where nobody has done so, and load it.

    Args:
        folder: where it is kept.
    """
    global library
    assert "torch" not in sys.modules, "torch has looked for devices already"
    torch = Path(importlib.util.find_spec("torch").origin).parent
    source, compiled = Path(__file__).with_name("guard.cpp"), Path(folder) / "guard.so"
    if not compiled.exists():
        command = ["g++", "-shared", "-fPIC", "-std=c++20", "-O1", f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        subprocess.run([*command, str(source), "-o", str(compiled)], check=True)
    for each in (torch / "lib" / "libc10.so", torch / "lib" / "libtorch_cpu.so", compiled):
        library = ctypes.CDLL(str(each), ctypes.RTLD_GLOBAL)
