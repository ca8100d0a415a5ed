//! Attacks at full size on the serving process: the release binary follows an API server in this process and gets
//! Cluster Autoscaler's calls, in turns with and without an attack. Linux only, run by hand:
//!
//! ```console
//! cargo bench --bench attacks                                  # all of them
//! cargo bench --bench attacks -- --attack objects --scale 0.1  # one of them, at a tenth of its size
//! ```
//!
//! It fails when the p99 of a read under attack is more than 5 times the p99 without, when the process exceeds the
//! chart's memory limit, or when a read fails. It must never compare turns of different processes.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]
// The counts are far below the limits of their types.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod api;
mod attack;
mod reads;
#[path = "../serving/mod.rs"]
mod serving;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::{Parser, ValueEnum as _};
use testkit::free_address;
use tokio_util::sync::CancellationToken;

use self::{
    api::{Api, GROUPS, MACHINES},
    attack::{Addresses, Attack, World},
    reads::{Reader, Times},
    serving::Serving,
};

/// The max ratio of the p99 of a read under attack to the p99 without.
const SLOWEST: f64 = 5.0;
/// The chart's memory limit, in KiB.
const MOST_MEMORY: u64 = 256 << 10;
/// The duration of each turn.
const TURN: Duration = Duration::from_secs(5);
/// The number of turns with the attack, each after one without it.
const TURNS: usize = 4;

#[derive(Parser)]
struct Args {
    /// The attack; all of them without it.
    #[arg(long, value_enum)]
    attack: Option<Attack>,
    /// The part of the full size.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let attacks = args.attack.map_or_else(|| Attack::value_variants().to_vec(), |attack| vec![attack]);
    println!("attack             reads without        reads under attack   p99     memory  what else");
    println!("                  median     p99         median     p99      ratio   peak");
    let missed: Vec<_> = attacks.into_iter().flat_map(|attack| run(attack, args.scale)).collect();
    assert!(missed.is_empty(), "{}", missed.join("; "));
}

/// Starts the program against an API server.
fn start(api: SocketAddr) -> (Serving, Addresses) {
    let [grpc, http, probe, admin] = [(); 4].map(|()| free_address());
    let flags = [("--listen", grpc), ("--probe-listen", probe), ("--admin-listen", admin)];
    let flags = flags.map(|(flag, address)| format!("{flag}={address}"));
    (Serving::start(api, http, &flags), Addresses { grpc, http, probe, admin })
}

/// Runs one attack, and returns the violated limits.
fn run(attack: Attack, scale: f64) -> Vec<String> {
    // API and attackers elsewhere have processors of their own, so that here they may keep none from the program.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().on_thread_start(testkit::give_way).build();
    let runtime = runtime.expect("a runtime");
    let api = Arc::new(Api::default());
    let address = runtime.block_on(Arc::clone(&api).serve());
    let (serving, addresses) = start(address);
    runtime.block_on(serving.wait_until_ready(GROUPS * MACHINES));
    let world = Arc::new(World::new(attack, scale, api, addresses));
    let mut reader = Reader::connect(addresses.grpc);
    let (mut without, mut under) = (Times::default(), Times::default());
    // The first calls warm up caches and connections.
    reader.read(Duration::from_secs(1), &mut Times::default());
    for turn in 0..TURNS {
        reader.read(TURN, &mut without);
        let ended = CancellationToken::new();
        let attacking = runtime.spawn(Arc::clone(&world).run(turn == 0, ended.clone()));
        reader.read(TURN, &mut under);
        ended.cancel();
        runtime.block_on(attacking).expect("the attack runs");
    }
    let peak = serving.process().memory("VmHWM");
    let ratio = under.percentile(99.0) / without.percentile(99.0);
    println!(
        "{attack:<16} {:>5.0} µs {:>6.0} µs      {:>5.0} µs {:>6.0} µs    {ratio:>5.2}   {:>3} MiB  {} and {} reads; {}",
        without.percentile(50.0),
        without.percentile(99.0),
        under.percentile(50.0),
        under.percentile(99.0),
        peak / 1024,
        without.len(),
        under.len(),
        world.done(),
    );
    let mut missed = Vec::new();
    if ratio > SLOWEST {
        missed.push(format!("{attack}: the p99 of a read is {ratio:.2} times that without, more than {SLOWEST}"));
    }
    if peak > MOST_MEMORY {
        missed.push(format!("{attack}: {} MiB are more than the chart's limit", peak / 1024));
    }
    missed
}
