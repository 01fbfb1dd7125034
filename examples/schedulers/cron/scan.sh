#!/bin/sh
# Starts an application of which no process is left, once `lastgood recover` says so. For cron:
#   scan.sh PIPELINE COMMAND [ARGUMENT...]
# Prints what a person has to know, once and again every day: cron mails it. Needs flock of util-linux.
set -u

name=${1:?usage: scan.sh PIPELINE COMMAND [ARGUMENT...]}
shift
: "${1:?usage: scan.sh PIPELINE COMMAND [ARGUMENT...]}"

folder=${XDG_STATE_HOME:-$HOME/.local/state}/lastgood/scan/$name
mkdir -p "$folder" || exit

# Open in all that is started from here, and so held for as long as any of it lives.
exec 9>"$folder/lock" || exit
flock --nonblock --conflict-exit-code 99 9
case $? in
    0) ;;
    99) exit 0 ;; # it runs, or another scan is at work
    *) exit 1 ;;
esac

tell() { # WHAT FILE: unless it was told already
    if [ "$(cat "$folder/told" 2>/dev/null)" != "$1" ] || [ -n "$(find "$folder/told" -mmin +1440)" ]; then
        printf '%s: %s\n\n' "$name" "$1"
        tail -n 60 "$2"
        printf '%s\n' "$1" >"$folder/told"
    fi
}

lastgood recover "$name" --output "$folder/plan.json" >"$folder/answer" 2>&1
code=$?

if [ "$code" -eq 75 ]; then # no reason to wake anybody, unless it goes on for an hour
    [ -e "$folder/waiting" ] || : >"$folder/waiting"
    [ -z "$(find "$folder/waiting" -mmin +60)" ] || tell "not started for an hour" "$folder/answer"
    exit 75
fi
rm -f "$folder/waiting"

if [ "$code" -ne 0 ]; then
    tell "not started: $(grep -E -m 1 '^(A person is needed|error )' "$folder/answer" || echo "exit code $code")" "$folder/answer"
    exit "$code"
fi

"$@" >>"$folder/application.log" 2>&1
code=$?
if [ "$code" -eq 0 ]; then
    rm -f "$folder/told"
else
    tell "ended with exit code $code, and is started again" "$folder/application.log"
fi
exit "$code"
