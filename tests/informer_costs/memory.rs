//! The memory of Machines and Nodes, from their first lists to the index: what stays, and what it takes meanwhile.

use std::{collections::HashSet, convert::Infallible, future::ready, sync::Arc};

use allocation_counter::{AllocationInfo, measure};
use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use index::{Feed, Index};
use k8s_openapi::api::core::v1 as core;
use kube::{Client, core::ApiResource};
use rules::capi::{Context, DEFAULT_GROUP, Machine, Node};
use serde_json::{Value, json};
use shared_informer::{Factory, Query, Settings};

use super::{
    fleet,
    watches::{machines, unhurried},
};

/// The bytes of one read from the API server.
const READ: usize = 16 << 10;

fn metadata(number: usize, name: &str) -> Value {
    json!({
        "name": name, "uid": format!("{number:08x}-95ee-43d9-b9a3-c86079a72f87"),
        "resourceVersion": (1_000_000 + number).to_string(), "creationTimestamp": "2026-01-02T03:04:05Z",
    })
}

/// Returns the names of a Machine and its Node, and their providerID, as long as they are on AWS.
fn names(number: usize) -> [String; 3] {
    [
        format!("prod-md-{:04}-x9wfq-{number:07x}", number / 100),
        format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", number >> 16, number >> 8 & 255, number & 255),
        format!("aws:///eu-central-1a/i-0{number:08x}9b4bf4b17"),
    ]
}

fn machine(number: usize) -> Value {
    let [name, node, provider_id] = names(number);
    let mut metadata = metadata(number, &name);
    metadata["namespace"] = json!("team-a");
    metadata["ownerReferences"] = json!([{
        "apiVersion": format!("{DEFAULT_GROUP}/v1beta2"), "kind": "MachineSet",
        "name": format!("prod-md-{:04}-x9wfq", number / 100), "uid": "uid", "controller": true,
    }]);
    json!({
        "metadata": metadata, "spec": {"clusterName": "prod", "providerID": provider_id},
        "status": {"phase": "Running", "nodeRef": {"name": node}},
    })
}

fn node(number: usize) -> Value {
    let [machine, name, provider_id] = names(number);
    let mut metadata = metadata(number, &name);
    metadata["annotations"] = json!({
        format!("{DEFAULT_GROUP}/machine"): machine, format!("{DEFAULT_GROUP}/cluster-namespace"): "team-a",
    });
    metadata["labels"] = json!({"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "team": "db"});
    let resources = json!({"cpu": "8", "memory": "32Gi"});
    json!({
        "metadata": metadata, "spec": {"providerID": provider_id},
        "status": {
            "capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Returns the text of a streamed list.
fn list(count: usize, object: fn(usize) -> Value) -> Bytes {
    let lines = (0..count).map(|number| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", object(number)));
    let metadata = json!({"resourceVersion": "9000000", "annotations": {"k8s.io/initial-events-end": "true"}});
    let end = format!("{}\n", json!({"type": "BOOKMARK", "object": {"metadata": metadata}}));
    lines.chain([end]).collect::<String>().into()
}

/// Returns the allocations of the first lists of this number of Machines and their Nodes, until the index has them.
/// The server answers faster than handlers take it in: its answers are there at once.
fn first_lists(count: usize) -> AllocationInfo {
    let lists = [list(count, machine), list(count, node)];
    let server = tower::service_fn(move |request: Request<kube::client::Body>| {
        let text = lists[usize::from(request.uri().path().ends_with("/nodes"))].clone();
        let starts = (0..text.len()).step_by(READ);
        let read = move |start| Ok::<_, Infallible>(text.slice(start..text.len().min(start + READ)));
        let reads = stream::iter(starts.map(read));
        ready(Ok::<_, Infallible>(Response::new(Body::from_stream(reads.chain(stream::pending())))))
    });
    let runtime = unhurried();
    let _entered = runtime.enter();
    let context = Context::new(DEFAULT_GROUP);
    let settings = Settings { streaming_lists: true, ..Settings::default() };
    let factory = Factory::new(Client::new(server, "default"), runtime.handle(), settings);
    let factory = factory.with_texts(Arc::clone(&context.interner));
    let index = Arc::new(Index::new(fleet::rules()));
    let mut followed = None;
    let measured = measure(|| {
        let machines = factory.informer(Query::all(machines()), Machine::projection(&context));
        let nodes = ApiResource::erase::<core::Node>(&());
        let nodes = factory.informer(Query::all(nodes), Node::projection(&context));
        let (machines, nodes) = followed.insert((
            machines.add_handler(Feed::new(Arc::clone(&index), (), HashSet::new())),
            nodes.add_handler(Feed::new(Arc::clone(&index), (), HashSet::new())),
        ));
        runtime.block_on(async {
            machines.synced().await;
            nodes.synced().await;
        });
    });
    let sizes = index.sizes();
    assert_eq!((sizes.machines, sizes.nodes), (count as u64, count as u64));
    measured
}

#[test]
fn a_machine_and_its_node_take_few_bytes_and_their_lists_little_more() {
    // Tables are as full as with 100,000 of each.
    const COUNTS: [usize; 2] = [1_562, 6_250];
    let [few, many] = COUNTS.map(first_lists);
    let each = (many.bytes_current - few.bytes_current) / i64::try_from(COUNTS[1] - COUNTS[0]).unwrap();
    let meanwhile = i64::try_from(many.bytes_max).unwrap() - many.bytes_current;
    println!("{each} bytes for a Machine with its Node, {meanwhile} besides while they are listed");
    assert!(each <= 680, "a Machine with its Node takes {each} bytes");
    // A thousand objects of each kind may be queued.
    assert!(meanwhile <= 640 << 10, "their lists take {meanwhile} bytes besides");
}
