/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values that depend on seed and offset, written and checked by the GPU, so
 * that a check sees what a program's own kernel would see.  Of the memory at
 * @base (aligned to 8), the bytes [start, start + len).
 *   nvcc -ptx -arch=compute_75 -o pattern.ptx pattern.cu
 * pattern_ptx.c holds the result, so that the build needs no nvcc.
 */
typedef unsigned long long u64;

static __device__ u64 word(u64 i, u64 seed)
{
	u64 x = i * 0x9e3779b97f4a7c15ull + seed;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return x ^ (x >> 32);
}

static __device__ unsigned char byte(u64 at, u64 seed)
{
	return word(at / 8, seed) >> (8 * (at % 8));
}

extern "C" __global__ void fill(unsigned char *base, u64 start, u64 len,
				u64 seed)
{
	u64 step = (u64)gridDim.x * blockDim.x;
	u64 id = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	u64 end = start + len, first = (start + 7) / 8, last = end / 8, i;

	if (id == 0) {
		for (i = start; i < first * 8 && i < end; i++)
			base[i] = byte(i, seed);
		for (i = last * 8 > start ? last * 8 : start; i < end; i++)
			base[i] = byte(i, seed);
	}
	for (i = first + id; i < last; i += step)
		((u64 *)base)[i] = word(i, seed);
}

/* Adds the number of wrong places to *bad. */
extern "C" __global__ void check(const volatile unsigned char *base, u64 start,
				 u64 len, u64 seed, u64 *bad)
{
	u64 step = (u64)gridDim.x * blockDim.x;
	u64 id = (u64)blockIdx.x * blockDim.x + threadIdx.x;
	u64 end = start + len, first = (start + 7) / 8, last = end / 8, i;
	u64 wrong = 0;

	if (id == 0) {
		for (i = start; i < first * 8 && i < end; i++)
			wrong += base[i] != byte(i, seed);
		for (i = last * 8 > start ? last * 8 : start; i < end; i++)
			wrong += base[i] != byte(i, seed);
	}
	for (i = first + id; i < last; i += step)
		wrong += ((const volatile u64 *)base)[i] != word(i, seed);
	if (wrong)
		atomicAdd(bad, wrong);
}
