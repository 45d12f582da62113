#!/usr/bin/env bash
# The tiny checkpoint on one GPU in nine minutes, from nothing: the same configurations as runs/train_tiny.sh, larger
# batches, lines rendered by as many workers as there are cores. What comes back are files of at most 15 MiB:
#
#   scripts/gpu_train.sh [OUT] [MINUTES] [FOLDER]     default: out/gpu (or $OUT), 9 minutes in all, out/gpu_train
#   cat OUT/checkpoint.tar.* | tar x                  puts the checkpoint together again
set -uo pipefail
cd "$(dirname "$0")/.."
out="${1:-${OUT:-out/gpu}}" minutes="${2:-9}" folder="${3:-out/gpu_train}"
started=$(date +%s)
end=$((started + minutes * 60))
left() { echo $((end - $(date +%s))); }
python="${PYTHON:-python3}"
workers=$(($(nproc) > 2 ? $(nproc) - 2 : 1))
mkdir -p "$out" "$folder"
export OMP_NUM_THREADS=1

"$python" - <<'PY' 2>&1 | tee "$out/log.txt"
import torch
print(torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())
PY

train() { # CONFIG NAME SECONDS [OPTIONS]
  local config="$1" name="$2" limit="$3"
  shift 3
  "$python" -m mineru_diffusion.cli train "$config" --out "$folder/$name" --resume --time-limit "$limit" \
    --set "lines.workers=$workers" --set lines.chunk=4096 --set batch_positions=60000 --set save_minutes=60 "$@" \
    2>&1 | tee -a "$out/log.txt" | tail -3
}

# Forty seconds at the end are for the last checkpoint and the packing.
share() { echo $((($(left) - 40) * $1 / 100)); }
train configs/tiny_vision.yaml vision "$(share 30)"
train configs/tiny_decoder.yaml decoder "$(share 45)" --set "init_from=$folder/vision"
# How many steps fit is measured, because the rate must have fallen to nothing at the last one.
train configs/tiny.yaml tiny 30 --set "init_from=$folder/decoder" --set max_steps=1000000 --set optimizer.decay_steps=0
steps=$("$python" - "$folder/tiny/log.jsonl" "$(($(left) - 55))" <<'PY'
import json, sys
records = [json.loads(line) for line in open(sys.argv[1])]
rate = records[-1]["step"] / (60 * records[-1]["minutes"])
print(records[-1]["step"] + max(20, int(rate * max(1, int(sys.argv[2])))))
PY
)
train configs/tiny.yaml tiny "$(($(left) - 40))" --set "init_from=$folder/decoder" \
  --set "max_steps=${steps:-1000}" --set "optimizer.decay_steps=${steps:-1000}"

tar cz -C "$folder" -f "$out/logs.tar.gz" vision/log.jsonl decoder/log.jsonl tiny/log.jsonl
tar c -C "$folder/tiny" checkpoint | split -b 15M -d -a 2 - "$out/checkpoint.tar."
if [ "$(left)" -gt 15 ]; then
  timeout "$(($(left) - 5))" "$python" -m mineru_diffusion.cli eval "$folder/tiny/checkpoint" --lines 200 \
    --thresholds 0.95 2>&1 | tee -a "$out/log.txt"
fi
echo "done with $(left) s left"
