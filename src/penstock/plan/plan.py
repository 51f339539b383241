"""A plan: the order of the seeds, the places of rows and neighbour lists, which of them are cached in faster memory, and how far the
pipeline looks ahead.

A recipe is a plan with a name. It reproduces a system of the papers by settings, never by code of its own.
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
"""Settings that say how much memory, disk and device there is, not how it is used."""
SAME = "same"
"""As `slow_topology`: the simulated device of the rows. As `device_policy`: the policy of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a loader is fed.

    Attributes:
        recipe: name of the recipe that the plan comes from, for reports.
        order: order of the seeds: "random"; "sequential"; "proximity" or "community", which put near seeds into the same and the next
            batches; over a partition also "split", which gives each process seeds of its own part.
        features: where rows are read: "given" leaves them where they are (in a store: mapped files); "memory" reads them into memory at the
            start; "disk" reads them from the disk, bypassing the page cache, by many requests at once (see `store.tiers.DiskTier`).
        policy: which rows are cached in memory above `features`; None: no rows. Static: "degree", "ratio", "presample", "inclusion",
            "random". Dynamic, by past batches: "fifo", "lru", "lfu", "clock", "sieve", "s3-fifo"; by coming batches: "belady".
        cache: capacity: "10%" of the rows of each type, "2GiB" for rows and all that the policy needs (except belady's window: 8 to 16
            bytes for each row of each batch in it), or "5000 rows".
        window: number of batches that a policy with look-ahead knows, including the current one.
        presample_epochs: epochs that are sampled to find hot rows and lists.
        slow: speed of a simulated device beneath the cache: "1GB/s,100us" (see `slow_options`); None: no such device.
        topology: where neighbour lists are read: "given" leaves them where they are (in a store: mapped files); "memory" reads them into
            memory; "disk" reads them from the disk, bypassing the page cache. Row pointers stay where they are.
        neighbor_policy: which neighbour lists are cached in memory above `topology`, the best by value per edge: "ratio", "presample",
            "degree" or "random"; None: no lists.
        neighbor_cache: capacity: "10%" of all edges, "2GiB" for lists and the table that finds them, or "5000 lists". "shared": `cache` is
            one budget for rows and lists, divided by what a byte of each saves.
        neighbor_layout: how kept lists are found: "direct", by a table of offsets, or "prefix", by rank.
        slow_topology: speed of a simulated device beneath the lists, as `slow`: "1GB/s,100us,4KiB blocks". "same": the lists are on the
            device of `slow`, so reads of lists and of rows share its queue.
        hold: what is held of a batch that was sampled ahead: "samples", or only the "ids" of its rows; then the batch is sampled again.
        host_memory: a budget for the whole process: "2GiB", or a number of bytes. A short profile then chooses the capacities (`cache`,
            `neighbor_cache`), `window`, `hold` and the number of batches in flight; lists are ranked by their visits in the profile. A plan
            that has no other settings, except `spool` and those of a device, reads features and lists from the disk, as the recipe ginex.
            With a device, the budget includes host memory that the device reads, and copies of rows on their way to it. It does not include
            device memory: `device_cache` sets that, and so does `neighbor_cache` where the device draws the samples. With `spool`, rows are
            spooled instead of cached, and the number of batches in flight makes the spool as fast as both budgets allow.
        map_threads: number of threads that read rows and neighbours from maps at the same time, for stores larger than memory: a row that
            is not in the page cache blocks the thread that reads it. The system's read-ahead is off for these maps, once the content of
            static caches has been chosen. 0: the loader's own threads read, with read-ahead. (Ginex 5.1 tuned PyG over maps like this.)
        spool: disk space in bytes: "8GiB", or a number. For rows on a disk that are far apart. `policy` must be static. Rows that it does
            not keep are read for half a `window` of batches at once, in the order of the file, and wait in the spool until their batch's
            turn (see `gather.SpooledTier`). Rows that do not fit into half the spool are read batch by batch, as without a spool.
        spool_folder: folder of the spool; None: beside the features.
        presample_batches: most batches of an epoch that are sampled to find hot rows and lists; None: all batches.
        device_policy: which rows are cached in device memory, if the loader has a device (`NeighborLoader(device="cuda")`). None: if the
            device itself reads all rows from host memory (`features` "given" or "memory", no `slow`, no `map_threads`), `policy` and
            `cache` are for device memory; else they are for host memory, and nothing is cached on the device. If both policies are given,
            the device's cache is above the host's, and rows missing in the upper one are looked up in the lower one (BGL); this is for
            rows that the device does not read itself. "same": `policy` for both caches if there is a device and such rows; else one cache,
            by `policy` and `cache`.
        device_cache: capacity for `device_policy`, as `cache`. None: the device memory that is free after the first training steps, less a
            reserve. Above a cache of the host it should hold fewer rows than that cache: of two equal dynamic caches, the lower one has no
            hits. Apart from this capacity, if the device reads rows itself, fields of single numbers such as labels are copied to device
            memory, if those of a type take at most a sixteenth of its free memory.
        device_topology: who draws the samples, if the loader has a device: the device, from neighbour lists in its own memory ("device")
            or in pinned host memory ("pinned"); or the CPU ("host"). None: the first of these that is possible. With "pinned", lists that
            `neighbor_policy` keeps are in device memory.
        huge_pages: move a store's maps that are read directly into huge pages, in a thread beside the batches, as far as that takes at most
            an eighth of the free memory. False: they stay in the page cache, which several processes share.
    Raises:
        UsageError: a value that is not allowed, or values that exclude each other.
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
        """Raise UsageError for a plan that cannot work."""
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
            raise UsageError(f"{argument('slow_topology', SAME)} is the simulated device of {argument('slow')}, which is not given")
        self._check_spool()
        self._check_device()
        self._check_lists()

    def _check_spool(self) -> None:
        if self.spool is None:
            if self.spool_folder is not None:
                folder = argument("spool_folder", self.spool_folder)
                raise UsageError(f"{folder} is the folder of a spool, and there is none: give {argument('spool')} too")
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
                f"{argument('spool', self.spool)} must know what {argument('policy')} will miss: give a static one: {', '.join(STATIC)}"
            )

    def _check_device(self) -> None:
        amount = 0.0 if self.device_cache is None else parse_capacity(self.device_cache, "device_cache")[1]
        if amount and self.device_policy is None:
            raise UsageError(
                f"{argument('device_cache', self.device_cache)} keeps nothing without {argument('device_policy')}: choose one of "
                f"{', '.join(POLICIES)}"
            )
        if self.device_policy == SAME and self.policy is None:
            raise UsageError(f"{argument('device_policy', SAME)} stands for {argument('policy')}, which is not given")
        if self.policy is not None and self.device_policy is not None:
            self._check_levels(self.policy if self.device_policy == SAME else self.device_policy)
        if self.is_device_cache_found and self.device_policy == Belady.name:
            raise UsageError(
                f"{argument('device_policy', self.device_policy)} looks ahead from the first batch: give {argument('device_cache')}"
            )

    def _check_levels(self, above: str) -> None:
        """Raise UsageError if `policy` cannot manage a cache of the host beneath a cache of the device with policy `above`."""
        is_known = above in STATIC and not self.is_device_cache_found
        if self.policy == Belady.name and not is_known:
            raise UsageError(
                f"{argument('policy', self.policy)} looks ahead, and must know what {argument('device_policy', self.device_policy)} will "
                f"miss: give a static one ({', '.join(STATIC)}) and {argument('device_cache')}, or another {argument('policy')}"
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
        """Return the plan for a loader with or without a device.

        `device_policy="same"` becomes the policy that it stands for. If `host_memory` decides `cache`, and a device reads the rows itself,
        `policy` becomes `device_policy`: rows are then cached in device memory, which is not in that budget.
        """
        if has_device and self.is_read_by_device and self.host_memory is not None and self.policy is not None:
            if self.device_policy not in (None, SAME):
                return self  # two policies although the device reads the rows: refused later, where it is known for each type
            cache = None if parse_capacity(self.cache)[1] == 0 else self.cache
            return replace(self, policy=None, cache="0", device_policy=self.policy, device_cache=cache)
        if self.device_policy != SAME:
            return self
        if has_device and not self.is_read_by_device:
            return replace(self, device_policy=self.policy)
        return replace(self, device_policy=None, device_cache=None)

    @property
    def is_budget(self) -> bool:
        """Whether the plan says only how much memory, disk and device there is."""
        return self.host_memory is not None and replace(self, **dict.fromkeys(BUDGETS)) == Plan()

    @property
    def has_plain_features(self) -> bool:
        """Whether the loader reads the arrays of features directly."""
        return self.policy is None and self.features == "given" and self.slow is None and not self.map_threads

    @property
    def has_plain_topology(self) -> bool:
        """Whether the sampler reads the arrays of neighbours directly."""
        return self.neighbor_policy is None and self.topology == "given" and self.slow_topology is None and not self.map_threads

    @property
    def is_read_by_device(self) -> bool:
        """Whether a device, if the loader has one, can read all rows itself: they are in host memory, and not simulated as slow."""
        return self.features != "disk" and self.slow is None and not self.map_threads

    @property
    def is_read_ahead(self) -> bool:
        """Whether rows are read from a disk for samples drawn ahead: a policy looks ahead, or rows are spooled."""
        return self.features == "disk" and (self.spool is not None or Belady.name in (self.policy, self.device_policy))

    @property
    def is_by_inclusion(self) -> bool:
        """Whether rows may be ranked by inclusion probabilities, which need passes over all neighbour lists, and memory for each node."""
        return self.host_memory is None and self.is_sampled_by_device

    @property
    def is_device_cache_found(self) -> bool:
        """Whether the capacity of the device's cache is found after the first training steps."""
        return self.device_policy is not None and self.device_cache is None

    @property
    def is_sampled_by_device(self) -> bool:
        """Whether a device, if the loader has one, can draw the samples: lists are in host memory, and not simulated as slow."""
        return self.topology != "disk" and self.slow_topology is None and not self.map_threads

    @property
    def is_plain(self) -> bool:
        """Whether the loader reads all arrays directly."""
        return self.has_plain_features and self.has_plain_topology

    def as_dict(self) -> dict[str, Any]:
        """Return the settings: name -> value."""
        return asdict(self)
