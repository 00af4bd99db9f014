# SPDX-License-Identifier: BSD-3-Clause
# Sets what "weft run" sets; keeps what was there in CONDA_BACKUP_NAME, as
# conda's compilers do.  Sourced by sh, bash and zsh.
_weft_set=$("$CONDA_PREFIX/bin/weft" run --print)
CONDA_WEFT_NAMES=$(printf '%s\n' "$_weft_set" |
	sed -n 's/^export \([A-Za-z0-9_]*\)=.*/\1/p' | tr '\n' ' ')
for _weft_name in $(echo "$CONDA_WEFT_NAMES"); do
	eval "test -z \"\${$_weft_name+set}\" ||
		export CONDA_BACKUP_$_weft_name=\"\$$_weft_name\""
done
eval "$_weft_set"
export CONDA_WEFT_NAMES
unset _weft_set _weft_name
