"""The launch that is the last linear layer, its loss and its gradients at once; see head.cu.

Where fits() says so, it takes the place of three launches of a training step: that layer's forward, the loss, and that
layer's backward. Its roles are theirs; z and dz are not written.
"""

from __future__ import annotations

from ..losses import BoundLoss
from .call import Arg, Call, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .calls_step import figures
from .variants import NULL, has_bias, older_dx, storage, vector

MOST_OUTPUTS = 32  # a lane for each
MOST_INPUTS = 1024  # eight rows of them, and the weights, lie in shared memory
MOST_WEIGHTS = 2304  # sums in the registers of a block, which the last block reads once for each block
MOST_ROWS = 2048
BLOCKS = 16


def fits(loss: BoundLoss, s: Shapes) -> bool:
    """Whether the launch can take these sizes, and is likely to be faster. s: of the layer's backward."""
    plain = loss.name == "cross_entropy" and s.a.activation == "none" and len(s.x) == 1 and "weight" in s.want
    I, O = s.x[-1], s.y[-1]
    return plain and O <= MOST_OUTPUTS and I <= MOST_INPUTS and O * I <= MOST_WEIGHTS and s.N <= MOST_ROWS


def head_calls(loss: BoundLoss, s: Shapes, history: int = 0) -> list[Call]:
    """Roles: x, weight, bias, target, class_weights, add:x -> loss, correct, d:x, d:weight, d:bias, and those of
    loss_calls besides."""
    I, O, db = s.x[-1], s.y[-1], has_bias(s)
    kernel = Kernel("head.cu", "head_f32", constants(HI=I, HO=O, VI=vector(I), **storage(s)))
    args: tuple[Arg, ...] = (
        *(Ref("x"), Ref("weight"), Ref("bias"), Ref("target")),
        Ref("class_weights") if loss.settings.get("class_weights") is not None else NULL,
        *(older_dx(s), Ref("d:x") if "x" in s.want else NULL, Ref("d:weight"), Ref("d:bias") if db else NULL),
        *figures(s.half, history),
        *(Int(s.N), Int(int(s.accumulate)), Float(loss.settings.get("label_smoothing", 0.0))),
    )
    return [Call(kernel, (_blocks(s), 1, 1), (256, 1, 1), args)]


def head_scratch(s: Shapes) -> int:
    """Bytes of Ref("scratch")."""
    return 4 * _blocks(s) * (2 + s.y[-1] * (s.x[-1] + 1))


def _blocks(s: Shapes) -> int:
    return min(blocks(s.N, 8), BLOCKS)
