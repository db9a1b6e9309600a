#!/bin/sh
# Creates the topics and grants the rights of one pipeline. It can run again: what exists already is left as it is.
# Rules: nobody gets a right that docs/kafka.md does not name. Nothing is deleted, altered or revoked.
set -eu

usage() {
    cat <<'TEXT'
setup.sh --bootstrap HOST:PORT --pipeline NAME --source TOPIC --engine PRINCIPAL [options]

  --bootstrap HOST:PORT[,...]   where the brokers are
  --config FILE                 how the administrator logs in (as --command-config of Kafka's own tools)
  --pipeline NAME               `name` in the pipeline file
  --source TOPIC                the topic with the events
  --engine PRINCIPAL            whom the engine and its standby log in as, such as User:orders-engine
  --worker PRINCIPAL            may run `stream-dp worker`; the engine may then delete rows; may be repeated
  --lanes N                     `source.workers.lanes` in the pipeline file: makes the topics of workers, for good
  --producer PRINCIPAL          may write events; may be repeated
  --feeder PRINCIPAL            may run `stream-dp replay` into the source topic; may be repeated
  --reader PRINCIPAL            may read releases, and nothing else; may be repeated
  --analyst PRINCIPAL           may send messages and read answers; may be repeated
  --partitions N                of the source topic (1)
  --retention-ms N              of the source topic (604800000, a week): longer than an engine is ever off
  --replication N               copies of every topic (3; 1 is for a trial on one broker)
  --brokers N                   how many brokers there are (as --replication): each tells its clock
  --no-topics                   rights only
  --print                       say what would be run, and run nothing

Kafka's tools (kafka-topics.sh, kafka-acls.sh) are taken from KAFKA_BIN, or else from PATH.
TEXT
}

fail() {
    printf 'setup.sh: %s\n' "$1" >&2
    exit 2
}

bootstrap='' config='' pipeline='' source='' engine='' workers='' producers='' feeders='' readers='' analysts=''
partitions=1 retention=604800000 replication=3 brokers='' lanes=0 topics=yes print=no

while [ $# -gt 0 ]; do
    case $1 in
        --no-topics) topics=no; shift; continue ;;
        --print) print=yes; shift; continue ;;
        -h | --help) usage; exit 0 ;;
    esac
    [ $# -ge 2 ] || fail "$1 is not known, or its value is missing (--help)"
    case $1 in
        --bootstrap) bootstrap=$2 ;;
        --config) config=$2 ;;
        --pipeline) pipeline=$2 ;;
        --source) source=$2 ;;
        --engine) engine=$2 ;;
        --worker) workers="$workers$2
" ;;
        --producer) producers="$producers$2
" ;;
        --feeder) feeders="$feeders$2
" ;;
        --reader) readers="$readers$2
" ;;
        --analyst) analysts="$analysts$2
" ;;
        --partitions) partitions=$2 ;;
        --lanes) lanes=$2 ;;
        --retention-ms) retention=$2 ;;
        --replication) replication=$2 ;;
        --brokers) brokers=$2 ;;
        *) fail "$1 is not known (--help)" ;;
    esac
    shift 2
done

[ -n "$bootstrap" ] || fail '--bootstrap is missing (--help)'
[ -n "$pipeline" ] || fail '--pipeline is missing (--help)'
[ -n "$source" ] || fail '--source is missing (--help)'
[ -n "$engine" ] || fail '--engine is missing (--help)'
brokers=${brokers:-$replication}
for number in "$partitions" "$retention" "$replication" "$brokers" "$lanes"; do
    case $number in
        '' | *[!0-9]*) fail "--partitions, --retention-ms, --replication, --brokers and --lanes are whole numbers, not '$number'" ;;
    esac
done
case $source in
    "$pipeline".*) fail "--source: $source begins with '$pipeline.', where only the engine may write; name it otherwise" ;;
esac

# Runs one of Kafka's tools, or says how it would be run.
tool() {
    name=$1
    shift
    set -- --bootstrap-server "$bootstrap" ${config:+--command-config "$config"} "$@"
    if [ "$print" = yes ]; then
        printf '%s' "$name"
        printf " '%s'" "$@"
        printf '\n'
    else
        "${KAFKA_BIN:+$KAFKA_BIN/}$name" "$@"
    fi
}

