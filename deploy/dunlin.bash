# SPDX-License-Identifier: MIT
# bash completion for dunlin. The program itself knows its flags: `dunlin __complete` lists what may
# stand at the cursor, FILE meaning any file.
_dunlin()
{
	local cur=${COMP_WORDS[COMP_CWORD]} line candidates=()
	local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
	COMPREPLY=()
	# bash splits --flag=value into three words: pass the flag and the value without the =.
	if [[ $cur == = ]]; then
		cur=
		words[-1]=
	elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == = && ${#words[@]} -gt 2 ]]; then
		unset 'words[-2]'
	fi
	while IFS= read -r line; do
		if [[ $line == FILE ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			return
		fi
		candidates+=("$line")
	done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
	mapfile -t COMPREPLY < <(compgen -W "${candidates[*]}" -- "$cur")
}
complete -F _dunlin dunlin
