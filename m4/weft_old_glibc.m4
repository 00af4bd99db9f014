dnl SPDX-License-Identifier: BSD-3-Clause
dnl Before glibc 2.34 dlopen() and pthread_create() were not in libc.so.6. The
dnl products ask for the old symbol versions (util/compat.h), so they must name
dnl the libraries which hold these on an old system.
AC_DEFUN([WEFT_OLD_GLIBC], [
	OLD_LIBDL="-Wl,--push-state,--no-as-needed,-l:libdl.so.2,--pop-state"
	OLD_GLIBC_LIBS="$OLD_LIBDL,--push-state,--no-as-needed,-l:libpthread.so.0,--pop-state"
	weft_saved_LIBS=$LIBS
	LIBS="$OLD_GLIBC_LIBS $LIBS"
	AC_MSG_CHECKING([for libdl.so.2 and libpthread.so.0])
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
		[AC_MSG_RESULT([yes])],
		[AC_MSG_RESULT([no])
		AC_MSG_ERROR([the linker finds no libdl.so.2 and libpthread.so.0, which glibc has on every system; weft needs glibc])])
	LIBS=$weft_saved_LIBS
	OLD_GLIBC_START=
	AS_CASE([$host_cpu], [x86_64 | aarch64],
		[OLD_GLIBC_START="-Wl,--wrap=__libc_start_main"])
	AC_SUBST([OLD_GLIBC_START])
	AC_SUBST([OLD_LIBDL])
	AC_SUBST([OLD_GLIBC_LIBS])
])
