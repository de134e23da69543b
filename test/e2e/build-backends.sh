#!/usr/bin/env bash
# Builds the real programs that the end-to-end tests run against, from their published Go modules,
# into BIN (by default a folder of the user's cache). What is there already in the right version is
# kept. Needs Go 1.26 or newer; a first run takes some minutes for each program.
set -euo pipefail

ROOT="$(cd "$(dirname "$0")/../.." && pwd)"
BIN="${1:-${LLAMA_STAGE_OTEL_BACKENDS:-${XDG_CACHE_HOME:-$HOME/.cache}/llama-stage-otel/bin}}"
PROMETHEUS=v0.316.0 # Prometheus 3
JAEGER=v1.76.0 # Jaeger 2
COLLECTOR=v0.161.0

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$BIN"

# is_built NAME VERSION: whether BIN holds NAME, built by this script in this version.
is_built() {
  [[ -x "$BIN/$1" && -f "$BIN/$1.version" && "$(cat "$BIN/$1.version")" == "$2" ]]
}

# build NAME PACKAGE VERSION: one program, in a module of its own.
build() {
  local name="$1" package="$2" version="$3"
  if is_built "$name" "$version"; then
    echo "$name $version: there"
    return
  fi
  echo "$name $version: building"
  local module="$work/$name"
  mkdir "$module"
  (
    cd "$module"
    go mod init build.invalid/"$name"
    go get -tool "$package@$version"
    go build -o "$BIN/$name" "$package"
  )
  echo "$version" > "$BIN/$name.version"
}

# build_collector: the Collector with the components that our configurations need.
build_collector() {
  local manifest="$ROOT/operations/collector/manifest.yaml"
  local version
  version="$COLLECTOR-$(git hash-object "$manifest")"
  if is_built otelcol "$version"; then
    echo "otelcol $COLLECTOR: there"
    return
  fi
  echo "otelcol $COLLECTOR: building"
  local module="$work/otelcol"
  mkdir "$module"
  (
    cd "$module"
    go mod init build.invalid/otelcol
    go get -tool "go.opentelemetry.io/collector/cmd/builder@$COLLECTOR"
    go tool builder --config "$manifest"
    mv otelcol/otelcol "$BIN/otelcol"
  )
  echo "$version" > "$BIN/otelcol.version"
}

build prometheus github.com/prometheus/prometheus/cmd/prometheus "$PROMETHEUS"
build promtool github.com/prometheus/prometheus/cmd/promtool "$PROMETHEUS"
build jaeger github.com/jaegertracing/jaeger/cmd/jaeger "$JAEGER"
build_collector
