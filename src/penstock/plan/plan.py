"""A plan: in which order seeds come, where rows and neighbour lists live, what is kept of them in faster memory, and how far the pipeline
looks ahead.

A recipe is a plan that has a name: a system of the papers as a setting of this machine, never a code path of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.cache.belady import Belady
from penstock.cache.choose import LIST_POLICIES, POLICIES, STATIC
from penstock.errors import UsageError, argument
from penstock.order import ORDERS
from penstock.order.by_name import SPLIT
from penstock.plan.capacity import parse_capacity, slow_options
from penstock.plan.lists import SHARED
from penstock.plan.settings import check_choice, check_positive, settle, show
from penstock.sample.lists import LAYOUTS
from penstock.store.budget import parse_bytes

FEATURES = ("given", "memory", "disk")
TOPOLOGIES = ("given", "memory", "disk")
DEVICE_TOPOLOGIES = ("device", "pinned", "host")
HOLDS = ("samples", "ids")
MAX_MAP_THREADS = 256
BUDGETS = ("host_memory", "spool", "spool_folder", "device_policy", "device_cache", "device_topology")
"""How much there is, in place of what is done with it."""
SAME = "same"
"""A made-up device beneath the lists that is that of the rows; a policy of the device that is that of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a loader is fed.

    Attributes:
        recipe: name it came from, for reports.
        order: of the seeds: "random", "sequential", or near seeds in batches that follow each other: "proximity", "community"; over a
            partition also "split": each process has seeds of its part.
        features: where rows are read from: "given" leaves them (a store's are mapped files), "memory" reads them in at the start, "disk"
            reads them past the page cache, by many requests at once (see `store.tiers.DiskTier`).
        policy: which rows are kept in memory above that; None keeps none. Chosen once: "degree", "ratio", "presample", "inclusion",
            "random"; by the batches so far: "fifo", "lru", "lfu", "clock", "sieve", "s3-fifo"; by those to come: "belady".
        cache: how many: "10%" of the rows of each type, "2GiB" with all that the policy needs, or "5000 rows".
        window: batches that a policy which looks ahead is told of.
        presample_epochs: epochs sampled to find out what is hot.
        slow: a device to be played beneath the cache: "1GB/s,100us" (see `slow_options`); None for none.
        topology: where neighbour lists are read from: "given" leaves them (a store's are mapped files), "memory" reads them in, "disk"
            reads them past the page cache; row pointers stay where they are.
        neighbor_policy: whose neighbour lists are kept in memory above that: the best by value per edge, "ratio", "presample", "degree" or
            "random"; None keeps none.
        neighbor_cache: how many: "10%" of all edges, "2GiB" with the table that finds them, "5000 lists"; or "shared": `cache` is then one
            budget for rows and lists, divided by what a byte of each saves.
        neighbor_layout: how kept lists are found: "direct", by a table of offsets, or "prefix", by rank.
        slow_topology: a device to be played beneath the lists, as `slow`: "1GB/s,100us,4KiB blocks"; "same": they are on the device of
            `slow`, and their reads queue with those of the rows.
        hold: what is kept of a batch that is known and not made yet: "samples", or "ids" of its rows only, and it is sampled again.
        host_memory: a budget for the whole process: "2GiB". What is kept (`cache`, `neighbor_cache`), `window` and `hold` then follow from
            a short profile, and so does the number of batches made at once; lists are ranked by the visits in it. A plan that
            says nothing else, or only what a device has, becomes that of the recipe ginex. With a device, what that reads in memory of the
            host and the copies on their way to it are in the budget, what it keeps itself is not: `device_cache`, `neighbor_cache` of
            samples that it draws. With `spool` it is rows spooled, and as many batches at once as make it fast within both.
        map_threads: threads that read rows and neighbours from maps at the same time, for stores beyond memory: a row that is not in the
            page cache holds up the thread that touches it. The system's read-ahead is then off for these maps, once what is kept has been
            chosen. 0: the loader's own threads, with read-ahead. Ginex 5.1 tuned PyG over maps like this.
        spool: bytes of a disk: "8GiB". Rows that `policy`, which must be one that stays, does not keep are read for half a `window` of
            batches at once, in the order of the file, and lie in the spool until their batch's turn (see `gather.SpooledTier`): for rows
            of a disk that lie far apart. What half the spool does not hold of them, and without one all of them, is read batch by batch.
            It may be a number of bytes, as host_memory.
        spool_folder: where; None: beside the features.
        presample_batches: how many batches of an epoch are sampled at most to find out what is hot; None: all of them.
        device_policy: which rows are kept in memory of the device, where the loader has one (`NeighborLoader(device="cuda")`). None: those
            that `policy` says, where the device itself reads all rows in memory of the host ("given" or "memory", nothing slow, no
            `map_threads`); else none, and `policy` is for memory of the host. With both, a cache of the device is above one of the host,
            which is asked for what that misses (BGL): for rows that the device does not read by itself. "same": both by `policy`, where
            there is a device and such rows; elsewhere there is one cache, by `policy` and `cache`.
        device_cache: how many, as `cache`; with `device_policy`. None: what training leaves free of the device's memory, seen after the
            first steps, less a reserve. Above a cache of the host, fewer rows than that has: of two that are equal and dynamic, the one
            beneath would never be asked for what it has. Besides, labels and other single numbers of nodes and edges whose rows the device
            reads by itself are on it, where a sixteenth of its free memory holds those of a type.
        device_topology: where neighbour lists are read from, where the loader has a device: by the device, which then draws
            the samples, out of its own memory ("device") or pinned memory of the host ("pinned"); or by the CPU, which draws them ("host").
            None: the first of these that can be. Lists that `neighbor_policy` keeps are on the device then, over pinned ones.
        huge_pages: move a store's maps that are read as they are into huge pages of memory, beside the batches, where they take no more
            than an eighth of what is free. False leaves them to the page cache, which several processes share.
    Raises:
        UsageError: values that are none of these, or that do not go together.
    """

    recipe: str = "custom"
    order: str = "random"
    features: str = "given"
    policy: str | None = None
    cache: str = "0"
    window: int = 16
    presample_epochs: int = 1
    slow: str | None = None
    topology: str = "given"
    neighbor_policy: str | None = None
    neighbor_cache: str = "0"
    neighbor_layout: str = "direct"
    slow_topology: str | None = None
    hold: str = "samples"
    host_memory: str | int | None = None
    map_threads: int = 0
    spool: str | int | None = None
    spool_folder: str | None = None
    presample_batches: int | None = None
    huge_pages: bool = True
    device_policy: str | None = None
    device_cache: str | None = None
    device_topology: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        parse_capacity(self.cache)
        settle(self)
        choices = {
            "order": (*ORDERS, SPLIT), "features": FEATURES, "topology": TOPOLOGIES, "neighbor_layout": tuple(LAYOUTS), "hold": HOLDS,
            "policy": (None, *POLICIES), "neighbor_policy": (None, *LIST_POLICIES), "device_policy": (None, *POLICIES, SAME),
            "device_topology": (None, *DEVICE_TOPOLOGIES),
        }  # fmt: skip
        for name, allowed in choices.items():
            check_choice(self, name, allowed)
        check_positive(self, "window", "presample_epochs", "presample_batches")
        if not 0 <= self.map_threads <= MAX_MAP_THREADS:
            raise UsageError(f"{argument('map_threads')} must lie in [0, {MAX_MAP_THREADS}], got {self.map_threads}")
        if self.host_memory is not None:
            parse_bytes(self.host_memory)
        for name in ("slow", "slow_topology"):
            if getattr(self, name) is not None and (name, self.slow_topology) != ("slow_topology", SAME):
                slow_options(getattr(self, name), name)
        if self.slow_topology == SAME and self.slow is None:
            raise UsageError(f"{argument('slow_topology', SAME)} is the device of {argument('slow')}, and there is none")
        self._check_spool()
        self._check_device()
        self._check_lists()

    def _check_spool(self) -> None:
        if self.spool is None:
            if self.spool_folder is not None:
                raise UsageError(f"{argument('spool_folder', self.spool_folder)} is where a spool would be: give {argument('spool')} too")
            return
        parse_bytes(self.spool)
        if self.is_budget:
            return
        if self.features != "disk" or self.slow is not None or self.device_policy is not None:
            raise UsageError(
                f"{argument('spool', self.spool)} is for rows that come from a disk: give {argument('features', 'disk')}, and neither "
                f"{argument('slow')} nor {argument('device_policy')}"
            )
        if self.policy not in STATIC:
            raise UsageError(
                f"{argument('spool', self.spool)} must know what {argument('policy')} will miss: give one that keeps its rows: "
                f"{', '.join(STATIC)}"
            )

    def _check_device(self) -> None:
        amount = 0.0 if self.device_cache is None else parse_capacity(self.device_cache, "device_cache")[1]
        if amount and self.device_policy is None:
            raise UsageError(
                f"{argument('device_cache', self.device_cache)} keeps nothing without {argument('device_policy')}: choose one of "
                f"{', '.join(POLICIES)}"
            )
        if self.device_policy == SAME and self.policy is None:
            raise UsageError(f"{argument('device_policy', SAME)} is that of {argument('policy')}, and there is none")
        if self.policy is not None and self.device_policy is not None:
            self._check_levels(self.policy if self.device_policy == SAME else self.device_policy)
        if self.is_device_cache_found and self.device_policy == Belady.name:
            raise UsageError(
                f"{argument('device_policy', self.device_policy)} looks ahead from the first batch: give {argument('device_cache')}"
            )

    def _check_levels(self, above: str) -> None:
        """Refuse what a cache of the host cannot be beneath one of the device."""
        is_known = above in STATIC and not self.is_device_cache_found
        if self.policy == Belady.name and not is_known:
            raise UsageError(
                f"{argument('policy', self.policy)} looks ahead, and must know what {argument('device_policy', self.device_policy)} will "
                f"miss: give one that keeps its rows ({', '.join(STATIC)}) and {argument('device_cache')}, or another {argument('policy')}"
            )
        if self.policy in STATIC and above in STATIC and not is_known:
            raise UsageError(
                f"{argument('policy', self.policy)} keeps the best rows that {argument('device_policy', self.device_policy)} leaves, from "
                f"the first batch on: give {argument('device_cache')}"
            )

    def _check_lists(self) -> None:
        if self.neighbor_cache != SHARED:
            _, amount = parse_capacity(self.neighbor_cache, "neighbor_cache", unit="lists")
            if amount and self.neighbor_policy is None:
                raise UsageError(
                    f"{argument('neighbor_cache', self.neighbor_cache)} keeps nothing without {argument('neighbor_policy')}: choose one of "
                    f"{', '.join(LIST_POLICIES)}"
                )
        elif self.policy != "presample" or self.neighbor_policy != "presample":
            raise UsageError(
                f"{argument('neighbor_cache', SHARED)} divides {argument('cache')} by sampled visits: it needs "
                f"{argument('policy', 'presample')} and {argument('neighbor_policy', 'presample')}"
            )
        elif self.device_policy is not None:
            raise UsageError(
                f"{argument('neighbor_cache', SHARED)} divides one budget between lists and the rows of one cache: leave "
                f"{argument('device_policy', self.device_policy)} out"
            )
        elif parse_capacity(self.cache)[0] == "rows":
            raise UsageError(
                f"{argument('cache', self.cache)} counts rows; a budget for rows and lists is a share of their bytes, or bytes: 10%, 2GiB"
            )

    __repr__ = show

    def resolved(self, *, has_device: bool) -> Plan:
        """Say what `device_policy="same"` stands for in a loader with or without a device; and, where a budget of host memory decides
        `cache`, that a policy over rows that the device reads is the device's, whose memory is another."""
        if has_device and self.is_read_by_device and self.host_memory is not None and self.policy is not None:
            if self.device_policy not in (None, SAME):
                return self  # refused where the rows are
            cache = None if parse_capacity(self.cache)[1] == 0 else self.cache
            return replace(self, policy=None, cache="0", device_policy=self.policy, device_cache=cache)
        if self.device_policy != SAME:
            return self
        if has_device and not self.is_read_by_device:
            return replace(self, device_policy=self.policy)
        return replace(self, device_policy=None, device_cache=None)

    @property
    def is_budget(self) -> bool:
        """It says how much there is of memory, of a disk and of a device, and nothing else."""
        return self.host_memory is not None and replace(self, **dict.fromkeys(BUDGETS)) == Plan()

    @property
    def has_plain_features(self) -> bool:
        """Nothing stands between the loader and the arrays of features."""
        return self.policy is None and self.features == "given" and self.slow is None and not self.map_threads

    @property
    def has_plain_topology(self) -> bool:
        """Nothing stands between the sampler and the arrays of neighbours."""
        return self.neighbor_policy is None and self.topology == "given" and self.slow_topology is None and not self.map_threads

    @property
    def is_read_by_device(self) -> bool:
        """A device, where the loader has one, reads all rows by itself: they are in memory of the host, and nothing stands before them."""
        return self.features != "disk" and self.slow is None and not self.map_threads

    @property
    def is_read_ahead(self) -> bool:
        """Rows come from a disk, for samples that were drawn before: a policy looks ahead, or they are spooled."""
        return self.features == "disk" and (self.spool is not None or Belady.name in (self.policy, self.device_policy))

    @property
    def is_by_inclusion(self) -> bool:
        """Passes over all neighbour lists, and memory for what they tell, may be taken to find out what is hot."""
        return self.host_memory is None and self.is_sampled_by_device

    @property
    def is_device_cache_found(self) -> bool:
        """How many rows the device keeps is found out after the first steps."""
        return self.device_policy is not None and self.device_cache is None

    @property
    def is_sampled_by_device(self) -> bool:
        """A device, where the loader has one, can draw the samples: lists are in memory of the host, and nothing stands before them."""
        return self.topology != "disk" and self.slow_topology is None and not self.map_threads

    @property
    def is_plain(self) -> bool:
        """Nothing stands between the loader and the arrays."""
        return self.has_plain_features and self.has_plain_topology

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
