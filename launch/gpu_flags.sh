#!/usr/bin/env bash
# Sets XLA's flags for several NVIDIA GPUs that exchange parameters; source it:
#
#   source launch/gpu_flags.sh
#
# Not yet measured on GPUs; chosen from the compiled program of GPT-2 on 8 H200s with
# train.fsdp=8, 32 rows of 1,024 tokens each (`jaxpt fit`). XLA's
# latency-hiding scheduler, which starts an exchange before its result is needed, is on
# by default.
flags=(
  # Exchanges of up to 128 MiB in one, where they are ready together: fewer, larger ones.
  --xla_gpu_all_gather_combine_threshold_bytes=134217728
  --xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
  --xla_gpu_all_reduce_combine_threshold_bytes=134217728
  # Two iterations of the loop over layers in turn, so that the next layer's parameters
  # are gathered while this one computes: 0.2 GiB more (11.3 of 140).
  --xla_gpu_enable_while_loop_double_buffering=true
)
# PIPELINED=1 adds flags that move exchanges into the neighbouring iteration of the loop
# over layers, for 4.6 GiB more memory.
if [ -n "${PIPELINED:-}" ]; then
  flags+=(
    --xla_gpu_enable_pipelined_all_gather=true
    --xla_gpu_enable_pipelined_reduce_scatter=true
    --xla_gpu_enable_pipelined_all_reduce=true
  )
fi
export XLA_FLAGS="${XLA_FLAGS:-} ${flags[*]}"
unset flags
