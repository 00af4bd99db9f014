# SPDX-License-Identifier: BSD-3-Clause
"""
What the programs of docs/recipes/launchers.md have their clusters do: every
worker fetches a block from each other one.  Prints what the workers say of
themselves, a line of JSON.
"""
import json

import cloudpickle
import numpy as np
import workers

SIZE = 2 << 20
# the workers have no such module
cloudpickle.register_pickle_by_value(workers)


def work(client):
    at = sorted(client.nthreads())
    blocks = {here: client.submit(np.arange, SIZE, dtype="f8", workers=[here],
                                  pure=False) for here in at}
    sums = client.gather([
        client.submit(np.sum, blocks[here], workers=[there], pure=False)
        for here in at for there in at if here != there])
    want = SIZE * (SIZE - 1) / 2
    assert sums == [want] * (len(at) * (len(at) - 1)), sums
    print(json.dumps({"workers": list(client.run(workers.facts).values())}))
