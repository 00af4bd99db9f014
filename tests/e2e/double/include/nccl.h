/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the test double of NCCL has of NCCL's interface, in our own words; the
 * layout and the values are those of the nccl.h of NCCL 2.28.9.  A program that
 * is compiled against this is compiled against NCCL's header unchanged.
 */
#ifndef WEFT_TESTS_NCCL_H
#define WEFT_TESTS_NCCL_H

#include <stddef.h>

#define NCCL_VERSION_CODE    22809
#define NCCL_UNIQUE_ID_BYTES 128

typedef struct CUstream_st *cudaStream_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
} ncclResult_t;

typedef enum { ncclFloat64 = 8, ncclDouble = 8 } ncclDataType_t;
typedef enum { ncclSum = 0, ncclMax = 2, ncclMin = 3 } ncclRedOp_t;

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id,
			      int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
			   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count,
			ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t comm, cudaStream_t stream);

#endif
