//! Tests of each chart's values.yaml as the reference, and of the schema that refuses other values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use e2e::helm::{CHART, CLUSTER_CHART, Values};
use serde_json::{Value, json};

use crate::{helm, switches::base};

/// A chart, and the least values of a release.
struct Chart {
    directory: &'static str,
    /// Sections that the chart defines, whose values need a comment each. Everything else is a single value.
    sections: &'static [&'static str],
    release: fn() -> Values,
}

const CHARTS: [Chart; 2] = [
    Chart {
        directory: CHART,
        sections: &[
            "autoDiscovery",
            "fleet",
            "fleet.certificateRequestPolicy",
            "rbac",
            "rbac.serviceAccount",
            "tls",
            "tls.certManager",
            "clusterAutoscaler",
            "image",
            "service",
            "networkPolicy",
            "remember",
            "deployment",
            "preflight",
            "metrics",
            "metrics.serviceMonitor",
            "metrics.prometheusRule",
            "metrics.dashboard",
        ],
        release: base,
    },
    Chart {
        directory: CLUSTER_CHART,
        sections: &[
            "cluster",
            "fleet",
            "consent",
            "label",
            "label.image",
            "certificate",
            "certificate.policy",
            "serverAuthority",
            "autoscaler",
        ],
        release: of_a_fleet,
    },
];

fn of_a_fleet() -> Values {
    Values::of_fleet_cluster().unwrap()
}

impl Chart {
    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("{}/{file}", self.directory)).unwrap()
    }

    fn schema(&self) -> Value {
        serde_json::from_str(&self.read("values.schema.json")).unwrap()
    }

    fn defaults(&self) -> Value {
        serde_yaml::from_str(&self.read("values.yaml")).unwrap()
    }
}

/// Resolves a reference to a schema.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    }
}

/// Calls `visit` for each object among the defaults, with its path, its value and its schema.
fn each_object(root: &Value, path: &str, value: &Value, of: &Value, visit: &mut impl FnMut(&str, &Value, &Value)) {
    let Some(object) = value.as_object() else { return };
    let of = resolved(root, of);
    visit(path, value, of);
    for (key, value) in object {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let below = of["properties"].get(key).unwrap_or(&of["additionalProperties"]);
        each_object(root, &path, value, below, visit);
    }
}

#[test]
fn every_default_is_in_the_schema_and_every_value_of_a_section_has_a_default() {
    for chart in CHARTS {
        let (schema, defaults) = (chart.schema(), chart.defaults());
        each_object(&schema, "", &defaults, &schema, &mut |path, value, of| {
            let closed = of["additionalProperties"] == false;
            for key in value.as_object().unwrap().keys() {
                assert!(!closed || of["properties"].get(key).is_some(), "{path}.{key} isn't in values.schema.json");
            }
            if path.is_empty() || chart.sections.contains(&path) {
                assert!(closed, "{path} takes any key");
                // Helm passes the values of parent charts to each chart under "global".
                for key in of["properties"].as_object().unwrap().keys().filter(|key| *key != "global") {
                    assert!(value.get(key).is_some(), "{path}.{key} isn't in values.yaml");
                }
            }
        });
    }
}

/// Returns the comments above the keys of a file of values, by their paths. Indented lines, as of a list, stay lines.
fn comments(text: &str) -> BTreeMap<String, String> {
    let (mut comments, mut path, mut above) = (BTreeMap::new(), Vec::new(), String::new());
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(comment) = content.strip_prefix("# ") {
            if !above.is_empty() {
                above.push(if comment.starts_with("  ") { '\n' } else { ' ' });
            }
            above.push_str(comment);
            continue;
        }
        if let Some((key, _)) = content.split_once(':') {
            path.truncate((line.len() - content.len()) / 2);
            path.push(key);
            comments.insert(path.join("."), above.clone());
        }
        above.clear();
    }
    comments
}

/// Editors and catalogues of charts show the schema's descriptions.
#[test]
fn every_value_has_a_comment_and_the_schema_describes_it_in_the_same_words() {
    for chart in CHARTS {
        let (schema, defaults, comments) = (chart.schema(), chart.defaults(), comments(&chart.read("values.yaml")));
        each_object(&schema, "", &defaults, &schema, &mut |path, _, of| {
            if !path.is_empty() && !chart.sections.contains(&path) {
                return;
            }
            for (key, of) in of["properties"].as_object().unwrap().iter().filter(|(key, _)| *key != "global") {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let comment = &comments[&path];
                assert!(!comment.is_empty() || chart.sections.contains(&path.as_str()), "{path} has no comment");
                assert_eq!(of["description"].as_str().unwrap_or_default(), comment, "{path}");
            }
        });
    }
}

