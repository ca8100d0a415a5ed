//! The documents and examples against the code: what they name is what there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "documents/failures.rs"]
mod failures;
#[path = "documents/operation.rs"]
mod operation;
#[path = "documents/supply.rs"]
mod supply;

use arcstr::ArcStr;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use capi_autoscaler_provider::{
    capi::{
        CAPACITY_ERROR_GRACE, CAPACITY_PREFIX, Context, DEFER_UPGRADE, DELETING, DESIRED_REPLICAS,
        HOLD_UPGRADE_SEQUENCE, InfrastructureTemplate, Keys, Meta, OWN_CAPACITY_PREFIX, ObjectKey, PAUSED, REPLACED,
        REVISION, SCALE_DOWN_WHILE_ROLLING_OUT, ScalableKind, ScalableResource,
    },
    cli::{Cli, Command, ServeConfig, Server},
    nodegroup::price::{Price, Rates, Tariff},
    nodegroup::{
        Bounds, Definition, ErrorRules, InfrastructureState, Problem, RealNodes, Rules, Scope, ScopeSpec,
        TemplateRules, Verdict, capacity, evaluate, options,
    },
    notify::{SinkKind, UrlSource, parse_rules},
    prices::PriceFile,
    proto::{self, cloud_provider_client::CloudProviderClient},
    server::Shutdown,
};
use clap::Parser as _;
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The documents of a folder in Markdown.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

fn documents() -> Vec<PathBuf> {
    ["", "docs", "e2e"].into_iter().flat_map(markdown).collect()
}

/// The YAML documents of an example.
fn yaml(path: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(&read(path)).map(|document| Value::deserialize(document).unwrap()).collect()
}

/// The code in the first cells of a document's tables.
fn first_cells(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

// Metrics

/// A server without an API server, which has what there is to know without: its metrics, and prices of its file.
async fn offline_server(more: &[&str]) -> (Server, Shutdown) {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("config");
    fs::write(
        &kubeconfig,
        "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n\
         clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n",
    )
    .unwrap();
    let flags = [
        "x",
        "serve",
        "--all-clusters",
        "--listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
    ];
    let kubeconfig = format!("--management-kubeconfig={}", kubeconfig.display());
    let flags = flags.into_iter().chain([kubeconfig.as_str()]).chain(more.iter().copied());
    let Command::Serve(args) = Cli::parse_from(flags).command else { panic!("it isn't serve") };
    let shutdown = Shutdown::new();
    (Server::start(ServeConfig::try_from(*args).unwrap(), shutdown.clone()).await.unwrap(), shutdown)
}

/// What a server exports, with TLS and without, by the names that a scraper sees.
async fn exported() -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["provider".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (certificate_file, key_file) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    fs::write(&certificate_file, certificate.pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let tls =
        [format!("--tls-cert-file={}", certificate_file.display()), format!("--tls-key-file={}", key_file.display())];
    let more = tls.iter().map(String::as_str).chain(["--otlp-endpoint=http://127.0.0.1:1"]);
    let tls: Vec<_> = more.collect();
    exported_with(&[]).await.into_iter().chain(exported_with(&tls).await).collect()
}

async fn exported_with(tls: &[&str]) -> BTreeSet<String> {
    let (server, shutdown) = offline_server(tls).await;

    // Answers are counted from the first one of each RPC.
    if tls.is_empty() {
        let mut client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await.unwrap();
        client.refresh(proto::RefreshRequest {}).await.unwrap_err();
    }

    let text = scrape(&server).await;
    shutdown.request();
    server.finish().await.unwrap();

    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    families.map(|(name, _)| name.to_owned()).collect()
}

async fn scrape(server: &Server) -> String {
    let mut stream = TcpStream::connect(server.http_address()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_documented_metric_is_exported() {
    let document = read("docs/metrics.md");
    let exported = exported().await;
    let metrics = first_cells(&document).into_iter().filter(|name| name.starts_with("capi_autoscaler_provider_"));
    assert_eq!(metrics.collect::<BTreeSet<_>>(), exported);

    let all = documents().into_iter().map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
    let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let mentioned = all.split(word).filter(|name| name.starts_with("capi_autoscaler_provider_"));
    for name in mentioned {
        assert!(exported.contains(name), "{name} is mentioned and not exported");
    }
}

// Annotations

/// What follows the prefix in the annotations that a rule knows, from what it says of one that it doesn't.
fn known(problems: &[Problem]) -> Vec<String> {
    let [problem] = problems else { panic!("one problem was expected: {problems:?}") };
    let (_, list) = problem.message.split_once("known are ").unwrap();
    let (list, _) = list.split_once(';').unwrap();
    list.split(", ").map(str::to_owned).collect()
}

fn annotations_that_are_read() -> BTreeSet<String> {
    // Each key by name: one that is added stops the build here until it is documented.
    let Keys {
        group: _,
        min_size,
        max_size,
        options_prefix,
        delete_machine,
        machine,
        cluster_namespace,
        cluster_name: _, // a label
        owner_kind,
        owner_name,
    } = Keys::default();
    let one = |key: String| BTreeMap::from([(ArcStr::from(key), ArcStr::from("x"))]);
    let (_, of_options) = options::overrides(&Keys::default(), &one(format!("{options_prefix}unknown")));
    let (_, of_capacity) = capacity::of_annotations(&one(format!("{CAPACITY_PREFIX}unknown")));
    let (_, of_own) = capacity::of_own_annotations(&one(format!("{OWN_CAPACITY_PREFIX}unknown")));
    let own = known(&of_own).into_iter().map(|name| format!("{OWN_CAPACITY_PREFIX}{name}"));
    let options = known(&of_options).into_iter().map(|name| format!("{options_prefix}{name}"));
    let capacity = known(&of_capacity).into_iter().map(|name| format!("{CAPACITY_PREFIX}{name}"));
    let fixed =
        [min_size, max_size, delete_machine, machine, cluster_namespace, owner_kind, owner_name].into_iter().chain(
            [
                PAUSED,
                REVISION,
                DESIRED_REPLICAS,
                DELETING,
                REPLACED,
                CAPACITY_ERROR_GRACE,
                SCALE_DOWN_WHILE_ROLLING_OUT,
                DEFER_UPGRADE,
                HOLD_UPGRADE_SEQUENCE,
            ]
            .map(str::to_owned),
        );
    fixed.chain(options).chain(capacity).chain(own).collect()
}

#[test]
fn every_annotation_is_documented_and_every_documented_annotation_is_read() {
    assert_eq!(first_cells(&read("docs/annotations.md")), annotations_that_are_read());
}

// Documents

/// The targets of the links in a document, without those in code blocks.
fn links(document: &str) -> Vec<String> {
    let mut in_code = false;
    let text: String = document
        .lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        })
        .collect::<Vec<_>>()
        .join(" ");
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    inline.map(str::to_owned).collect()
}

/// The anchors of a document, as GitHub makes them.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
        })
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let topologies = fs::read_dir(root().join("examples/topologies")).unwrap().map(|entry| entry.unwrap().path());
    let topologies = topologies.map(|path| if path.is_dir() { path.join("README.md") } else { path });
    for path in documents().into_iter().chain(topologies) {
        let document = fs::read_to_string(&path).unwrap();
        for link in links(&document).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", path.display());
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.contains(anchor), "{}: {link}: no such heading", path.display());
            }
        }
    }
}

