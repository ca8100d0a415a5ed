//! Tests of the chart that is installed for each Cluster of a fleet: the identity of its Cluster Autoscaler, its
//! consent, and the values of the official chart, which the examples for GitOps repeat.

use std::fs;

use e2e::helm::{FLEET, Values, objects, printed_values};
use serde_json::{Value, json};

use crate::{
    fleet::example,
    helm,
    switches::{names, of_kind, render, rights},
    topologies::snapshot,
};

fn prod() -> Values {
    Values::of_fleet_cluster().unwrap()
}

fn config_map(objects: &[Value], name: &str) -> Value {
    let found = of_kind(objects, "ConfigMap").into_iter().find(|map| map["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no ConfigMap {name}"))["data"].clone()
}

fn parsed(text: &Value) -> Value {
    serde_yaml::from_str(text.as_str().unwrap()).unwrap()
}

/// Returns the values of the official chart in the ConfigMap.
fn autoscaler(objects: &[Value]) -> Value {
    parsed(&config_map(objects, "prod-autoscaler-values")["values.yaml"])
}

#[test]
fn the_cluster_of_the_example_renders_as_it_is_recorded_and_helm_lint_finds_nothing() {
    let helm = helm();
    insta::assert_snapshot!("cluster", snapshot(&helm, &prod().set("certificate.policy", json!({ "create": true }))));
    let said = helm.lint(&prod()).unwrap();
    assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
}

#[test]
fn the_certificate_names_the_cluster_by_one_uri_and_nothing_else() {
    let objects = render(&prod());
    let [certificate] = of_kind(&objects, "Certificate")[..] else { panic!("not one Certificate") };
    let spec = &certificate["spec"];
    assert_eq!(spec["uris"], json!(["spiffe://fleet.example/ns/team-a/cluster/prod"]));
    assert_eq!(spec["usages"], json!(["digital signature", "client auth"]));
    for other in ["commonName", "dnsNames", "emailAddresses", "ipAddresses", "isCA"] {
        assert!(spec[other].is_null(), "{other}: {spec}");
    }
    let issuer = json!({ "group": "cert-manager.io", "kind": "ClusterIssuer", "name": "capi-autoscaler-fleet" });
    assert_eq!(spec["issuerRef"], issuer);

    // A platform's namespace may have the Cluster Autoscalers of others.
    let objects = render(&prod().set("cluster.namespace", json!("team-b")));
    let [certificate] = of_kind(&objects, "Certificate")[..] else { panic!("not one Certificate") };
    assert_eq!(certificate["metadata"]["namespace"], "team-a");
    assert_eq!(certificate["spec"]["uris"], json!(["spiffe://fleet.example/ns/team-b/cluster/prod"]));
    assert_eq!(names(&objects, "Role"), ["team-b/prod-autoscaler-kubeconfig"]);
}

#[test]
fn consent_is_a_role_for_the_one_secret_to_the_account_of_the_fleet() {
    let objects = render(&prod());
    let [role] = of_kind(&objects, "Role")[..] else { panic!("not one Role") };
    let granted =
        json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["prod-kubeconfig"], "verbs": ["get"] });
    assert_eq!(role["rules"], json!([granted]));
    let [binding] = of_kind(&objects, "RoleBinding")[..] else { panic!("not one RoleBinding") };
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let fleet = render(&Values::of_fleet("provider-values.yaml").unwrap());
    let account = &of_kind(&fleet, "ServiceAccount")[0]["metadata"];
    let subject = json!({ "kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"] });
    assert_eq!(binding["subjects"], json!([subject]));

    let objects = render(&prod().set("consent", json!({ "secretName": "prod-nodes" })));
    assert_eq!(of_kind(&objects, "Role")[0]["rules"][0]["resourceNames"], json!(["prod-nodes"]));
    let without = prod().set("consent", json!({ "create": false }));
    assert_eq!(rights(&render(&without)), std::collections::BTreeSet::new());
    let notes = helm().notes(&without).unwrap();
    assert!(notes.contains("Then Refresh fails for the first 30 seconds"), "{notes}");
}

