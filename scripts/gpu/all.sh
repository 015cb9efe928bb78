#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that only a GPU shows, into the folder OUT: scripts/gpu/all.sh OUT [PART...]. Parts: order, record, peaks,
# counters, overhead. Each is one archive, or one text of JSON lines. SECONDS_LEFT: no program begins after that time.
set -u
out=$1
shift
parts=${*:-order record peaks counters overhead}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
work=$(mktemp -d)
left() { [ $SECONDS -lt "${SECONDS_LEFT:-100000}" ]; }

gcc -shared -fPIC -O2 -o "$work/pool.so" "$here/pool.c"
{
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit --format=csv
  python3 - <<'PY'
import platform, sys, torch
print(platform.python_version(), torch.__version__, torch.version.cuda, torch.backends.cudnn.version())
from pyprof.capture import instrument
from pyprof.capture.collectors.cupti import library
from pyprof.capture.collectors.gpus import gpus
import pyprof, importlib.util
torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
print(pyprof.available(), gpus(), "compiled", importlib.util.find_spec("pyprof.capture._compiled"))
print("cupti", library.find())
try: print(library.load().version())
except Exception as error: print(error)
print(torch.cuda.get_device_properties(0) if torch.cuda.is_available() else "no GPU")
PY
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"

for part in $parts; do
  echo "== $part at $SECONDS s"
  case $part in
  order)
    for one in torch_alone kineto none_then_torch torch_after_cupti cupti_first cupti_after_torch torch_inside pauses threads; do
      mkdir -p "$work/order/$one"
      POOL="$work/pool.so" RAW="$work/raw/$one" timeout -s ABRT 110 python3 -X faulthandler "$here/order.py" $one "$work/order/$one" \
        >"$out/order-$one.txt" 2>"$work/order-$one.err" &
    done
    wait
    for one in "$work"/order-*.err; do echo "-- $one"; tail -n 12 "$one"; done
    cat "$out"/order-*.txt >"$work/order.txt"
    cat "$work"/order-*.err >>"$work/order.txt"
    rm "$out"/order-*.txt
    mv "$work/order.txt" "$out/order.txt"
    (cd "$work" && tar czf "$out/raw.tar.gz" $(cd "$work" && ls -d raw/cupti_first raw/torch_inside 2>/dev/null))
    ;;
  record)
    mkdir -p "$work/record"
    for one in transformer_bf16 resnet_channels_last attention products graph_replay two_streams loader_workers operators generation compiled_bf16; do
      left && timeout -s ABRT 100 python3 -X faulthandler "$here/record.py" $one "$work/record" 2>"$work/record/$one.err"
      grep -v USDT "$work/record/$one.err" | tail -n 5
    done
    for one in graph_replay compiled_bf16; do
      left && timeout -s ABRT 100 python3 -X faulthandler "$here/record.py" $one "$work/record" cold 2>"$work/record/${one}_cold.err"
      grep -v USDT "$work/record/${one}_cold.err" | tail -n 5
    done
    for one in loader_workers two_streams; do
      left && timeout -s ABRT 100 python3 -X faulthandler "$here/record.py" $one "$work/record" memory 2>"$work/record/${one}_memory.err"
      grep -v USDT "$work/record/${one}_memory.err" | tail -n 5
    done
    (cd "$work/record" && python3 -m pyprof run -o lenet.sqlite "$root/examples/lenet.py" 2>&1 | tail -n 3)
    (cd "$work" && tar czf - record | split -b 15M - "$out/record.tar.gz.")
    ;;
  peaks)
    left && timeout 60 python3 "$here/peaks.py" | tee "$out/peaks.txt"
    ;;
  counters)
    flops=
    for op in dadd dmul dfma fadd fmul ffma hadd hmul hfma; do flops="$flops,smsp__sass_thread_inst_executed_op_${op}_pred_on.sum"; done
    timeout 30 ncu --query-metrics --chip gh100 2>/dev/null | grep -E "^sm__(ops_path_tensor|inst_executed_pipe_tensor|pipe_tensor)" >"$work/tensor.txt"
    tensor=$(grep -oE "^sm__(ops_path_tensor_src[a-z0-9_]*|inst_executed_pipe_tensor[a-z0-9_]*)" "$work/tensor.txt" | sed 's/$/.sum/' | paste -sd,)
    left && timeout 150 ncu --clock-control none --profile-from-start off --nvtx --csv --page raw \
      --metrics "gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,launch__registers_per_thread,launch__occupancy_limit_registers,launch__shared_mem_per_block_static,launch__shared_mem_per_block_dynamic,launch__waves_per_multiprocessor,sm__maximum_warps_per_active_cycle_pct,sm__warps_active.avg.pct_of_peak_sustained_active,sm__cycles_active.avg,sm__cycles_elapsed.max$flops,$tensor" \
      --log-file "$work/ncu.csv" python3 "$here/counters.py" 2>&1 | tail -n 5
    tail -n 3 "$work/ncu.csv" | cut -c1-600
    timeout 60 python3 "$here/counters.py" estimate "$work/counters.sqlite" 2>&1 | tail -n 2
    (cd "$work" && tar czf "$out/counters.tar.gz" ncu.csv tensor.txt counters.sqlite)
    ;;
  overhead)
    left && POOL="$work/pool.so" timeout 120 python3 "$here/overhead.py" "${ROUNDS:-5}" 2>"$work/overhead.err" | tee "$out/overhead.txt"
    tail -n 3 "$work/overhead.err"
    ;;
  esac
done
echo "== end at $SECONDS s"
