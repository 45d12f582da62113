#!/usr/bin/env bash
# From nothing to the packaged checkpoint, on a CPU. Stop it when you like; the same command goes on where it was.
#
#   runs/train_tiny.sh [FOLDER] [--time-limit 10m] [--twin] [--set KEY=VALUE ...]
#
#   FOLDER         default: out/train
#   --time-limit   of all stages together: 90 (seconds), 10m, 2h, 1h30m
#   --twin         afterwards also the autoregressive twin, from the same eye and with the same steps
set -euo pipefail
cd "$(dirname "$0")/.."
out=out/train limit="" twin=false extra=()
while [ $# -gt 0 ]; do
  case "$1" in
    --time-limit) limit="${2:?--time-limit needs a duration}"; shift 2 ;;
    --twin) twin=true; shift ;;
    --set) extra+=(--set "${2:?--set needs KEY=VALUE}"); shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "unknown option $1" >&2; exit 2 ;;
    *) out="$1"; shift ;;
  esac
done

seconds() { # 10m -> 600, 1h30m -> 5400
  local rest="$1" total=0 unit
  while [[ "$rest" =~ ^([0-9]+)([hms]?)(.*)$ ]]; do
    case "${BASH_REMATCH[2]}" in h) unit=3600 ;; m) unit=60 ;; *) unit=1 ;; esac
    total=$((total + 10#${BASH_REMATCH[1]} * unit)) rest="${BASH_REMATCH[3]}"
  done
  if [ -z "$1" ] || [ -n "$rest" ]; then
    echo "--time-limit $1: write seconds, or 10m, 2h, 1h30m" >&2
    return 2
  fi
  echo "$total"
}
deadline=""
if [ -n "$limit" ]; then
  allowed=$(seconds "$limit")
  deadline=$(($(date +%s) + allowed))
fi

train() { # CONFIG FOLDER [OPTIONS]
  local config="$1" folder="$2" options=()
  shift 2
  if [ -n "$deadline" ]; then
    local left=$((deadline - $(date +%s)))
    if [ "$left" -lt 5 ]; then
      echo "time is up; the same command goes on from here"
      exit 0
    fi
    options=(--time-limit "$left")
  fi
  nice -n 19 mineru-diffusion train "$config" --out "$folder" --resume \
    ${options[@]+"${options[@]}"} "$@" ${extra[@]+"${extra[@]}"}
  echo "checkpoint: $folder/checkpoint"
}

# 1. The eye, on the renderer's character positions.
train configs/tiny_vision.yaml "$out/vision"
# 2. The decoder learns to count and to look, on short lines that grow.
train configs/tiny_decoder.yaml "$out/decoder" --set "init_from=$out/vision"
# 3. Everything on lines of full length, the rate falling to nothing.
train configs/tiny.yaml "$out/tiny" --set "init_from=$out/decoder"
if $twin; then
  train configs/tiny_decoder.yaml "$out/decoder_ar" --set "init_from=$out/vision" --set objective=autoregressive
  train configs/tiny_ar.yaml "$out/tiny_ar" --set "init_from=$out/decoder_ar"
fi
