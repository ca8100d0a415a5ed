//! Tests that count the evaluations in a first sync: their number grows with the number of groups, and every group is
//! evaluated.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use rstest::rstest;
use serde_json::json;

use super::objects::*;
use crate::{Change, Index, evaluate::AT_ONCE};

const MACHINES_PER_GROUP: usize = 3;

/// Returns the lists of a fleet whose groups share one template, ordered by name: Cluster API's objects, then Nodes
/// in two zones.
fn lists(groups: usize) -> [Vec<Change>; 2] {
    let mut management = vec![cluster("stage", false), template("shared", &json!({"cpu": "8", "memory": "32Gi"}))];
    let mut nodes = Vec::new();
    let shared = using_template("shared");
    let size = i32::try_from(MACHINES_PER_GROUP).unwrap();
    for group in 0..groups {
        management.push(deployment(&format!("pool-{group:04}"), size, ("0", "10"), &shared));
        management.push(set_of_with(&format!("pool-{group:04}"), &format!("pool-{group:04}-x"), &shared));
        for number in 0..MACHINES_PER_GROUP {
            let name = format!("pool-{group:04}-x-{number}");
            management.push(joined(&format!("MachineSet/pool-{group:04}-x"), &name));
            let zone = ["zone-a", "zone-b"][number % 2];
            nodes.push(node(
                &name,
                &json!({
                    "metadata": {"labels": {"topology.kubernetes.io/zone": zone}},
                    "status": {
                        "capacity": {"cpu": "8", "memory": "32Gi"},
                        "allocatable": {"cpu": "7910m", "memory": "30Gi"},
                        "conditions": [{"type": "Ready", "status": "True",
                            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T01:00:00Z"}],
                    },
                }),
            ));
        }
    }
    [management, nodes]
}

#[derive(Clone, Copy, Debug)]
enum Order {
    NodesLast,
    NodesFirst,
    Shuffled { seed: u64 },
}

/// Returns the number of evaluations in a first sync.
fn evaluations(groups: usize, order: Order) -> usize {
    let [management, nodes] = lists(groups);
    let mut changes = match order {
        Order::NodesLast | Order::Shuffled { .. } => [management, nodes].concat(),
        Order::NodesFirst => [nodes, management].concat(),
    };
    if let Order::Shuffled { seed } = order {
        fastrand::Rng::with_seed(seed).shuffle(&mut changes);
    }
    let index = index(changes);
    assert_eq!(index.groups().len(), groups);
    index.inner.read().live.evaluations
}

/// Each lender that sorts before all earlier ones causes another evaluation of the borrowing groups. In a random order
/// of n lenders this happens about log n times.
#[rstest]
#[case::nodes_last(&[Order::NodesLast], 10, 8)]
#[case::nodes_first(&[Order::NodesFirst], 10, 8)]
#[case::in_8_other_orders(&[1, 2, 3, 4, 5, 6, 7, 8].map(|seed| Order::Shuffled { seed }), 16, 11)]
fn evaluations_of_a_first_sync_hardly_grow_faster_than_the_number_of_groups(
    #[case] orders: &[Order],
    #[case] for_each: usize,
    #[case] quarters: usize,
) {
    let sum = |groups| orders.iter().map(|order| evaluations(groups, *order)).sum::<usize>();
    let (once, twice) = (sum(50), sum(100));
    println!("{orders:?}: {once} evaluations of 50 groups, {twice} of 100");
    assert!(twice <= once * quarters / 4 + 10, "{once} evaluations of 50 groups, {twice} of 100");
    assert!(twice <= orders.len() * 100 * for_each, "{twice} evaluations of 100 groups");
}

/// Returns groups at zero that share a template.
fn sharing_a_template(groups: usize) -> Index {
    let shared = using_template("shared");
    let deployments = (0..groups).map(|number| deployment(&format!("pool-{number:04}"), 0, ("0", "10"), &shared));
    index([template("shared", &json!({"cpu": "8", "memory": "32Gi"}))].into_iter().chain(deployments))
}

/// Returns true if a reader got the lock between the evaluations of 5,000 groups for one change.
fn is_read_in_between() -> bool {
    let index = sharing_a_template(5_000);
    let evaluations = || index.inner.read().live.evaluations;
    let before = evaluations();
    let (reads, between, ended) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let is_between = (before + 1..before + 5_000).contains(&evaluations());
                between.fetch_add(usize::from(is_between), Ordering::Relaxed);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        while reads.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        index.apply_and_take_notices(template("shared", &json!({"cpu": "16", "memory": "32Gi"})));
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(evaluations() - before, 5_000);
    between.into_inner() > 0
}

#[test]
fn few_groups_are_evaluated_in_a_row() {
    let index = sharing_a_template(50);
    let live = &mut index.inner.write().live;
    let mut before = live.evaluations;
    live.apply(template("shared", &json!({"cpu": "16", "memory": "32Gi"})));
    let mut rows = vec![live.evaluations - before];
    loop {
        before = live.evaluations;
        if !live.evaluate_some_due() {
            break;
        }
        rows.push(live.evaluations - before);
    }
    assert_eq!(rows.iter().sum::<usize>(), 50);
    assert!(rows.iter().all(|row| *row <= AT_ONCE), "{rows:?}");
}

#[test]
fn reads_have_their_turn_while_a_change_evaluates_many_groups() {
    // The reader thread may not be scheduled on a busy machine.
    assert!((0..10).any(|_| is_read_in_between()), "all reads have waited for the last group");
}
