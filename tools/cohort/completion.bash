# Bash completion for cohort. It asks the program, so that it knows what that version takes.

# Prints the keys of the experiment on the command line, or of one that has all keys, each with "=".
_cohort_keys() {
  local experiment=image_classification i
  for ((i = 1; i + 2 < COMP_CWORD; ++i)); do
    if [ "${COMP_WORDS[i]}" = --experiment ]; then experiment=${COMP_WORDS[i + 2]}; fi
  done
  cohort train --help_experiment="$experiment" 2>/dev/null | sed -n 's/^\([a-z0-9_.]*\)  (.*/\1=/p'
}

_cohort() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # Bash takes "=" for a word of its own.
  if [ "$word" = = ]; then
    word=""
  elif [ "$previous" = = ]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    local commands
    commands=$(cohort describe --names 2>/dev/null)
    mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word")
    return
  fi
  case "$previous" in
    --params_override | --gin_param)
      mapfile -t COMPREPLY < <(compgen -W "$(_cohort_keys)" -- "$word")
      if [ "${#COMPREPLY[@]}" -gt 0 ]; then
        compopt -o nospace 2>/dev/null || true
        return
      fi
      ;;
  esac
  case "$word" in
    -*)
      local options
      options=$(cohort describe --names "${COMP_WORDS[1]}" 2>/dev/null)
      mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
  esac
}
complete -o filenames -F _cohort cohort
