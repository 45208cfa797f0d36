"""onnxruntime: the judge of what a file computes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from ...errors import ModelError
from ..faithful import first_line, numbers
from .file import OnnxFile
from .network import Network

CLOSE = 1e-4  # difference of outputs, relative to the largest: float32 on both sides of a deep model
ROOM, MOST = 16.0, 1e-2  # more than that where single precision itself is that far off, never more than a hundredth
POINTS = 8


class Runtime:
    """A session of onnxruntime on the CPU, on one thread, as the file asks for: in float32 nearly always."""

    def __init__(self, file: OnnxFile) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        settings.log_severity_level = 4
        self.file = file
        self.dtype: Any = numpy.float64 if file.double else numpy.float32
        try:
            self.session: Any = onnxruntime.InferenceSession(file.content, settings, providers=["CPUExecutionProvider"])
        except Exception as error:  # what it may raise has no list
            raise ModelError(f"{file.path}: onnxruntime cannot open it: {first_line(error)}") from None

    def __call__(self, x: Any) -> Any:
        """The outputs, flat, at an input given flat or in shape, in the type of the model."""
        given = numpy.asarray(x, dtype=self.dtype).reshape(self.file.shape)
        try:
            found = self.session.run([self.file.output], {self.file.input: given})[0]
        except Exception as error:
            raise ModelError(f"{self.file.path}: onnxruntime cannot run it: {first_line(error)}") from None
        return numpy.asarray(found).reshape(-1)


def check_agreement(runtime: Runtime, network: Network, boxes: Sequence[tuple[Tensor, Tensor]] = ()) -> float:
    """Compare the module in float64 with onnxruntime at 8 points; the largest difference, relative to the outputs.

    The points are drawn from fixed seeds: of each of the first boxes (flat) the middle and random points and corners,
    else normal and uniform numbers. A difference of more than rounding explains is an error.
    """
    points = _points(network, boxes)
    with torch.no_grad():
        exact = network(points)
        single = copy.deepcopy(network).float()(points.float()).double()
    found = torch.stack([torch.as_tensor(runtime(x.numpy())).double() for x in points])
    if found.shape != exact.shape:
        raise ModelError(f"{runtime.file.path}: onnxruntime gives {found.shape[1]} outputs, here are {exact.shape[1]}")
    if not bool(torch.isfinite(exact).all()) or not bool(torch.isfinite(found).all()):
        raise ModelError(f"{runtime.file.path}: gives outputs that are not finite")
    size = max(float(exact.abs().max()), torch.finfo(torch.float32).tiny)
    allowed = max(CLOSE * size, min(ROOM * float((single - exact).abs().max()), MOST * size))
    off = (found - exact).abs()
    if not float(off.max()) <= allowed:
        k = int(off.amax(dim=1).argmax())
        raise ModelError(
            f"{runtime.file.path}: onnxruntime gives {numbers(found[k])}, the model as it was read here "
            f"{numbers(exact[k])}: nothing can be proved about it"
        )
    return float(off.max()) / size


def _points(network: Network, boxes: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """`[8, *shape]`, numbers of float32."""
    generator = torch.Generator().manual_seed(0)
    shape = (POINTS, *network.shape)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    part = torch.rand(shape, generator=generator, dtype=torch.float64)
    part[::3] = part[::3].round()  # corners
    if boxes:
        chosen = [boxes[k % len(boxes)] for k in range(POINTS)]
        low, high = (torch.stack([box[i].reshape(network.shape) for box in chosen]).double() for i in (0, 1))
        part[: len(boxes)] = 0.5
        points = low + part * (high - low)
    else:
        points = torch.where(torch.arange(POINTS).reshape(-1, *(1,) * len(network.shape)) % 2 == 0, normal, part)
    return points.float().double()
