"""Say what a camera sees, frame after frame, until Ctrl-C or q: python camera.py model.bin [--source 0]

The model knows how a picture becomes its input; OpenCV brings the picture. Headless by default: one line, renewed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

import cv2

from litenet.pyruntime import answers
from litenet.pyruntime.engine import InferenceEngine
from litenet.pyruntime.errors import ModelError


def main(argv: list[str] | None = None) -> int:
    """0: stopped, or the film has ended; 1: no camera, or no model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--source", default="0", help="number of the camera, or a film (default 0)")
    parser.add_argument("--show", action="store_true", help="also show the picture; needs OpenCV with windows")
    options = parser.parse_args(argv)
    stop = False

    def end(*signal_and_frame: object) -> None:
        nonlocal stop
        stop = True

    before = signal.signal(signal.SIGINT, end), signal.signal(signal.SIGTERM, end)
    source = int(options.source) if options.source.isdecimal() else options.source
    camera = cv2.VideoCapture(source)
    frames, began = 0, time.monotonic()
    try:
        with InferenceEngine(options.model) as engine:
            if not camera.isOpened():
                print(f"camera {options.source}: not there, or in use by another program.", file=sys.stderr)
                return 1
            while not stop:
                there, picture = camera.read()
                if not there:
                    break
                since = time.perf_counter()
                y = engine.predict_image(picture)
                found = answers.answer(engine, "", y, 1e6 * (time.perf_counter() - since), 1)
                frames += 1
                rate = frames / (time.monotonic() - began)
                seen = " ".join(answers.text(found)).strip()
                line = f"{seen}  {rate:.1f} frames a second, net {found['microseconds'] / 1e3:.1f} ms"
                if sys.stdout.isatty():
                    print(f"\r\033[K{line}", end="", flush=True)
                else:
                    print(line, flush=True)
                if options.show:
                    cv2.putText(picture, line, (8, 24), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (0, 255, 0), 1)
                    cv2.imshow("LiteNet", picture)
                    stop = stop or cv2.waitKey(1) & 0xFF == ord("q")
    except ModelError as error:
        print(f"camera.py: {error}", file=sys.stderr)
        return 1
    finally:
        camera.release()
        if options.show:
            cv2.destroyAllWindows()
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    print(f"\n{frames} frames in {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
