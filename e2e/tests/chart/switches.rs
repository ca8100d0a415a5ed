//! Tests of single values: their effects, and the refused ones.

use std::{collections::BTreeSet, fs};

use e2e::helm::{CHART, RELEASE, Values};
use serde_json::{Value, json};

use crate::helm;

/// Returns a release for one Cluster in its namespace, with the Pod's token.
pub(crate) fn base() -> Values {
    Values::new("team-a", json!({ "autoDiscovery": { "clusterName": "prod" } }))
}

/// Returns the same from the management cluster, with the workload cluster's kubeconfig in Cluster API's Secret.
pub(crate) fn by_secret() -> Values {
    base().set("clusterAPIMode", json!("kubeconfig-incluster"))
}

pub(crate) fn render(values: &Values) -> Vec<Value> {
    helm().render(values).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Returns `namespace/name` of the objects of a kind.
pub(crate) fn names(objects: &[Value], kind: &str) -> Vec<String> {
    let mut names: Vec<String> = of_kind(objects, kind)
        .iter()
        .map(|object| {
            let [namespace, name] = ["namespace", "name"].map(|key| object["metadata"][key].as_str().unwrap_or("-"));
            format!("{namespace}/{name}")
        })
        .collect();
    names.sort();
    names
}

pub(crate) fn pod(objects: &[Value]) -> Value {
    let [deployment] = of_kind(objects, "Deployment")[..] else { panic!("not one Deployment") };
    deployment["spec"]["template"]["spec"].clone()
}

pub(crate) fn arguments(objects: &[Value]) -> Vec<String> {
    serde_json::from_value(pod(objects)["containers"][0]["args"].clone()).unwrap()
}

/// Returns the rules of Roles and ClusterRoles, as `group/resource verb`.
pub(crate) fn rights(objects: &[Value]) -> BTreeSet<String> {
    let roles = of_kind(objects, "Role").into_iter().chain(of_kind(objects, "ClusterRole"));
    let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
    let mut rights = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights.extend(texts(&rule["verbs"]).iter().map(|verb| format!("{group}/{resource} {verb}")));
            }
        }
    }
    rights
}

#[test]
fn without_cluster_scope_each_namespace_of_the_specs_gets_a_role_and_only_nodes_a_cluster_role() {
    let specs = ["clusterapi:namespace=team-a,clusterName=prod", "clusterapi:color=green,namespace=team-b"];
    let objects = render(&Values::new("autoscaling", json!({ "autoDiscovery": { "specs": specs } })));
    let name = "capi-autoscaler-provider-autoscaling";
    let remembered = "autoscaling/capi-autoscaler-provider-remembered".to_owned();
    assert_eq!(names(&objects, "Role"), [remembered, format!("team-a/{name}"), format!("team-b/{name}")]);
    assert_eq!(names(&objects, "RoleBinding"), names(&objects, "Role"));
    assert_eq!(names(&objects, "ClusterRole"), [format!("-/{name}-nodes")]);
    let flags = specs.map(|spec| format!("--node-group-auto-discovery={spec}"));
    assert!(arguments(&objects).ends_with(&flags));
}

#[test]
fn with_cluster_scope_the_same_rights_come_by_a_cluster_role_and_no_role() {
    let namespaced = render(&base());
    let objects = render(&base().set("rbac.clusterScoped", json!(true)));
    assert_eq!(names(&objects, "Role"), ["team-a/capi-autoscaler-provider-remembered"]);
    let name = "-/capi-autoscaler-provider-team-a";
    assert_eq!(names(&objects, "ClusterRole"), [name.to_owned(), format!("{name}-nodes")]);
    assert_eq!(names(&objects, "ClusterRoleBinding"), names(&objects, "ClusterRole"));
    assert_eq!(rights(&objects), rights(&namespaced));
    // Without a namespace all namespaces are watched.
    assert_eq!(arguments(&objects).last().unwrap(), "--node-group-auto-discovery=clusterapi:clusterName=prod");
}

