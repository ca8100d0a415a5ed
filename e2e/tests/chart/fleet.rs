//! Tests of the chart's release that serves a fleet: its rights and Secrets, the callers that it admits, and the values
//! that contradict it.

use std::{collections::BTreeSet, fs};

use e2e::helm::{FLEET, Values, objects, printed_values};
use serde_json::{Value, json};

use crate::{
    helm,
    switches::{arguments, base, names, of_kind, render, rights},
};

const NAME: &str = "capi-autoscaler-provider";

/// Returns the release of the example, which serves Clusters of all namespaces.
fn everywhere() -> Values {
    Values::of_fleet("provider-values.yaml").unwrap()
}

/// Returns a release for the Clusters of two namespaces.
fn of_two_namespaces() -> Values {
    everywhere().set("rbac.clusterScoped", json!(false)).set("fleet.namespaces", json!(["team-a", "team-b"]))
}

/// Returns a release with Secrets of the operator instead of cert-manager.
fn by_existing_secrets() -> Values {
    everywhere()
        .set("fleet.certificateRequestPolicy", json!({}))
        .set("tls", json!({ "certificates": "existing", "serverSecret": "our-server" }))
}

/// Returns the objects of a file of the example.
pub(crate) fn example(file: &str) -> Vec<Value> {
    objects(&fs::read_to_string(format!("{FLEET}/{file}")).unwrap()).unwrap()
}

fn flags(objects: &[Value], prefix: &str) -> Vec<String> {
    arguments(objects).into_iter().filter(|argument| argument.starts_with(prefix)).collect()
}

#[test]
fn a_fleet_has_the_rights_of_one_cluster_without_its_secret_in_both_forms() {
    let one = rights(&render(&base().set("clusterAPIMode", json!("kubeconfig-incluster"))));
    let (secret, others): (BTreeSet<_>, BTreeSet<_>) = one.into_iter().partition(|right| right.contains("secrets"));
    assert_eq!(secret, ["/secrets get".to_owned()].into());

    let without_policies = of_two_namespaces().set("fleet.certificateRequestPolicy.enabled", json!(false));
    let objects = render(&without_policies);
    let roles = ["team-a", "team-b"].map(|namespace| {
        [format!("{namespace}/{NAME}-capi-autoscaler-system"), format!("{namespace}/{NAME}-remembered")]
    });
    let roles = roles.concat();
    assert_eq!(names(&objects, "Role"), roles);
    let remember = ["team-a", "team-b"].map(|namespace| format!("--remember-in={namespace}/{NAME}-remembered"));
    assert_eq!(flags(&objects, "--remember-in"), remember, "tenants share nothing");
    assert_eq!(names(&objects, "RoleBinding"), roles);
    assert_eq!(names(&objects, "ClusterRole"), [""; 0]);
    assert_eq!(rights(&objects), others);

    let objects = render(&everywhere().set("fleet.certificateRequestPolicy.enabled", json!(false)));
    assert_eq!(names(&objects, "ClusterRole"), [format!("-/{NAME}-capi-autoscaler-system")]);
    assert_eq!(names(&objects, "Role"), [format!("capi-autoscaler-system/{NAME}-remembered")]);
    assert_eq!(rights(&objects), others);
}

#[test]
fn all_secrets_are_granted_only_on_demand_and_loudly() {
    let all = of_two_namespaces().set("fleet.readAllSecrets", json!(true));
    let of_secrets: Vec<Value> = of_kind(&render(&all), "Role")
        .into_iter()
        .flat_map(|role| role["rules"].as_array().unwrap().clone())
        .filter(|rule| rule["resources"] == json!(["secrets"]))
        .collect();
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] });
    assert_eq!(of_secrets, [rule.clone(), rule]);
    let warned = "WARNING: the program may read EVERY Secret";
    let notes = helm().notes(&all).unwrap();
    assert!(notes.contains(&format!("{warned} of team-a, team-b, including private keys")), "{notes}");
    let notes = helm().notes(&everywhere().set("fleet.readAllSecrets", json!(true))).unwrap();
    assert!(notes.contains(&format!("{warned} of the management cluster, including private keys")), "{notes}");
    assert!(!helm().notes(&everywhere()).unwrap().contains("WARNING"));
}

