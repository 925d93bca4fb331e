# Completion for bash: the program itself says what may come next (tools/complete.cpp).
_lariat() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      # Readline's own names, which it quotes and expands, where none of the candidates fits.
      :file) compopt -o default ;;
      :dir) compopt -o dirnames ;;
      *) COMPREPLY+=("$line") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _lariat lariat
