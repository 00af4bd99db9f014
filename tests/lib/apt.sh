# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# apt for the tests: packages and sources of any suite of the mirror that this
# machine already uses, with all of apt's state in $cache, so that the system
# is left alone.
. /etc/os-release
case $ID in
debian)	keyring=debian-archive-keyring components="main" ;;
ubuntu)	keyring=ubuntu-archive-keyring components="main universe" ;;
*)	echo "$ID has no package mirror layout known here" >&2; exit 1 ;;
esac
mirror=$({ sed -n 's/^URIs:[ ]*\([^ ]*\).*/\1/p' \
		/etc/apt/sources.list.d/*.sources
	sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' \
		/etc/apt/sources.list /etc/apt/sources.list.d/*.list
	} 2>/dev/null | grep -v security | head -1)
test -n "$mirror" || { echo "no package mirror is configured" >&2; exit 1; }

apt_in() # SUITE COMMAND...
{
	local state=$cache/apt-$1 signed
	signed="[signed-by=/usr/share/keyrings/$keyring.gpg] $mirror $1 $components"
	mkdir -p "$state"/{lists/partial,archives/partial,etc/preferences.d}
	: >"$state/status"
	printf 'deb %s\ndeb-src %s\n' "$signed" "$signed" >"$state/sources.list"
	apt-get -qq -o Dir::Etc="$state/etc" \
		-o Dir::Etc::SourceList="$state/sources.list" \
		-o Dir::State::Lists="$state/lists" \
		-o Dir::State::status="$state/status" \
		-o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" \
		-o Acquire::Languages=none -o APT::Sandbox::User=root \
		-o Acquire::Check-Valid-Until=false -o Debug::NoLocking=1 \
		-o Acquire::Retries=2 -o APT::Install-Recommends=false "${@:2}" >&2
}