#[test]
fn notes_of_a_fleet_that_only_reads_connect_no_cluster_autoscaler() {
    let notes = helm().notes(&everywhere().set("readOnly", json!(true))).unwrap();
    assert!(notes.contains("-- capi-autoscaler-provider clusters\n"), "{notes}");
    for connecting in ["EOF", "capi-autoscaler-cluster", "issuerRef"] {
        assert!(!notes.contains(connecting), "{connecting}: {notes}");
    }
}

#[test]
fn the_examples_beside_the_values_name_the_issuer_and_the_account_of_the_release() {
    let release = render(&everywhere());
    let authority = example("cert-manager.yaml");
    let named = &of_kind(&release, "Certificate")[0]["spec"]["issuerRef"];
    let of_name = |name: &Value| {
        let mut issuers = of_kind(&authority, "ClusterIssuer").into_iter();
        issuers.find(|issuer| issuer["metadata"]["name"] == *name).unwrap()["spec"].clone()
    };
    let [certificate] = of_kind(&authority, "Certificate")[..] else { panic!("not one Certificate") };
    let spec = &certificate["spec"];
    assert_eq!(of_name(&named["name"]), json!({ "ca": { "secretName": spec["secretName"] } }));
    assert_eq!(of_name(&spec["issuerRef"]["name"]), json!({ "selfSigned": {} }));
    let [policy] = of_kind(&authority, "CertificateRequestPolicy")[..] else { panic!("not one policy") };
    let (allowed, selector) = (&policy["spec"]["allowed"], &policy["spec"]["selector"]);
    assert_eq!(allowed["commonName"]["value"], spec["commonName"]);
    assert_eq!(allowed["usages"], spec["usages"]);
    assert_eq!(selector["issuerRef"], spec["issuerRef"]);
    assert_eq!(selector["namespace"]["matchNames"], json!([certificate["metadata"]["namespace"]]));
    assert_eq!(of_kind(&authority, "Role")[0]["rules"][0]["resourceNames"], json!([policy["metadata"]["name"]]));

    let [schema] = &example("flow-schema.yaml")[..] else { panic!("not one FlowSchema") };
    let account = &of_kind(&release, "ServiceAccount")[0]["metadata"];
    let subject = &schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"];
    assert_eq!(*subject, json!({ "name": account["name"], "namespace": account["namespace"] }));
    let requests = &schema["spec"]["rules"][0]["resourceRules"][0];
    assert_eq!((&requests["namespaces"], &requests["clusterScope"]), (&json!(["*"]), &json!(true)), "lists of all");
}

#[test]
fn the_secret_for_nodes_is_that_of_the_value_here_and_in_the_consent_of_each_cluster() {
    let of = |nodes: &str| everywhere().set("fleet.workloadNodes", json!(nodes));
    let consents = |values: &Values| {
        let notes = helm().notes(values).unwrap();
        let printed = printed_values(&notes.replace("NAME", "prod")).unwrap();
        let objects = render(&Values::of_cluster("prod", "team-a", printed));
        let roles = of_kind(&objects, "Role").into_iter();
        roles.map(|role| role["rules"][0]["resourceNames"].clone()).collect::<Vec<_>>()
    };
    let rows = [
        ("", vec![], vec![json!(["prod-kubeconfig"])]),
        ("{cluster}-nodes", vec!["--workload-nodes={cluster}-nodes"], vec![json!(["prod-nodes"])]),
        ("none", vec!["--workload-nodes=none"], vec![]),
    ];
    for (nodes, expected, secrets) in rows {
        let values = of(nodes);
        assert_eq!(flags(&render(&values), "--workload-nodes"), expected, "{nodes}");
        assert_eq!(consents(&values), secrets, "{nodes}");
        let said = helm().notes(&values).unwrap().contains("It reads no Nodes (fleet.workloadNodes)");
        assert_eq!(said, nodes == "none", "{nodes}");
    }
}

