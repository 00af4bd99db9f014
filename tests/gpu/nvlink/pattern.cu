/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values that depend on seed and offset, written and checked by the GPU, so
 * that a check sees what a program's own kernel would see.  Of the memory at
 * @base the bytes [start, start + len).
 *   nvcc -ptx -arch=compute_75 -o pattern.ptx pattern.cu
 * pattern_ptx.c holds the result, so that the build needs no nvcc.
 */
typedef unsigned long long u64;

static __device__ unsigned char byte(u64 at, u64 seed)
{
	u64 x = at / 8 * 0x9e3779b97f4a7c15ull + seed;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return (x ^ (x >> 32)) >> (8 * (at % 8));
}

/* This thread's first byte, and how far it is from there to its next. */
static __device__ u64 first(void)
{
	return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ u64 step(void)
{
	return (u64)gridDim.x * blockDim.x;
}

extern "C" __global__ void fill(unsigned char *base, u64 start, u64 len,
				u64 seed)
{
#pragma unroll 1
	for (u64 i = first(); i < len; i += step())
		base[start + i] = byte(start + i, seed);
}

/* Adds the number of wrong bytes to *bad. */
extern "C" __global__ void check(const volatile unsigned char *base, u64 start,
				 u64 len, u64 seed, u64 *bad)
{
	u64 wrong = 0;

#pragma unroll 1
	for (u64 i = first(); i < len; i += step())
		wrong += base[start + i] != byte(start + i, seed);
	if (wrong)
		atomicAdd(bad, wrong);
}
