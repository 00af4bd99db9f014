# SPDX-License-Identifier: BSD-3-Clause
"""An MPI program for mpi.sh: a ring of messages, then of one-sided writes."""
from array import array

from mpi4py import MPI

MESSAGES, MESSAGE, WINDOW = 4, 1 << 20, 1 << 16  # doubles


def main():
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    for i in range(MESSAGES):
        mine, theirs = (array("d", range(start, start + MESSAGE))
                        for start in (rank * 1000 + i, behind * 1000 + i))
        got = array("d", bytes(8 * MESSAGE))
        comm.Sendrecv(mine, ahead, recvbuf=got, source=behind)
        assert got == theirs, "a message"
    base = array("d", bytes(8 * WINDOW))
    window = MPI.Win.Create(base, 8, comm=comm)
    window.Fence()
    part = mine[:WINDOW]
    window.Put(part, ahead)
    window.Fence()
    assert base == theirs[:WINDOW], "a window"
    window.Free()
    if rank == 0:
        print("right")


if __name__ == "__main__":
    main()