#[test]
fn of_secrets_only_the_one_named_after_the_cluster_may_be_read_and_only_where_the_program_reads_it() {
    let objects = render(&by_secret());
    let granting = of_kind(&objects, "Role");
    let rules = granting.iter().flat_map(|role| role["rules"].as_array().unwrap());
    let of_secrets: Vec<&Value> =
        rules.filter(|rule| rule["resources"].as_array().unwrap().contains(&json!("secrets"))).collect();
    let expected =
        json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["prod-kubeconfig"], "verbs": ["get"] });
    assert_eq!(of_secrets, [&expected]);
    assert!(arguments(&objects).contains(&"--cluster=team-a/prod".to_owned()));
    assert!(!arguments(&objects).iter().any(|argument| argument.starts_with("--workload-kubeconfig")));

    let mounted = render(&by_secret().set("clusterAPIKubeconfigSecret", json!("mine")));
    assert!(!rights(&mounted).iter().any(|right| right.contains("secrets")));
    assert!(arguments(&mounted).contains(&"--workload-kubeconfig=/etc/kubernetes/workload/value".to_owned()));
    let volumes = pod(&mounted)["volumes"].clone();
    assert_eq!(volumes[2]["secret"]["secretName"], "mine");
}

#[test]
fn nodes_are_granted_where_they_are_and_nowhere_else() {
    let nodes = |mode: &str| {
        let values = base()
            .set("clusterAPIMode", json!(mode))
            .set("clusterAPIKubeconfigSecret", json!("workload"))
            .set("clusterAPIManagementKubeconfigSecret", json!("management"));
        rights(&render(&values)).into_iter().filter(|right| right.starts_with("/nodes")).collect::<Vec<_>>()
    };
    for mode in ["incluster-incluster", "incluster-kubeconfig"] {
        assert_eq!(nodes(mode), ["/nodes list", "/nodes watch"], "{mode}");
    }
    for mode in ["kubeconfig-incluster", "kubeconfig-kubeconfig", "single-kubeconfig"] {
        assert_eq!(nodes(mode), [""; 0], "{mode}");
    }
}

#[test]
fn where_both_clusters_are_reached_by_kubeconfigs_nothing_is_granted_and_no_token_mounted() {
    let values = Values::of_topology("two-kubeconfigs", "autoscaling").unwrap();
    let objects = render(&values);
    assert_eq!(rights(&objects), BTreeSet::new());
    assert_eq!(pod(&objects)["automountServiceAccountToken"], false);
    let single = render(&values.set("clusterAPIMode", json!("single-kubeconfig")));
    let path = "/etc/kubernetes/workload/value";
    for cluster in ["management", "workload"] {
        assert!(arguments(&single).contains(&format!("--{cluster}-kubeconfig={path}")));
    }
}

#[test]
fn rights_are_those_of_the_documented_role() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rbac.yaml")).unwrap();
    let documented = rights(&e2e::helm::objects(&text).unwrap());
    let values = by_secret()
        .set("rbac.markMachines", json!(true))
        .set("rbac.infrastructureGroups", json!([{ "group": "infrastructure.cluster.x-k8s.io", "resources": ["*"] }]))
        .set("rbac.bootstrapGroups", json!([{ "group": "bootstrap.cluster.x-k8s.io", "resources": ["*"] }]));
    let mut granted = rights(&render(&values));
    // The workload cluster is a different one here.
    granted.extend(["/nodes list", "/nodes watch"].map(str::to_owned));
    assert_eq!(granted, documented);
}

