#!/usr/bin/env bash
# Everything worth knowing from a GPU in a few minutes, in order of worth: parity and engine tests on the device, the
# packaged checkpoint's evaluation, the benchmarks and a profile, then training with the time that is left.
#
#   scripts/gpu_check.sh [OUT] [MINUTES]     default: out/gpu, 8 minutes in all
set -uo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-out/gpu}}"
minutes="${2:-8}"
started=$(date +%s)
left() { echo $((minutes * 60 - ($(date +%s) - started))); }
# Run a command if at least $1 seconds are left, for at most $2 seconds, and keep its last lines in $3.
step() {
  local least="$1" most="$2" file="$out/$3"
  shift 3
  if [ "$(left)" -gt "$least" ]; then
    timeout "$most" "$@" 2>&1 | tail -40 | tee "$file"
  fi
}
mkdir -p "$out"
python="${PYTHON:-python3}"
cli=("$python" -m mineru_diffusion.cli)
export MINERU_DIFFUSION_TEST_DEVICE=cuda

step 0 30 device.txt "$python" -c 'import torch; print(torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())'
step 60 150 tests.txt "$python" -m pytest tests/parity/test_model.py tests/parity/test_runs.py tests/engine -m "not slow"
step 90 60 roofline.txt "${cli[@]}" bench roofline --out "$out/roofline.json"
step 90 60 decode.txt "${cli[@]}" bench decode --rounds 3 --out "$out/decode.json"
step 90 90 paths.txt "$python" scripts/gpu_paths.py
step 90 60 eval_cuda.txt "${cli[@]}" eval --lines 500 --device cuda --out "$out/eval_cuda.json"
step 60 60 parse.txt "${cli[@]}" parse docs/images -o "$out/parsed" --force --stats --profile "$out/trace.json.gz"
if [ "$(left)" -gt 120 ]; then
  limit=$(awk "BEGIN {print ($(left) - 45) / 60}")
  step 0 "$(left)" train.txt "${cli[@]}" train configs/tiny.yaml --out "$out/train" --time-limit "$limit" \
    --set init_from=src/mineru_diffusion/assets/tiny --set lines.workers=12 --set batch_positions=60000 --set device=auto
fi
echo "done with $(left) s left"
