/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small algorithm in C that is handed a communicator: first and second
 * moments of samples that lie spread over the ranks.  It knows nothing of Dask,
 * nor of who made the communicator; nccl_clique.py compiles and calls it.
 */
#include <stddef.h>

/*
 * Of nccl.h, the same in every NCCL 2: its header wants the CUDA toolkit's,
 * which an environment with just the libraries lacks.
 */
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef enum { ncclSuccess = 0, ncclInvalidArgument = 4 } ncclResult_t;
typedef enum { ncclDouble = 8 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;

ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
			   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count,
			ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t comm, cudaStream_t stream);

/*
 * @sums (@n_sums values) is added up over all ranks into @all_sums of every
 * rank; @products (@n_products values) into @all_products of rank @root alone,
 * which elsewhere may be NULL.  All are memory of the communicator's GPU.
 *
 * Only enqueues: the results are there once @stream is synchronised.  @ranks
 * becomes the size of the communicator.  Returns a result of NCCL's; not
 * ncclSuccess: the communicator is fit for ncclCommAbort() alone.
 */
int clique_moments(ncclComm_t comm, int root, const double *sums,
		   double *all_sums, size_t n_sums, const double *products,
		   double *all_products, size_t n_products, cudaStream_t stream,
		   int *ranks);

int clique_moments(ncclComm_t comm, int root, const double *sums,
		   double *all_sums, size_t n_sums, const double *products,
		   double *all_products, size_t n_products, cudaStream_t stream,
		   int *ranks)
{
	ncclResult_t result;
	int rank;

	result = ncclCommCount(comm, ranks);
	if (result != ncclSuccess)
		return result;
	result = ncclCommUserRank(comm, &rank);
	if (result != ncclSuccess)
		return result;
	if (root < 0 || root >= *ranks || (rank == root && !all_products))
		return ncclInvalidArgument;

	/* In the same order on every rank, as NCCL wants it. */
	result = ncclAllReduce(sums, all_sums, n_sums, ncclDouble, ncclSum,
			       comm, stream);
	if (result != ncclSuccess)
		return result;
	return ncclReduce(products, all_products, n_products, ncclDouble,
			  ncclSum, root, comm, stream);
}