#[test]
fn values_that_contradict_a_fleet_are_refused_with_the_remedy() {
    let rows = [
        ("tls.enabled", json!(false), "set tls.enabled"),
        ("tls.certificates", json!("helm"), "set tls.certificates to cert-manager or existing"),
        ("tls.clientNames", json!(["prod"]), "leave out tls.clientNames"),
        ("tls.clientSecret", json!("prod"), "tls.clientSecret is about one Cluster"),
        ("tls.formerClientAuthority", json!("trust"), "leave out tls.formerClientAuthority"),
        ("tls.certManager.issuerRef", json!({}), "name a ClusterIssuer in tls.certManager.issuerRef"),
        ("autoDiscovery.clusterName", json!("prod"), "install the chart capi-autoscaler-cluster for each Cluster"),
        ("autoDiscovery.namespace", json!("team-a"), "autoDiscovery.namespace is about one Cluster"),
        ("autoDiscovery.labels", json!([{ "a": "b" }]), "autoDiscovery.labels is about one Cluster"),
        ("autoDiscovery.specs", json!(["clusterapi:namespace=a"]), "autoDiscovery.specs is about one Cluster"),
        ("autoDiscovery.allClusters", json!(true), "autoDiscovery.allClusters is about one Cluster"),
        ("clusterAPIKubeconfigSecret", json!("prod"), "clusterAPIKubeconfigSecret is about one Cluster"),
        (
            "clusterAPIWorkloadKubeconfigPath",
            json!("/k/value"),
            "clusterAPIWorkloadKubeconfigPath is about one Cluster",
        ),
        ("clusterAutoscaler.namespace", json!("team-a"), "clusterAutoscaler.namespace is about one Cluster"),
        ("clusterAPIMode", json!("single-kubeconfig"), "install this in the management cluster"),
        ("clusterAPIMode", json!("incluster-kubeconfig"), "set kubeconfig-incluster"),
        ("clusterAPIMode", json!("kubeconfig-kubeconfig"), "set kubeconfig-incluster"),
        ("extraArgs", json!({ "workload-nodes": "none" }), "extraArgs.workload-nodes: set fleet.workloadNodes"),
        ("fleet.workloadNodes", json!("kubeconfig"), "workloadNodes"),
        ("fleet.trustDomain", json!(""), "set fleet.trustDomain"),
        ("fleet.selector", json!(""), "set fleet.selector"),
        ("preflight.enabled", json!(true), "leave out preflight.enabled"),
        ("metrics.perGroup", json!(false), "metrics.perGroup: it is about one Cluster"),
        ("rbac.clusterScoped", json!(false), "set rbac.clusterScoped, or name fleet.namespaces"),
    ];
    let helm = helm();
    let reading = everywhere().set("fleet.workloadNodes", json!("{cluster}-nodes"));
    for (path, value, remedy) in rows {
        let said = helm.refuse(&reading.clone().set(path, value)).unwrap();
        assert!(said.contains(remedy), "{path}: {remedy:?} isn't said in: {said}");
    }
    let all = everywhere().set("fleet.readAllSecrets", json!(true)).set("fleet.workloadNodes", json!("none"));
    let said = helm.refuse(&all).unwrap();
    assert!(said.contains("no Secret is read: leave out one of them"), "{said}");
    let said = helm.refuse(&by_existing_secrets().set("fleet.certificateRequestPolicy.enabled", json!(true))).unwrap();
    assert!(said.contains("set tls.certificates to cert-manager, or leave it out"), "{said}");
}
