"""Tiers on a disk keep the contract of tiers: on every device, past the page cache or through it."""

import numpy as np
import pytest

from penstock.store.tiers import DiskOptions, DiskTier, RowFile
from tests.contract.tiers import TierContract
from tests.disks import DEVICES, FaultyDevice, make_tier


class OnDisk(TierContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path


class TestDiskTier(OnDisk):
    @pytest.fixture(autouse=True, params=DEVICES)
    def _device(self, request):
        self.device = request.param

    def make(self, arrays):
        return make_tier(self.folder, arrays, device=self.device)


class TestThroughThePageCache(TestDiskTier):
    def make(self, arrays):
        return make_tier(self.folder, arrays, device=self.device, direct=False, offset=13)


class TestOneRequestAtATime(TestDiskTier):
    def make(self, arrays):
        return make_tier(self.folder, arrays, device=self.device, depth=1, max_channels=1, max_read_bytes=4096, offset=4095)


class TestFaultyDevice(OnDisk):
    def make(self, arrays):
        return make_tier(self.folder, arrays, device=FaultyDevice(lambda *read: None))


class TestFilesOfMappedArrays(TestDiskTier):
    def make(self, arrays):
        files = []
        for number, array in enumerate(arrays):
            np.save(self.folder / f"{number}.npy", array)
            files.append(RowFile.behind(np.load(self.folder / f"{number}.npy", mmap_mode="r")))
        assert [file.data_offset for file in files] == [128] * 3
        return DiskTier(files, 50, options=DiskOptions(device=self.device))
