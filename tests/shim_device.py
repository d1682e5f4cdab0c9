"""A Device for trainer/backends/device.py that is the CPU: kernels run through the shim, addresses are pointers."""

import ctypes

import cushim
import numpy as np

from litenet.trainer.kernels.call import Float, Int


class ShimDevice:
    name, sms = "the CPU", 4

    def __init__(self):
        self.held = []
        self.launched = []

    def allocate(self, size):
        memory = np.full(size + 512, 0xFF, np.uint8)  # NaN, should anything read what nobody wrote
        self.held.append(memory)
        return memory.ctypes.data + (-memory.ctypes.data) % 256

    def upload(self, address, array):
        ctypes.memmove(address, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def zero(self, address, size):
        ctypes.memset(address, 0, size)

    def copy(self, source, target, size):
        ctypes.memmove(target, source, size)

    def download(self, address, array):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def synchronize(self):
        pass

    def pinned(self, size):
        return np.full(size, 0xFF, np.uint8)

    def lane(self, slots):
        return Lane(self, slots)

    def launch(self, call, addresses):
        entry = cushim._entry(call.kernel.file, call.kernel.defines, call.kernel.name)
        given, values = iter(addresses), []
        for arg in call.args:
            if isinstance(arg, Int):
                values.append(ctypes.c_int(arg.value))
            elif isinstance(arg, Float):
                values.append(ctypes.c_float(arg.value))
            else:
                values.append(ctypes.c_void_p(next(given)))
        dims = (ctypes.c_uint * 6)(*call.grid, *call.block)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        takes = entry(dims, ctypes.c_uint(call.shared), ctypes.c_int(False), pointers, ctypes.c_int(len(values)))
        assert takes < 0, f"{call.kernel.name} takes {takes} arguments, the call gives {len(values)}"
        self.launched.append(call.kernel.name)

    def capture(self, launches):
        kept = list(launches)

        def replay():
            for call, addresses in kept:
                self.launch(call, addresses)

        return replay


class Lane:
    """A card's copies beside the launches, as late as the rules allow: a page is read when its slot is used."""

    def __init__(self, device, slots):
        self.device, self.pages, self.in_use = device, {}, set()
        self.slots = slots

    def free(self, slot):
        assert slot not in self.pages, "the page has not been read yet"

    def send(self, slot, address, page):
        assert 0 <= slot < self.slots
        self.device.upload(address, page)
        self.pages[slot] = page

    def used(self, slot):
        self.pages.pop(slot)[:] = 0xFF  # the host fills it anew
