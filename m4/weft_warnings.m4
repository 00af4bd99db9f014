dnl SPDX-License-Identifier: BSD-3-Clause
dnl WEFT_CC_OPTION(VARIABLE, OPTION): appends OPTION where the compiler knows it.
AC_DEFUN([WEFT_CC_OPTION], [
	AS_VAR_PUSHDEF([cache], [weft_cv_cc_option_$2])
	AC_CACHE_CHECK([whether $CC takes $2], [cache], [
		weft_saved_CFLAGS=$CFLAGS
		CFLAGS="$CFLAGS -Werror $2"
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
			[AS_VAR_SET([cache], [yes])],
			[AS_VAR_SET([cache], [no])])
		CFLAGS=$weft_saved_CFLAGS])
	AS_VAR_IF([cache], [yes], [AS_VAR_APPEND([$1], [" $2"])])
	AS_VAR_POPDEF([cache])
])

dnl Warnings are errors only on demand: a newer compiler than ours must still
dnl be able to build a release.
AC_DEFUN([WEFT_WARNINGS], [
	AC_ARG_ENABLE([werror],
		[AS_HELP_STRING([--enable-werror],
			[treat compiler warnings as errors])])
	WEFT_CFLAGS="-std=gnu11 -fvisibility=hidden -fno-strict-aliasing"
	m4_foreach_w([option], [-Wall -Wextra -Wshadow -Wstrict-prototypes
		-Wmissing-prototypes -Wpointer-arith -Wvla
		-Wundef -Wno-unused-parameter -Wno-missing-field-initializers
		-fno-semantic-interposition],
		[WEFT_CC_OPTION([WEFT_CFLAGS], option)
	])
	AS_VAR_IF([enable_werror], [yes],
		[AS_VAR_APPEND([WEFT_CFLAGS], [" -Werror"])])
	AC_SUBST([WEFT_CFLAGS])
])
