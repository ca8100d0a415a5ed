//! Tests of the tables for people, as a whole, and of what a server answers about a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use rstest::rstest;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;
use ::cluster::fake::{self, WORKERS, World};
use page::state::{
    Check, ClusterState, Group, Head, InformerState, Instance, InstanceCounts, InstanceError, InstanceState,
    InstanceView, LeftOutObject, Problem, ProblemKind, SCHEMA_VERSION, Source, SourcedTaint, SourcedText, Template,
    WrittenSize,
};
use service::listen::{AllowedHosts, admin_router, bind, new_registry, serve_http};

fn texts(values: &[(&str, &str)]) -> BTreeMap<String, SourcedText> {
    let text = |value: &str| SourcedText { value: value.to_owned(), source: "annotation".to_owned(), detail: None };
    values.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect()
}

fn template(capacity: &[(&str, &str)]) -> Template {
    Template { capacity: texts(capacity), arch: "amd64".to_owned(), os: "linux".to_owned(), ..Template::default() }
}

fn group(namespace: &str, name: &str) -> Group {
    Group {
        id: format!("MachineDeployment/{namespace}/{name}"),
        kind: "MachineDeployment".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        cluster: "prod".to_owned(),
        max_size: 10,
        pinned: true,
        ..Group::default()
    }
}

fn left_out(kind: &str, name: &str, reason: &str, message: &str) -> LeftOutObject {
    LeftOutObject {
        id: format!("{kind}/team-a/{name}"),
        kind: kind.to_owned(),
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..LeftOutObject::default()
    }
}

/// Returns running workers, GPUs of which two are coming and one failed, and a group of unknown capacity.
fn fleet() -> State {
    let workers = Group {
        min_size: 1,
        size: 3,
        counts: InstanceCounts { running: 3, ..InstanceCounts::default() },
        template: Some(template(&[("cpu", "3900m"), ("memory", "16Gi"), ("pods", "110")])),
        ..group("team-a", "workers")
    };
    let instance = |id: &str, state, error: Option<&str>| InstanceView {
        node: error.is_some().then(|| "node-2".to_owned()),
        node_gone: error.is_some(),
        instance: Instance {
            id: id.to_owned(),
            state,
            error: error.map(|message| InstanceError {
                code: "ProvisioningFailed".into(),
                message: message.to_owned(),
                out_of_resources: true,
                sent: true,
            }),
        },
        machine: Some(id.trim_start_matches("pending-machine-team-a_").to_owned()),
        created_at: None,
    };
    let gpus = Group {
        size: 2,
        spec_replicas: Some(1),
        written: Some(WrittenSize { replicas: 2, ago: 3 }),
        rolling_out: true,
        counts: InstanceCounts { creating: 2, failed: 1, ..InstanceCounts::default() },
        template: Some(Template {
            gpus: BTreeMap::from([("nvidia.com/gpu".to_owned(), "1".to_owned())]),
            taints: vec![
                SourcedTaint {
                    key: "gpu".to_owned(),
                    value: "yes".to_owned(),
                    effect: "NoSchedule".to_owned(),
                    source: "annotation".to_owned(),
                },
                SourcedTaint {
                    key: "dear".to_owned(),
                    value: String::new(),
                    effect: "NoExecute".to_owned(),
                    source: "annotation".to_owned(),
                },
            ],
            ..template(&[("cpu", "8"), ("memory", "32780828Ki"), ("pods", "58"), ("ephemeral-storage", "100Gi")])
        }),
        problems: vec![Problem::new(ProblemKind::Options, "annotation x is \"y\": no")],
        instances: Some(vec![
            instance("pending-machine-team-a_gpus-1", InstanceState::Creating, None),
            instance("failed-machine-team-a_gpus-2", InstanceState::Creating, Some("quota\u{1b}[2J exceeded")),
        ]),
        ..group("team-a", "gpus")
    };
    let spot = Group {
        size: 12,
        counts: InstanceCounts { running: 10, deleting: 2, ..InstanceCounts::default() },
        ..group("team-b", "spot")
    };
    State {
        head: Head { schema_version: SCHEMA_VERSION, ..Head::default() },
        groups: vec![gpus, workers, spot],
        left_out: vec![
            LeftOutObject {
                problems: vec![Problem::new(ProblemKind::Bounds, "max is \"many\"")],
                pinned: true,
                ..left_out("MachineDeployment", "broken", "invalid_bounds", "its size annotations can't be used")
            },
            left_out("MachineDeployment", "small", "paused", "it is paused"),
            left_out("MachineSet", "workers-abcde", LeftOutObject::OWNED, "its MachineDeployment owns it"),
        ],
        ..State::default()
    }
}

