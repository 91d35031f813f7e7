#!/bin/sh
# Whether this nats-server should go on. One whose disk was full stores nothing more until its next start, though there is room
# again (seen with 2.15.1): it switches JetStream off as a whole, or gives up the stream that it could not write to, and says
# "write error" of it on /healthz.
#
#   alive.sh       fails where another start helps: a liveness probe
#   alive.sh URL   starts it again there, as Docker does not, and asks the URL: a health check
ask() {
  printf 'GET %s HTTP/1.0\r\n\r\n' "$1" | nc -w 5 127.0.0.1 "${NATS_MONITOR_PORT:-8222}"
}

alive() {
  # As long as there is no room a start would change nothing, and would end what still answers.
  room=$(($(stat -f -c '%a * %S' "${NATS_STORE:-/data}")))
  [ "$room" -lt "${NATS_ROOM:-67108864}" ] && return 0
  ask '/healthz?js-enabled-only=true' | grep -q '"status":"ok"' || return 1
  ! ask /healthz | grep -q 'write error'
}

if [ $# -eq 0 ]; then
  alive
else
  # Not before it takes connections: until then JetStream is being started. The server is process 1 of its container.
  ask '/healthz?js-server-only=true' | grep -q '"status":"ok"' || exit 1
  alive || kill 1
  wget -q --spider "$1"
fi
