"""What a second process at the same time costs the first: the same net in two processes on a machine of two cores.

    python benchmarks/two_processes.py [NET ...] [--rounds 15]

Each process uses as many threads as LiteNet chooses by itself. Bursts of 0.3 s, in turn of one process alone and of
both at once (zoo_column.py); medians of the rounds, and of the round least disturbed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import zoo_column

NETS = ["mnist_cnn", "cifar_cnn", "tomato_cnn", "resnet18_cifar", "mbv2_224"]


def middle(burst: dict) -> float:
    return burst["us"][len(burst["us"]) // 2]


def main() -> None:
    p = argparse.ArgumentParser(description="One process and two at once.")
    p.add_argument("nets", nargs="*", metavar="NET")
    p.add_argument("--rounds", type=int, default=15)
    args = p.parse_args()
    print("| net | threads | one process, us | two at once, us | | least: one | two | |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.nets or NETS:
            path, given, _ = zoo_column.net(name, Path(folder), None)
            workers = [zoo_column.Worker(path, given, 0) for _ in range(2)]
            one, two = [], []
            for _ in range(args.rounds):
                workers[0].ask()
                one.append(middle(workers[0].read()))
                for worker in workers:
                    worker.ask()
                two.append(max(middle(worker.read()) for worker in workers))
            for worker in workers:
                worker.close()
            cells = [name, str(workers[0].found["threads"])]
            for pick in (statistics.median, min):
                a, b = pick(one), pick(two)
                cells += [f"{a:,.1f}", f"{b:,.1f}", f"{b / a:.2f}x"]
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
