# The image of capi-autoscaler-provider: one binary on distroless, as a user without rights, for amd64 and arm64.
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t capi-autoscaler-provider .
#
# BUILDER and RUNTIME may name other bases of the same Debian. A release names both by their digests. No frontend is named
# here, since it would have to be pulled: BuildKit's own reads this file from Docker 23 on.
ARG BUILDER=rust:1.95-slim-trixie
ARG RUNTIME=gcr.io/distroless/cc-debian13:nonroot

# The compiler runs on the builder's own architecture and builds for the other: emulated, it would take an hour.
FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG BUILDARCH
ARG TARGETARCH
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# aws-lc, the cryptography of rustls, is C and assembler: that of Cargo.lock, not one of the system's.
ENV AWS_LC_SYS_USE_SYSTEM=0 \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

# cargo-auditable puts the list of crates into the binary, which scanners and the SBOM read.
# hadolint ignore=DL3008
RUN <<'EOF'
case "$TARGETARCH" in
    amd64) target=x86_64-unknown-linux-gnu; compiler=gcc-x86-64-linux-gnu ;;
    arm64) target=aarch64-unknown-linux-gnu; compiler=gcc-aarch64-linux-gnu ;;
    *) echo "no build for $TARGETARCH: add its Rust target and compiler here" >&2; exit 1 ;;
esac
if [ "$BUILDARCH" != "$TARGETARCH" ]; then
    apt-get update
    apt-get install --yes --no-install-recommends "$compiler" "libc6-dev-$TARGETARCH-cross"
    rm -rf /var/lib/apt/lists/*
    rustup target add "$target"
fi
echo "$target" > /target-triple
cargo install cargo-auditable --locked --version 0.7.7
EOF

WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target,id=target-$TARGETARCH <<'EOF'
target=$(cat /target-triple)
# Only dependencies are kept. Sources of another checkout may be older than what was built of others, which cargo takes for
# fresh then; and the list of crates is linked in, which can change without them.
cargo clean --profile dist --workspace --target "$target"
# cargo-auditable lists what `cargo metadata` names, which unites features that other members and tests switch on with the
# program's. So neither is there, and what is built must still be what Cargo.lock has.
program() {
    cargo tree --locked --edges normal,build --prefix none --format '{p} {f}' --package capi-autoscaler-provider \
        --target "$target" | sed 's/ (\*)$//' | sort -u
}
program > /with-tests
for manifest in Cargo.toml crates/*/Cargo.toml; do
    awk '/^\[/ { tests = /dev-dependencies/ } /^(default-)?members = \[/ { list = 1 } !tests && !list; /^\]/ { list = 0 }' \
        "$manifest" > /manifest
    cp /manifest "$manifest"
done
cargo update --workspace
program | diff /with-tests -
cargo auditable build --profile dist --locked --package capi-autoscaler-provider --bin capi-autoscaler-provider --target "$target"
install -D "target/$target/dist/capi-autoscaler-provider" /out/capi-autoscaler-provider
EOF

# glibc, libgcc and the usual certificate authorities; no shell. The same Debian as above, so that glibc fits.
FROM ${RUNTIME}
# What one thread has freed, others take: with an arena for each thread, lists of large objects take half as much again.
ENV MALLOC_ARENA_MAX=1
# The first three are for scanners and people; version, revision and source belong to a build.
ARG VERSION=""
ARG REVISION=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="capi-autoscaler-provider" \
      org.opencontainers.image.description="Lets the Kubernetes Cluster Autoscaler scale Cluster API node groups" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /out/capi-autoscaler-provider /usr/local/bin/capi-autoscaler-provider
COPY LICENSE /usr/share/doc/capi-autoscaler-provider/LICENSE
USER 65532:65532
# gRPC; probes and metrics. Both are on loopback unless flags say otherwise.
EXPOSE 8086 8080
ENTRYPOINT ["/usr/local/bin/capi-autoscaler-provider"]
CMD ["serve"]
