#!/usr/bin/env bash
# Everything worth knowing from a GPU in a few minutes, in order of worth: parity and engine tests on the device, the
# packaged checkpoint's evaluation on GPU and CPU, then training with the time that is left.
#
#   scripts/gpu_check.sh [OUT] [MINUTES]     default: out/gpu, 8 minutes in all
set -uo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-out/gpu}}"
minutes="${2:-8}"
started=$(date +%s)
left() { echo $((minutes * 60 - ($(date +%s) - started))); }
mkdir -p "$out"
python="${PYTHON:-python3}"

"$python" - <<'PY' 2>&1 | tee "$out/device.txt"
import torch
print(torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())
PY

export MINERU_DIFFUSION_TEST_DEVICE=cuda
timeout 180 "$python" -m pytest tests/parity/test_model.py tests/parity/test_runs.py tests/engine 2>&1 | tail -25 | tee "$out/tests.txt"

if [ "$(left)" -gt 120 ]; then
  timeout 100 "$python" -m mineru_diffusion.cli eval --lines 500 --device cuda --out "$out/eval_cuda.json" 2>&1 | tee "$out/eval_cuda.txt"
fi
if [ "$(left)" -gt 120 ]; then
  limit=$(awk "BEGIN {print ($(left) - 45) / 60}")
  "$python" -m mineru_diffusion.cli train configs/tiny.yaml --out "$out/train" --time-limit "$limit" \
    --set init_from=src/mineru_diffusion/assets/tiny --set lines.workers=12 --set batch_positions=60000 \
    --set device=auto 2>&1 | tail -20 | tee "$out/train.txt"
fi
echo "done with $(left) s left"
