#!/bin/sh
# Start Redis on an append-only file that ends whole: redis-start.sh redis-server --dir FOLDER …
#
# A Redis that is killed while it writes down a transaction or a script leaves it open at the end of
# its file. At the next start it takes away the command that is cut, if one is, but leaves the ones
# before it: what it writes from then on is read as a part of that transaction at the start after,
# and writes that were answered can be lost (mended in Valkey by its pull request 4342). So the open
# transaction, which nobody was answered, goes as a whole. Any other damage is Redis's to judge.
set -eu

note() { echo "redis-start: $*" >&2; }

# The file that Redis went on writing: of several parts (Redis 7) the last one.
last_file() {
    manifest=$1/appendonlydir/appendonly.aof.manifest
    if [ -f "$manifest" ]; then
        part=$(sed -n 's/^file \([^ ]*\) .*type i.*/\1/p' "$manifest" | tail -n 1)
        [ -z "$part" ] || echo "$1/appendonlydir/$part"
    else
        echo "$1/appendonly.aof"
    fi
}

# What follows the last thing in file $1 that is whole, which ends at byte $2.
rest() { tail -c "+$(($2 + 1))" "$1"; }

# True if an open transaction begins there and nothing that is whole comes after it.
is_open_transaction() {
    [ "$(rest "$1" "$2" | head -c 15 | tr -d '\r')" = "$(printf '*1\n$5\nMULTI')" ] &&
        ! { rest "$1" "$2" && echo x; } | tr -d '\r' | grep -qx EXEC
}

end_whole() {
    report=$("$check" "$1" 2>&1 </dev/null) && return
    whole=$(printf '%s\n' "$report" | sed -n 's/.*[ ,]ok_up_to=\([0-9]*\).*/\1/p' | tail -n 1)
    [ -n "$whole" ] && is_open_transaction "$1" "$whole" || return 0
    size=$(wc -c <"$1")
    echo y | "$check" --fix "$1" >/dev/null 2>&1 || { note "cannot mend $1"; return; }
    note "took $((size - whole)) bytes of an unfinished transaction off the end of $1"
}

folder=. option=
for argument; do
    [ "$option" != --dir ] || folder=$argument
    option=$argument
done

check=$(dirname "$1")/redis-check-aof
[ -x "$check" ] || check=$(command -v redis-check-aof || true)
file=$(last_file "$folder")
if [ -s "$file" ]; then
    if [ -n "$check" ]; then end_whole "$file"; else note "no redis-check-aof: $file is not looked at"; fi
fi
exec "$@"
