/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include "nccl_net/common/result.h"

enum nccl_result weft_nccl_result(int err)
{
	if (err >= 0)
		return NCCL_SUCCESS;
	switch (-err) {
	case EINVAL:
	case EOPNOTSUPP:
		return NCCL_INVALID_ARGUMENT;
	case EMSGSIZE:
	case EPROTO: /* ranks set up differently */
	case EPROTONOSUPPORT:
		return NCCL_INVALID_USAGE;
	case ECONNRESET:
	case ECONNREFUSED:
	case ECONNABORTED:
	case EPIPE:
	case ESHUTDOWN:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EHOSTDOWN:
		return NCCL_REMOTE_ERROR;
	case EFAULT:
	case EACCES:
	case ECANCELED:
		return NCCL_INTERNAL_ERROR;
	default:
		return NCCL_SYSTEM_ERROR;
	}
}
