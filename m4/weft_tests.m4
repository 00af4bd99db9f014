dnl SPDX-License-Identifier: BSD-3-Clause
AC_DEFUN([WEFT_CRITERION], [
	AC_ARG_WITH([criterion],
		[AS_HELP_STRING([--without-criterion],
			[leave the unit tests out])],
		[], [with_criterion=check])
	CRITERION_LIBS=
	weft_have_criterion=no
	AS_IF([test "x$with_criterion" != xno], [
		weft_saved_LIBS=$LIBS
		AC_CHECK_HEADER([criterion/new/assert.h], [
			AC_CHECK_LIB([criterion], [criterion_run_all_tests],
				[weft_have_criterion=yes
				CRITERION_LIBS=-lcriterion])])
		LIBS=$weft_saved_LIBS
		# Criterion's allocator aborts under ThreadSanitizer
		AS_IF([test $weft_tsan = yes], [weft_have_criterion=no])
		AS_IF([test $with_criterion$weft_have_criterion = yesno],
			[AC_MSG_ERROR([--with-criterion: Criterion was not found; install libcriterion-dev])])])
	AM_CONDITIONAL([HAVE_CRITERION], [test $weft_have_criterion = yes])
	AC_SUBST([CRITERION_LIBS])
])

dnl Manual pages are written in Markdown; a release tarball has them as roff.
AC_DEFUN([WEFT_MAN], [
	AC_CHECK_PROG([PANDOC], [pandoc], [pandoc])
	weft_have_man=no
	AS_IF([test -n "$PANDOC" || test -f "$srcdir/man/weft.1"],
		[weft_have_man=yes])
	AM_CONDITIONAL([HAVE_PANDOC], [test -n "$PANDOC"])
	AM_CONDITIONAL([HAVE_MAN], [test $weft_have_man = yes])
])

AC_DEFUN([WEFT_SUMMARY], [
	weft_out=
	weft_transports="weft_tcp, weft_nvl"
	AS_IF([test $weft_have_VERBS != no],
		[weft_transports="$weft_transports, weft_ib"])
	AS_IF([test $weft_have_criterion = no],
		[weft_out="$weft_out
    unit tests             want Criterion (libcriterion-dev), not under TSan"])
	AS_IF([test $weft_have_man = no],
		[weft_out="$weft_out
    manual pages           want pandoc"])
	AS_IF([test $weft_have_CUDA = no],
		[weft_out="$weft_out
    cuda.h, compared       want cuda.h (--with-cuda=PREFIX)"])
	AS_IF([test $weft_have_VERBS = no],
		[weft_out="$weft_out
    weft_ib                wants infiniband/verbs.h (libibverbs-dev, --with-verbs=PREFIX)"])
	AS_IF([test "x$enable_fuzzers" = xno],
		[weft_out="$weft_out
    libFuzzer targets      want CC=clang --enable-fuzzers"])
	AC_MSG_NOTICE([
  weft $PACKAGE_VERSION, to be installed in $prefix

  built
    libuct_weft.so         UCX transports: $weft_transports
    libweft_preload.so     loads it into UCX
    libnccl-net-weft.so    NCCL network plugin, interfaces v6 to v12
    libnccl-env-weft.so    NCCL environment plugin
    weft                   the command
  compiler                 $CC $CFLAGS ${weft_sanitizers:+(sanitizers: $weft_sanitizers)}
  libsodium                ${with_libsodium:-of the system} (static)
  headers                  cuda.h: $weft_have_CUDA, verbs.h: $weft_have_VERBS
  left out${weft_out:- nothing}
])
])
