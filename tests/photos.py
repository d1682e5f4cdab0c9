"""Small photos for tests: folders of pictures that no two are alike."""

import cv2
import numpy as np


def picture(seed, size=(24, 32), channels=3):
    """A picture of large patches, uint8: different seeds look different."""
    H, W = size
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, channels)).astype(np.uint8)
    return cv2.resize(coarse, (W, H), interpolation=cv2.INTER_CUBIC).reshape(H, W, channels)


def write(path, pixels, quality=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    options = [] if quality is None else [cv2.IMWRITE_JPEG_QUALITY, quality]
    data = cv2.imencode(path.suffix, pixels, options)[1]
    path.write_bytes(data.tobytes())
    return path


def folder(root, classes=("cat", "dog"), each=12, suffix=".png", parts=("",), size=(24, 32), seed=0):
    """root/[part/]class/N.png, numbered without gaps."""
    for part in parts:
        for label in classes:
            for n in range(each):
                seed += 1
                write(root / part / label / f"{n:03}{suffix}", picture(seed, size))
    return root
