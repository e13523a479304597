# What the shell of a session runs: it takes a text from execd, evaluates it, reports its status and
# the shell's state, and takes the next.
#
# execd joins these lines into one, so every command ends with a semicolon, comments stand on lines
# of their own, and users see their own line numbers. Users can define functions and aliases of any
# name, hence the backslashes and `builtin`.

# The state, in parts that end with NUL. Every command is redirected alone: what a DEBUG trap prints
# must not get between them.
__execd_dump='
  \builtin declare -p >&198;
  \builtin printf "\0" >&198;
  \builtin local -p >&198;
  \builtin printf "\0" >&198;
  \builtin declare -f >&198;
  \builtin printf "\0" >&198;
  \builtin declare -F >&198;
  \builtin printf "\0" >&198;
  \builtin alias -p >&198;
  \builtin printf "\0" >&198;
  \builtin trap -p >&198;
  \builtin printf "\0" >&198;
  \builtin pwd >&198;
  \builtin printf "\0" >&198;
  \builtin umask -p >&198;
  \builtin printf "\0E\0" >&198';

# The end of the shell, by `exit` or by an error: another bash takes this process over, and with it
# the children, the open files and the limits. The redirections of the loop below are undone by
# then, so standard input is the socket again.
__execd_user_exit= ;
__execd_exit='
  { { \builtin : <&198; } || \exec 198<&0 0</dev/null; } 2>/dev/null;
  if [[ $__execd_user_exit ]]; then
    (\builtin exit "$__execd_status");
    \builtin eval "$__execd_user_exit";
  fi;
  if [[ -S /dev/fd/198 ]]; then
    {
      \builtin printf "X%s %d\0" "$__execd_run" "$__execd_status" >&198;
      \builtin eval "$__execd_dump";
    } >/dev/null 2>&1;
    \builtin exec -c "$BASH" --noprofile --norc -c "$BASH_EXECUTION_STRING" bash <&198 198<&-;
  fi';
\builtin trap '{ __execd_status=$? __execd_flags=$-; \builtin set +ex; } 2>/dev/null; \builtin eval "$__execd_exit"' EXIT;

# How execd makes the shell give up what it is doing.
\builtin trap '\builtin exit 143' STKFLT;

# Whoever keeps a shell expects its aliases to work.
\builtin shopt -s expand_aliases;

# Standard input is the socket to execd. Redirecting the loop from a descriptor makes bash keep the
# old standard input on the first free number above it, 198, closed in every program that it starts.
\exec 197</dev/null;
__execd_run= ;
while {
  __execd_status=$? __execd_flags=$-;
  \builtin set +ex;
  if [[ ! $__execd_run ]]; then \exec 197<&-; fi;
  \builtin printf 'S%s %d\0' "$__execd_run" "$__execd_status" >&198;
  \builtin eval "$__execd_dump";
  \builtin read -rN 20 -u 198 __execd_head &&
  LC_ALL=C \builtin read -rN "${__execd_head:10}" -u 198 __execd_text &&
  __execd_run=${__execd_head:0:10} &&
  if [[ $__execd_flags == *e* ]]; then \builtin set -e; fi;
} >/dev/null 2>&1; do
  \builtin eval "$__execd_text";
done <&197;
