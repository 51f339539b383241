"""Programs of a compiled kernel at work. Their memory is that of this process."""

import ctypes
import re

import numpy as np

from tests.ptx.words import COMPARISONS, FOLDS, OPERATIONS, TYPES, bits_of, type_of_operand

WARP = 32
_FIRST = 4096  # the page before it is nobody's
_MEMORY = np.frombuffer((ctypes.c_uint8 * ((1 << 47) - _FIRST)).from_address(_FIRST), np.uint8)


class Run:
    """Threads of all programs that are at the same place go on together, those that are furthest behind first; with `random`, some warps
    by chance. Lanes of a warp wait for those behind them. Whoever waits at a barrier goes on when his whole program does."""

    def __init__(self, kernel, grid, programs, arguments, *, random=None, watches=()):
        self.kernel, self.arguments, self.random, self.watches = kernel, arguments, random, watches
        self.thread = np.arange(len(programs) * kernel.num_threads)
        self.lane, self.warp, self.program = self.thread % WARP, self.thread // WARP, self.thread // kernel.num_threads
        self.registers = {name: np.zeros(self.thread.size, dtype) for name, dtype in kernel.registers.items()}
        self.shared = np.zeros(len(programs) * kernel.shared_bytes, np.uint8)
        self.place = np.zeros(self.thread.size, np.int64)
        self.waits, self.is_over = np.zeros((2, self.thread.size), bool)
        zero = np.zeros(self.thread.size, np.int64)
        self.known = {"global_smem": zero, "%tid.x": self.thread % kernel.num_threads, "%ctaid.x": np.array(programs)[self.program]}
        self.known |= {"%ntid.x": zero + kernel.num_threads, "%nctaid.x": zero + grid}

    def run(self):
        nowhere = np.iinfo(np.int64).max
        while not self.is_over.all():
            ready = np.where(self.is_over | self.waits, nowhere, self.place)
            first = ready.reshape(-1, WARP).min(axis=1)
            if self.random is None:
                place = first.min()
                warps = first == place
            else:
                place = self.random.choice(first[first != nowhere])
                warps = (first == place) & (self.random.random(first.size) < 0.5)
            active = np.flatnonzero((ready == place) & warps[self.warp])
            if active.size:
                self._go_on(int(place), active)

    def _go_on(self, place, active):
        """To where paths part or meet."""
        while True:
            guard, opcode, operands = self.kernel.code[place]
            some = active
            if guard:
                some = active[self.registers[guard.lstrip("!")][active] != (guard[0] == "!")]
            place += 1
            if opcode[0] == "bra":
                self.place[active], self.place[some] = place, operands[0]
                return
            if opcode[0] in ("ret", "bar"):
                of_warp = (opcode[1:], operands) == (["warp", "sync"], ["-1"]) and self.kernel.num_threads == WARP  # all of the program
                assert opcode[0] == "ret" or of_warp or (opcode[1:], operands) == (["sync"], ["0"])
                self.place[active] = place
                (self.is_over if opcode[0] == "ret" else self.waits)[some] = True
                together = (self.waits | self.is_over).reshape(-1, self.kernel.num_threads).all(axis=1)
                self.waits &= ~together[self.program]
                return
            if some.size:
                getattr(self, f"_{opcode[0]}", self._compute)(opcode, operands, some)
            if place in self.kernel.leaders:
                self.place[active] = place
                return

    # operands

    def _read(self, operand, kind, some):
        """Values of a register, or a number."""
        if operand in self.registers:
            values = self.registers[operand][some]
            return values if kind == "pred" else values.astype(bits_of(kind)).view(TYPES[kind])
        if operand in self.known:
            return self.known[operand][some].astype(TYPES[kind])
        number = int(operand.removesuffix("U"), 0)
        if kind == "pred":
            return np.full(some.size, number != 0)
        return np.full(some.size, number & (1 << 8 * TYPES[kind].itemsize) - 1, bits_of(kind)).view(TYPES[kind])

    def _write(self, operand, values, some):
        """A narrow value fills a wide register, with its sign where it has one."""
        if operand != "_":
            self.registers[operand][some] = values.astype(self.registers[operand].dtype)

    def _address(self, operand, some):
        """Of [register + offset]."""
        name, offset = re.fullmatch(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand).groups()
        return self._read(name, "u64", some).astype(np.int64) + int(offset or "0", 0)

    # instructions

    def _compute(self, opcode, operands, some):
        name = ".".join(opcode[:2]) if opcode[0] in ("mul", "mad") else opcode[0]
        kind = opcode[-1]
        assert len(opcode) == name.count(".") + 2, opcode
        if kind == "s16x2":  # two halves
            halves = [self._read(each, "u32", some).view(np.uint16) for each in operands[1:]]
            self._write(operands[0], OPERATIONS[name](*halves).view(np.uint32), some)
            return
        values = [self._read(each, type_of_operand(name, number, kind), some) for number, each in enumerate(operands[1:])]
        self._write(operands[0], OPERATIONS[name](*values), some)

    def _mov(self, opcode, operands, some):
        (target, source), whole = operands, opcode[1]
        if target[0] == "{":
            values, parts = self._read(source, whole, some), _names(target)
            for name, part in zip(parts, values.view(f"u{values.itemsize // len(parts)}").reshape(some.size, -1).T, strict=True):
                self._write(name, part, some)
        elif source[0] == "{":
            parts = _names(source)
            values = [self._read(each, f"u{8 * TYPES[whole].itemsize // len(parts)}", some) for each in parts]
            self._write(target, np.stack(values, axis=1).view(TYPES[whole]).reshape(-1), some)
        else:
            self._write(target, self._read(source, whole, some), some)

    def _cvt(self, opcode, operands, some):
        assert len(opcode) == 3, opcode
        self._write(operands[0], self._read(operands[1], opcode[2], some).astype(TYPES[opcode[1]]), some)

    def _setp(self, opcode, operands, some):
        assert len(opcode) == 3, opcode
        self._write(operands[0], COMPARISONS[opcode[1]](*(self._read(each, opcode[2], some) for each in operands[1:])), some)

    def _ld(self, opcode, operands, some):
        if opcode[1] == "param":
            self._write(operands[0], np.full(some.size, self.arguments[operands[1].strip("[]")]).astype(TYPES[opcode[2]]), some)
            return
        targets = _names(operands[0])
        memory, first = self._words(opcode, operands[1], len(targets), some)
        for number, target in enumerate(targets):
            self._write(target, memory[first + number].view(TYPES[opcode[-1]]), some)

    def _st(self, opcode, operands, some):
        sources = _names(operands[1])
        memory, first = self._words(opcode, operands[0], len(sources), some)
        for number, source in enumerate(sources):
            memory[first + number] = self._read(source, opcode[-1], some).view(memory.dtype)

    def _words(self, opcode, operand, count, some):
        """(memory as words, the first of `count` that each lane has to do with)."""
        word, address = bits_of(opcode[-1]), self._address(operand, some)
        num_bytes = count * word.itemsize
        assert not (address % num_bytes).any(), f"{'.'.join(opcode)} at an address that is no multiple of {num_bytes}"
        if opcode[1] == "shared":
            self._check_shared(address, num_bytes)
            return self.shared.view(word), (address + self.program[some] * self.kernel.shared_bytes) // word.itemsize
        assert opcode[1] == "global", opcode
        for watch in self.watches:
            watch.count(opcode[0], address, num_bytes, self.warp[some])
        return _MEMORY.view(word), (address - _FIRST) // word.itemsize

    def _check_shared(self, address, num_bytes):
        assert (address >= 0).all(), "outside of shared memory"
        assert (address + num_bytes <= self.kernel.shared_bytes).all(), "outside of shared memory"

    def _red(self, opcode, operands, some):
        self._change(opcode, *operands, some)

    def _atom(self, opcode, operands, some):
        self._write(operands[0], self._change(opcode, *operands[1:], some), some)

    def _change(self, opcode, where, *operands_and_some):
        """Atomic; what was there before each lane."""
        (*operands, some), (how, kind) = operands_and_some, opcode[-2:]
        memory, places = self._words([opcode[0], opcode[1], kind], where, 1, some)
        memory, before = memory.view(TYPES[kind]), np.empty(some.size, TYPES[kind])
        for lane, (place, *values) in enumerate(zip(places, *(self._read(each, kind, some) for each in operands), strict=True)):
            before[lane] = memory[place]
            if how == "cas":
                expected, wanted = values
                memory[place] = wanted if before[lane] == expected else before[lane]
            else:
                memory[place] = FOLDS[how](before[lane], *values)
        return before.view(bits_of(kind))

    # between lanes

    def _check_whole_warps(self, mask, some):
        """Whoever exchanges values names all lanes, and all of them are there."""
        assert (self._read(mask, "s32", some) == -1).all(), "some lanes only"
        assert some.size == WARP * np.unique(self.warp[some]).size, "lanes that have not come"

    def _shfl(self, opcode, operands, some):
        target, source, by, limit, mask = operands
        self._check_whole_warps(mask, some)
        assert (self._read(limit, "u32", some) == (0 if opcode[2] == "up" else WARP - 1)).all(), "parts of warps"
        lane, by = self.lane[some], self._read(by, "u32", some).astype(np.int64)
        other = {"bfly": lane ^ by, "idx": by % WARP, "up": np.where(lane < by, lane, lane - by)}[opcode[2]]
        self._write(target, self.registers[source][some - lane + other], some)

    def _redux(self, opcode, operands, some):
        self._check_whole_warps(operands[2], some)
        values = self._read(operands[1], opcode[3], some).reshape(-1, WARP)
        self._write(operands[0], np.repeat(FOLDS[opcode[2]].reduce(values, axis=1, dtype=values.dtype), WARP), some)

    def _ldmatrix(self, opcode, operands, some):
        targets = _names(operands[0])
        words = self.shared.view(np.uint16)[self._matrices(opcode, operands[1], len(targets), some)]
        for number, target in enumerate(targets):
            self._write(target, np.ascontiguousarray(words[:, number]).view(np.uint32).reshape(-1), some)

    def _stmatrix(self, opcode, operands, some):
        sources = _names(operands[1])
        places = self._matrices(opcode, operands[0], len(sources), some)
        for number, source in enumerate(sources):
            self.shared.view(np.uint16)[places[:, number]] = self._read(source, "u32", some).view(np.uint16).reshape(-1, WARP, 2)

    def _matrices(self, opcode, operand, count, some):
        """Places of `count` matrices of 8 rows of 8 numbers of 2 bytes, int64[warps, count, WARP, 2]. Eight lanes each say where the rows
        of a matrix begin; lane i has two neighbours in row i / 4, or, transposed, in column i / 4."""
        self._check_whole_warps("-1", some)
        first = self._address(operand, some).reshape(-1, 4, 8)[:, :count]
        assert not (first % 16).any(), f"{'.'.join(opcode)} at an address that is no multiple of 16"
        self._check_shared(first, 16)
        rows = (first + self.program[some].reshape(-1, 4, 8)[:, :count] * self.kernel.shared_bytes) // 2
        one, two = np.divmod(np.arange(WARP), 4)
        if "trans" in opcode:
            return np.stack([rows[:, :, 2 * two + number] + one for number in (0, 1)], axis=-1)
        return np.stack([rows[:, :, one] + 2 * two + number for number in (0, 1)], axis=-1)


def _names(operand):
    return [each.strip() for each in operand.strip("{} ").split(",")]
