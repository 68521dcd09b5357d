#!/bin/bash
# Stands in for an emulator: understands as much of its command line as it needs, and plays the
# part that STUB_<node> names. A part may be a list, one per life: "die,ok". If it is given a plugin,
# STUB_SIM_<node> names the report that the plugin leaves; "%seed" in it stands for the seed.
boot= cxl= out= config=
for a in "$@"; do
    case $a in
    name=opt/dyad/boot,file=*) boot=${a#*file=} ;;
    *mem-path=*) cxl=${a##*mem-path=} ;;
    *,out=*)
        out=${a##*,out=} out=${out%%,*}
        config=$(dirname "$out")/sim.json ;;
    esac
done
node=$(sed -n 's/^node=//p' "$boot")
isa=$(sed -n 's/^nodes=//p' "$boot" | cut -d, -f$((node + 1)))
life=1
while ! mkdir "$boot.life$life" 2>/dev/null; do life=$((life + 1)); done
var=STUB_$node
part=$(echo "${!var}" | cut -d, -f$life)

log() { printf '\x1f0 %d I %s\n' $((life * 1000)) "$1"; }
record() { printf '\x1e%s\n' "$1"; }
word() { od -An -t u8 -j "$1" -N 8 "$cxl" | tr -d ' '; }
put() { printf "$2" | dd of="$cxl" bs=1 seek="$1" conv=notrunc status=none; }
state_of() { echo $((STUB_NODES + $1 * STUB_NODE_SIZE)); }
simulated() {
    local var=STUB_SIM_$node seed
    if [ "$out" ] && [ "${!var}" ]; then
        seed=$(sed -n 's/.*"seed": \([0-9]*\).*/\1/p' "$config")
        sed "s/%seed/${seed:-0}/g" "${!var}" >"$out"
    fi
}
leave() {
    simulated
    record "{\"type\":\"exit\",\"code\":$1,\"reason\":\"$2\"}"
    case $isa in
    x86_64) exit $((($1 + 16) * 2 + 1)) ;;
    *) exit $(($1 + 32)) ;;
    esac
}
check() { record '{"type":"check","name":"stub","ok":'$1',"detail":"from node '$node'"}'; }
obey() { # until told to stop
    while [ "$(word "$STUB_CONTROL")" != 1 ]; do sleep 0.05; done
    record '{"type":"status","cpu":0,"doing":"counting sheep"}'
    leave 3 "told to stop"
}

echo "firmware of node $node is process $$"
put 0 'DYADSB01'
put 8 '\x02'
put "$(state_of "$node")" "\\x02\\0\\0\\0\\x0$life"
record '{"type":"phase","name":"live"}'
log "part $part"
case $part in
ok)
    check true
    record '{"type":"counter","name":"migrations","value":10}'
    leave 0 "done" ;;
race) # fails with seeds that end in 7
    case $(sed -n 's/.*"seed": \([0-9]*\).*/\1/p' "$config") in
    *7) check false; leave 1 "lost the race" ;;
    esac
    check true; leave 0 "done" ;;
dear) # fails where traps have a price
    case $(sed -n 's/.*"trap": \([0-9]*\).*/\1/p' "$config" | head -n 1) in
    0) check true; leave 0 "done" ;;
    *) check false; leave 1 "too dear" ;;
    esac ;;
bad) check false; leave 1 "a check failed" ;;
obey) obey ;;
deaf) while :; do sleep 0.05; done ;;
die) sleep 0.3; kill -KILL $$ ;;
quit) sleep 0.3; echo "stub: out of order" >&2; exit 1 ;;
panic)
    record '{"type":"panic","cpu":0,"message":"it hurts","location":"stub.sh:1"}'
    record '{"type":"backtrace","cpu":0,"what":"kernel","pcs":["0xffffffff80000010"]}'
    leave 4 "panic" ;;
hang)
    record '{"type":"panic","cpu":0,"message":"and hang","location":"stub.sh:1"}'
    while :; do sleep 0.05; done ;;
mourn) # goes on until the other node is marked dead, then succeeds
    while [ "$(od -An -t u1 -j "$(state_of $((1 - node)))" -N 1 "$cxl" | tr -d ' ')" != 4 ]; do
        sleep 0.05
    done
    check true
    leave 0 "survived" ;;
heal) # makes room for the dead node to come back, waits for it, then succeeds
    while [ "$(od -An -t u1 -j "$(state_of $((1 - node)))" -N 1 "$cxl" | tr -d ' ')" != 4 ]; do
        sleep 0.05
    done
    put "$(state_of $((1 - node)))" '\0'
    while [ "$(od -An -t u1 -j "$(state_of $((1 - node)))" -N 1 "$cxl" | tr -d ' ')" != 2 ]; do
        sleep 0.05
    done
    check true
    leave 0 "healed" ;;
*) echo "unknown part: $part" >&2; exit 99 ;;
esac
