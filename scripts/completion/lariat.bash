# Bash completion; the program computes the candidates (tools/complete.cpp).
_lariat() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      # Readline completes file names, with quoting and expansion, if no candidate fits.
      :file) compopt -o default ;;
      :dir) compopt -o dirnames ;;
      *) COMPREPLY+=("$line") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _lariat lariat