#[test]
fn every_document_and_example_is_linked_from_the_readme() {
    let links: BTreeSet<_> = links(&read("README.md")).into_iter().collect();
    let documents = documents().into_iter().map(|path| path.strip_prefix(root()).unwrap().display().to_string());
    let examples = EXAMPLES.iter().map(|path| (*path).to_owned());
    for path in documents.chain(examples).filter(|path| path != "README.md") {
        assert!(links.contains(&path), "README.md doesn't link {path}");
    }
}

#[test]
fn the_readme_names_the_test_commands_that_ci_runs() {
    let readme = read("README.md");
    for command in ["cargo test", "cargo test -p e2e"] {
        let named = readme.lines().any(|line| {
            line.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.trim_start().starts_with('#'))
        });
        assert!(named, "README.md has no line with the command {command}");
    }
    // Where the checks are not part of the sources, there is nothing to compare.
    let Ok(ci) = fs::read_to_string(root().join(".ci/run")) else { return };
    let plain = ci.replace(" --locked", "");
    for command in ["cargo test", "cargo test -p e2e"] {
        let run = plain.lines().any(|line| line.trim_start_matches("step ").trim() == command);
        assert!(run, ".ci/run doesn't run {command}");
    }
}

#[test]
fn the_readme_names_flags_that_there_are() {
    let flags = read("docs/flags.md");
    let readme = read("README.md");
    // Of cargo, of Cluster Autoscaler, of helm and of examples.
    let others = ["--release", "--example", "--test", "--address", "--nodes"];
    let autoscaler = [
        "--cloud-provider",
        "--cloud-config",
        "--expander",
        "--startup-taint",
        "--scale-down-enabled",
        "--leader-elect-resource-name",
        "--status-config-map-name",
    ];
    let helm = ["--set"];
    let sandbox = ["--once", "--manifests", "--groups", "--machines", "--api-only"];
    let others = [&others[..], &autoscaler[..], &helm[..], &sandbox[..]].concat();
    let words = readme.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let named = words.filter(|word| word.strip_prefix("--").is_some_and(|rest| rest.starts_with(char::is_alphabetic)));
    for flag in named.filter(|flag| !others.contains(flag)) {
        let known = [format!("| `{flag}"), format!(", {flag}")].iter().any(|known| flags.contains(known));
        assert!(known, "{flag} is no flag of serve or groups");
    }
}

