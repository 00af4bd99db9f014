# SPDX-License-Identifier: BSD-3-Clause
"""
Kernels that fill memory and compare it, behind NCCL's on the same stream: what
they see is what a program's own kernels would see.
"""
import cupy

from raw_nccl import rank, stream, world

SOURCE = r"""
__device__ int value(long long i, int who, int round)
{
	return (int)((i * 7 + who * 1013 + round * 31) % 997);
}

extern "C" __global__ void fill(int *p, long long n, int who, int round)
{
	long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;

	for (; i < n; i += gridDim.x * (long long)blockDim.x)
		p[i] = who < 0 ? -1 : value(i, who, round);
}

/*
 * What @op leaves: sums of all ranks' values from @start on, or, with @who set,
 * that rank's alone; with @part set, so many of each rank's, from rank 0's on.
 */
extern "C" __global__ void check(const int *p, long long n, int world, int who,
				 long long start, long long part, int round,
				 unsigned long long *bad)
{
	long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
	int want, r;

	for (; i < n; i += gridDim.x * (long long)blockDim.x) {
		want = 0;
		if (part)
			want = value(start + i % part, (int)(i / part), round);
		else if (who >= 0)
			want = value(start + i, who, round);
		else
			for (r = 0; r < world; r++)
				want += value(start + i, r, round);
		if (p[i] != want)
			atomicAdd(bad, 1ULL);
	}
}
"""
kernels = cupy.RawModule(code=SOURCE)
fill_kernel = kernels.get_function("fill")
check_kernel = kernels.get_function("check")
LONG, INT = cupy.int64, cupy.int32


def grid(n):
    return (min(-(-n // 256), 1056),), (256,)


def fill(buf, who, turn, on=stream):
    with on:
        fill_kernel(*grid(buf.size),
                    (buf, LONG(buf.size), INT(who), INT(turn)))


def check(buf, bad, turn, who=-1, start=0, part=0, on=stream, ranks=world):
    with on:
        check_kernel(*grid(buf.size),
                     (buf, LONG(buf.size), INT(ranks), INT(who), LONG(start),
                      LONG(part), INT(turn), bad))


def shape(op, count):
    """Elements in, elements out, and what to compare with."""
    part = max(count // world, 1)
    return {"all_reduce": (count, count, {}),
            "all_gather": (part, part * world, {"part": part}),
            "reduce_scatter": (part * world, part, {"start": rank * part}),
            "broadcast": (count, count, {"who": 0}),
            "send_recv": (count, count, {"who": (rank - 1) % world}),
            "all_to_all": (part * world, part * world,
                           {"part": part, "start": rank * part}),
            }[op]
