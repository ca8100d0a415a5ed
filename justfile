# The tasks of this repository, each as one command: `just --list` names them. CONTRIBUTING.md has the same commands for
# those without just, and a test holds both to each other.

# Builds the program
build:
    cargo build --release

# Runs the tests that need Rust and a C compiler
test:
    cargo test

# Starts the demonstration without clusters
sandbox:
    cargo run --release --example sandbox

# Checks formatting, the limits of the source tree and clippy's lints
lint:
    cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings

# Tests the documents and examples against the code
docs:
    cargo test --test documents

# Tests on real API servers, with Go
e2e:
    cargo test -p e2e

# Runs 1,000 seeds of the simulation from a first one on
simulation first='90000001':
    cargo run --profile simulation -p simulation -- --seed {{first}} --seeds 1000

# Fuzzes one target for a minute, with cargo-fuzz
fuzz target='quantity':
    mkdir -p crates/fuzz/corpus/{{target}} && cargo fuzz run {{target}} --fuzz-dir crates/fuzz -s none crates/fuzz/corpus/{{target}} crates/fuzz/corpus-kept/{{target}} -- -max_total_time=60

# Runs one benchmark
bench name='reads':
    cargo bench --bench {{name}}

# Runs everything that must hold before a change lands
ci:
    .ci/run
