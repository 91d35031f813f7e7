#!/bin/sh
# Prints every admission once, with nothing but the command of NATS and awk, whatever is restarted meanwhile.
#
# The consumer is durable: NATS remembers what was acknowledged. What comes twice all the same is told by its ce-id, which
# is kept in a file. The command acknowledges a message as soon as it has printed it; a program, as those beside this
# one, does so when its work is done. Settings are environment variables, all with a default.
set -eu

NAME=${READER:-reader}    # of the durable consumer, and of the user where there are users
SUBJECT=${SUBJECT:-muster.pub.v1.>}
DONE=${DONE:-admissions.jsonl}
export DONE

set -- --server "${NATS_URL:-nats://127.0.0.1:4222}" --js-api-prefix "${API_PREFIX:-\$JS.API}"
if [ -n "${NKEY_FILE:-}" ]; then    # with this and CA_FILE you sign in to a production NATS
    set -- "$@" --nkey "$NKEY_FILE" --tlsca "$CA_FILE" --inbox-prefix "_INBOX_$NAME"
fi

once() {
    awk '
        BEGIN { file = ENVIRON["DONE"]; while ((getline line < file) > 0) { split(line, part, "\""); done[part[4]] = 1 } }
        $2 == "subj:" { words = split($3, word, "."); job = word[words - 1] "/" word[words]; id = type = "" }
        $1 == "ce-id:" { id = $2 }
        $1 == "ce-type:" { type = $2 }
        $1 == "Data:" && type == "dev.muster.workload.admitted.v1" && !(id in done) {
            done[id] = 1
            printf "{\"id\":\"%s\",\"job\":\"%s\"}\n", id, job >> file
            print id, job
            fflush()
        }'
}

until nats "$@" consumer info MUSTER_PUB "$NAME" > /dev/null 2>&1 ||
    nats "$@" consumer add MUSTER_PUB "$NAME" --pull --filter "$SUBJECT" --deliver all --ack explicit \
        --wait 30s --replay instant --defaults > /dev/null; do
    sleep 1
done
while :; do    # the command fails when nothing is left, or NATS is away: what was not acknowledged comes again
    { nats "$@" consumer next MUSTER_PUB "$NAME" --count 100 --ack 2> /dev/null || sleep 1; } | once
done