#[test]
fn nodes_are_remembered_in_a_config_map_without_data_unless_that_is_turned_off() {
    let objects = render(&base());
    let name = "capi-autoscaler-provider-remembered";
    let made: Vec<_> = of_kind(&objects, "ConfigMap").into_iter().filter(|it| it["metadata"]["name"] == name).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0]["data"], Value::Null);
    assert!(arguments(&objects).contains(&format!("--remember-in=team-a/{name}")));
    let off = render(&base().set("remember.enabled", json!(false)));
    assert!(!rights(&off).iter().any(|right| right.contains("configmaps") || right.contains("bootstrap")));
    assert!(!arguments(&off).iter().any(|argument| argument.contains("remember")));
    let read_only = rights(&render(&base().set("readOnly", json!(true))));
    assert!(read_only.contains("/configmaps watch") && !read_only.contains("/configmaps patch"));
}

#[test]
fn machines_are_patched_for_machine_pools_and_in_other_groups_alone() {
    let patched = |values: &Values| rights(&render(values)).into_iter().filter(|it| it.ends_with("/machines patch"));
    assert_eq!(patched(&base()).count(), 0);
    assert_eq!(patched(&base().set("rbac.markMachines", json!(true))).count(), 1);
    let of_another = base().set("extraArgs.capi-group", json!("machine.openshift.io"));
    assert_eq!(patched(&of_another).collect::<Vec<_>>(), ["machine.openshift.io/machines patch"]);
}

#[test]
fn flags_that_make_a_right_useless_or_another_one_change_the_role() {
    let objects = render(&base().set("extraArgs.no-events", Value::Null));
    assert!(arguments(&objects).contains(&"--no-events".to_owned()));
    assert!(!rights(&objects).iter().any(|right| right.contains("events")));

    let objects = render(&base().set("extraArgs.capi-group", json!("cluster.example.com")));
    assert!(rights(&objects).contains("cluster.example.com/machines list"));
    assert!(!rights(&objects).iter().any(|right| right.starts_with("cluster.x-k8s.io")));
}

#[test]
fn read_only_grants_what_reads_and_nothing_that_writes() {
    let objects = render(&by_secret().set("readOnly", json!(true)));
    assert!(arguments(&objects).contains(&"--read-only".to_owned()));
    let all = rights(&render(&by_secret()));
    let reading = all.iter().filter(|right| right.ends_with(" list") || right.ends_with(" watch"));
    let mut expected: BTreeSet<String> = reading.cloned().collect();
    expected.insert("/secrets get".to_owned());
    assert_eq!(rights(&objects), expected);
}

#[test]
fn notes_of_a_release_that_only_reads_say_how_to_compare_and_connect_no_cluster_autoscaler() {
    let notes = helm().notes(&by_secret().set("readOnly", json!(true))).unwrap();
    for command in [
        "kubectl --namespace team-a exec deployment/capi-autoscaler-provider -- capi-autoscaler-provider groups",
        "kubectl --namespace team-a get secret prod-kubeconfig ",
        "kubectl --kubeconfig workload.kubeconfig --namespace kube-system get configmap cluster-autoscaler-status ",
    ] {
        assert!(notes.contains(&format!("\n{command}")), "{command}: {notes}");
    }
    for connecting in ["EOF", "externalgrpc", "cloud-config"] {
        assert!(!notes.contains(connecting), "{connecting}: {notes}");
    }
}

#[test]
fn the_secret_for_nodes_of_one_cluster_is_the_one_that_the_role_grants() {
    for (nodes, granted) in
        [(None, Some("prod-kubeconfig")), (Some("{cluster}-nodes"), Some("prod-nodes")), (Some("none"), None)]
    {
        let mut values = by_secret();
        if let Some(nodes) = nodes {
            values = values.set("extraArgs.workload-nodes", json!(nodes));
        }
        let objects = render(&values);
        let namespaced = of_kind(&objects, "Role");
        let rules = namespaced.iter().flat_map(|role| role["rules"].as_array().unwrap());
        let secrets = rules.filter(|rule| rule["resources"] == json!(["secrets"]));
        let names: Vec<_> = secrets.map(|rule| &rule["resourceNames"]).collect();
        assert_eq!(json!(names), granted.map_or(json!([]), |name| json!([[name]])), "{nodes:?}");
        assert!(!arguments(&objects).iter().any(|argument| argument.starts_with("--workload-kubeconfig")));
        let bound = bindings_to_kubeconfigs(&objects);
        assert_eq!(bound, usize::from(granted.is_some()), "{nodes:?}");
    }
}

