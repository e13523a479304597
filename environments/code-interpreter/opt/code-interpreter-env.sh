# Chooses among the versions that are installed as /opt/<language>/<version>. To be sourced by bash:
#
#   source /opt/opensandbox/code-interpreter-env.sh node 22
#
# makes this shell use that version, and through $EXECD_ENVS every command after it. Languages: python,
# node, java, go. With one argument, of which nothing is asked, it only defines the functions. It starts
# no process, since every kernel goes through it.

# Is version $1 later than version $2? Both are numbers with dots.
osb_later() {
  local -a one other
  local part
  IFS=. read -ra one <<<"$1"
  IFS=. read -ra other <<<"$2"
  for part in 0 1 2; do
    ((10#${one[part]:-0} == 10#${other[part]:-0})) && continue
    ((10#${one[part]:-0} > 10#${other[part]:-0}))
    return
  done
  return 1
}

# Sets REPLY to the version of $1 that answers best to $2: the latest that begins with it; else the next
# later one; else the latest. Nothing asked for is the default, as is what is no version.
osb_choose() {
  local directory version fits="" next="" last="" wanted=${2#v}
  wanted=${wanted%.x}
  REPLY=""
  for directory in "/opt/$1"/[0-9]*; do
    version=${directory##*/}
    [[ ! $directory -ef /opt/$1/default ]] || REPLY=$version
    [[ $wanted =~ ^[0-9]{1,6}(\.[0-9]{1,6}){0,2}$ ]] || continue
    if [[ $version == "$wanted" || $version == "$wanted".* ]]; then
      { [[ $fits ]] && osb_later "$fits" "$version"; } || fits=$version
    elif osb_later "$version" "$wanted"; then
      { [[ $next ]] && osb_later "$version" "$next"; } || next=$version
    fi
    { [[ $last ]] && osb_later "$last" "$version"; } || last=$version
  done
  REPLY=${fits:-${next:-${last:-$REPLY}}}
  [[ -z $2 || $fits ]] || echo "code-interpreter: $1 $2 is not installed, using $REPLY" >&2
}

# Makes this shell use the version of $1 that answers best to $2.
osb_use() {
  local REPLY entry kept=""
  local -a entries
  if [[ ! -d /opt/$1/default ]]; then
    echo "code-interpreter: there is no language $1; there are python, node, java and go" >&2
    return 1
  fi
  osb_choose "$1" "$2"
  IFS=: read -ra entries <<<"$PATH"
  for entry in "${entries[@]}"; do
    [[ $entry == "/opt/$1/"*/bin ]] || kept+=${kept:+:}$entry
  done
  # The default needs no entry: it is in /usr/bin or /usr/local/bin, where any shell finds it.
  [[ /opt/$1/$REPLY -ef /opt/$1/default ]] || kept=/opt/$1/$REPLY/bin:$kept
  export PATH=$kept
  [[ $1 != java ]] || export JAVA_HOME=/opt/java/$REPLY
}

# Makes this shell use what the environment asks for.
osb_use_asked() {
  osb_use python "${PYTHON_VERSION:-}"
  osb_use node "${NODE_VERSION:-}"
  osb_use java "${JAVA_VERSION:-}"
  osb_use go "${GO_VERSION:-}"
}

# Lets later commands have what this shell uses, unless the last word of the file is the same.
osb_keep() {
  local name line last
  [[ ${EXECD_ENVS:-} ]] || return 0
  for name in PATH JAVA_HOME; do
    last=""
    if [[ -r $EXECD_ENVS ]]; then
      while read -r line; do
        [[ $line != "$name="* ]] || last=$line
      done <"$EXECD_ENVS"
    fi
    [[ $last == "$name=${!name:-}" ]] || echo "$name=${!name:-}" >>"$EXECD_ENVS"
  done
}

if (($# == 2)); then
  osb_use "$1" "$2" && osb_keep
fi
