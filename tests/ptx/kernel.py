"""A compiled kernel, taken apart."""

import re

import numpy as np

from tests.ptx.words import bits_of

_STATEMENT = re.compile(r"(\$\w+):|(?:@(!?%\w+)\s+)?([a-z][\w.]*)\s*([^;]*);")
_ENDINGS = ("bra", "ret", "bar")


class Kernel:
    """What Triton's compiler has written.

    Attributes:
        parameters: [(type, name)].
        registers: {name: dtype}.
        code: [(guard or "", parts of the opcode, operands)]; labels among the operands are places in it.
        leaders: places where a run of instructions without branches begins.
    """

    def __init__(self, text, num_threads, shared_bytes):
        self.num_threads, self.shared_bytes = num_threads, shared_bytes
        text = re.sub(r"//[^\n]*|^\s*\.(?:loc|pragma)\b[^\n]*$|::cta", "", text, flags=re.M)  # shared memory is that of one program
        parameters, body = re.search(r"\.entry\s+\w+\s*\((.*?)\)[^{]*\{(.*?)\n\}", text, re.S).groups()
        self.parameters = re.findall(r"\.param\s+\.(\w+)\s+(?:\.ptr[^,]*?)?(\w+)\s*(?:,|$)", parameters)
        self.registers = {}
        for kind, name, count in re.findall(r"\.reg\s+\.(\w+)\s+([%\w]+)(?:<(\d+)>)?\s*;", body):
            names = [f"{name}{i}" for i in range(int(count))] if count else [name]
            self.registers |= dict.fromkeys(names, np.dtype(bool) if kind == "pred" else bits_of(kind))
        body = re.sub(r"\.reg[^;]*;", "", body)
        beside = _STATEMENT.sub("", body).strip("{} \t\n")
        assert not beside, f"not understood: {beside}"

        code, labels = [], {}
        for label, guard, opcode, operands in _STATEMENT.findall(body):
            if label:
                labels[label] = len(code)
            else:
                code.append((guard, opcode.split("."), [each.strip() for each in re.findall(r"\{[^}]*\}|[^\s,{][^,]*", operands)]))
        self.code = [(guard, opcode, [labels.get(each, each) for each in operands]) for guard, opcode, operands in code]
        self.leaders = {operands[0] for _, opcode, operands in self.code if opcode[0] == "bra"}
        self.leaders |= {place + 1 for place, (_, opcode, _) in enumerate(self.code) if opcode[0] in _ENDINGS}
