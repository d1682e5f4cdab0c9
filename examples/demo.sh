#!/bin/sh
# The main job from end to end: train on the 1,797 digits that come with LiteNet, export one file, ask about pictures.
set -e
cd "$(dirname "$0")/.."
bin=${PYTHON:-python3}
run=build/demo
rm -rf "$run"
echo "\$ edge-train examples/digits_cnn.json --data digits"
"$bin" -m litenet.trainer examples/digits_cnn.json --data digits --out "$run"
echo "\$ edge-export $run -o $run/digits.bin"
"$bin" -m litenet.exporter "$run" -o "$run/digits.bin"
echo "\$ edge-infer $run/digits.bin examples/pictures"
"$bin" -m litenet.pyruntime "$run/digits.bin" examples/pictures
