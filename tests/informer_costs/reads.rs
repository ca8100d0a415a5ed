//! The costs of a scrape, a page, the list of groups and a probe, which depend on the answer and not on the Machines.

use std::sync::Arc;

use allocation_counter::measure;
use axum::body::Body;
use http::{Request, StatusCode};
use index::GroupSeries;
use jiff::Timestamp;
use page::state::{Selection, Source};
use prometheus_client::encoding::text::encode;
use rules::GroupId;
use service::listen::{AdminPages as _, StatusAnswer, probe_router};
use tokio::runtime::Builder;
use tower::ServiceExt as _;

use super::pages;

const GROUPS: usize = 100;

/// Returns the allocations of each read and their bytes, the second time that it is made.
fn costs(machines_per_group: usize) -> Vec<(&'static str, [u64; 2])> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (fleet, _) = pages::filled(runtime.handle(), GROUPS, machines_per_group);
    let registry = pages::registry(&fleet, GroupSeries::Each);
    let probes = probe_router(Arc::new(fleet.clone()));
    let status = Source::alone(fleet, Timestamp::now());
    let source = status.only().unwrap();
    // It is encoded here, since allocations of other threads aren't counted.
    let scrape = || {
        let mut metrics = String::new();
        encode(&mut metrics, &registry.read()).unwrap();
        let of_one = format!("group=\"MachineDeployment/fleet/pool-77\",state=\"running\"}} {machines_per_group}\n");
        assert!(metrics.contains(&of_one), "the Machines of a group are counted: {metrics}");
    };
    let page = || {
        let StatusAnswer::Found(page) = status.page("/", "") else { panic!("no page") };
        assert!(page.contains("pool-77"));
    };
    let groups = || assert!(!source.json(&Selection { instances: false, group: None }).unwrap().is_empty());
    let probe = || {
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let answer = runtime.block_on(probes.clone().oneshot(request)).unwrap();
        // No list has come from a server.
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    };
    let one = || {
        let group = GroupId::parse("MachineDeployment/fleet/pool-77");
        assert!(!source.json(&Selection { instances: false, group }).unwrap().is_empty());
    };
    let reads: [(&str, &dyn Fn()); 5] =
        [("scrape", &scrape), ("page", &page), ("groups", &groups), ("group", &one), ("probe", &probe)];
    let count = |(name, read): (&'static str, &dyn Fn())| {
        read();
        let measured = measure(read);
        (name, [measured.count_total, measured.bytes_total])
    };
    reads.into_iter().map(count).collect()
}

#[test]
fn reads_allocate_the_same_however_many_machines_there_are() {
    for ((name, few), (_, many)) in costs(2).into_iter().zip(costs(40)) {
        println!("{name}: {few:?}, {many:?}");
        // A number with more digits may take a longer text.
        let is_alike = few.into_iter().zip(many).all(|(few, many)| many <= few + few / 50 + 8);
        assert!(is_alike, "{name}: with 200 Machines {few:?} allocations and bytes, with 4,000 {many:?}");
    }
}
