#!/bin/sh
# Repair the append-only file, then start Redis: redis-start.sh redis-server --dir FOLDER …
#
# If Redis is killed while it writes a transaction or a script, its file ends with an incomplete
# transaction. The next start removes only an incomplete last command. Later writes then become part
# of that transaction, and the start after that can lose acknowledged writes (fixed in Valkey by pull
# request 4342). So this script removes the whole incomplete transaction, which was never
# acknowledged. Redis itself handles any other damage.
set -eu

note() { echo "redis-start: $*" >&2; }

# Print the file to which Redis appends; with several parts (Redis 7), the last one.
print_last_file() {
    manifest=$1/appendonlydir/appendonly.aof.manifest
    if [ -f "$manifest" ]; then
        part=$(sed -n 's/^file \([^ ]*\) .*type i.*/\1/p' "$manifest" | tail -n 1)
        [ -z "$part" ] || echo "$1/appendonlydir/$part"
    else
        echo "$1/appendonly.aof"
    fi
}

# Print file $1 from byte $2 on, where its valid part ends.
print_from() { tail -c "+$(($2 + 1))" "$1"; }

# True if a transaction begins at byte $2 of file $1 and is never executed.
is_open_transaction() {
    [ "$(print_from "$1" "$2" | head -c 15 | tr -d '\r')" = "$(printf '*1\n$5\nMULTI')" ] &&
        ! { print_from "$1" "$2" && echo x; } | tr -d '\r' | grep -qx EXEC
}

remove_open_transaction() {
    report=$("$check" "$1" 2>&1 </dev/null) && return
    whole=$(printf '%s\n' "$report" | sed -n 's/.*[ ,]ok_up_to=\([0-9]*\).*/\1/p' | tail -n 1)
    [ -n "$whole" ] && is_open_transaction "$1" "$whole" || return 0
    size=$(wc -c <"$1")
    echo y | "$check" --fix "$1" >/dev/null 2>&1 || { note "cannot repair $1"; return; }
    note "removed $((size - whole)) bytes of an incomplete transaction from the end of $1"
}

folder=. option=
for argument; do
    [ "$option" != --dir ] || folder=$argument
    option=$argument
done

check=$(dirname "$1")/redis-check-aof
[ -x "$check" ] || check=$(command -v redis-check-aof || true)
file=$(print_last_file "$folder")
if [ -s "$file" ]; then
    if [ -n "$check" ]; then remove_open_transaction "$file"; else note "redis-check-aof is missing; $file was not checked"; fi
fi
exec "$@"