// Examples

const EXAMPLES: [&str; 14] = [
    "examples/cluster-autoscaler/cloud-config.yaml",
    "examples/cluster-autoscaler/values.yaml",
    // In tests/explain.rs, with what is printed of them.
    "examples/explain/dump.yaml",
    "examples/explain/job.yaml",
    "examples/node-groups/by-annotations.yaml",
    "examples/node-groups/cluster.yaml",
    "examples/node-groups/from-zero-by-annotations.yaml",
    "examples/node-groups/from-zero-by-status-capacity.yaml",
    "examples/node-groups/machine-set.yaml",
    "examples/node-groups/paused.yaml",
    "examples/node-groups/wrong.yaml",
    "examples/prices.yaml",
    "examples/rbac.yaml",
    "examples/watch/rules.yaml",
];

#[test]
fn every_example_is_tested_here() {
    fn walk(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("examples/topologies") {
                // In e2e/tests/chart, which renders the chart with them.
            } else if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_none_or(|extension| extension != "rs") {
                // Programs are built with the tests.
                found.insert(path.strip_prefix(root()).unwrap().display().to_string());
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&root().join("examples"), &mut found);
    assert_eq!(found, EXAMPLES.map(str::to_owned).into());
}

fn meta(object: &Value) -> Meta {
    let text = |key: &str| object["metadata"][key].as_str().unwrap();
    Meta { key: ObjectKey::new(text("namespace"), text("name")), uid: "uid".into(), resource_version: "1".into() }
}

/// What becomes of the example's group under the scope that the README uses, with what its file says of the
/// infrastructure template.
fn verdict(path: &str) -> Verdict {
    let documents = yaml(path);
    let context = Context::new("cluster.x-k8s.io");
    let kind = ScalableKind::parse(documents[0]["kind"].as_str().unwrap()).unwrap();
    let object = ScalableResource::decode(kind, meta(&documents[0]), &documents[0], &context).unwrap();
    let template = documents.get(1).map(|template| {
        let reference = object.infrastructure.as_ref().unwrap();
        assert_eq!(template["kind"], *reference.kind);
        assert_eq!(template["metadata"]["name"], *reference.name);
        assert!(template["apiVersion"].as_str().unwrap().starts_with(&format!("{}/", reference.group)));
        InfrastructureTemplate::decode(meta(template), template).unwrap()
    });
    let rules = Rules {
        keys: Keys::default(),
        scope: Scope::Specs(vec![ScopeSpec::cluster("team-a", "prod")]),
        template: TemplateRules::default(),
        prices: Arc::default(),
        errors: ErrorRules::default(),
    };
    let known = template.as_ref().map_or(InfrastructureState::Unknown, InfrastructureState::Known);
    evaluate(&object, None, known, RealNodes::default(), &rules)
}

fn group(path: &str) -> Definition {
    match verdict(path) {
        Verdict::Group(definition) => *definition,
        Verdict::LeftOut(reason, problems) => panic!("{path}: {reason} {problems:?}"),
    }
}

#[rstest]
#[case::paused("examples/node-groups/paused.yaml", "paused", 0)]
#[case::wrong("examples/node-groups/wrong.yaml", "size", 1)]
fn the_example_is_no_group_and_says_why(#[case] path: &str, #[case] expected: &str, #[case] count: usize) {
    match verdict(path) {
        Verdict::Group(definition) => panic!("{path}: {definition:?}"),
        Verdict::LeftOut(reason, problems) => {
            assert!(reason.to_string().contains(expected), "{reason}");
            assert_eq!(problems.len(), count, "{problems:?}");
        }
    }
}

#[test]
fn the_examples_belong_to_the_cluster_of_the_example() {
    let cluster = &yaml("examples/node-groups/cluster.yaml")[1];
    let groups =
        EXAMPLES.iter().filter(|path| path.starts_with("examples/node-groups/") && !path.ends_with("/cluster.yaml"));
    for path in groups {
        let group = &yaml(path)[0];
        assert_eq!(group["spec"]["clusterName"], cluster["metadata"]["name"], "{path}");
        assert_eq!(group["metadata"]["namespace"], cluster["metadata"]["namespace"], "{path}");
    }
}

#[rstest]
#[case::annotations(
    "examples/node-groups/from-zero-by-annotations.yaml",
    Bounds { min: 0, max: 10 },
    &[("cpu", "16"), ("ephemeral-storage", "100Gi"), ("memory", "64Gi"), ("nvidia.com/gpu", "2"), ("pods", "110")],
    &["cluster-api/accelerator", "kubernetes.io/arch", "kubernetes.io/os", "node-role.kubernetes.io/gpu"],
    &["dedicated=gpu:NoSchedule"],
    true
)]
#[case::with_nodes(
    "examples/node-groups/by-annotations.yaml",
    Bounds { min: 1, max: 6 },
    &[("cpu", "8"), ("memory", "32Gi"), ("pods", "110")],
    &["kubernetes.io/arch", "kubernetes.io/os"],
    &[],
    false
)]
#[case::machine_set(
    "examples/node-groups/machine-set.yaml",
    Bounds { min: 1, max: 4 },
    &[("cpu", "2"), ("memory", "8Gi"), ("pods", "110")],
    &["kubernetes.io/arch", "kubernetes.io/os"],
    &[],
    false
)]
#[case::status_capacity(
    "examples/node-groups/from-zero-by-status-capacity.yaml",
    Bounds { min: 0, max: 5 },
    &[("cpu", "4"), ("memory", "16Gi"), ("pods", "110")],
    &["kubernetes.io/arch", "kubernetes.io/os", "node.cluster.x-k8s.io/pool"],
    &[],
    false
)]
fn the_example_is_a_group_that_scales_from_zero(
    #[case] path: &str,
    #[case] bounds: Bounds,
    #[case] capacity: &[(&str, &str)],
    #[case] labels: &[&str],
    #[case] taints: &[&str],
    #[case] overrides: bool,
) {
    let group = group(path);
    assert_eq!(group.bounds, bounds);
    assert_eq!(group.problems, []);
    assert_eq!(!group.options.is_empty(), overrides);
    let template = group.template.unwrap();
    let expected = capacity.iter().map(|(resource, text)| ((*resource).to_owned(), text.parse().unwrap()));
    let found = template.capacity.iter().map(|(resource, quantity)| (resource.clone(), quantity.value));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected.collect());
    assert_eq!(template.labels.keys().collect::<Vec<_>>(), labels);
    assert_eq!(template.taints.iter().map(|taint| taint.value.to_string()).collect::<Vec<_>>(), taints);
}

