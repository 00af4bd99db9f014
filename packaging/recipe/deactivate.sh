# SPDX-License-Identifier: BSD-3-Clause
for _weft_name in $(echo "${CONDA_WEFT_NAMES-}"); do
	eval "if test -n \"\${CONDA_BACKUP_$_weft_name+set}\"; then
		export $_weft_name=\"\$CONDA_BACKUP_$_weft_name\"
	else
		unset $_weft_name
	fi
	unset CONDA_BACKUP_$_weft_name"
done
unset CONDA_WEFT_NAMES _weft_name
