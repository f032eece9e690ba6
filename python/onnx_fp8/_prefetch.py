# SPDX-License-Identifier: Apache-2.0
import queue
import threading

from ._notes import note

_SECONDS_TO_END = 5


class Prefetch:
    """The items of an iterator, which a thread draws up to `depth` ahead of the caller. Its exception reaches the caller
    in the item's place. `close` ends the thread; an iterator that is in the middle of an item may outlive it."""

    def __init__(self, items, depth, name):
        self._drawn = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._closed, self._end, self._name = False, None, name
        self._thread = threading.Thread(target=self._draw, args=(items,), name=f"onnx_fp8 {name}", daemon=True)
        self._thread.start()

    def _draw(self, items):
        try:
            while True:
                self._room.acquire()
                if self._closed:
                    return
                self._drawn.put((next(items), None))
        except BaseException as error:  # StopIteration is the end
            self._drawn.put((None, error))

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is None:
            item, self._end = self._drawn.get()
            if self._end is None:
                self._room.release()
                return item
        raise self._end

    def close(self):
        self._closed = True
        self._room.release()
        self._thread.join(_SECONDS_TO_END)
        if self._thread.is_alive():
            note(f"[{self._name}] the iterable is still making a batch, which nobody reads")
