# SPDX-License-Identifier: BSD-3-Clause
# docs/recipes/lsf.md, docs/recipes/pbs.md
import os
import sys
from distributed import Client

client = Client(scheduler_file=sys.argv[1])
client.wait_for_workers(int(sys.argv[2]))
print(client)
for worker, gpus in client.run(os.getenv, "CUDA_VISIBLE_DEVICES").items():
    print(worker, "GPU", gpus)
if sys.argv[3:] == ["shutdown"]:
    client.shutdown()