/// Joins lines to a text.
fn text(lines: &[&str]) -> String {
    lines.join("\n") + "\n"
}

#[test]
fn the_table_has_a_line_per_node_group() {
    insta::assert_snapshot!(table(&fleet(), View::default()));
}

#[test]
fn columns_without_a_value_or_with_zeros_alone_are_hidden() {
    let mut state = fleet();
    state.groups.retain(|group| group.name == "workers");
    let lines = [
        "ID                                 MIN   SIZE   MAX   RUNNING   CPU CAPACITY   MEMORY CAPACITY   ARCH",
        "MachineDeployment/team-a/workers     1      3    10         3            3.9              16Gi   amd64",
    ];
    assert_eq!(table(&state, View::default()), text(&lines));
    state.groups[0].size = 0;
    state.groups[0].counts = InstanceCounts::default();
    let lines = [
        "ID                                 MIN   SIZE   MAX   CPU CAPACITY   MEMORY CAPACITY   ARCH",
        "MachineDeployment/team-a/workers     1      0    10            3.9              16Gi   amd64",
    ];
    assert_eq!(table(&state, View::default()), text(&lines), "sizes and bounds are always there");
}

#[test]
fn the_wide_table_has_more_columns() {
    let mut state = fleet();
    state.groups.retain(|group| group.name == "gpus");
    insta::assert_snapshot!(table(&state, View { wide: true, ..View::default() }));
}

#[test]
fn the_narrow_table_says_which_groups_scale_from_zero_by_remembered_nodes() {
    let mut state = fleet();
    assert!(!table(&state, View::default()).contains("FROM ZERO"));
    state.groups[0].from_zero = Some("remembered".to_owned());
    let text = table(&state, View::default());
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("FROM ZERO") && lines[1].contains("remembered"), "{text}");
}

#[test]
fn instances_problems_and_what_is_left_out_follow_below() {
    insta::assert_snapshot!(table(&fleet(), View { all: true, instances: true, ..View::default() }));
}

#[test]
fn a_group_that_cluster_autoscaler_has_not_heard_of_is_noted_once_it_has_asked() {
    let mut state = fleet();
    let notes = |state: &State| table(state, View::default()).matches("new since the last Refresh").count();
    state.groups[1].pinned = false;
    assert_eq!(notes(&state), 1);
    for group in &mut state.groups {
        group.pinned = false;
    }
    assert_eq!(notes(&state), 0, "nobody has asked yet");
}

#[test]
fn no_group_at_all_is_said_with_what_to_do() {
    let empty = State::default();
    assert_eq!(table(&empty, View::default()), "no node groups: --all shows what is excluded and why\n");
    assert_eq!(table(&empty, View { all: true, ..View::default() }), "no node groups\n");
}

fn ids(state: &State) -> Vec<&str> {
    state.groups.iter().map(|it| it.name.as_str()).chain(state.left_out.iter().map(|it| it.name.as_str())).collect()
}

#[rstest]
#[case::everything_that_is_a_group(&[], None, false, &["gpus", "workers", "spot"])]
#[case::a_namespace(&[], Some("team-b"), false, &["spot"])]
#[case::what_is_left_out(&[], Some("team-a"), true, &["gpus", "workers", "broken", "small", "workers-abcde"])]
#[case::a_whole_id(&["MachineDeployment/team-a/gpus"], None, false, &["gpus"])]
#[case::the_end_of_an_id(&["team-a/workers", "spot"], None, false, &["workers", "spot"])]
#[case::one_that_is_left_out(&["broken"], None, false, &["broken"])]
#[case::a_part_of_names(&["O"], None, false, &["workers", "spot"])]
#[case::a_part_of_ids(&["team-a/w"], None, false, &["workers"])]
#[case::an_end_and_a_part(&["gpus", "spo"], None, false, &["gpus", "spot"])]
fn the_filter_keeps(
    #[case] wanted: &[&str],
    #[case] namespace: Option<&str>,
    #[case] all: bool,
    #[case] kept: &[&str],
) {
    let wanted = wanted.iter().map(|&id| id.to_owned()).collect();
    let filter = Filter { ids: wanted, namespace: namespace.map(str::to_owned), all, instances: false };
    assert_eq!(ids(&filter.apply(fleet()).unwrap()), kept);
}

