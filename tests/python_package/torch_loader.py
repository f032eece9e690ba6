# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: a DataLoader whose workers are processes of their own gives a run the batches of a list."""
import pathlib
import tempfile
import warnings

import digits
import torch

import onnx_fp8

ROWS, SIZE, STEPS = 120, 30, 10  # two passes and a half


class Rows(torch.utils.data.Dataset):
    """Rows of the sample, which only a worker may read."""

    def __init__(self):
        self.arrays = {name: torch.from_numpy(array[:ROWS].copy()) for name, array in digits.arrays().items()}

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        assert torch.utils.data.get_worker_info() is not None
        return {name: array[index] for name, array in self.arrays.items()}


def losses(data, out):
    told = []
    onnx_fp8.train(digits.MODEL, data=data, out=out, steps=STEPS, loss="cross_entropy", recipe="delayed", lr=1e-3,
                   progress=False, on_step=lambda event: told.append(event["loss"]))
    return told


def main():
    warnings.simplefilter("ignore", onnx_fp8.Note)
    rows = Rows()
    batches = [{name: array[i:i + SIZE].numpy() for name, array in rows.arrays.items()} for i in range(0, ROWS, SIZE)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expected = losses(batches, folder / "list")
        assert len(set(expected)) == STEPS, expected
        for persistent in (False, True):
            loader = torch.utils.data.DataLoader(rows, batch_size=SIZE, num_workers=2, persistent_workers=persistent)
            got = losses(loader, folder / f"workers_{persistent}")
            assert got == expected, (persistent, got, expected)


if __name__ == "__main__":
    main()
