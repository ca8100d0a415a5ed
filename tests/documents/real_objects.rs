//! The real objects of tests/fixtures, created by Cluster API's own controllers, must lead to the same, correct index
//! in both contract versions.

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use index::{Change, Index, NodeQuery};
use k8s_pb::api::core::v1 as pb;
use prost::Message as _;
use rstest::rstest;
use rules::capi::{
    Cluster, Context, InfrastructureTemplate, KindRef, Machine, Meta, Node, ObjectKey, ScalableKind, ScalableResource,
};
use rules::{Bounds, GroupId, InstanceState, Rules, Scope};
use serde_json::Value;

const GROUP: &str = "MachineDeployment/team-a/stage-md-0-mnr6p";

fn change(object: &Value, context: &Context) -> Option<Change> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let meta = Meta {
        key: ObjectKey::new(text("/metadata/namespace"), text("/metadata/name")),
        uid: text("/metadata/uid").into(),
        resource_version: text("/metadata/resourceVersion").into(),
    };
    let kind = text("/kind");
    if let Some(kind) = ScalableKind::parse(kind) {
        return Some(Change::Scalable(Arc::new(ScalableResource::decode(kind, meta, object, context).unwrap())));
    }
    match kind {
        "Cluster" => Some(Change::Cluster(Arc::new(Cluster::decode(meta, object).unwrap()))),
        "Machine" => Some(Change::Machine(Arc::new(Machine::decode(meta, object, context).unwrap()))),
        "Node" => Some(Change::Node(Arc::new(Node::decode(meta, object, context).unwrap()))),
        kind if kind.ends_with("MachineTemplate") => {
            let (group, _) = text("/apiVersion").split_once('/').unwrap();
            let kind = KindRef { group: group.into(), kind: kind.into() };
            Some(Change::Template(kind, Arc::new(InfrastructureTemplate::decode(meta, object).unwrap())))
        }
        _ => None,
    }
}

fn index_of(moment: &str, version: &str) -> Index {
    let context = Context::new("cluster.x-k8s.io");
    let index = Index::new(Rules::new(Scope::All));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(moment);
    for file in [&format!("management-{version}"), "templates", "workload-nodes"] {
        let list: Value =
            serde_yaml::from_str(&fs::read_to_string(folder.join(format!("{file}.yaml"))).unwrap()).unwrap();
        let changes: Vec<_> =
            list["items"].as_array().unwrap().iter().filter_map(|item| change(item, &context)).collect();
        assert!(!changes.is_empty(), "{moment}/{file} holds objects");
        for change in changes {
            index.apply(change);
        }
    }
    index.refresh();
    index
}

/// Returns the instances as `id state`.
fn instances(index: &Index) -> Vec<String> {
    let instances = index.instances(&GroupId::parse(GROUP).unwrap()).unwrap();
    assert!(instances.iter().all(|instance| instance.error.is_none()));
    let short = |id: &str| id.replace("in-memory://stage-md-0-mnr6p-", "").replace("team-a_stage-md-0-mnr6p-", "");
    instances
        .into_iter()
        .map(|instance| {
            let state = match instance.state {
                InstanceState::Creating => "creating",
                InstanceState::Running => "running",
                InstanceState::Deleting => "deleting",
            };
            format!("{} {state}", short(&instance.id))
        })
        .collect()
}

#[rstest]
#[case::steady("steady", &["x9wfq-6zjgq running", "x9wfq-g6f28 running", "x9wfq-wdn6x running"])]
#[case::rollout(
    "rollout",
    &["pending-machine-jscrt-nzbc8 creating", "x9wfq-6zjgq running", "x9wfq-g6f28 running", "x9wfq-wdn6x running"]
)]
#[case::scaling(
    "scaling",
    &["deleting-machine-jscrt-78rwg deleting", "jscrt-nzbc8 running", "pending-machine-jscrt-pnxnc creating", "jscrt-rnxn4 running"]
)]
fn a_moment_reads_alike_in_both_contract_versions(
    #[case] moment: &str,
    #[case] expected: &[&str],
    #[values("v1beta1", "v1beta2")] version: &str,
) {
    let index = index_of(moment, version);
    let groups: Vec<_> = index.groups().iter().map(|group| (group.text.to_string(), group.bounds)).collect();
    assert_eq!(groups, [(GROUP.to_owned(), Bounds { min: 0, max: 10 })]);
    assert_eq!(index.target_size(&GroupId::parse(GROUP).unwrap()), Some(3));
    assert_eq!(instances(&index), expected);
    assert_eq!(index.stats().problems, []);
}

#[rstest]
fn the_template_is_that_of_the_infrastructure_template(#[values("v1beta1", "v1beta2")] version: &str) {
    let index = index_of("steady", version);
    let served = index.served(&GroupId::parse(GROUP).unwrap()).unwrap();
    let node = pb::Node::decode(served.template.clone().unwrap()).unwrap();
    let quantity = |name: &str| node.status.as_ref()?.allocatable.get(name)?.string.clone();
    assert_eq!(quantity("cpu").as_deref(), Some("8"));
    assert_eq!(quantity("memory").as_deref(), Some("32Gi"));
    assert_eq!(quantity("ephemeral-storage").as_deref(), Some("100Gi"));
    assert_eq!(quantity("pods").as_deref(), Some("110"));
    let labels = node.metadata.unwrap().labels;
    assert_eq!(labels["kubernetes.io/arch"], "amd64");
    assert_eq!(labels["kubernetes.io/os"], "linux");
}

#[rstest]
fn workers_lead_to_their_group_and_the_control_plane_to_none(#[values("v1beta1", "v1beta2")] version: &str) {
    let index = index_of("steady", version);
    let annotations = HashMap::new();
    let group = |name: &str| {
        let provider_id = format!("in-memory://{name}");
        let query = NodeQuery { name, provider_id: &provider_id, annotations: &annotations };
        index.group_of_node(query).map(|group| group.text.to_string())
    };
    assert_eq!(group("stage-md-0-mnr6p-x9wfq-6zjgq").as_deref(), Some(GROUP));
    assert_eq!(group("stage-9xnds-gs9wn"), None);
}
