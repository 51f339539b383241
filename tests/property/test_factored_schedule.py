"""The schedule of samplers and trainers, against any interleaving of seats, without processes."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.feed.factored.schedule import Schedule
from penstock.sample.factored.messages import Ask, Begin, Do, Done, Job, Over, Release, Taken


@dataclass
class World:
    """Seats that do what a schedule tells them, in an order that a test draws."""

    schedule: Schedule
    num_epochs: int
    leave_at: dict = field(default_factory=dict)
    got: dict = field(default_factory=dict)
    todo: list = field(default_factory=list)
    number: dict = field(default_factory=dict)
    cursor: dict = field(default_factory=dict)
    in_slots: dict = field(default_factory=dict)
    in_use: set = field(default_factory=set)
    most: int = 0

    def say(self, seat, event):
        if isinstance(event, Release):
            del self.in_slots[event.slot]
            self.in_use.remove(event.slot)
        elif isinstance(event, Done):
            self.in_use.remove(event.job.slot)
        for other, message in self.schedule.handle(seat, event):
            self.hear(other, message)

    def hear(self, seat, message):
        if isinstance(message, (Job, Do)):
            job = message if isinstance(message, Job) else message.job
            assert job.slot not in self.in_use, "somebody writes or reads there"
            assert job.slot not in self.in_slots or self.in_slots[job.slot].number < job.number, "a batch that is wanted is overwritten"
            self.in_slots[job.slot] = job
            self.in_use.add(job.slot)
            self.most = max(self.most, len(self.in_slots))
            self.todo.append((seat, "work", job))
        elif isinstance(message, Taken):
            assert self.in_slots[message.job.slot] == message.job
            self.in_use.add(message.job.slot)
            self.got.setdefault((seat, message.job.epoch), []).append(message.job.index)
            self.todo.append((seat, "train", message))
        else:
            assert isinstance(message, Over)
            self.todo.append((seat, "next", None))

    def act(self, seat, what, detail):
        is_dedicated = not self.schedule.is_trainer(seat)
        if what == "work":
            self.say(seat, Done(detail, 8, 1.0))
            self.ask(seat, is_dedicated)
        elif what == "train":
            self.say(seat, Release(detail.job.stream, detail.job.slot))
            self.cursor[seat] += 1
            if self.leave_at.get((seat, detail.job.epoch)) == self.cursor[seat]:
                self.begin(seat)
            else:
                self.ask(seat, is_dedicated, 1.0)
        else:
            self.begin(seat)

    def begin(self, seat):
        self.number[seat] = self.number.get(seat, 0) + 1
        self.cursor[seat] = 0
        if self.number[seat] <= self.num_epochs:
            self.say(seat, Begin(self.number[seat], self.number[seat] - 1, 0))
            self.ask(seat, False)

    def ask(self, seat, is_dedicated, train_s=0.0):
        if is_dedicated:
            return self.say(seat, Ask(-1, -1))
        if self.schedule.switching:
            return self.say(seat, Ask(self.number[seat], -1, train_s))
        mine = self.schedule._of[seat].indices
        if self.cursor[seat] < len(mine):
            return self.say(seat, Ask(self.number[seat], mine[self.cursor[seat]], train_s))
        return self.begin(seat)

    def run(self, draw):
        for seat in range(self.schedule.num_samplers + self.schedule.num_trainers):
            self.todo.append((seat, "next", None) if self.schedule.is_trainer(seat) else (seat, "start", None))
        while self.todo:
            seat, what, detail = self.todo.pop(draw(st.integers(0, len(self.todo) - 1)))
            if what == "start":
                self.ask(seat, True)
            else:
                self.act(seat, what, detail)


@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 13))
def test_each_trainer_gets_its_batches_in_order(data, num_samplers, num_trainers, depth, num_batches):
    schedule = Schedule(range(num_batches), num_samplers=num_samplers, num_trainers=num_trainers, depth=depth)
    world = World(schedule, num_epochs=2)
    world.run(data.draw)
    for epoch in range(2):
        for trainer in range(num_trainers):
            assert world.got.get((num_samplers + trainer, epoch), []) == list(range(trainer, num_batches, num_trainers))
    assert world.most <= schedule.num_slots == depth * num_trainers
    assert not world.in_slots


@given(st.data(), st.integers(1, 3), st.integers(1, 2), st.integers(1, 12), st.integers(1, 12))
def test_leaving_early_holds_nobody_up(data, num_trainers, depth, num_batches, left_at):
    """Trainer 0 leaves its first epoch early; the others get all of theirs, and it gets all of its second."""
    schedule = Schedule(range(num_batches), num_samplers=1, num_trainers=num_trainers, depth=depth)
    world = World(schedule, num_epochs=2, leave_at={(1, 0): left_at})
    world.run(data.draw)
    first = list(range(0, num_batches, num_trainers))
    assert world.got[1, 0] == first[:left_at]
    assert world.got[1, 1] == first
    for trainer in range(1, num_trainers):
        assert world.got.get((1 + trainer, 0), []) == list(range(trainer, num_batches, num_trainers))
    assert not world.in_slots or all(job.epoch == 0 for job in world.in_slots.values())


@given(st.data(), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3), st.integers(1, 13))
def test_with_switching_each_batch_comes_once(data, num_samplers, num_trainers, depth, num_batches):
    schedule = Schedule(range(num_batches), num_samplers=num_samplers, num_trainers=num_trainers, depth=depth, switching=True)
    world = World(schedule, num_epochs=2)
    world.run(data.draw)
    for epoch in range(2):
        per_seat = [indices for (_, of), indices in world.got.items() if of == epoch]
        assert sorted(index for indices in per_seat for index in indices) == list(range(num_batches))
        assert all(indices == sorted(indices) for indices in per_seat)
    assert world.most <= schedule.num_slots
    assert not world.in_slots


def test_a_sampler_that_is_ahead_trains_where_the_papers_rule_says_so():
    """One sampler (seat 0), one trainer (seat 1), two slots; training takes a second, the sampler's own second and a half."""
    schedule = Schedule(range(10), num_samplers=1, num_trainers=1, depth=2, switching=True)
    schedule.train_s.add(1.0)
    schedule._standby_s.add(1.5)
    for seat in (0, 1):
        schedule.handle(seat, Begin(1, 0, 0))
    for _ in range(2):
        [(_, told)] = schedule.handle(0, Ask(1, -1))
        assert isinstance(told, Do)
        schedule.handle(0, Done(told.job, 8, 0.1))
    [(seat, told)] = schedule.handle(0, Ask(1, -1))  # 2 * 1.0 / 1 - 1.5 > 0
    assert (seat, type(told), told.job.index) == (0, Taken, 0)
    schedule.handle(0, Release(0, told.job.slot))
    [(_, told)] = schedule.handle(1, Ask(1, -1))
    assert told.job.index == 1
    [(seat, told)] = schedule.handle(0, Ask(1, -1, 1.5))
    assert isinstance(told, Do), "there is room, so it samples"


def test_a_sampler_that_is_ahead_waits_where_training_would_take_it_longer():
    schedule = Schedule(range(10), num_samplers=1, num_trainers=1, depth=1, switching=True)
    schedule.train_s.add(1.0)
    schedule._standby_s.add(1.5)
    for seat in (0, 1):
        schedule.handle(seat, Begin(1, 0, 0))
    [(_, told)] = schedule.handle(0, Ask(1, -1))
    schedule.handle(0, Done(told.job, 8, 0.1))
    assert schedule.handle(0, Ask(1, -1)) == []  # 1 * 1.0 / 1 - 1.5 < 0