if [ "$replication" -ge 3 ]; then in_sync=2; else in_sync=1; fi

# TOPIC PARTITIONS SETTING...
topic() {
    named=$1 wide=$2
    shift 2
    for setting; do
        set -- "$@" --config "$setting"
        shift
    done
    tool kafka-topics.sh --create --if-not-exists --topic "$named" --partitions "$wide" \
        --replication-factor "$replication" --config "min.insync.replicas=$in_sync" "$@"
}

# TOPIC [SETTING]: a topic of the pipeline's own, which keeps all it holds.
kept() {
    topic "$@" cleanup.policy=delete retention.ms=-1 retention.bytes=-1 unclean.leader.election.enable=false
}

# PRINCIPAL RIGHT... -- RESOURCE...
grant() {
    principal=$1
    shift
    while [ "$1" != -- ]; do
        set -- "$@" --operation "$1"
        shift
    done
    shift
    tool kafka-acls.sh --add --allow-principal "$principal" "$@"
}

# Calls a function with each principal of a list.
each() {
    called=$1
    printf '%s' "$2" | while IFS= read -r one; do
        "$called" "$one" </dev/null
    done
}

engine_rights() {
    grant "$1" Read DescribeConfigs -- --topic "$source"
    grant "$1" Read Write Create DescribeConfigs -- --topic "$pipeline." --resource-pattern-type prefixed
    grant "$1" Write -- --transactional-id "$pipeline." --resource-pattern-type prefixed
    grant "$1" Read -- --group "$pipeline." --resource-pattern-type prefixed
}

deleting_rights() {
    grant "$1" Delete -- --topic "$pipeline.private.rows"
    grant "$1" Delete -- --topic "$pipeline.private.layout"
}

worker_rights() {
    grant "$1" Read DescribeConfigs -- --topic "$source"
    grant "$1" Read Write DescribeConfigs -- --topic "$pipeline.private.rows"
    grant "$1" Read -- --topic "$pipeline.private.layout"
    grant "$1" Write DescribeConfigs -- --topic "$pipeline.private.clock"
    grant "$1" Read -- --group "$pipeline.workers"
}

producer_rights() {
    grant "$1" Write -- --topic "$source"
}

feeder_rights() {
    grant "$1" Write -- --topic "$source"
    grant "$1" Write -- --transactional-id "$source.stream-dp-feed"
}

reader_rights() {
    grant "$1" Read -- --topic "$pipeline.releases"
}

analyst_rights() {
    grant "$1" Write -- --topic "$pipeline.queries"
    grant "$1" Read -- --topic "$pipeline.answers"
}

if [ "$topics" = yes ]; then
    # uncompressed: the brokers then decompress every batch, so no batch gets in that nobody else can decompress
    topic "$source" "$partitions" cleanup.policy=delete compression.type=uncompressed \
        message.timestamp.type=LogAppendTime "retention.ms=$retention"
    kept "$pipeline.private.journal" 1
    kept "$pipeline.private.lease" 1
    # this topic shows the clock of each broker: one partition per broker, and no record that must be kept
    topic "$pipeline.private.clock" "$brokers" cleanup.policy=delete message.timestamp.type=LogAppendTime \
        retention.ms=3600000 unclean.leader.election.enable=true
    kept "$pipeline.releases" 1 message.timestamp.type=CreateTime max.message.bytes=8388608
    kept "$pipeline.answers" 1 message.timestamp.type=CreateTime max.message.bytes=8388608
    if [ "$lanes" -gt 0 ]; then
        kept "$pipeline.private.rows" "$lanes" max.message.bytes=8388608
        kept "$pipeline.private.layout" 1 max.message.bytes=8388608
    fi
    topic "$pipeline.queries" 1 cleanup.policy=delete compression.type=uncompressed \
        message.timestamp.type=LogAppendTime retention.ms=604800000 max.message.bytes=788480
fi
engine_rights "$engine"
[ -z "$workers" ] || deleting_rights "$engine"
each worker_rights "$workers"
each producer_rights "$producers"
each feeder_rights "$feeders"
each reader_rights "$readers"
each analyst_rights "$analysts"
