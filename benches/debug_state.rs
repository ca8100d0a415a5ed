//! The whole picture of 1,000 groups with 100,000 Machines, as `/debug/state` makes it: how long the copy takes that takes
//! the index's lock for each group, how long the JSON takes that takes none, and how long reads and changes take meanwhile.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used)]

mod fleet;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use capi_autoscaler_provider::{
    cluster::{Management, ManagementOptions, Workload, WorkloadOptions},
    connect::{Clients, Proxies, WorkloadSource},
    index::Index,
    informer::Settings,
    nodegroup::GroupId,
    state::{Selection, StateSource},
};
use jiff::Timestamp;
use tokio::runtime::Builder;

const GROUPS: usize = 1_000;
const MACHINES_PER_GROUP: usize = 100;
const ROUNDS: usize = 5;

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The shortest of some rounds: what else the machine does only makes them longer.
fn best(mut run: impl FnMut()) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        run();
        began.elapsed()
    });
    rounds.min().unwrap_or_default()
}

/// The longest of many reads while `run` goes on.
fn longest_read(index: &Index, run: impl FnOnce()) -> Duration {
    let id = GroupId::parse("MachineDeployment/fleet/pool-77").expect("an id");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                assert!(index.target_size(&id).is_some());
                longest = longest.max(began.elapsed());
            }
            longest
        });
        run();
        ended.store(true, Ordering::Relaxed);
        reading.join().expect("the reader ends")
    })
}

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let workload = {
        // Nothing is ever answered there: the index is filled by hand.
        let _context = runtime.enter();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let clients = Clients::new(nowhere, Proxies::default()).expect("clients");
        let group = "cluster.x-k8s.io".to_owned();
        let options = ManagementOptions { group, version: None, informers: Settings::default() };
        let management = Management::start(clients, options, runtime.handle());
        let options = WorkloadOptions {
            rules: fleet::rules(),
            source: WorkloadSource::Management,
            max_staleness: Duration::from_secs(120),
            informers: Settings::default(),
        };
        Workload::start(management, options, runtime.handle())
    };
    let index = workload.index();
    fleet::fill(index, GROUPS, MACHINES_PER_GROUP);
    let source = StateSource::new(workload.clone(), Timestamp::now());
    let json = |instances| source.json(&Selection { instances, group: None }).expect("JSON");

    println!("{GROUPS} groups, {} Machines; the best of {ROUNDS} rounds", GROUPS * MACHINES_PER_GROUP);
    println!("copy, group by group       {:8.1} ms", millis(best(|| drop(index.snapshot(None)))));
    println!("JSON without instances     {:8.1} ms, {} bytes", millis(best(|| drop(json(false)))), json(false).len());
    println!("JSON with instances        {:8.1} ms, {} bytes", millis(best(|| drop(json(true)))), json(true).len());
    let calm = longest_read(index, || thread::sleep(Duration::from_secs(1)));
    let meanwhile = longest_read(index, || (0..ROUNDS).for_each(|_| drop(json(true))));
    println!("longest read before        {:8.1} ms", millis(calm));
    println!("longest read meanwhile     {:8.1} ms", millis(meanwhile));
}