#[test]
fn the_price_file_and_the_one_in_its_document_are_read() {
    let (_, prices) = PriceFile::open(&root().join("examples/prices.yaml")).unwrap();
    let price = |number: f64| Price::try_from(number).unwrap();
    assert_eq!(prices.instance_types.get("g5.xlarge"), Some(&price(1.006)));
    assert_eq!(prices.resources.map(|rates| rates.memory), Some(price(0.00375)));
    let [spot, arm] = prices.selectors.as_slice() else { panic!("{prices:?}") };
    assert_eq!(spot.tariff, Tariff::Whole(price(0.074)));
    assert_eq!(arm.tariff, Tariff::Resources(Rates { cpu: price(0.0272), memory: price(0.003), gpu: None }));

    let document = read("docs/prices.md");
    let (_, rest) = document.split_once("```yaml\n").unwrap();
    let (form, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prices.yaml");
    fs::write(&file, form).unwrap();
    let (_, documented) = PriceFile::open(&file).unwrap();
    assert_eq!(documented.selectors, prices.selectors);
    assert!(documented.instance_types.iter().all(|known| prices.instance_types.get(known.0) == Some(known.1)));
}

/// What a Node with these labels costs in two hours.
async fn price_of(server: &Server, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let node = proto::ExternalGrpcNode { labels, ..proto::ExternalGrpcNode::default() };
    let request = proto::PricingNodePriceRequest {
        node: Some(node),
        start_timestamp: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
        end_timestamp: Some(prost_types::Timestamp { seconds: 7200, nanos: 0 }),
        ..proto::PricingNodePriceRequest::default()
    };
    let mut client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await.unwrap();
    client.pricing_node_price(request).await.unwrap().into_inner().price
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_prices_nodes_by_the_file_of_the_example() {
    let flag = format!("--prices={}", root().join("examples/prices.yaml").display());
    let (server, shutdown) = offline_server(&[&flag]).await;
    let large = ("node.kubernetes.io/instance-type", "m5.large");
    let xlarge = ("node.kubernetes.io/instance-type", "m5.xlarge");
    let spot = ("node.cluster.x-k8s.io/lifecycle", "spot");
    for (labels, expected) in [(&[large][..], 0.192), (&[xlarge], 0.384), (&[xlarge, spot], 0.148)] {
        let price = price_of(&server, labels).await;
        assert!((price - expected).abs() < 1e-9, "{labels:?}: {price}");
    }
    shutdown.request();
    server.finish().await.unwrap();
}

#[test]
fn the_cloud_config_names_the_default_address_as_the_readme_does() {
    let [config] = &yaml("examples/cluster-autoscaler/cloud-config.yaml")[..] else { panic!("one document") };
    let address = config["address"].as_str().unwrap();
    assert!(read("docs/flags.md").contains(&format!("`--listen IP:PORT` | `CAPI_AUTOSCALER_LISTEN` | `{address}`")));
    assert!(read("README.md").contains(&format!("\naddress: {address}\n")));
}

#[test]
fn the_chart_values_render_and_start_the_program() {
    let [values] = &yaml("examples/cluster-autoscaler/values.yaml")[..] else { panic!("one document") };
    assert_eq!(values["cloudProvider"], "externalgrpc");
    assert!(values["autoDiscovery"]["clusterName"].is_string(), "the chart renders nothing without");
    assert_eq!(values["extraArgs"]["cloud-config"], "/etc/cluster-autoscaler/cloud-config.yaml");
    let container = &values["initContainers"][0];
    assert_eq!(container["startupProbe"]["httpGet"]["path"], "/readyz", "Cluster Autoscaler waits for it");
    let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let Command::Serve(args) = Cli::parse_from(["x"].into_iter().chain(args)).command else { panic!("it isn't serve") };
    let config = ServeConfig::try_from(*args).unwrap();
    assert_eq!(container["ports"][0]["containerPort"], config.http_listen.port());
    assert_eq!(config.rules.scope, Scope::Specs(vec![ScopeSpec::cluster("team-a", "prod")]));
}

#[test]
fn the_rules_of_watch_are_rules() {
    let rules = parse_rules(&read("examples/watch/rules.yaml")).unwrap();
    assert_eq!(rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["machines-going", "sizes"]);
    let slack = UrlSource::File("/etc/capi-autoscaler-provider/hooks/slack".into());
    assert_eq!((rules[0].to.kind, &rules[0].to.url), (SinkKind::Slack, &slack));
    assert_eq!((rules[1].to.kind, rules[1].interval), (SinkKind::Webhook, Some(std::time::Duration::from_secs(30))));
}

#[test]
fn every_field_of_a_rule_is_documented() {
    let documented = first_cells(&read("docs/watch.md"));
    let error = parse_rules("rules: [{unknown: 1}]").unwrap_err().to_string();
    let (_, known) = error.split_once("expected one of ").unwrap();
    let fields: Vec<_> = known.split('`').skip(1).step_by(2).filter(|field| *field != "to").collect();
    assert!(fields.len() > 5, "{error}");
    for field in fields {
        assert!(documented.contains(field), "{field} is not documented");
    }
}

#[test]
fn the_documented_line_of_watch_has_the_documented_fields() {
    let document = read("docs/watch.md");
    let line = document.lines().find(|line| line.starts_with("{\"schemaVersion\":1,\"time\"")).unwrap();
    let line: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
    let (_, table) = document.split_once("## JSON lines").unwrap();
    for field in line.keys() {
        assert!(table.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

/// Resource to verbs, of all rules of a role.
fn rights(role: &Value) -> BTreeSet<(String, String)> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        let texts = |key: &str| rule[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
        for resource in texts("resources") {
            rights.extend(texts("verbs").map(|verb| (resource.clone(), verb)));
        }
    }
    rights
}

#[test]
fn the_rights_are_those_of_the_readme() {
    let objects = yaml("examples/rbac.yaml");
    let granted: BTreeSet<_> = objects.iter().filter(|object| object["rules"].is_array()).flat_map(rights).collect();

    // Rows: cluster, API group, resources, verbs, purpose.
    let readme = read("README.md");
    let (_, section) = readme.split_once("## RBAC").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| management |") || line.starts_with("| workload |"));
    let mut documented = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let named: Vec<_> = cells[3].split('`').skip(1).step_by(2).filter(|name| !name.starts_with('<')).collect();
        // The kinds of infrastructure templates differ.
        let resources = if named.is_empty() { vec!["*"] } else { named };
        for resource in resources {
            documented.extend(cells[4].split(", ").map(|verb| (resource.to_owned(), verb.to_owned())));
        }
    }
    assert_eq!(granted, documented);
}