#[test]
fn a_typo_is_refused_in_every_section() {
    let helm = helm();
    for chart in CHARTS {
        let (schema, defaults) = (chart.schema(), chart.defaults());
        let mut closed = Vec::new();
        each_object(&schema, "", &defaults, &schema, &mut |path, _, of| {
            if of["additionalProperties"] == false {
                closed.push(path.to_owned());
            }
        });
        assert!(chart.sections.iter().all(|section| closed.iter().any(|path| path == section)));
        for path in closed {
            let typo = if path.is_empty() { "typo".to_owned() } else { format!("{path}.typo") };
            let said = helm.refuse(&(chart.release)().set(&typo, json!(1))).unwrap();
            assert!(said.contains("additional properties 'typo' not allowed"), "{typo}: {said}");
        }
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_path() {
    let rows = [
        ("clusterAPIMode", json!("incluster")),
        ("replicaCount", json!("two")),
        ("fleet.selector", json!("app='a'")),
        ("fleet.trustDomain", json!("spiffe://fleet.example")),
        ("fleet.namespaces", json!(["Team-A"])),
        ("tls.certificates", json!("certmanager")),
        ("tls.ipAddresses", json!(["here"])),
        ("image.digest", json!("latest")),
        ("autoDiscovery.specs", json!(["namespace=a"])),
        ("autoDiscovery.specs", json!(["clusterapi:namespace=a;clusterapi:namespace=b"])),
        ("autoDiscovery.specs", json!(["clusterapi:namespace=a clusterapi:namespace=b"])),
        ("clusterAutoscaler.address", json!("https://provider.example.com:8086")),
        ("rbac.infrastructureGroups", json!(["infrastructure.cluster.x-k8s.io"])),
        ("extraVolumeSecrets", json!({ "a": { "secretName": "b", "mountPath": "/c" } })),
        ("tolerations", json!([{ "keys": "a" }])),
        ("networkPolicy.clients", json!([{ "podselector": {} }])),
        ("containerSecurityContext.capabilities", json!({ "Drop": ["ALL"] })),
    ];
    let of_cluster = [
        ("cluster.name", json!("Prod")),
        ("cluster.namespace", json!("a.b")),
        ("fleet.trustDomain", json!("Fleet.example")),
        ("fleet.address", json!("https://provider.example.com:8086")),
        ("fleet.name", json!("")),
        ("certificate.duration", json!("1y")),
        ("label.image.digest", json!("latest")),
        ("label.containerSecurityContext.capabilities", json!({ "Drop": ["ALL"] })),
        ("certificate.issuerRef", json!({ "name": "a", "namespace": "b" })),
        ("serverAuthority.pem", json!("/etc/ca.crt")),
    ];
    let rows = rows.into_iter().map(|row| (row, base as fn() -> Values));
    let rows = rows.chain(of_cluster.into_iter().map(|row| (row, of_a_fleet as fn() -> Values)));
    let helm = helm();
    for ((path, value), release) in rows {
        let said = helm.refuse(&release().set(path, value)).unwrap();
        let pointer = format!("'/{}", path.replace('.', "/"));
        assert!(said.contains("the schema") && said.contains(&pointer), "{path}: {said}");
    }
}

#[test]
fn flags_that_the_chart_sets_itself_are_refused_among_further_ones_with_the_value_to_set() {
    let [provider, _] = CHARTS;
    let mut flags: BTreeSet<String> = BTreeSet::new();
    for template in ["_container.tpl", "_clusters.tpl"] {
        let text = provider.read(&format!("templates/{template}"));
        let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        flags.extend(text.split("--").skip(1).map(name));
    }
    // In a fleet alone it has a value of its own.
    flags.retain(|flag| !["", "workload-nodes"].contains(&flag.as_str()));
    assert!(flags.len() > 18, "{flags:?}");
    flags.extend(["node-group-auto-discovery_2", "fleet-namespaces_2", "listen-socket-mode"].map(str::to_owned));
    let given = flags.iter().map(|flag| (flag.clone(), json!("x"))).collect();
    let said = helm().refuse(&base().set("extraArgs", Value::Object(given))).unwrap();
    for flag in &flags {
        let remedies = ["set ", "leave it out: "].map(|remedy| format!("\n  extraArgs.{flag}: {remedy}"));
        assert!(remedies.iter().any(|remedy| said.contains(remedy)), "{flag}: {said}");
    }
    for line in
        ["extraArgs.cluster: set autoDiscovery.clusterName", "extraArgs.fleet-group-metrics: set fleet.groupMetrics"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// The schema lets their names pass, so that the refusal can name the remedy.
#[test]
fn values_of_the_official_chart_are_refused_with_the_value_to_set() {
    let [provider, _] = CHARTS;
    let (schema, defaults) = (provider.schema(), provider.defaults());
    let (mut names, mut values) = (Vec::new(), base());
    each_object(&schema, "", &defaults, &schema, &mut |path, _, of| {
        for pattern in of["patternProperties"].as_object().into_iter().flatten().map(|(pattern, _)| pattern) {
            // Without an end, it is the beginning of names.
            let more = if pattern.ends_with('$') { "" } else { "Region" };
            for name in pattern.trim_matches(['^', '(', ')', '$']).split('|') {
                let below = if path.is_empty() { "" } else { "." };
                names.push(format!("{path}{below}{name}{more}"));
            }
        }
    });
    assert!(names.len() > 30, "{names:?}");
    for name in &names {
        values = values.set(name, json!({ "enabled": true }));
    }
    let said = helm().refuse(&values).unwrap();
    for name in &names {
        assert!(said.contains(&format!("\n  {name}: ")), "{name}: {said}");
    }
    for line in [
        "serviceMonitor: set metrics.serviceMonitor",
        "prometheusRule: set metrics.prometheusRule",
        "imagePullSecrets: set image.pullSecrets",
        "serviceAccount: set rbac.serviceAccount",
        "cloudProvider: leave it out here, and set it to externalgrpc for Cluster Autoscaler",
        "awsRegion: leave it out",
        "autoDiscovery.tags: leave it out",
    ] {
        assert!(said.contains(&format!("\n  {line}")), "{line}: {said}");
    }
}