/// Returns the number of bindings of the Role for the kubeconfig's Secret.
fn bindings_to_kubeconfigs(objects: &[Value]) -> usize {
    names(objects, "RoleBinding").iter().filter(|name| name.ends_with("-kubeconfig")).count()
}

/// Returns the flags of a subcommand, its own and those that it shares, from the page that is generated from help
/// texts.
pub(crate) fn flags_of(command: &str) -> BTreeSet<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/flags.md")).unwrap();
    let sections = page.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    let sections = sections.filter(|(title, _)| title.contains(&format!("`{command}`")) || *title == "Shared by all");
    let lines = sections.flat_map(|(_, section)| section.lines());
    let cells = lines.filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    // Some have a short form before the long one.
    cells.map(|(flag, _)| flag.split(' ').find(|word| word.starts_with("--")).unwrap_or(flag).to_owned()).collect()
}

#[test]
fn the_preflight_checks_with_the_flags_of_serve_and_the_host_that_cluster_autoscaler_calls() {
    let values = by_secret().set("extraEnv", json!({ "HTTPS_PROXY": "http://proxy:3128" }));
    assert_eq!(pod(&render(&values))["initContainers"], Value::Null);
    let values = values.set("preflight", json!({ "enabled": true, "strict": true }));
    let spec = pod(&render(&values));
    let [check, serve] = [&spec["initContainers"][0], &spec["containers"][0]];
    for same in ["image", "env", "volumeMounts", "securityContext"] {
        assert!(!check[same].is_null());
        assert_eq!(check[same], serve[same], "{same}");
    }
    let [check, serve] = [check, serve].map(|of| serde_json::from_value::<Vec<String>>(of["args"].clone()).unwrap());
    assert_eq!(check[..3], ["check", "--server-name=capi-autoscaler-provider.team-a.svc", "--strict"]);
    assert_eq!(check[3..], serve[1..]);
    let known = flags_of("check");
    for argument in &check[1..] {
        assert!(known.contains(argument.split('=').next().unwrap()), "{argument} is no flag of check");
    }
}

/// Argo CD renders in this way too, and would make new certificates at each sync.
#[test]
fn certificates_of_helm_are_refused_without_a_cluster_to_look_them_up_in() {
    let helm = helm();
    let template = ["template", RELEASE, CHART, "--set=autoDiscovery.clusterName=prod"];
    let said = helm.fail(&template).unwrap();
    for remedy in ["set tls.certificates to cert-manager or existing", "with tls.allowHelmTemplate=true"] {
        assert!(said.contains(remedy), "{said}");
    }
    for reviewed in ["tls.allowHelmTemplate=true", "tls.certificates=cert-manager", "tls.enabled=false"] {
        helm.run(&[&template[..], &["--set", reviewed]].concat()).unwrap();
    }
}

#[test]
fn an_empty_pod_disruption_budget_is_the_default_null_is_none_and_a_single_replica_has_none() {
    let rows = [
        (base().set("podDisruptionBudget", json!({})), json!([{ "maxUnavailable": 1 }])),
        (base().set("podDisruptionBudget", Value::Null), json!([])),
        (base().set("replicaCount", json!(1)), json!([])),
        (
            base().set("podDisruptionBudget", json!({ "minAvailable": 1, "maxUnavailable": null })),
            json!([{ "minAvailable": 1 }]),
        ),
    ];
    for (values, expected) in rows {
        let objects = render(&values);
        let mut specs: Vec<_> = of_kind(&objects, "PodDisruptionBudget").iter().map(|it| it["spec"].clone()).collect();
        for spec in &mut specs {
            spec.as_object_mut().unwrap().remove("selector");
        }
        assert_eq!(json!(specs), expected, "{values:?}");
    }
}

