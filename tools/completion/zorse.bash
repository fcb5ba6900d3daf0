# Bash completion of options and their values, parsed from the tools' --help; otherwise of files.
# Installed for every tool by cmake --install. In a clone: source tools/completion/zorse.bash
_zorse() {
  local tool=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} help values
  COMPREPLY=()
  if [ "$word" = = ]; then word=; fi
  if [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
  help=$("$tool" --help 2>/dev/null) || return
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(grep -oE '^ +(-[A-Za-z],)?--[a-z0-9-]+' <<<"$help" | grep -oE -- '--[a-z0-9-]+')" -- "$word")
  elif [[ $before == --* ]]; then
    values=$(grep -oE "^ +(-[A-Za-z],)?$before [A-Z]+:\{[^}]*\}" <<<"$help" | sed 's/.*{//; s/}.*//; s/,/ /g')
    if [ -n "$values" ]; then mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word"); fi
  fi
}
complete -o default -F _zorse zorse-compile zorse-run zorse-plan zorse-cluster zorse-profile zorse-inspect zorse-export zorse-import zorse-opt
