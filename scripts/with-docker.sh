#!/usr/bin/env bash
# Run a command with a Docker engine at hand.
#
#   scripts/with-docker.sh COMMAND...
#
# An engine that runs already is used and left alone. Where there is none: root on Debian gets one
# installed and started, and it is stopped again when the last command that uses it ends, however it
# ends; anybody else is told what to do. One that is started here knows gVisor as a runtime, if that
# is installed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] || die 'which command?' 'Usage: scripts/with-docker.sh COMMAND...'

SOCKET=/var/run/docker.sock
ENGINE_PID=/var/run/docker.pid
OURS=$CACHE/dockerd.pid # "PID KEEPER [systemd]": a daemon started here, and who is to stop it, how
LOG=$CACHE/dockerd.log
CONFIG=$CACHE/dockerd.json
engine='' # pid of the daemon that this script is to stop
manner='' # how: `systemd`, or nothing for a signal

# keep PID [MANNER]: this script is to stop it.
keep() {
    engine=$1 manner=${2:-}
    printf '%s %s %s\n' "$engine" $$ "$manner" >"$OURS"
}

# The client honours DOCKER_HOST and its own contexts; without it, the socket is asked directly.
engine_answers() {
    if command -v docker >/dev/null; then
        timeout 20 docker version >/dev/null 2>&1
    else
        timeout 20 python3 - "$SOCKET" 2>/dev/null <<'PYTHON'
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    s.sendall(b'GET /_ping HTTP/1.0\r\n\r\n')
    sys.exit(b' 200 ' not in s.recv(64))
PYTHON
    fi
}

# Our library talks to DOCKER_HOST or the usual socket: tell it where the client's context points.
follow_context() {
    [ -z "${DOCKER_HOST:-}" ] && command -v docker >/dev/null || return 0
    local host
    host=$(docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null) || return 0
    case $host in '' | "unix://$SOCKET" | 'unix:///run/docker.sock') ;; *) export DOCKER_HOST=$host ;; esac
}

# Only of a process that is alive: a dead one that nobody has reaped has a name, but no program.
is_dockerd() {
    [ -n "$1" ] && [ "$(cat "/proc/$1/comm" 2>/dev/null)" = dockerd ] && [ -e "/proc/$1/exe" ]
}

daemon_pid() {
    local pid
    pid=$(cat "$ENGINE_PID" 2>/dev/null) || pid=
    if is_dockerd "$pid"; then
        printf '%s' "$pid"
    else
        for pid in /proc/[0-9]*; do
            if is_dockerd "${pid#/proc/}"; then
                printf '%s' "${pid#/proc/}"
                return
            fi
        done
    fi
}

# wait_ready PID: a minute for a daemon to answer, and an end at once when it dies.
wait_ready() {
    local deadline=$((SECONDS + 60))
    until engine_answers; do
        [ "$SECONDS" -lt "$deadline" ] && is_dockerd "$1" || return 1
        sleep 0.3
    done
}

# shellcheck disable=SC2016 # $USER is for the reader's shell
explain() {
    if [ -n "${DOCKER_HOST:-}" ]; then
        die "the Docker engine at DOCKER_HOST=$DOCKER_HOST does not answer" \
            'Start it, or unset DOCKER_HOST to use the one of this machine.'
    fi
    if [ -S "$SOCKET" ] && [ ! -w "$SOCKET" ]; then
        die "a Docker engine is here, but this user may not use it ($SOCKET)" \
            'sudo usermod -aG docker "$USER"     then log in again; this grants root-like rights' \
            'or run this command as root.'
    fi
    if command -v dockerd >/dev/null; then
        die 'Docker is installed, but its engine does not run' \
            'sudo systemctl start docker         or: sudo dockerd' \
            'or run this command as root: it starts an engine and stops it afterwards.'
    fi
    die 'there is no Docker engine, and every piece of code runs in a container' \
        'Debian, Ubuntu:  sudo apt install docker.io && sudo usermod -aG docker "$USER"' \
        'Without an engine:  sudo apt install bubblewrap && make demo BACKEND=bubblewrap' \
        'As root on Debian, this command installs and starts an engine itself.'
}

# Without its own network: sandboxes in gVisor have none, and not every machine lets it set one up.
register_gvisor() {
    local program
    program=$(command -v runsc) || return 1
    printf '{"runtimes": {"runsc": {"path": "%s", "runtimeArgs": ["--network=none"]}}}\n' \
        "$program" >"$CONFIG"
}