#[test]
fn the_examples_have_the_values_of_the_official_chart_that_the_chart_prints() {
    let objects_of_chart = render(&prod());
    let expected = autoscaler(&objects_of_chart);
    assert_eq!(example("cluster-autoscaler-values.yaml"), std::slice::from_ref(&expected));
    let notes = helm().notes(&prod()).unwrap();
    assert_eq!(printed_values(&notes).unwrap(), expected);
    let secret = &expected["extraVolumes"][1]["projected"]["sources"][0]["secret"]["name"];
    assert_eq!(of_kind(&objects_of_chart, "Certificate")[0]["spec"]["secretName"], *secret);

    // Argo CD fills in the folders of a path such as clusters/team-a/prod.
    let text = fs::read_to_string(format!("{FLEET}/argo-cd.yaml")).unwrap();
    let filled = text.replace("{{ .path.basename }}", "prod").replace("{{ index .path.segments 1 }}", "team-a");
    assert!(!filled.contains("{{"), "{filled}");
    let [applications] = &objects(&filled).unwrap()[..] else { panic!("not one ApplicationSet") };
    let spec = &applications["spec"]["template"]["spec"];
    assert_eq!(spec["destination"]["namespace"], "team-a");
    let [own, official] = &spec["sources"].as_array().unwrap()[..] else { panic!("not two sources") };
    assert_eq!(official["helm"]["valuesObject"], expected);
    assert_eq!(own["helm"]["releaseName"], "prod-autoscaler");
    let values = Values::of_cluster("prod-autoscaler", "team-a", own["helm"]["valuesObject"].clone());
    let mut same = objects_of_chart.clone();
    same.retain(|object| object["metadata"]["name"] != "prod-autoscaler-values");
    assert_eq!(render(&values), same);

    // Flux takes the values from the ConfigMap, and labels the Cluster as the fleet selects it.
    let [cluster, own, official] = &example("flux.yaml")[..] else { panic!("not three objects") };
    assert_eq!(own["metadata"]["name"], "prod-autoscaler");
    let values = Values::of_cluster("prod-autoscaler", "team-a", own["spec"]["values"].clone());
    assert_eq!(render(&values), objects_of_chart);
    let from = json!([{ "kind": "ConfigMap", "name": "prod-autoscaler-values" }]);
    assert_eq!(official["spec"]["valuesFrom"], from);
    let patch = parsed(&cluster["spec"]["patches"][0]["patch"]);
    let fleet = &example("provider-values.yaml")[0];
    let (key, value) = fleet["fleet"]["selector"].as_str().unwrap().split_once('=').unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({ key: value }));
}

#[test]
fn the_values_that_the_fleets_notes_print_are_those_of_the_example() {
    let notes = helm().notes(&Values::of_fleet("provider-values.yaml").unwrap()).unwrap();
    let printed = printed_values(&notes.replace("NAME", "prod")).unwrap();
    assert_eq!(render(&Values::of_cluster("prod-autoscaler", "team-a", printed)), render(&prod()));
}

#[test]
fn values_of_a_cluster_that_cannot_work_are_refused_with_the_remedy() {
    let rows = [
        ("cluster.name", json!(""), "name the Cluster"),
        ("fleet.trustDomain", json!(""), "set it to fleet.trustDomain of the release of capi-autoscaler-provider"),
        ("certificate", json!({}), "name the issuer of the fleet's callers"),
        ("certificate", json!({ "create": false }), "name it"),
        (
            "certificate",
            json!({ "create": false, "secretName": "a", "policy": { "create": true } }),
            "set certificate.create, or leave it out",
        ),
        ("serverAuthority", json!({ "secret": "a", "configMap": "b" }), "configMap and secret are given"),
        ("label", json!({ "enabled": true }), "name the labels that fleet.selector of the fleet matches"),
        // kubectl would take it for a flag, or for another label.
        ("label.labels", json!({ "--all": "" }), "invalid propertyName '--all'"),
        ("label.labels", json!({ "a=b": "c" }), "invalid propertyName 'a=b'"),
        ("label.labels", json!({ "a": "b c" }), "'/label/labels/a'"),
    ];
    let helm = helm();
    for (path, value, remedy) in rows {
        let said = helm.refuse(&prod().set(path, value)).unwrap();
        assert!(said.contains(remedy), "{path}: {remedy:?} isn't said in: {said}");
    }
    let without = prod().set("certificate", json!({ "create": false, "secretName": "ours" }));
    assert_eq!(names(&render(&without), "Certificate"), [""; 0]);
    let notes = helm.notes(&without).unwrap();
    assert!(notes.contains("The Secret ours needs tls.crt and tls.key"), "{notes}");
    let elsewhere = helm.notes(&prod().set("cluster.namespace", json!("team-b"))).unwrap();
    assert!(elsewhere.contains("needs the Secret prod-kubeconfig in namespace team-a"), "{elsewhere}");
}
