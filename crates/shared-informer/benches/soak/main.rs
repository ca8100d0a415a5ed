//! A soak of the informer: an API in this process changes thousands of objects a second and fails now and then, and a
//! second process follows it over HTTP. At the end every handler's events must match the API, the follower's memory
//! must not have grown, and a slow handler must have delayed no other. Linux only, run by hand:
//!
//! ```console
//! cargo bench --bench soak                                           # 2 minutes, 5,000 changes a second
//! cargo bench --bench soak -- --seconds 20 --rate 1000 --objects 500
//! ```
//!
//! The two sides must share nothing but the connection.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]
// Counts and shares, far from the limits of their types.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod follower;
mod latency;
mod load;

use std::{
    io::stdin,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use sandbox::{
    api::{Api, Settings},
    clock::Clock,
    http::ApiServer,
};
use testkit::{Piped, Process};
use tokio::runtime::Runtime;

use crate::{
    follower::{Follower, Report},
    load::{Fingerprint, Load, fingerprint, go_wrong},
};

/// The number of printed memory samples.
const SAMPLES: u32 = 24;
/// The length of each turn in which the slow handler is slow, and of each in which it isn't.
const TURN: Duration = Duration::from_secs(3);
/// The maximum time for the follower to catch up at the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The allowed growth of memory from the second quarter to the end, which a busy allocator causes by itself.
const GROWTH: (f64, u64) = (1.05, 2048);

#[derive(Parser)]
struct Arguments {
    /// The duration of the run.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// The number of changes per second.
    #[arg(long, default_value_t = 5_000)]
    rate: u32,
    /// The number of objects that are changed.
    #[arg(long, default_value_t = 5_000)]
    objects: usize,
    /// The seed of the random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The second process: follows the API at this URL.
    #[arg(long, hide = true)]
    follow: Option<String>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = Runtime::new().expect("a runtime");
    match &arguments.follow {
        Some(url) => runtime.block_on(follow(url)),
        None => soak(&arguments, &runtime),
    }
}

fn soak(arguments: &Arguments, runtime: &Runtime) {
    let Arguments { seconds, rate, objects, seed, .. } = *arguments;
    let api = Api::with_settings(Clock::real(), Settings { history: 20_000 });
    let mut load = Load::new(api.clone(), objects, seed);
    let server = Arc::new(runtime.block_on(ApiServer::start(api.clone())).expect("the API is served"));
    let mut follower = start_follower(&server.url());
    println!("{}", follower.line());
    let wrong = runtime.spawn(go_wrong(Arc::clone(&server), seed));
    let duration = Duration::from_secs(seconds);
    let changing = thread::spawn(move || {
        let began = Instant::now();
        load.run(rate, duration);
        load.changes as f64 / began.elapsed().as_secs_f64()
    });
    let resident = watch_memory(follower.process(), duration);
    let changed = changing.join().expect("the load ends well");
    wrong.abort();
    server.faults().clear();
    println!("{changed:.0} changes a second of {objects} objects for {seconds} s");
    let Fingerprint { objects, digest } = fingerprint(&api);
    follower.write_line(&format!("{objects} {digest}"));
    end(follower);
    let quarter = resident.len() / 4;
    let (early, late) = (mean(&resident[quarter..2 * quarter]), mean(&resident[3 * quarter..]));
    println!("resident in the second quarter {early} KiB, in the last {late} KiB on average");
    let most = (early as f64 * GROWTH.0) as u64 + GROWTH.1;
    assert!(late <= most, "memory has grown");
}

fn mean(numbers: &[u64]) -> u64 {
    numbers.iter().sum::<u64>() / numbers.len().max(1) as u64
}

/// Starts the follower in a process of its own.
fn start_follower(url: &str) -> Piped {
    let program = std::env::current_exe().expect("this program has a path");
    Piped::start(Command::new(program).args(["--follow", url]))
}

/// Returns the resident memory of a process in KiB, at regular intervals.
fn watch_memory(process: &Process, duration: Duration) -> Vec<u64> {
    let began = Instant::now();
    let sample = |number: u32| {
        let due = began + duration * (number + 1) / SAMPLES;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let resident = process.memory("VmRSS");
        println!("after {:>5.1} s {resident:>6} KiB resident", began.elapsed().as_secs_f64());
        resident
    };
    (0..SAMPLES).map(sample).collect()
}

/// Prints the rest of the follower's output, and waits for its end.
fn end(mut follower: Piped) {
    loop {
        match follower.line() {
            line if line.is_empty() => break,
            line => println!("{line}"),
        }
    }
    let status = follower.wait();
    assert!(status.success(), "the follower: {status}");
}

async fn follow(url: &str) {
    let follower = Follower::start(url);
    follower.synced().await;
    println!("the follower has synced");
    let mut most_queued = 0;
    let waits = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            most_queued = most_queued.max(follower.queued());
        }
    };
    let end = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        stdin().read_line(&mut line).expect("a line");
        line
    });
    let line = tokio::select! {
        line = end => line.expect("the line is read"),
        () = waits => unreachable!("it never ends"),
        () = follower.burden_by_turns(TURN) => unreachable!("it never ends"),
    };
    let (objects, digest) = line.trim_end().split_once(' ').expect("two numbers");
    let number = |text: &str| text.parse().expect("a number");
    let expected = Fingerprint { objects: number(objects), digest: number(digest) };
    show(&follower.finish(expected, PATIENCE).await, most_queued);
}

fn show(report: &Report, most_queued: usize) {
    let Report { mistakes, events, calm, burdened, status } = report;
    println!("events reported to the fast handlers and the slow one: {events:?}");
    println!("most objects that waited for the slow handler: {most_queued}");
    println!("lists {:?}, failed watches {}", status.lists, status.watch_errors);
    for (when, latencies) in [("no handler is slow", calm), ("one is", burdened)] {
        println!("from decoding to a fast handler while {when}: {latencies}");
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    println!("the store and every handler have what the API holds");
}
