/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include "ucx_tl/status.h"
#include "util/util.h"

TestSuite(status, .timeout = 5);

Test(status, known_codes_convert)
{
	static const struct {
		int err;
		enum weft_ucs_status status;
	} same[] = {
		{ 0, WEFT_UCS_OK },
		{ -EINPROGRESS, WEFT_UCS_INPROGRESS },
		{ -EAGAIN, WEFT_UCS_NO_RESOURCE },
		{ -EBUSY, WEFT_UCS_BUSY },
		{ -ECANCELED, WEFT_UCS_CANCELED },
		{ -ECONNRESET, WEFT_UCS_CONNECTION_RESET },
		{ -ETIMEDOUT, WEFT_UCS_ENDPOINT_TIMEOUT },
		{ -ENOMEM, WEFT_UCS_NO_MEMORY },
		{ -EACCES, WEFT_UCS_REJECTED },
		{ -EHOSTUNREACH, WEFT_UCS_UNREACHABLE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		cr_expect_eq(weft_ucs_status(same[i].err), same[i].status,
			     "errno %d", same[i].err);
}

Test(status, many_errnos_one_status)
{
	cr_expect_eq(weft_ucs_status(-EPIPE), WEFT_UCS_CONNECTION_RESET);
	cr_expect_eq(weft_ucs_status(-ESHUTDOWN), WEFT_UCS_CONNECTION_RESET);
	cr_expect_eq(weft_ucs_status(-ENETUNREACH), WEFT_UCS_UNREACHABLE);
	cr_expect_eq(weft_ucs_status(-ECONNREFUSED), WEFT_UCS_UNREACHABLE);
}

/* Every status but OK and INPROGRESS makes UCX fail; an unknown one must. */
Test(status, unknown_is_an_error)
{
	for (int err = -200; err < 0; err++)
		if (err != -EINPROGRESS)
			cr_expect_lt(weft_ucs_status(err), 0, "errno %d", err);
	cr_expect_eq(weft_ucs_status(-EXDEV), WEFT_UCS_IO_ERROR);
}

Test(status, counts_are_success)
{
	cr_expect_eq(weft_ucs_status(1), WEFT_UCS_OK);
	cr_expect_eq(weft_ucs_status(65536), WEFT_UCS_OK);
}
