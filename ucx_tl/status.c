/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include "ucx_tl/status.h"
#include "util/util.h"

static const struct {
	int err;
	enum weft_ucs_status status;
} pairs[] = {
	{ 0, WEFT_UCS_OK },
	{ -EINPROGRESS, WEFT_UCS_INPROGRESS },
	{ -EAGAIN, WEFT_UCS_NO_RESOURCE },
	{ -ENOMEM, WEFT_UCS_NO_MEMORY },
	{ -EINVAL, WEFT_UCS_INVALID_PARAM },
	{ -EHOSTUNREACH, WEFT_UCS_UNREACHABLE },
	{ -EFAULT, WEFT_UCS_INVALID_ADDR },
	{ -ENODEV, WEFT_UCS_NO_DEVICE },
	{ -EBUSY, WEFT_UCS_BUSY },
	{ -ECANCELED, WEFT_UCS_CANCELED },
	{ -ETIME, WEFT_UCS_TIMED_OUT },
	{ -EMSGSIZE, WEFT_UCS_EXCEEDS_LIMIT },
	{ -EOPNOTSUPP, WEFT_UCS_UNSUPPORTED },
	{ -EACCES, WEFT_UCS_REJECTED },
	{ -ENOTCONN, WEFT_UCS_NOT_CONNECTED },
	{ -ECONNRESET, WEFT_UCS_CONNECTION_RESET },
	{ -ETIMEDOUT, WEFT_UCS_ENDPOINT_TIMEOUT },
	/* UCX does not distinguish these */
	{ -ENETUNREACH, WEFT_UCS_UNREACHABLE },
	{ -EPROTONOSUPPORT, WEFT_UCS_UNREACHABLE },
	/* as in UCX's connection manager; REJECTED is by its user */
	{ -ECONNREFUSED, WEFT_UCS_UNREACHABLE },
	{ -EPERM, WEFT_UCS_REJECTED },
	{ -EPIPE, WEFT_UCS_CONNECTION_RESET },
	{ -ESHUTDOWN, WEFT_UCS_CONNECTION_RESET },
	{ -ECONNABORTED, WEFT_UCS_CONNECTION_RESET },
	{ -EPROTO, WEFT_UCS_CONNECTION_RESET },
	{ -EADDRINUSE, WEFT_UCS_BUSY },
};

enum weft_ucs_status weft_ucs_status(int err)
{
	if (err > 0)
		err = 0; /* a count is a success */
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		if (pairs[i].err == err)
			return pairs[i].status;
	return WEFT_UCS_IO_ERROR;
}
