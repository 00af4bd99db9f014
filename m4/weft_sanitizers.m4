dnl SPDX-License-Identifier: BSD-3-Clause
AC_DEFUN([WEFT_SANITIZERS], [
	AC_ARG_ENABLE([sanitizers],
		[AS_HELP_STRING([--enable-sanitizers=LIST],
			[instrument everything: address,undefined or thread])],
		[], [enable_sanitizers=no])
	AC_ARG_ENABLE([fuzzers],
		[AS_HELP_STRING([--enable-fuzzers],
			[build the libFuzzer targets (CC=clang)])],
		[], [enable_fuzzers=no])

	weft_sanitizers=
	AS_CASE([$enable_sanitizers],
		[no], [],
		[yes], [weft_sanitizers=address,undefined],
		[weft_sanitizers=$enable_sanitizers])
	WEFT_SANITIZE=
	AS_IF([test -n "$weft_sanitizers"],
		[WEFT_SANITIZE="-fsanitize=$weft_sanitizers dnl
-fno-sanitize-recover=all -fno-omit-frame-pointer -g"])
	FUZZ_CFLAGS=
	FUZZ_LDFLAGS=
	AS_IF([test "x$enable_fuzzers" != xno], [
		FUZZ_CFLAGS="-fsanitize=fuzzer-no-link"
		FUZZ_LDFLAGS="-fsanitize=fuzzer"])

	weft_saved_CFLAGS=$CFLAGS
	AS_IF([test -n "$WEFT_SANITIZE"], [
		CFLAGS="$CFLAGS $WEFT_SANITIZE"
		AC_MSG_CHECKING([whether $CC links with $weft_sanitizers])
		AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
			[AC_MSG_RESULT([yes])],
			[AC_MSG_RESULT([no])
			AC_MSG_ERROR([--enable-sanitizers=$weft_sanitizers: $CC cannot link such a program; install its sanitizer run time or leave the option out])])])
	AS_IF([test -n "$FUZZ_LDFLAGS"], [
		CFLAGS="$weft_saved_CFLAGS $FUZZ_CFLAGS $FUZZ_LDFLAGS"
		AC_MSG_CHECKING([whether $CC has libFuzzer])
		AC_LINK_IFELSE([AC_LANG_SOURCE([
int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);
int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)
{ return !d && n; }])],
			[AC_MSG_RESULT([yes])],
			[AC_MSG_RESULT([no])
			AC_MSG_ERROR([--enable-fuzzers: $CC has no libFuzzer; configure with CC=clang])])])
	CFLAGS=$weft_saved_CFLAGS

	AM_CONDITIONAL([SANITIZERS], [test -n "$weft_sanitizers"])
	AS_CASE([$weft_sanitizers], [*thread*], [weft_tsan=yes], [weft_tsan=no])
	AM_CONDITIONAL([THREAD_SANITIZER], [test $weft_tsan = yes])
	AM_CONDITIONAL([FUZZERS], [test "x$enable_fuzzers" != xno])
	AC_SUBST([WEFT_SANITIZE])
	AC_SUBST([FUZZ_CFLAGS])
	AC_SUBST([FUZZ_LDFLAGS])
])
