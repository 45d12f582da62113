#!/usr/bin/env bash
# From nothing to the packaged checkpoint, on a CPU. Stop it when you like; the same command goes on where it was.
#
#   runs/train_tiny.sh [FOLDER]      default: out/train
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-out/train}"
train() { nice -n 19 mineru-diffusion train "$@" --resume; }

# 1. The eye, on the renderer's character positions.
train configs/tiny_vision.yaml --out "$out/vision"
# 2. The decoder learns to count and to look, on short lines that grow.
train configs/tiny_decoder.yaml --out "$out/decoder" --set "init_from=$out/vision"
# 3. Everything on lines of full length, the rate falling to nothing.
train configs/tiny.yaml --out "$out/tiny" --set "init_from=$out/decoder"
echo "checkpoint: $out/tiny/checkpoint"
