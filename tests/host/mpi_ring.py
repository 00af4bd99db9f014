# SPDX-License-Identifier: BSD-3-Clause
"""An MPI program for mpi.sh: a ring of messages, then of one-sided writes."""
from random import Random

from mpi4py import MPI

MESSAGES, MESSAGE, WINDOW = 4, 8 << 20, 512 << 10  # bytes


def pattern(rank, i):
    return Random(f"{rank}, {i}").randbytes(MESSAGE)


def main():
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    for i in range(MESSAGES):
        mine, theirs = pattern(rank, i), pattern(behind, i)
        got = bytearray(MESSAGE)
        comm.Sendrecv(mine, ahead, recvbuf=got, source=behind)
        assert got == theirs, "a message"
    base = bytearray(WINDOW)
    window = MPI.Win.Create(base, comm=comm)
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
