dnl SPDX-License-Identifier: BSD-3-Clause
dnl Headers alone: libcuda and libibverbs are opened at run time, never linked.
dnl WEFT_FIND_HEADER(NAME, HEADER, FOLDERS): sets NAME_CPPFLAGS and HAVE_NAME_H;
dnl "-" is where the compiler looks.  --without-name finds none; --with-name fails
dnl if there is none.
AC_DEFUN([WEFT_FIND_HEADER], [
	AC_MSG_CHECKING([for $2])
	weft_found=no
	$1_CPPFLAGS=
	weft_saved_CPPFLAGS=$CPPFLAGS
	for weft_dir in $3; do
		AS_CASE([$weft_dir], [-], [weft_dir=],
			[test -f "$weft_dir/$2" || continue])
		CPPFLAGS="$weft_saved_CPPFLAGS${weft_dir:+ -isystem $weft_dir}"
		AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <$2>]], [])],
			[weft_found=${weft_dir:-yes}
			$1_CPPFLAGS=${weft_dir:+"-isystem $weft_dir"}
			break])
	done
	CPPFLAGS=$weft_saved_CPPFLAGS
	AC_MSG_RESULT([$weft_found])
	AS_CASE([$weft_found,$with_]m4_tolower([$1])[], [no,no | no,], [],
		[no,*], [AC_MSG_ERROR([no $2 that compiles in '$with_]m4_tolower([$1])['])])
	AS_IF([test "$weft_found" != no],
		[AC_DEFINE([HAVE_$1_H], [1], [Define to 1 where $2 was found.])])
	AM_CONDITIONAL([HAVE_$1_H], [test "$weft_found" != no])
	weft_have_$1=$weft_found
	AC_SUBST([$1_CPPFLAGS])
])

AC_DEFUN([WEFT_CUDA], [
	AC_ARG_WITH([cuda],
		[AS_HELP_STRING([--with-cuda=PREFIX],
			[where include/cuda.h is: a toolkit or the folder of a wheel])],
		[], [with_cuda=])
	AS_CASE([$with_cuda],
		[no], [weft_cuda_dirs=],
		[''|yes], [weft_cuda_dirs="- /usr/local/cuda/include ${CUDA_HOME:+$CUDA_HOME/include}"],
		[weft_cuda_dirs="$with_cuda/include $with_cuda"])
	WEFT_FIND_HEADER([CUDA], [cuda.h], [$weft_cuda_dirs])
])

AC_DEFUN([WEFT_VERBS], [
	AC_ARG_WITH([verbs],
		[AS_HELP_STRING([--with-verbs=PREFIX],
			[where include/infiniband/verbs.h is])],
		[], [with_verbs=])
	AS_CASE([$with_verbs],
		[no], [weft_verbs_dirs=],
		[''|yes], [weft_verbs_dirs=-],
		[weft_verbs_dirs=$with_verbs/include])
	WEFT_FIND_HEADER([VERBS], [infiniband/verbs.h], [$weft_verbs_dirs])
])