#[rstest]
#[case::no_such_name("workes", None, "similar: MachineDeployment/team-a/workers, MachineSet/team-a/workers-abcde; ")]
#[case::several_similar(
    "worker-a",
    None,
    "similar: MachineSet/team-a/workers-abcde, MachineDeployment/team-a/workers; "
)]
#[case::with_its_namespace("team-b/workers-1", None, "similar: MachineDeployment/team-a/workers, ")]
#[case::nothing_similar("xyz", None, "")]
#[case::in_another_namespace("spot", Some("team-a"), "")]
#[case::a_part_of_a_namespace("team", None, "")]
#[case::empty("", None, "")]
fn an_id_that_fits_nothing_is_an_error_that_suggests(
    #[case] id: &str,
    #[case] namespace: Option<&str>,
    #[case] suggested: &str,
) {
    let filter = Filter { ids: vec![id.to_owned()], namespace: namespace.map(str::to_owned), ..Filter::default() };
    let error = filter.apply(fleet()).unwrap_err().to_string();
    let expected = format!("no node group has {id:?} in its name; ");
    let near = error.strip_prefix(&expected).unwrap().split("groups --all").next().unwrap();
    assert!(near.starts_with(suggested) && near.is_empty() == suggested.is_empty(), "{error}");
}

#[rstest]
#[case::right_to_left('\u{202e}')]
#[case::isolate('\u{2066}')]
#[case::c1('\u{9b}')]
#[case::next_line('\u{85}')]
#[case::delete('\u{7f}')]
#[case::escape('\u{1b}')]
#[case::line_separator('\u{2028}')]
#[case::plain('人')]
fn no_form_lets_out_what_a_terminal_obeys_and_json_and_yaml_are_the_schema(
    #[case] odd: char,
    #[values(Output::Table, Output::Wide, Output::Json, Output::Yaml)] output: Output,
) {
    let mut state = fleet();
    state.groups[0].problems[0].message = format!("a{odd}b");
    let filter = Filter { all: true, ..Filter::default() };
    let text = render(&state, output, &filter).unwrap();
    let obeyed = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{2028}' | '\u{202e}' | '\u{2066}');
    assert!(!text.contains(obeyed), "{text:?}");
    if let Output::Json | Output::Yaml = output {
        assert_eq!(serde_yaml::from_str::<State>(&text).unwrap(), state);
    }
}

#[test]
fn a_later_field_is_ignored_and_an_absent_list_is_empty() {
    let mut value = serde_json::to_value(fleet()).unwrap();
    value["groups"][1]["later"] = true.into();
    assert!(value["groups"][1].get("problems").is_none());
    assert_eq!(serde_json::from_value::<State>(value).unwrap(), fleet());
}

#[test]
fn a_pending_check_is_said_once_with_its_reason() {
    let check = |name: &str, state, reason: Option<&str>| Check {
        name: name.to_owned(),
        state,
        reason: reason.map(str::to_owned),
    };
    let checks = vec![
        check("management/machines", CheckState::Ready, None),
        check("workload/nodes", CheckState::Pending, Some("forbidden:\nno")),
        check("templates/X", CheckState::Informational, Some("missing")),
    ];
    let state = State { head: Head { checks, ..Head::default() }, ..State::default() };
    let said = |output| warnings(&state, output, &Filter::default());
    assert_eq!(said(Output::Json), ["not in sync: workload/nodes: forbidden:\\nno"]);
    assert_eq!(said(Output::Table), [""; 0], "it is below the table");
}

#[rstest]
#[case("http://127.0.0.1:8081", Some("http://127.0.0.1:8081"))]
#[case("http://localhost:9000/", Some("http://localhost:9000"))]
#[case("127.0.0.1:8081", Some("http://127.0.0.1:8081"))]
#[case("[::1]:8081", Some("http://[::1]:8081"))]
#[case("https://127.0.0.1:8081", None)]
#[case("http://127.0.0.1:8081/debug/state", None)]
#[case("http://me@127.0.0.1:8081", None)]
#[case("http://", None)]
#[case("a b", None)]
fn a_server_is_named_by_its_url(#[case] text: &str, #[case] url: Option<&str>) {
    assert_eq!(text.parse::<ServerUrl>().ok().map(|url| url.to_string()).as_deref(), url);
}

/// The fields of the schema whose keys are names from clusters.
const MAPS: [&str; 4] = ["capacity", "gpus", "labels", "options"];

fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) => {
            for (name, value) in fields_of {
                found.insert(name.clone());
                match value {
                    Value::Object(named) if MAPS.contains(&name.as_str()) => {
                        named.values().for_each(|value| fields(value, found));
                    }
                    value => fields(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Asserts that docs/reference/debug-state.md names each field of a document, and returns the fields.
pub(in crate::cli) fn assert_documented(document: &impl serde::Serialize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    fields(&serde_json::to_value(document).unwrap(), &mut found);
    let page = include_str!("../../../docs/reference/debug-state.md");
    let undocumented: Vec<_> = found.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert_eq!(undocumented, Vec::<&String>::new());
    found
}

#[test]
fn every_field_of_the_schema_is_documented() {
    let informer = InformerState {
        reason: Some(String::new()),
        broken_for: Some(0),
        last_error: Some(String::new()),
        last_event_ago: Some(0),
        last_list_ago: Some(0),
        ..InformerState::default()
    };
    let mut state = fleet();
    state.clusters = vec![ClusterState { name: String::new(), informers: vec![informer] }];
    state.head.checks = vec![Check { name: String::new(), state: CheckState::Pending, reason: Some(String::new()) }];
    state.groups[0].options.insert("scaledownunneededtime".to_owned(), "20m0s".to_owned());
    assert_documented(&state);
}

#[rstest]
#[case::nothing_there("nowhere", false, &["no node group in namespace \"nowhere\": correct --namespace, or leave it out to see all \
    there are; --all adds what is excluded"])]
#[case::nothing_even_then("nowhere", true, &["no node group in namespace \"nowhere\": correct --namespace, or leave it out to \
    see all there are"])]
#[case::something_there("team-b", false, &[])]
fn a_namespace_without_node_groups_is_said(#[case] namespace: &str, #[case] all: bool, #[case] said: &[&str]) {
    let state = State { groups: vec![group("team-b", "spot")], ..State::default() };
    let filter = Filter { namespace: Some(namespace.to_owned()), all, ..Filter::default() };
    assert_eq!(warnings(&filter.apply(state).unwrap(), Output::Table, &filter), said);
}

#[tokio::test]
async fn the_table_of_groups_is_that_of_the_cluster() {
    let world = World::synced(&fake::fleet()).await;
    world.until_groups(&[WORKERS]).await;
    let source = Arc::new(Source::alone(world.fleet.clone(), Timestamp::UNIX_EPOCH));
    let listener = bind("127.0.0.1:0".parse().unwrap(), "--admin-listen").unwrap();
    let address = listener.local_addr().unwrap();
    let ends = CancellationToken::new();
    let router = admin_router(source, new_registry(), AllowedHosts::on(address.ip()));
    let serving = tokio::spawn(serve_http(listener, router, ends.clone()));

    let client = Client::new(format!("http://{address}").parse().unwrap(), Duration::from_secs(20));
    let state = client.state(None, true).await.unwrap();
    let view = View { all: true, ..View::default() };
    let lines = [
        "ID                                 MIN   SIZE   MAX   RUNNING   CREATING   CPU CAPACITY   MEMORY CAPACITY   \
         GPU                ARCH    NOTES",
        "MachineDeployment/team-a/workers     1      2    10         1          1              4              16Gi   \
         2 nvidia.com/gpu   amd64   1 problem",
        "",
        "NODE GROUP                         PROBLEMS",
        "MachineDeployment/team-a/workers   annotation cluster.x-k8s.io/autoscaling-options-scaledownunreadytime is \
         \"soon\": a time must be a Go duration such as 10m or 1h30m: \"soon\" doesn't begin with a number; it is ignored",
    ];
    let text = table(&state, view);
    let shown: Vec<_> = text.lines().collect();
    assert_eq!(shown[..4], lines[..4]);
    assert!(shown[4].starts_with(&lines[4][..120]), "{}", shown[4]);
    assert!(text.contains("MachineDeployment/team-a/broken   its object can't be read\n"), "{text}");
    assert!(text.ends_with("(and 1 MachineSet that its MachineDeployment scales)\n"), "{text}");

    let without = client.state(None, false).await.unwrap();
    assert!(without.groups.iter().all(|group| group.instances.is_none()));
    assert_eq!(without.groups[0].counts, state.groups[0].counts);
    let filter = Filter { ids: vec!["broken".to_owned()], ..Filter::default() };
    assert_eq!(filter.apply(without).unwrap().left_out[0].reason, "undecodable");

    ends.cancel();
    serving.await.unwrap().unwrap();
    world.shutdown().await;
}