has_systemd() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null; }

start_daemon() {
    local pid
    pid=$(daemon_pid)
    if [ -n "$pid" ]; then # somebody else's, about to be ready: a second one would break it
        say "a Docker engine is starting (pid $pid); waiting for it"
        wait_ready "$pid" || die "the Docker engine (pid $pid) does not answer"
    elif has_systemd; then
        say 'starting the Docker service; it is stopped again at the end'
        systemctl start docker || die 'the Docker service does not start' 'See: journalctl -u docker'
        keep "$(daemon_pid)" systemd
        engine_answers || die 'the Docker service runs, but does not answer' 'See: journalctl -u docker'
    else
        say "starting a Docker engine; it is stopped again at the end (log: $LOG)"
        local options=()
        if [ ! -e /etc/docker/daemon.json ] && register_gvisor; then options=(--config-file "$CONFIG"); fi
        # In a session of its own: Ctrl-C must reach the command first, and the engine last.
        setsid dockerd "${options[@]}" >"$LOG" 2>&1 </dev/null 8>&- 9>&- &
        keep $!
        sleep 0.3 # until the process has become dockerd
        wait_ready "$engine" || {
            tail -n 20 "$LOG" >&2
            die 'the Docker engine did not become ready' "Its log: $LOG"
        }
    fi
}

install_and_start() {
    if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
        say 'there is no Docker engine; this is Debian, so its packages docker.io and iptables are installed'
        apt_install docker.io iptables 8>&- 9>&- # a daemon it starts must not keep the locks
        local pid # the package starts its daemon where the machine lets it
        pid=$(daemon_pid)
        if [ -n "$pid" ]; then
            keep "$pid" "$(has_systemd && echo systemd)"
            wait_ready "$pid" || die 'the Docker engine does not answer after its installation'
            return
        fi
    fi
    start_daemon
}

# A run that was killed outright, or ended while others used its daemon, leaves it to the next.
adopt_left_behind() {
    local pid keeper manner
    read -r pid keeper manner 2>/dev/null <"$OURS" || return 0
    if is_dockerd "$pid" && ! { [ "$keeper" != - ] && kill -0 "$keeper" 2>/dev/null; }; then
        say "another run left its Docker engine (pid $pid) behind; it is stopped at the end"
        keep "$pid" "$manner"
    fi
}

# shellcheck disable=SC2329 # the trap below calls it
finish() {
    local status=$?
    trap '' INT TERM
    set +e
    if [ -n "$engine" ] || [ -e "$OURS" ]; then
        exec 9>"$CACHE/dockerd.lock" # nobody begins to use what is just being stopped
        flock 9
        adopt_left_behind
        if [ -z "$engine" ]; then
            : # somebody else's business
        elif flock -n 8; then
            stop_daemon
        else
            say "others still use the Docker engine (pid $engine); the last of them stops it"
            printf '%s - %s\n' "$engine" "$manner" >"$OURS"
        fi
    fi
    exit "$status"
}

stop_daemon() {
    say "stopping the Docker engine (pid $engine)"
    if [ "$manner" = systemd ]; then
        systemctl stop docker.socket docker.service
    elif is_dockerd "$engine"; then
        kill "$engine"
    fi
    local deadline=$((SECONDS + 30))
    while is_dockerd "$engine" && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.2; done
    if is_dockerd "$engine"; then
        say 'it did not end within 30 s; killing it'
        kill -KILL "$engine"
    fi
    rm -f "$OURS"
}

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

exec 8>"$CACHE/dockerd.users" 9>"$CACHE/dockerd.lock" # two runs at once must not start two engines
flock 9
follow_context
if engine_answers; then
    adopt_left_behind
elif [ -n "${DOCKER_HOST:-}" ] || ! { is_root && { command -v dockerd >/dev/null || can_apt; }; }; then
    explain
else
    install_and_start
fi
flock -s 8 # for as long as the command runs
exec 9>&-

# In the background, where a signal to this script takes effect at once and not after the command;
# Ctrl-C, which background commands ignore, is restored: the terminal sends it to both of us.
env --default-signal=INT,QUIT "$@" <&0 8>&- &
command=$!
trap 'kill -TERM "$command" 2>/dev/null || true' TERM
trap : INT
while :; do
    status=0
    wait "$command" || status=$?
    kill -0 "$command" 2>/dev/null || break
done
exit "$status"
