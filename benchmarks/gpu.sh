#!/usr/bin/env bash
# Ten minutes on one GPU, without a network: cold start, DPEPO in bf16, all of valid_unseen.
#
#   python -m dpepo.demonstrate turns.jsonl --games 1100 --n 4      # before, on any machine
#   benchmarks/gpu.sh MODEL turns.jsonl WORK
#
# MODEL is a folder with weights, such as SmolLM2-135M-Instruct, or `tiny`: a new one of 26 million
# parameters. $ALFWORLD_DATA holds the games. WORK receives the models, the episodes, and
# gpu.md: success, tokens per second and use of the GPU. What WORK holds already is not done again.
# Limits, to be set in the environment: SFT_MINUTES, RL_SECONDS (the update that it ends in is lost),
# EPISODES (empty: all 134). TINY and UPDATE hold options of dpepo.sft and dpepo.train. At toy size, on a CPU:
#
#   TINY="--layers 2 --width 64 --batch 16" UPDATE="--tasks 2 --group 4" SFT_MINUTES=1 RL_SECONDS=60 \
#     EPISODES=8 benchmarks/gpu.sh tiny turns.jsonl WORK
set -euo pipefail
if [ $# -ne 3 ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
  exit 2
fi
model=$1 turns=$(realpath "$2") work=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work"
cd "$work"

if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,utilization.gpu,memory.used --format=csv,noheader,nounits -l 1 >gpu.csv &
  trap 'kill $!' EXIT
fi

if [ ! -e sft/model.safetensors ]; then
  if [ "$model" = tiny ]; then
    start="--model tiny ${TINY:---layers 8 --width 512 --batch 128 --lr 1e-3}"
  else
    start="--model $model --batch 64 --lr 2e-4"
  fi
  # shellcheck disable=SC2086  # options are words
  python -m dpepo.sft "$turns" --out sft --minutes "${SFT_MINUTES:-3}" --epochs 10 $start
fi

if [ ! -e rl.done ]; then
  # shellcheck disable=SC2086
  timeout "${RL_SECONDS:-200}" python -m dpepo.train --algorithm dpepo --n 4 --model sft --out rl \
    ${UPDATE:---tasks 16 --group 8 --batch 128 --lr 1e-4} --save-every 1 || [ $? = 124 ]
  touch rl.done
fi

for name in sft rl; do
  [ -e $name/model.safetensors ] || continue # not one update was made in time
  python -m leaderboard.run --agent dpepo --model $name --n 4 ${EPISODES:+--episodes "$EPISODES"} \
    --style compact --decoding admissible --think 8 --temperature 0.4 --batch 134 --out results
done
python "$here/gpu_report.py" . | tee gpu.md
