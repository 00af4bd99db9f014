dnl SPDX-License-Identifier: BSD-3-Clause
dnl The static archive, linked with hidden symbols: the host program may carry
dnl a libsodium of its own, and a plugin may need nothing but libc.
AC_DEFUN([WEFT_LIBSODIUM], [
	AC_ARG_WITH([libsodium],
		[AS_HELP_STRING([--with-libsodium=PREFIX],
			[where lib/libsodium.a, built with -fPIC, and its headers are])],
		[], [with_libsodium=])
	SODIUM_CPPFLAGS=
	SODIUM_LIBS="-l:libsodium.a"
	AS_CASE([$with_libsodium],
		[''|yes], [],
		[no], [AC_MSG_ERROR([weft proves its peers with libsodium and cannot be built without it])],
		[SODIUM_CPPFLAGS="-I$with_libsodium/include"
		SODIUM_LIBS="-L$with_libsodium/lib -l:libsodium.a"])
	weft_saved_CPPFLAGS=$CPPFLAGS
	weft_saved_CFLAGS=$CFLAGS
	weft_saved_LDFLAGS=$LDFLAGS
	weft_saved_LIBS=$LIBS
	CPPFLAGS="$CPPFLAGS $SODIUM_CPPFLAGS"
	AC_CHECK_HEADER([sodium/crypto_generichash.h], [],
		[AC_MSG_ERROR([libsodium's headers were not found; install libsodium-dev or name its prefix by --with-libsodium=PREFIX])])
	AC_MSG_CHECKING([for a libsodium.a built with -fPIC])
	echo '{ global: weft_probe; local: *; };' >conftest.map
	CFLAGS="$CFLAGS -fPIC -fvisibility=hidden"
	LDFLAGS="$LDFLAGS -shared -Wl,--version-script=conftest.map"
	LIBS="$SODIUM_LIBS $LIBS"
	AC_LINK_IFELSE([AC_LANG_SOURCE([
#include <sodium/crypto_generichash.h>
int weft_probe(unsigned char *out) __attribute__((visibility("default")));
int weft_probe(unsigned char *out)
{ return crypto_generichash(out, 32, out, 32, out, 32); }])],
		[AC_MSG_RESULT([yes])],
		[AC_MSG_RESULT([no])
		AC_MSG_ERROR([no libsodium.a built with -fPIC was found, which a shared object needs; install libsodium-dev or build libsodium with --enable-static --with-pic and name its prefix by --with-libsodium=PREFIX])])
	rm -f conftest.map
	CPPFLAGS=$weft_saved_CPPFLAGS
	CFLAGS=$weft_saved_CFLAGS
	LDFLAGS=$weft_saved_LDFLAGS
	LIBS=$weft_saved_LIBS
	AC_SUBST([SODIUM_CPPFLAGS])
	AC_SUBST([SODIUM_LIBS])
])