/// The API server refuses a Deployment that has both.
#[test]
fn recreate_goes_without_the_default_rolling_update() {
    let strategy = |values: &Values| of_kind(&render(values), "Deployment")[0]["spec"]["strategy"].clone();
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    assert_eq!(strategy(&base()), rolling);
    let recreate = json!({ "type": "Recreate" });
    assert_eq!(strategy(&base().set("updateStrategy.type", json!("Recreate"))), recreate);
}

#[test]
fn chart_values_that_cannot_work_are_refused_with_the_remedy() {
    let rows = [
        (Values::new("team-a", json!({})), "set autoDiscovery.clusterName"),
        (Values::new("team-a", json!({ "autoDiscovery": { "allClusters": true } })), "set rbac.clusterScoped"),
        (base().set("autoDiscovery.specs", json!(["clusterapi:namespace=a"])), "leave out the others"),
        (
            Values::new("team-a", json!({ "autoDiscovery": { "specs": ["clusterapi:clusterName=a"] } })),
            "add namespace=",
        ),
        (
            Values::new("team-a", json!({ "autoDiscovery": { "specs": ["clusterapi:namespace=a,namespace=b"] } })),
            "takes the last: leave out the others",
        ),
        (
            by_secret()
                .set("clusterAPIKubeconfigSecret", json!("a"))
                .set("extraArgs.workload-nodes", json!("{cluster}-nodes")),
            "leave out workload-nodes",
        ),
        (base().set("extraArgs.workload-nodes_1", json!("none")), "leave out workload-nodes"),
        (by_secret().set("extraArgs.workload-nodes", json!("nodes")), "put {cluster} into it"),
        (base().set("extraEnv.CAPI_GROUP", json!("machine.openshift.io")), "set extraArgs.capi-group"),
        (base().set("extraEnvConfigMaps.CAPI_GROUP", json!({ "name": "a", "key": "b" })), "set extraArgs.capi-group"),
        (by_secret().set("autoDiscovery.labels", json!([{ "color": "green" }])), "and no labels"),
        (
            by_secret().set("rbac.clusterScoped", json!(true)),
            "set autoDiscovery.clusterName and autoDiscovery.namespace",
        ),
        (
            base().set("clusterAPIMode", json!("incluster-kubeconfig")),
            "name its Secret in clusterAPIManagementKubeconfigSecret",
        ),
        (base().set("clusterAPIMode", json!("single-kubeconfig")), "name its Secret in clusterAPIKubeconfigSecret"),
        (
            by_secret()
                .set("clusterAPIKubeconfigSecret", json!("a"))
                .set("clusterAPIWorkloadKubeconfigPath", json!("/etc/config")),
            "the path has to end in /value",
        ),
        (base().set("tls.certificates", json!("existing")), "tls.serverSecret"),
        (base().set("tls.clientAuthoritySecret", json!("a")), "set tls.certificates to cert-manager or existing"),
        (base().set("tls.clientNames", json!(["spiffe://cluster/autoscaler"])), "set tls.certificates to cert-manager"),
        (base().set("podDisruptionBudget.minAvailable", json!(1)), "the other to null"),
        (
            base().set("podDisruptionBudget", json!({ "maxUnavailable": null, "annotations": { "a": "b" } })),
            "set podDisruptionBudget itself to null for none",
        ),
        (base().set("fleet.groupMetrics", json!(true)), "set fleet.selector, such as autoscaler=fleet"),
        (
            base().set("metrics.prometheusRule", json!({ "enabled": true, "disabled": ["Absent"] })),
            "there is no alert Absent; there are CapiAutoscalerProviderAbsent, ",
        ),
    ];
    let helm = helm();
    for (values, remedy) in rows {
        let said = helm.refuse(&values).unwrap();
        assert!(said.contains(remedy), "{remedy:?} isn't said in: {said}");
    }
}
