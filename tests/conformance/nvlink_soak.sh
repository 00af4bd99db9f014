#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Processes that move bytes to each other over nvlink at random, on the fake
# driver, while they are killed and started again: seconds, or two minutes with
# --long. The seed is another one each day, and is in the result.
. "$(dirname "$0")/../lib/tap.sh"
driver=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
export WEFT_LIBCUDA=$driver WEFT_LIBNVML=$driver WEFT_TEST_NVML=1
tap_folder
mkdir "$tap_tmp/ipc"
export WEFT_TEST_CUDA_IPC=$tap_tmp/ipc
seed=$(date +%j)
seconds=3
test -z "${WEFT_TEST_LONG-}" || seconds=120
result=$("$WEFT_BUILD/tests/gpu/nvlink/nvlink_soak" -t $seconds -s "$seed" 2>&1)
rc=$?
echo "# $(tail -n 1 <<<"$result")"
if test $rc = 0; then
	tap_ok "every byte is right while peers come and go"
else
	tap_not_ok "every byte is right while peers come and go" "$result"
fi
tap_done
