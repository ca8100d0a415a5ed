//! The whole state of 1,000 groups with 100,000 Machines, as `/debug/state` and the status page build it: the duration
//! of the copy, which takes the index's lock for each group, of the JSON, which takes none, and of concurrent reads and
//! changes. And the same state as metrics, scraped over HTTP on loopback. Fails when the first page or a scrape misses
//! its target.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]

mod fleet;
#[path = "fleet/pages.rs"]
mod pages;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cluster::Fleet;
use index::{Detail, GroupSeries, Index};
use jiff::Timestamp;
use page::state::{Selection, Source};
use rules::GroupId;
use scale::ScaleMetrics;
use service::RpcMetrics;
use service::listen::{AdminPages as _, StatusAnswer, bind, http_router, serve_http};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

const GROUPS: usize = 1_000;
const MACHINES_PER_GROUP: usize = 100;
const ROUNDS: usize = 5;
/// The time that a page may take.
const PAGE: Duration = Duration::from_millis(50);
/// The time and the bytes that a scrape may take.
const SCRAPE: Duration = Duration::from_millis(50);
const SCRAPE_BYTES: usize = 2_000_000;

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns the shortest of some rounds, since other load on the machine only makes them longer.
fn best(mut run: impl FnMut()) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        run();
        began.elapsed()
    });
    rounds.min().unwrap_or_default()
}

/// Returns the duration of the longest read while `run` runs.
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

/// Serves the metrics of an index as the program does.
fn serve_metrics(fleet: &Fleet, series: GroupSeries, runtime: &Handle) -> SocketAddr {
    let registry = pages::registry(fleet, series);
    RpcMetrics::register(&mut registry.write());
    ScaleMetrics::register(&mut registry.write());
    let listener = bind("127.0.0.1:0".parse().expect("an address"), "--http-listen").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let router = http_router(Arc::new(fleet.clone()), registry);
    runtime.spawn(serve_http(listener, router, CancellationToken::new()));
    address
}

/// Scrapes on a connection of its own, and returns the length of the answer.
fn scrape(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
    answer.len()
}

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (served, workload) = pages::filled(runtime.handle(), GROUPS, MACHINES_PER_GROUP);
    let index = workload.index();
    let status = Source::alone(served.clone(), Timestamp::now());
    let source = status.only().expect("a workload cluster");
    let page = |path: &str, query: &str| match status.page(path, query) {
        StatusAnswer::Found(html) => html,
        StatusAnswer::Missing(html) | StatusAnswer::Wrong(html) => panic!("{html}"),
    };
    let json = |instances| source.json(&Selection { instances, group: None }).expect("JSON");

    println!("{GROUPS} groups, {} Machines; the best of {ROUNDS} rounds", GROUPS * MACHINES_PER_GROUP);
    println!("copy, group by group       {:8.1} ms", millis(best(|| drop(index.snapshot(None, Detail::Counts)))));
    println!("JSON without instances     {:8.1} ms, {} bytes", millis(best(|| drop(json(false)))), json(false).len());
    println!("JSON with instances        {:8.1} ms, {} bytes", millis(best(|| drop(json(true)))), json(true).len());
    let front = page("/", "");
    let front_took = best(|| drop(page("/", "")));
    println!("first page, 100 rows       {:8.1} ms, {} bytes", millis(front_took), front.len());
    assert!(front_took <= PAGE, "the first page may take {PAGE:?}");
    let searched = millis(best(|| drop(page("/", "q=pool-77&sort=size"))));
    println!("first page, searched       {searched:8.1} ms");
    let group = "/groups/MachineDeployment/fleet/pool-77";
    println!(
        "page of a group            {:8.1} ms, {} bytes",
        millis(best(|| drop(page(group, "")))),
        page(group, "").len()
    );
    let calm = longest_read(index, || thread::sleep(Duration::from_secs(1)));
    let meanwhile = longest_read(index, || (0..ROUNDS).for_each(|_| drop(json(true))));
    println!("longest read before        {:8.1} ms", millis(calm));
    println!("longest read meanwhile     {:8.1} ms", millis(meanwhile));
    for (what, series) in [("of each group", GroupSeries::Each), ("sums only    ", GroupSeries::SumsOnly)] {
        let address = serve_metrics(&served, series, runtime.handle());
        let took = best(|| assert!(scrape(address) > 0));
        println!("scrape, {what}      {:8.1} ms, {} bytes", millis(took), scrape(address));
        assert!(took <= SCRAPE, "a scrape may take {SCRAPE:?}");
        assert!(scrape(address) <= SCRAPE_BYTES, "a scrape may have {SCRAPE_BYTES} bytes");
    }
    let address = serve_metrics(&served, GroupSeries::Each, runtime.handle());
    let meanwhile = longest_read(index, || (0..ROUNDS).for_each(|_| assert!(scrape(address) > 0)));
    println!("longest read meanwhile     {:8.1} ms", millis(meanwhile));
}
